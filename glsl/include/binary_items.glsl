// The program of a pointwise kernel with the inputs a and b, of type T, and an output of type U, which defines
//   BINARY(a, b)   what it computes
//
// It has the constants of items.glsl, A_MODE, B_MODE and OUTPUT_MODE (lanes.glsl), and the parameters of items.glsl and
// each tensor's strides in elements for a step of one item in its dimensions, and for one of one element in the innermost.

#ifndef DMLVK_BINARY_ITEMS_GLSL
#define DMLVK_BINARY_ITEMS_GLSL

#include "items.glsl"
#include "lanes.glsl"

LANES_BUFFER(readonly, T, A, a)
LANES_BUFFER(readonly, T, B, b)
LANES_BUFFER(, U, OUTPUT, output)

#define VISIT(dimension, coordinate)                                      \
    a_index += (coordinate) * STEP_OF(A, a, dimension);                   \
    b_index += (coordinate) * STEP_OF(B, b, dimension);                   \
    output_index[i] += (coordinate) * STEP_OF(OUTPUT, output, dimension);
#define NEXT_RUN       \
    a_first = a_index; \
    b_first = b_index; \
    a_index = 0;       \
    b_index = 0;

void main() {
    if (beyond_items()) return;
    T_MATH a[MOST_ITEMS][LANES], b[MOST_ITEMS][LANES];
    uint output_index[MOST_ITEMS];
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        uint a_index = 0, b_index = 0;
        output_index[i] = 0;
#if LANES > 1
        if (RUNS != 0u) {
            uint a_first = 0, b_first = 0;
            LOCATE_RUNS(i)
            output_index[i] = element;
            LOAD_RUNS(A, a)
            LOAD_RUNS(B, b)
            continue;
        }
#endif
        LOCATE(item_number(i))
        lanes[i] = lanes_here();
        if (LANES == 1 || lanes[i] == LANES) {
            LOAD_LANES(T, a[i], A, a, A_MODE, a_index, p.a_step)
            LOAD_LANES(T, b[i], B, b, B_MODE, b_index, p.b_step)
        } else {
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < lanes[i]) {
                    a[i][j] = T_MATH(ELEMENT(T, A, a, a_index + j * p.a_step));
                    b[i][j] = T_MATH(ELEMENT(T, B, b, b_index + j * p.b_step));
                }
        }
    }
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        if (!has_item(i)) continue;
        U_MATH y[LANES];
        [[unroll]] for (int j = 0; j < LANES; ++j) y[j] = BINARY(a[i][j], b[i][j]);
        if (LANES == 1 || lanes[i] == LANES) {
            STORE_LANES(U, OUTPUT, output, OUTPUT_MODE, output_index[i], p.output_step, y)
        } else {
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < lanes[i]) ELEMENT(U, OUTPUT, output, output_index[i] + j * p.output_step) = U(y[j]);
        }
    }
}

#endif
