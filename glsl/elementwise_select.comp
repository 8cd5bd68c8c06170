// y = a where the condition is not 0, else b, element for element: ElementWiseIf.
//
// Elements are moved as raw bits, those of 64 bits as twice 32, so no type needs more than its storage.
//
// Bindings: condition, a, b, output.
// Variants: T, the data type of the condition; U, the unsigned type of an element of the others, or of half of one; LANES.
// Constants: RANK 1, ITEMS 1 (items.glsl), CONDITION_MODE 0, A_MODE 0, B_MODE 0, OUTPUT_MODE 0 (lanes.glsl), LOCAL_SIZE_X.
// Parameters: those of items.glsl; each tensor's strides in elements for a step of one item in its dimensions, and for one
//   of one element in the innermost.
// Rules: "groups" with LANES > 1, "elements" with 1.

#include "items.glsl"
#include "lanes.glsl"

LANES_BUFFER(readonly, T, CONDITION, condition)
LANES_BUFFER(readonly, U, A, a)
LANES_BUFFER(readonly, U, B, b)
LANES_BUFFER(, U, OUTPUT, output)

#define VISIT(dimension, coordinate)                                  \
    condition_index += (coordinate) * p.condition_strides[dimension]; \
    a_index += (coordinate) * p.a_strides[dimension];                 \
    b_index += (coordinate) * p.b_strides[dimension];                 \
    output_index[i] += (coordinate) * p.output_strides[dimension];

void main() {
    if (beyond_items()) return;
    T_MATH condition[MOST_ITEMS][LANES];
    U_MATH a[MOST_ITEMS][LANES], b[MOST_ITEMS][LANES];
    uint output_index[MOST_ITEMS];
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        uint condition_index = 0, a_index = 0, b_index = 0;
        output_index[i] = 0;
        LOCATE(item_number(i))
        lanes[i] = lanes_here();
        if (LANES == 1 || lanes[i] == LANES) {
            LOAD_LANES(T, condition[i], CONDITION, condition, CONDITION_MODE, condition_index, p.condition_step)
            LOAD_LANES(U, a[i], A, a, A_MODE, a_index, p.a_step)
            LOAD_LANES(U, b[i], B, b, B_MODE, b_index, p.b_step)
        } else {
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < lanes[i]) {
                    condition[i][j] = T_MATH(ELEMENT(T, CONDITION, condition, condition_index + j * p.condition_step));
                    a[i][j] = U_MATH(ELEMENT(U, A, a, a_index + j * p.a_step));
                    b[i][j] = U_MATH(ELEMENT(U, B, b, b_index + j * p.b_step));
                }
        }
    }
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        if (!has_item(i)) continue;
        U_MATH y[LANES];
        [[unroll]] for (int j = 0; j < LANES; ++j) y[j] = condition[i][j] != T_MATH(0) ? a[i][j] : b[i][j];
        if (LANES == 1 || lanes[i] == LANES) {
            STORE_LANES(U, OUTPUT, output, OUTPUT_MODE, output_index[i], p.output_step, y)
        } else {
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < lanes[i]) ELEMENT(U, OUTPUT, output, output_index[i] + j * p.output_step) = U(y[j]);
        }
    }
}
