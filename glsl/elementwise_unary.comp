// y = f(g(x)), element for element: every unary operator, every activation, and copies.
//
// f is the operator OPERATION of unary.glsl. g(x) = x * scale + bias where HAS_SCALE_BIAS, else x.
//
// Bindings: input, output. They may be the same bytes: an invocation reads only what it writes.
// Variants: T, the data type; LANES, the elements that an invocation handles along the innermost dimension:
//   T_PER_WORD  a 16-byte word. The output is contiguous in the innermost dimension, the input contiguous (X_STEP 1)
//               or broadcast (X_STEP 0), and every row starts on a word. The rule "words": packed tensors are one row.
//   1           any strides. The rule "elements".
// Constants: OPERATION (none by default), HAS_SCALE_BIAS 0, RANK 1, X_STEP 1, LOCAL_SIZE_X.
// Parameters: count of items (groups of LANES elements); sizes of the index space, the innermost in items; inner_size,
//   the innermost in elements; strides in elements for a step of one item; scale and bias; the operator's parameters.

#include "dtype.glsl"
#include "tensor.glsl"
#include "unary.glsl"
#include "lanes.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer X { T x_elements[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) buffer Output { T output_elements[]; };
#if LANES > 1
layout(set = 0, binding = BINDING_X, std430) readonly buffer XWords { uvec4 x_words[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) buffer OutputWords { uvec4 output_words[]; };
#endif

T_MATH scaled(T_MATH x) {
    if (HAS_SCALE_BIAS == 0u) return x;
#if defined(T_IS_FLOAT64)
    return x * T_MATH(p.scale) + T_MATH(p.bias);
#else
    precise float result = float(x) * p.scale + p.bias;
    return from_float(result);
#endif
}

void main() {
    if (beyond(p.count)) return;
    uint x_index = 0, output_index = 0, inner = 0;
#define VISIT(dimension, coordinate)                              \
    x_index += (coordinate) * p.x_strides[dimension];             \
    output_index += (coordinate) * p.output_strides[dimension];   \
    inner = int(dimension) == int(RANK) - 1 ? (coordinate) : inner;
    FOR_EACH_COORDINATE(linear_invocation(), RANK, p.sizes, VISIT)

    const uint lanes = min(p.inner_size - inner * LANES, LANES);
    const T_MATH param0 = scalar(p.param0[0], p.param0[1]);
    const T_MATH param1 = scalar(p.param1[0], p.param1[1]);
    T_MATH x[LANES], y[LANES];
    LOAD_LANES(x, x, X, X_STEP, x_index, lanes)
    [[unroll]] for (int i = 0; i < LANES; ++i) y[i] = unary(OPERATION, scaled(x[i]), param0, param1);
    STORE_LANES(output, OUTPUT, output_index, lanes, y)
}
