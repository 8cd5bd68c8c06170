// y = f(g(x)), element for element: every unary operator, every activation and casts.
//
// f is the operator OPERATION of unary.glsl. g(x) = x * scale + bias where HAS_SCALE_BIAS, else x.
//
// Bindings: x, output. They may be the same bytes: an invocation reads only what it writes.
// Variants: T, U, the data types of x and output; LANES.
// Constants: OPERATION (none by default), HAS_SCALE_BIAS 0, RANK 1, ITEMS 1, RUNS 0 (items.glsl), X_MODE 0, OUTPUT_MODE 0
//   (lanes.glsl), LOCAL_SIZE_X.
// Parameters: of the items (items.glsl); each tensor's strides in elements for a step of one item in its dimensions, and for
//   one of one element in the innermost; scale and bias; the operator's parameters.
// Rules: "groups" and "runs" (RUNS 1) with LANES > 1, "elements" with 1.

#include "items.glsl"
#include "lanes.glsl"
#include "unary.glsl"

LANES_BUFFER(readonly, T, X, x)
LANES_BUFFER(, U, OUTPUT, output)

#define VISIT(dimension, coordinate)                                      \
    x_index += (coordinate) * STEP_OF(X, x, dimension);                   \
    output_index[i] += (coordinate) * STEP_OF(OUTPUT, output, dimension);
#define NEXT_RUN     \
    first = x_index; \
    x_index = 0;

void main() {
    if (beyond_items()) return;
    T_MATH x[MOST_ITEMS][LANES];
    uint output_index[MOST_ITEMS];
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        uint x_index = 0;
        output_index[i] = 0;
#if LANES > 1
        if (RUNS != 0u) {
            uint first = 0;
            LOCATE_RUNS(i)
            output_index[i] = element;
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < lanes[i])
                    x[i][j] = T_MATH(ELEMENT(T, X, x, (j < left ? first + j * p.x_step : x_index + (j - left) * p.x_step)));
            continue;
        }
#endif
        LOCATE(item_number(i))
        lanes[i] = lanes_here();
        if (LANES == 1 || lanes[i] == LANES) {
            LOAD_LANES(T, x[i], X, x, X_MODE, x_index, p.x_step)
        } else {
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < lanes[i]) x[i][j] = T_MATH(ELEMENT(T, X, x, x_index + j * p.x_step));
        }
    }
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        if (!has_item(i)) continue;
        U_MATH y[LANES];
        [[unroll]] for (int j = 0; j < LANES; ++j) y[j] = UNARY(x[i][j]);
        if (LANES == 1 || lanes[i] == LANES) {
            STORE_LANES(U, OUTPUT, output, OUTPUT_MODE, output_index[i], p.output_step, y)
        } else {
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < lanes[i]) ELEMENT(U, OUTPUT, output, output_index[i] + j * p.output_step) = U(y[j]);
        }
    }
}
