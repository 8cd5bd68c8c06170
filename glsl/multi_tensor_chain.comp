// y_t = the same chain of pointwise operators for each of up to TENSORS tensors, as an optimiser's step has it for all of a
// network's parameters. A workgroup treats neighbouring elements of one of them. The operations are those of chain.glsl.
//
// Bindings: of each tensor t its inputs x<t>_0 to x<t>_<INPUTS - 1>, then y<t>. An output may be the bytes of an
//   input of its own tensor: an invocation reads only what it writes. Those of tensors past p.tensors are not touched.
// Variants: T, the data type of all; LANES, a group of them. INPUTS and TENSORS are of the manifest's row.
// Constants: those of chain.glsl; BROADCAST 0, whose bit i is set where input i is one element for all; LOCAL_SIZE_X.
// Parameters: tensors, how many there are; counts, their elements; ends, the workgroups of each with all before it; those of
//   chain.glsl.
// Rule: "together".

#include "chain.glsl"
#include "lanes.glsl"
#include "tensor.glsl"

// (The preprocessor has no loops: DO once for each input, and for each tensor.)
#define EACH_INPUT_1(DO, t) DO(t, 0)
#define EACH_INPUT_2(DO, t) EACH_INPUT_1(DO, t) DO(t, 1)
#define EACH_INPUT_3(DO, t) EACH_INPUT_2(DO, t) DO(t, 2)
#define EACH_INPUT_4(DO, t) EACH_INPUT_3(DO, t) DO(t, 3)
#define EACH_INPUT_5(DO, t) EACH_INPUT_4(DO, t) DO(t, 4)
#define EACH_INPUT_6(DO, t) EACH_INPUT_5(DO, t) DO(t, 5)
#if INPUTS == 1
#define EACH_INPUT EACH_INPUT_1
#define EACH_TENSOR(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14)
#elif INPUTS == 2
#define EACH_INPUT EACH_INPUT_2
#define EACH_TENSOR(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9)
#elif INPUTS == 3
#define EACH_INPUT EACH_INPUT_3
#define EACH_TENSOR(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6)
#elif INPUTS == 4
#define EACH_INPUT EACH_INPUT_4
#define EACH_TENSOR(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5)
#elif INPUTS == 5
#define EACH_INPUT EACH_INPUT_5
#define EACH_TENSOR(DO) DO(0) DO(1) DO(2) DO(3) DO(4)
#else
#define EACH_INPUT EACH_INPUT_6
#define EACH_TENSOR(DO) DO(0) DO(1) DO(2) DO(3)
#endif

// (Names are put together here and in no argument, where glslang does not do it.)
#define INPUT_BUFFER(t, i)                                                                                                   \
    layout(set = 0, binding = BINDING_X##t##_##i, std430) readonly buffer X##t##_##i##Elements { T x##t##_##i##_elements[]; }; \
    layout(set = 0, binding = BINDING_X##t##_##i, std430) readonly buffer X##t##_##i##Groups { T_GROUP x##t##_##i##_groups[]; };
#define OUTPUT_BUFFER(t)                                                                            \
    layout(set = 0, binding = BINDING_Y##t, std430) buffer Y##t##Elements { T y##t##_elements[]; }; \
    layout(set = 0, binding = BINDING_Y##t, std430) buffer Y##t##Groups { T_GROUP y##t##_groups[]; };
#define TENSOR_BUFFERS(t)       \
    EACH_INPUT(INPUT_BUFFER, t) \
    OUTPUT_BUFFER(t)
EACH_TENSOR(TENSOR_BUFFERS)

uint element, lanes;
T_MATH x[6][LANES], y[LANES];

bool is_broadcast(uint i) { return (BROADCAST >> i & 1u) != 0u; }
bool has_all_lanes() { return lanes == LANES; }

#define X_ELEMENT(t, i, index) T_MATH(x##t##_##i##_elements[BYTE_OFFSET_X##t##_##i / T_BYTES + (index)])
#define LOAD_GROUP(t, i)                                                                             \
    uint words[LANES * T_BYTES / 4];                                                                 \
    const uint at = (BYTE_OFFSET_X##t##_##i / T_BYTES + element) / (LANES / groups_T);               \
    [[unroll]] for (int g = 0; g < groups_T; ++g) put_group_T(words, g, x##t##_##i##_groups[at + g]); \
    unpack_T(words, x[i]);
#define STORE_GROUP(t)                                                                              \
    const uint words[LANES * T_BYTES / 4] = pack_T(y);                                              \
    const uint at = (BYTE_OFFSET_Y##t / T_BYTES + element) / (LANES / groups_T);                    \
    [[unroll]] for (int g = 0; g < groups_T; ++g) y##t##_groups[at + g] = get_group_T(words, g);
#define LOAD_INPUT(t, i)                                                           \
    if (has_all_lanes() && !is_broadcast(i)) {                                     \
        LOAD_GROUP(t, i)                                                           \
    } else {                                                                       \
        [[unroll]] for (uint j = 0; j < LANES; ++j)                                \
            if (j < lanes) x[i][j] = X_ELEMENT(t, i, is_broadcast(i) ? 0u : element + j); \
    }
#define LOAD_TENSOR(t) \
    if (tensor == t) { EACH_INPUT(LOAD_INPUT, t) }
#define STORE_TENSOR(t)                                                                                  \
    if (tensor == t) {                                                                                   \
        if (has_all_lanes()) {                                                                           \
            STORE_GROUP(t)                                                                               \
        } else {                                                                                         \
            [[unroll]] for (uint j = 0; j < LANES; ++j)                                                  \
                if (j < lanes) y##t##_elements[BYTE_OFFSET_Y##t / T_BYTES + element + j] = T(y[j]);      \
        }                                                                                                \
    }

void main() {
    const uint workgroup = linear_workgroup();
    uint tensor = 0;
    while (tensor < p.tensors && workgroup >= p.ends[tensor]) ++tensor;
    if (tensor == p.tensors) return;
    const uint before = tensor == 0u ? 0u : p.ends[tensor - 1u];
    element = ((workgroup - before) * gl_WorkGroupSize.x + gl_LocalInvocationID.x) * LANES;
    if (element >= p.counts[tensor]) return;
    lanes = min(p.counts[tensor] - element, LANES);
    EACH_TENSOR(LOAD_TENSOR)
    [[unroll]] for (int j = 0; j < LANES; ++j) y[j] = chain(x[0][j], x[1][j], x[2][j], x[3][j], x[4][j], x[5][j]);
    EACH_TENSOR(STORE_TENSOR)
}
