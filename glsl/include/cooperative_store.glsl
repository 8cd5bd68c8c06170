// The finished sums of cooperative_tile.glsl to Y, or with PARTIAL to temporary memory: after gemm_quads.glsl and that file.
//
// The includer has first_m and first_n, where its tile begins, and the constant PARTIAL, with the parameters of a split product.
//
// STORE_TILE is a macro for the body of main: as a function, an H200's driver kept all sums in local memory from the first product on.

#ifndef DMLVK_COOPERATIVE_STORE_GLSL
#define DMLVK_COOPERATIVE_STORE_GLSL

layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Partials { vec4 partials[]; };

#define STORE_TILE(outer, inner, matrix, split)                                                \
    {                                                                                          \
        const uint block_m = first_m + gl_SubgroupID / SUBGROUPS_N * SUB_M;                    \
        const uint block_n = first_n + gl_SubgroupID % SUBGROUPS_N * SUB_N;                    \
        const uint quads = SUB_N / 4;                                                          \
        [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) {                                       \
            share_sums(i);                                                                     \
            subgroupMemoryBarrierShared();                                                     \
            subgroupBarrier();                                                                 \
            for (uint e = gl_SubgroupInvocationID; e < MAT_M * quads; e += gl_SubgroupSize) {  \
                const uint m = block_m + i * MAT_M + e / quads;                                \
                const uint n = block_n + e % quads * 4;                                        \
                const vec4 sum = sums_at(e / quads, e % quads);                                \
                if (PARTIAL == 0) {                                                            \
                    store_quad(outer, inner, m, n, sum);                                       \
                } else if (m < p.rows && n < p.columns) {                                      \
                    const uint row = (split * p.matrices + matrix) * p.rows + m;               \
                    partials[BYTE_OFFSET_Y / 16 + row * (p.partial_pitch / 4) + n / 4] = sum;  \
                }                                                                              \
            }                                                                                  \
            subgroupBarrier();                                                                 \
        }                                                                                      \
    }

#endif
