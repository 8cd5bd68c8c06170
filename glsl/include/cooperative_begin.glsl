// Sums of cooperative matrices that begin with an addend: after gemm_quads.glsl and cooperative_sums.glsl, for a variant ADDS of 1.
//
// The includer has first_m and first_n, where its tile begins, SUBGROUPS_N, and addend_start.

#ifndef DMLVK_COOPERATIVE_BEGIN_GLSL
#define DMLVK_COOPERATIVE_BEGIN_GLSL

#if ADDS
// Quads of outputs that an invocation has of MAT_M rows of a subgroup's block.
const uint QUADS = MAT_M * SUB_N / 4;
const uint QUAD_SHARE = (QUADS * SUBGROUPS + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;

// Sums begin with the addend: all loads wait for memory once.
void begin_sums() {
    const uint block_m = first_m + gl_SubgroupID / SUBGROUPS_N * SUB_M;
    const uint block_n = first_n + gl_SubgroupID % SUBGROUPS_N * SUB_N;
    RESULT_QUAD more[BLOCKS_M][QUAD_SHARE];
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) {
        [[unroll]] for (uint s = 0; s < QUAD_SHARE; ++s) {
            const uint e = s * gl_SubgroupSize + gl_SubgroupInvocationID;
            more[i][s] = load_addends(block_m + i * MAT_M + e / (SUB_N / 4), block_n + e % (SUB_N / 4) * 4);
        }
    }
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) {
        [[unroll]] for (uint s = 0; s < QUAD_SHARE; ++s) {
            const uint e = s * gl_SubgroupSize + gl_SubgroupInvocationID;
            const uint at = gl_SubgroupID * SIZE_SUMS + e / (SUB_N / 4) * PITCH_SUMS + e % (SUB_N / 4);
            if (e < QUADS) tiles[at] = floatBitsToUint(unpack_results(more[i][s]));
        }
        subgroupMemoryBarrierShared();
        subgroupBarrier();
        take_sums(i);
        subgroupMemoryBarrierShared();
        subgroupBarrier();
    }
    barrier();
}
#endif

#endif
