// y = f(g(x)), element for element: every unary operator, every activation, and copies.
//
// f is the operator OPERATION of unary.glsl. g(x) = x * scale + bias where HAS_SCALE_BIAS, else x.
//
// Bindings: input, output. They may be the same bytes: an invocation reads only what it writes.
// Variants: T, the data type; LANES, the elements that an invocation handles along the innermost dimension:
//   T_PER_WORD  a 16-byte word, and one by one what is left of a row. The output is contiguous in the innermost
//               dimension, the input contiguous (X_STEP 1) or broadcast (X_STEP 0), and every row starts on a word. The
//               rule "words": packed tensors are one row.
//   1           any strides. The rule "elements".
// Constants: OPERATION (none by default), HAS_SCALE_BIAS 0, RANK 1, X_STEP 1, LOCAL_SIZE_X.
// Parameters: count of items (groups of LANES elements); sizes of the index space, the innermost in items; inner_size,
//   the innermost in elements; strides in elements for a step of one item; scale and bias; the operator's parameters.

#include "tensor.glsl"
#include "unary.glsl"
#include "word.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer X { T x_elements[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) buffer Output { T output_elements[]; };
#if LANES > 1
layout(set = 0, binding = BINDING_X, std430) readonly buffer XWords { uvec4 x_words[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) buffer OutputWords { uvec4 output_words[]; };
#endif

void main() {
    if (beyond(p.count)) return;
    uint x_index = 0, output_index = 0, inner = 0;
#define VISIT(dimension, coordinate)                              \
    x_index += (coordinate) * p.x_strides[dimension];             \
    output_index += (coordinate) * p.output_strides[dimension];   \
    inner = int(dimension) == int(RANK) - 1 ? (coordinate) : inner;
    FOR_EACH_COORDINATE(linear_invocation(), RANK, p.sizes, VISIT)

    const uint lanes = min(p.inner_size - inner * LANES, LANES);
#if LANES > 1
    if (lanes == LANES) {
        T_MATH x[LANES], y[LANES];
        LOAD_WORD(x, x, X, X_STEP, x_index)
        [[unroll]] for (int i = 0; i < LANES; ++i) y[i] = UNARY(x[i]);
        STORE_WORD(output, OUTPUT, output_index, y)
        return;
    }
#endif
    x_index += BYTE_OFFSET_X / T_BYTES;
    output_index += BYTE_OFFSET_OUTPUT / T_BYTES;
    [[dont_unroll]] for (uint i = 0; i < lanes; ++i)
        output_elements[output_index + i] = T(UNARY(T_MATH(x_elements[x_index + i * X_STEP])));
}
