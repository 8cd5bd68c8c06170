// Multiply-adds of cooperative matrices in registers: what the device reaches without memory. No operator; for
// dmlvk_bench.ceilings.
//
//   sums[i] = a * b[i] + sums[i], rounds * STEPS times; Y has the sum over i for each subgroup
//
// Bindings: Y, MAT_M x MAT_N numbers of SUM for each subgroup.
// Macros: FACTOR (float16_t, int8_t) and SUM (float, int).
// Constants: LOCAL_SIZE_X (256), whole subgroups; MAT_M, MAT_N, MAT_K, a shape that the device multiplies; SUMS (4) independent
// ones of a subgroup, which hide the latency of one; STEPS (16), unrolled. On an H200 628 TFLOP/s of float16, 576 with 4 STEPS, and
// 424 with 2 x 2 sums of two factors each.
// Parameters: rounds; factor, unknown to the compiler, so that nothing is folded.

#pragma use_vulkan_memory_model

#include "tensor.glsl"

layout(set = 0, binding = BINDING_Y, scalar) writeonly buffer Y { SUM y[]; };

#define MATRIX_A coopmat<FACTOR, gl_ScopeSubgroup, MAT_M, MAT_K, gl_MatrixUseA>
#define MATRIX_B coopmat<FACTOR, gl_ScopeSubgroup, MAT_K, MAT_N, gl_MatrixUseB>
#define MATRIX_SUMS coopmat<SUM, gl_ScopeSubgroup, MAT_M, MAT_N, gl_MatrixUseAccumulator>

void main() {
    const MATRIX_A a = MATRIX_A(FACTOR(p.factor));
    MATRIX_B b[SUMS];
    MATRIX_SUMS sums[SUMS];
    [[unroll]] for (uint i = 0; i < SUMS; ++i) b[i] = MATRIX_B(FACTOR(p.factor + i));
    [[unroll]] for (uint i = 0; i < SUMS; ++i) sums[i] = MATRIX_SUMS(0);
    for (uint round = 0; round < p.rounds; ++round)
        [[unroll]] for (uint step = 0; step < STEPS; ++step)
            [[unroll]] for (uint i = 0; i < SUMS; ++i) sums[i] = coopMatMulAdd(a, b[i], sums[i]);
    MATRIX_SUMS sum = MATRIX_SUMS(0);
    [[unroll]] for (uint i = 0; i < SUMS; ++i) sum += sums[i];
    const uint subgroup = linear_workgroup() * gl_NumSubgroups + gl_SubgroupID;
    coopMatStore(sum, y, BYTE_OFFSET_Y / 4 + subgroup * MAT_M * MAT_N, MAT_N, gl_CooperativeMatrixLayoutRowMajor);
}
