// Matrix product of FLOAT64, tile by tile through shared memory: any strides and batch.
//
//   y = alpha * sum over k of a[m, k] * b[k, n] + beta * c[m, n]
//
// Bindings: A, B, C, Y, with strides in the order (outer batch, inner batch, row, column) of the untransposed product; zero
//   strides broadcast. C is unused where HAS_C is 0.
// Constants: HAS_C (1), LOCAL_SIZE_X: a workgroup of EDGE x EDGE invocations, each of which has BLOCK x BLOCK sums.
// Parameters: count of tiles, row_tiles and column_tiles of a matrix; rows, columns, depth; inner_batch; strides; alpha and
//   beta, the bits of doubles.
// Grid: linear over the tiles, columns fastest, then rows, inner and outer batch.
//
// A round stages DEPTH terms of both factors, 0 past their ends. Sums are in the order of k. The rule "double".

#include "tensor.glsl"
#include "scalar.glsl"

#define TILE (EDGE * BLOCK)

layout(set = 0, binding = BINDING_A, std430) readonly buffer A { T a[]; };
layout(set = 0, binding = BINDING_B, std430) readonly buffer B { T b[]; };
layout(set = 0, binding = BINDING_C, std430) readonly buffer C { T c[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { T y[]; };

shared T a_tile[DEPTH][TILE + 1], b_tile[DEPTH][TILE + 1]; // a term longer, so that columns spread over the banks

uint matrix_start(uint outer, uint inner, uint strides[4]) { return outer * strides[0] + inner * strides[1]; }

void main() {
    const uint tile = linear_workgroup();
    if (tile >= p.count) return;
    uint rest = tile / p.column_tiles;
    const uint first_column = (tile - rest * p.column_tiles) * TILE;
    const uint matrix = rest / p.row_tiles;
    const uint first_row = (rest - matrix * p.row_tiles) * TILE;
    const uint outer = matrix / p.inner_batch;
    const uint inner = matrix - outer * p.inner_batch;
    const uint a_start = BYTE_OFFSET_A / T_BYTES + matrix_start(outer, inner, p.a_strides);
    const uint b_start = BYTE_OFFSET_B / T_BYTES + matrix_start(outer, inner, p.b_strides);
    const uint column = gl_LocalInvocationID.x % EDGE, row = gl_LocalInvocationID.x / EDGE;

    T sums[BLOCK][BLOCK];
    [[unroll]] for (int i = 0; i < BLOCK; ++i)
        [[unroll]] for (int j = 0; j < BLOCK; ++j) sums[i][j] = 0.0LF;
    for (uint k = 0; k < p.depth; k += DEPTH) {
        [[unroll]] for (uint share = gl_LocalInvocationID.x; share < TILE * DEPTH; share += EDGE * EDGE) {
            const uint a_term = share % DEPTH, m = share / DEPTH; // neighbours along the depth
            const bool in_a = first_row + m < p.rows && k + a_term < p.depth;
            a_tile[a_term][m] =
                in_a ? a[a_start + (first_row + m) * p.a_strides[2] + (k + a_term) * p.a_strides[3]] : 0.0LF;
            const uint b_term = share / TILE, n = share % TILE; // neighbours along the columns
            const bool in_b = first_column + n < p.columns && k + b_term < p.depth;
            b_tile[b_term][n] =
                in_b ? b[b_start + (k + b_term) * p.b_strides[2] + (first_column + n) * p.b_strides[3]] : 0.0LF;
        }
        barrier();
        [[unroll]] for (uint term = 0; term < DEPTH; ++term) {
            T own_a[BLOCK], own_b[BLOCK];
            [[unroll]] for (uint i = 0; i < BLOCK; ++i) own_a[i] = a_tile[term][row + i * EDGE];
            [[unroll]] for (uint j = 0; j < BLOCK; ++j) own_b[j] = b_tile[term][column + j * EDGE];
            [[unroll]] for (int i = 0; i < BLOCK; ++i)
                [[unroll]] for (int j = 0; j < BLOCK; ++j) sums[i][j] = fma(own_a[i], own_b[j], sums[i][j]);
        }
        barrier();
    }
    const uint c_start = BYTE_OFFSET_C / T_BYTES + matrix_start(outer, inner, p.c_strides);
    const uint y_start = BYTE_OFFSET_Y / T_BYTES + matrix_start(outer, inner, p.y_strides);
    [[unroll]] for (uint i = 0; i < BLOCK; ++i)
        [[unroll]] for (uint j = 0; j < BLOCK; ++j) {
            const uint m = first_row + row + i * EDGE, n = first_column + column + j * EDGE;
            if (m >= p.rows || n >= p.columns) continue;
            T value = scalar(p.alpha[0], p.alpha[1]) * sums[i][j];
            if (HAS_C != 0u)
                value = fma(scalar(p.beta[0], p.beta[1]), c[c_start + m * p.c_strides[2] + n * p.c_strides[3]], value);
            y[y_start + m * p.y_strides[2] + n * p.y_strides[3]] = value;
        }
}
