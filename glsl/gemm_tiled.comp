// Matrix product, tile by tile through shared memory, a block of outputs in each invocation's registers.
//
//   y = activation(alpha * sum over k of a[m, k] * b[k, n] + beta * c[m, n])
//
// Bindings: A, B, C, Y; see include/gemm.glsl.
// Constants: LOCAL_SIZE_X by LOCAL_SIZE_Y invocations (16 by 8), each with THREAD_M (4) rows of THREAD_N (4) columns, so
// that a workgroup computes TILE_M = LOCAL_SIZE_Y * THREAD_M rows by TILE_N = LOCAL_SIZE_X * THREAD_N columns; TILE_K
// (16) of the depth are staged at a time. A_ALONG_K (1) and B_ALONG_K (0) say along which dimension neighbouring
// invocations read while staging: the one with the smaller stride. HAS_C (1), the activation's id.
// TILE_K * TILE_M and TILE_K * TILE_N are multiples of the invocation count.
// Grid: x over tiles of columns, y over tiles of rows, z over the batch.
//
// The next tiles' loads are in flight, to registers, while the current ones are multiplied. FLOAT16 operands are staged as float32, so both types sum in float32. An invocation's columns are LOCAL_SIZE_X apart,
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

const uint STAGED_A = TILE_K * TILE_M / INVOCATIONS;
const uint STAGED_B = TILE_K * TILE_N / INVOCATIONS;

// The operands' next tiles, on their way from memory while the current ones are multiplied.
float staged_a[STAGED_A];
float staged_b[STAGED_B];

// Where element i of this invocation's share lies in the tile: (depth, row or column).
uvec2 place_a(uint i) {
    const uint e = i * INVOCATIONS + gl_LocalInvocationIndex;
    return A_ALONG_K != 0 ? uvec2(e % TILE_K, e / TILE_K) : uvec2(e / TILE_M, e % TILE_M);
}

uvec2 place_b(uint i) {
    const uint e = i * INVOCATIONS + gl_LocalInvocationIndex;
    return B_ALONG_K != 0 ? uvec2(e % TILE_K, e / TILE_K) : uvec2(e / TILE_N, e % TILE_N);
}

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

    // Round r loads tile r and multiplies tile r - 1: the first only loads, the last only multiplies.
    const uint rounds = (p.depth + TILE_K - 1) / TILE_K;
    for (uint round = 0; round <= rounds; ++round) {
        if (round > 0) {
            barrier();
            [[unroll]] for (uint i = 0; i < STAGED_A; ++i) tile_a[place_a(i).x * ROW_M + place_a(i).y] = staged_a[i];
            [[unroll]] for (uint i = 0; i < STAGED_B; ++i) tile_b[place_b(i).x * ROW_N + place_b(i).y] = staged_b[i];
            barrier();
        }
        if (round < rounds) {
            [[unroll]] for (uint i = 0; i < STAGED_A; ++i) {
                const uvec2 at = uvec2(round * TILE_K, first_m) + place_a(i);
                staged_a[i] = 0.0;
                if (at.x < p.depth && at.y < p.rows)
                    staged_a[i] = load_a(a_start + at.y * p.a_strides[2] + at.x * p.a_strides[3]);
            }
            [[unroll]] for (uint i = 0; i < STAGED_B; ++i) {
                const uvec2 at = uvec2(round * TILE_K, first_n) + place_b(i);
                staged_b[i] = 0.0;
                if (at.x < p.depth && at.y < p.columns)
                    staged_b[i] = load_b(b_start + at.x * p.b_strides[2] + at.y * p.b_strides[3]);
            }
        }
        if (round > 0) {
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
    }

    [[unroll]] for (uint i = 0; i < THREAD_M; ++i) {
        const uint m = first_m + gl_LocalInvocationID.y * THREAD_M + i;
        [[unroll]] for (uint j = 0; j < THREAD_N; ++j) {
            const uint n = first_n + j * LOCAL_SIZE_X + gl_LocalInvocationID.x;
            if (m < p.rows && n < p.columns) store(outer, inner, m, n, sums[i][j]);
        }
    }
}
