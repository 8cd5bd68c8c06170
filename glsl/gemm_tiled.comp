// Matrix product, tile by tile through shared memory, a block of outputs in each invocation's registers.
//
//   y = activation(alpha * sum over k of a[m, k] * b[k, n] + beta * c[m, n])
//
// Bindings: A, B, C, Y; see include/gemm.glsl.
// Constants: LOCAL_SIZE_X by LOCAL_SIZE_Y invocations (16 by 8), each with THREAD_M (4) rows of THREAD_N (4) columns, so
// that a workgroup computes TILE_M = LOCAL_SIZE_Y * THREAD_M rows by TILE_N = LOCAL_SIZE_X * THREAD_N columns; TILE_K
// (16) of the depth are staged at a time. A_ALONG_K (1) and B_ALONG_K (0) say along which dimension neighbouring
// invocations read while staging: the one with the smaller stride. HAS_C (1), the activation's id.
// Grid: x over tiles of columns, y over tiles of rows, z over the batch.
//
// FLOAT16 operands are staged as float32, so both types sum in float32. An invocation's columns are LOCAL_SIZE_X apart,
// so neighbours read neighbouring words of shared memory and store neighbouring outputs.
// Chosen where the product has rows and columns enough to fill a tile.

#include "gemm.glsl"

const uint INVOCATIONS = LOCAL_SIZE_X * LOCAL_SIZE_Y;
const uint TILE_M = LOCAL_SIZE_Y * THREAD_M;
const uint TILE_N = LOCAL_SIZE_X * THREAD_N;
// Four words of padding keep rows aligned to 16 bytes and spread a column over the banks.
const uint ROW_M = TILE_M + 4;
const uint ROW_N = TILE_N + 4;

shared float tile_a[TILE_K * ROW_M];
shared float tile_b[TILE_K * ROW_N];

void main() {
    const uint outer = gl_WorkGroupID.z / p.inner_batch;
    const uint inner = gl_WorkGroupID.z - outer * p.inner_batch;
    const uint first_m = gl_WorkGroupID.y * TILE_M;
    const uint first_n = gl_WorkGroupID.x * TILE_N;
    const uint a_start = matrix_start(outer, inner, p.a_strides);
    const uint b_start = matrix_start(outer, inner, p.b_strides);

    float sums[THREAD_M][THREAD_N];
    [[unroll]] for (uint i = 0; i < THREAD_M; ++i)
        [[unroll]] for (uint j = 0; j < THREAD_N; ++j) sums[i][j] = 0.0;

    for (uint first_k = 0; first_k < p.depth; first_k += TILE_K) {
        barrier();
        for (uint e = gl_LocalInvocationIndex; e < TILE_K * TILE_M; e += INVOCATIONS) {
            const uint k = A_ALONG_K != 0 ? e % TILE_K : e / TILE_M;
            const uint m = A_ALONG_K != 0 ? e / TILE_K : e % TILE_M;
            float value = 0.0;
            if (first_k + k < p.depth && first_m + m < p.rows)
                value = load_a(a_start + (first_m + m) * p.a_strides[2] + (first_k + k) * p.a_strides[3]);
            tile_a[k * ROW_M + m] = value;
        }
        for (uint e = gl_LocalInvocationIndex; e < TILE_K * TILE_N; e += INVOCATIONS) {
            const uint k = B_ALONG_K != 0 ? e % TILE_K : e / TILE_N;
            const uint n = B_ALONG_K != 0 ? e / TILE_K : e % TILE_N;
            float value = 0.0;
            if (first_k + k < p.depth && first_n + n < p.columns)
                value = load_b(b_start + (first_k + k) * p.b_strides[2] + (first_n + n) * p.b_strides[3]);
            tile_b[k * ROW_N + n] = value;
        }
        barrier();
        [[unroll]] for (uint k = 0; k < TILE_K; ++k) {
            float column[THREAD_M];
            [[unroll]] for (uint i = 0; i < THREAD_M; ++i)
                column[i] = tile_a[k * ROW_M + gl_LocalInvocationID.y * THREAD_M + i];
            [[unroll]] for (uint j = 0; j < THREAD_N; ++j) {
                const float value = tile_b[k * ROW_N + j * LOCAL_SIZE_X + gl_LocalInvocationID.x];
                [[unroll]] for (uint i = 0; i < THREAD_M; ++i) sums[i][j] = fma(column[i], value, sums[i][j]);
            }
        }
    }

    [[unroll]] for (uint i = 0; i < THREAD_M; ++i) {
        const uint m = first_m + gl_LocalInvocationID.y * THREAD_M + i;
        [[unroll]] for (uint j = 0; j < THREAD_N; ++j) {
            const uint n = first_n + j * LOCAL_SIZE_X + gl_LocalInvocationID.x;
            if (m < p.rows && n < p.columns) store(outer, inner, m, n, sums[i][j]);
        }
    }
}
