// y = activation(f(a, b)), element for element: every binary operator.
//
// f is the operator OPERATION of binary.glsl, activation that of activation.glsl (none by default).
//
// Bindings: a, b, output. The output may be the bytes of a or of b: an invocation reads only what it writes.
// Variants: T, the data type; LANES, the elements that an invocation handles along the innermost dimension:
//   T_PER_WORD  a 16-byte word, and one by one what is left of a row. The output is contiguous in the innermost
//               dimension, each input contiguous (A_STEP, B_STEP 1) or broadcast (0), and every row starts on a word. The
//               rule "words": packed tensors are one row.
//   1           any strides. The rule "elements".
// Constants: OPERATION (none by default), ACTIVATION 0, RANK 1, A_STEP 1, B_STEP 1, LOCAL_SIZE_X.
// Parameters: count of items (groups of LANES elements); sizes of the index space, the innermost in items; inner_size,
//   the innermost in elements; strides in elements for a step of one item; the activation's parameters.

#include "tensor.glsl"
#include "activation.glsl"
#include "binary.glsl"
#include "word.glsl"

layout(set = 0, binding = BINDING_A, std430) readonly buffer A { T a_elements[]; };
layout(set = 0, binding = BINDING_B, std430) readonly buffer B { T b_elements[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) buffer Output { T output_elements[]; };
#if LANES > 1
layout(set = 0, binding = BINDING_A, std430) readonly buffer AWords { uvec4 a_words[]; };
layout(set = 0, binding = BINDING_B, std430) readonly buffer BWords { uvec4 b_words[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) buffer OutputWords { uvec4 output_words[]; };
#endif

T_MATH value(T_MATH a, T_MATH b) {
#if T_IS_FLOAT
    return activate(ACTIVATION, binary(OPERATION, a, b), p.param0, p.param1);
#else
    return binary(OPERATION, a, b);
#endif
}

void main() {
    if (beyond(p.count)) return;
    uint a_index = 0, b_index = 0, output_index = 0, inner = 0;
#define VISIT(dimension, coordinate)                              \
    a_index += (coordinate) * p.a_strides[dimension];             \
    b_index += (coordinate) * p.b_strides[dimension];             \
    output_index += (coordinate) * p.output_strides[dimension];   \
    inner = int(dimension) == int(RANK) - 1 ? (coordinate) : inner;
    FOR_EACH_COORDINATE(linear_invocation(), RANK, p.sizes, VISIT)

    const uint lanes = min(p.inner_size - inner * LANES, LANES);
#if LANES > 1
    if (lanes == LANES) {
        T_MATH a[LANES], b[LANES], y[LANES];
        LOAD_WORD(a, a, A, A_STEP, a_index)
        LOAD_WORD(b, b, B, B_STEP, b_index)
        [[unroll]] for (int i = 0; i < LANES; ++i) y[i] = value(a[i], b[i]);
        STORE_WORD(output, OUTPUT, output_index, y)
        return;
    }
#endif
    a_index += BYTE_OFFSET_A / T_BYTES;
    b_index += BYTE_OFFSET_B / T_BYTES;
    output_index += BYTE_OFFSET_OUTPUT / T_BYTES;
    [[dont_unroll]] for (uint i = 0; i < lanes; ++i)
        output_elements[output_index + i] =
            T(value(T_MATH(a_elements[a_index + i * A_STEP]), T_MATH(b_elements[b_index + i * B_STEP])));
}
