// The sums that a subgroup keeps in cooperative matrices, and their way out through shared memory.
//
// The subgroup has a block of SUB_M rows by SUB_N columns, in matrices of MAT_M x MAT_N. The includer has SUBGROUPS, those of a
// workgroup, and SIZE_TILES, the words of 16 bytes of `tiles`, shared memory that it fills before the sums are finished.
//
// For other factors than float16 it also defines FACTOR, their type, and SUM_TYPE, of 32 bits; SIZE_STORED is the words in which a
// subgroup hands over sums in a way of the includer's. Sums of integers are read by sum_bits_at.

#ifndef DMLVK_COOPERATIVE_SUMS_GLSL
#define DMLVK_COOPERATIVE_SUMS_GLSL

#ifndef FACTOR
#define FACTOR float16_t
#define SUM_TYPE float
#endif

#define MATRIX_A coopmat<FACTOR, gl_ScopeSubgroup, MAT_M, MAT_K, gl_MatrixUseA>
#define MATRIX_B coopmat<FACTOR, gl_ScopeSubgroup, MAT_K, MAT_N, gl_MatrixUseB>
#define MATRIX_SUMS coopmat<SUM_TYPE, gl_ScopeSubgroup, MAT_M, MAT_N, gl_MatrixUseAccumulator>

const uint BLOCKS_M = SUB_M / MAT_M;
const uint BLOCKS_N = SUB_N / MAT_N;

// When the sums are finished each subgroup turns MAT_M rows of its block through shared memory: SUB_N numbers and a word of padding.
const uint PITCH_SUMS = SUB_N / 4 + 1;
const uint SIZE_SUMS = MAT_M * PITCH_SUMS;

#ifndef SIZE_STORED
#define SIZE_STORED SIZE_SUMS
#endif
shared uvec4 tiles[SIZE_TILES > SUBGROUPS * SIZE_STORED ? SIZE_TILES : SUBGROUPS * SIZE_STORED];

MATRIX_SUMS sums[BLOCKS_M][BLOCKS_N];

// Hands the finished sums of MAT_M rows of the subgroup's block over through shared memory, for i < BLOCKS_M: row m and columns n to
// n + 3 of them are then sums_at(m, n / 4).
void share_sums(uint i) {
    const uint start = gl_SubgroupID * SIZE_SUMS;
    [[unroll]] for (uint j = 0; j < BLOCKS_N; ++j)
        coopMatStore(sums[i][j], tiles, start + j * MAT_N / 4, PITCH_SUMS, gl_CooperativeMatrixLayoutRowMajor);
}

// The other way: sums begin with what lies there.
void take_sums(uint i) {
    const uint start = gl_SubgroupID * SIZE_SUMS;
    [[unroll]] for (uint j = 0; j < BLOCKS_N; ++j)
        coopMatLoad(sums[i][j], tiles, start + j * MAT_N / 4, PITCH_SUMS, gl_CooperativeMatrixLayoutRowMajor);
}

uvec4 sum_bits_at(uint m, uint word) { return tiles[gl_SubgroupID * SIZE_SUMS + m * PITCH_SUMS + word]; }
vec4 sums_at(uint m, uint word) { return uintBitsToFloat(sum_bits_at(m, word)); }

#endif
