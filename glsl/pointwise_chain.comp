// y = a chain of pointwise operators of up to six inputs, element for element: what lies between them stays in registers.
//
// The operations are those of chain.glsl.
//
// Bindings: x0 to x5, of which the first INPUTS are read, output. The output may be the bytes of any: an invocation reads only
//   what it writes.
// Variants: T, the data type of the inputs, and R, that of the output: the same, or UINT16 for the bits of what a chain of
//   FLOAT32 rounds to BFLOAT16 in the end; LANES.
// Constants: INPUTS 1, those of chain.glsl, RANK 1, ITEMS 1, RUNS 0 (items.glsl), X0_MODE to
//   X5_MODE 0, OUTPUT_MODE 0 (lanes.glsl), LOCAL_SIZE_X.
// Parameters: of the items (items.glsl); each tensor's strides in elements for a step of one item in its dimensions, and for
//   one of one element in the innermost; those of chain.glsl.
// Rules: "groups" and "runs" (RUNS 1) with LANES > 1, "elements" with 1.

#include "chain.glsl"
#include "items.glsl"
#include "lanes.glsl"

LANES_BUFFER(readonly, T, X0, x0)
LANES_BUFFER(readonly, T, X1, x1)
LANES_BUFFER(readonly, T, X2, x2)
LANES_BUFFER(readonly, T, X3, x3)
LANES_BUFFER(readonly, T, X4, x4)
LANES_BUFFER(readonly, T, X5, x5)
LANES_BUFFER(, R, OUTPUT, output)

#if R_IS_FLOAT
#define RESULT(x) x
#else
#define RESULT(x) (floatBitsToUint(x) >> 16)
#endif

#define EACH_INPUT(DO)              \
    DO(X0, x0)                      \
    if (INPUTS > 1u) { DO(X1, x1) } \
    if (INPUTS > 2u) { DO(X2, x2) } \
    if (INPUTS > 3u) { DO(X3, x3) } \
    if (INPUTS > 4u) { DO(X4, x4) } \
    if (INPUTS > 5u) { DO(X5, x5) }
#define LOAD_GROUP(NAME, name) LOAD_LANES(T, name[i], NAME, name, NAME##_MODE, name##_index, p.name##_step)
#define LOAD_REST(NAME, name) name[i][j] = T_MATH(ELEMENT(T, NAME, name, name##_index + j * p.name##_step));
#define BEGIN_SECOND(NAME, name) \
    name##_first = name##_index; \
    name##_index = 0;

#define VISIT(dimension, coordinate)                                      \
    x0_index += (coordinate) * STEP_OF(X0, x0, dimension);                \
    x1_index += (coordinate) * STEP_OF(X1, x1, dimension);                \
    x2_index += (coordinate) * STEP_OF(X2, x2, dimension);                \
    x3_index += (coordinate) * STEP_OF(X3, x3, dimension);                \
    x4_index += (coordinate) * STEP_OF(X4, x4, dimension);                \
    x5_index += (coordinate) * STEP_OF(X5, x5, dimension);                \
    output_index[i] += (coordinate) * STEP_OF(OUTPUT, output, dimension);
#define NEXT_RUN EACH_INPUT(BEGIN_SECOND)

void main() {
    if (beyond_items()) return;
    T_MATH x0[MOST_ITEMS][LANES], x1[MOST_ITEMS][LANES], x2[MOST_ITEMS][LANES], x3[MOST_ITEMS][LANES],
        x4[MOST_ITEMS][LANES], x5[MOST_ITEMS][LANES];
    uint output_index[MOST_ITEMS];
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        uint x0_index = 0, x1_index = 0, x2_index = 0, x3_index = 0, x4_index = 0, x5_index = 0;
        output_index[i] = 0;
#if LANES > 1
        if (RUNS != 0u) {
            uint x0_first = 0, x1_first = 0, x2_first = 0, x3_first = 0, x4_first = 0, x5_first = 0;
            LOCATE_RUNS(i)
            output_index[i] = element;
            EACH_INPUT(LOAD_RUNS)
            continue;
        }
#endif
        LOCATE(item_number(i))
        lanes[i] = lanes_here();
        if (LANES == 1 || lanes[i] == LANES) {
            EACH_INPUT(LOAD_GROUP)
        } else {
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < lanes[i]) { EACH_INPUT(LOAD_REST) }
        }
    }
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        if (!has_item(i)) continue;
        R_MATH y[LANES];
        [[unroll]] for (int j = 0; j < LANES; ++j)
            y[j] = RESULT(chain(x0[i][j], x1[i][j], x2[i][j], x3[i][j], x4[i][j], x5[i][j]));
        if (LANES == 1 || lanes[i] == LANES) {
            STORE_LANES(R, OUTPUT, output, OUTPUT_MODE, output_index[i], p.output_step, y)
        } else {
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < lanes[i]) ELEMENT(R, OUTPUT, output, output_index[i] + j * p.output_step) = R(y[j]);
        }
    }
}
