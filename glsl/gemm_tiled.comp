// Matrix product, tile by tile through shared memory, a block of outputs in each invocation's registers.
//
//   y = activation(alpha * sum over k of a[m, k] * b[k, n] + beta * c[m, n] + addend[m, n])
//
// Bindings: A, B, C, Addend, Y; see include/gemm.glsl. Constants: the tile's (include/product_tile.glsl);
// A_ALONG_K (1), B_ALONG_K (0), VECTOR_A (1), VECTOR_B (1), VECTOR_Y (1): how A, B and Y are accessed
// (include/product_operand.glsl, gemm_quads.glsl); HAS_C (1), ADDEND (0), the activation's id; PARTIAL (0).
// Grid: linear over matrices, splits and tiles, a matrix's tiles neighbours.
//
// With PARTIAL the depth is split into p.splits parts of p.split_rounds rounds, and Y is temporary memory, which gets the
// parts' sums as they are, in float32: [split, matrix, row, column], rows of p.partial_pitch (a multiple of 4) numbers.
// gemm_merge adds them.
// FLOAT16 and BFLOAT16 operands are placed as float32, so all types sum in float32.
// Chosen where the product has rows and columns enough to fill a tile; split where tiles are few and sums are long.

#include "tensor.glsl"
#include "gemm_quads.glsl"

void begin_sums();
#define SUMS_BEGIN if (ADDEND >= ADDEND_FIRST) begin_sums();
#include "product_tile.glsl"

#define OPERAND(name) name##_a
#define OPERAND_TILE TILE_M
#define OPERAND_ALONG_K A_ALONG_K
#define OPERAND_VECTOR VECTOR_A
#define OPERAND_QUAD load_a_quad
#define OPERAND_ELEMENT load_a
#define OPERAND_PUT put_a
#define OPERAND_PUT_QUAD put_a_quad
#include "product_operand.glsl"

#define OPERAND(name) name##_b
#define OPERAND_TILE TILE_N
#define OPERAND_ALONG_K B_ALONG_K
#define OPERAND_VECTOR VECTOR_B
#define OPERAND_QUAD load_b_quad
#define OPERAND_ELEMENT load_b
#define OPERAND_PUT put_b
#define OPERAND_PUT_QUAD put_b_quad
#include "product_operand.glsl"

layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Partials { vec4 partials[]; };

// Where this workgroup's operands start, and its tile.
uint a_start, b_start, first_m, first_n;

// The first slice's sums begin with the addend.
void begin_sums() {
    if (slice() > 0) return;
    [[unroll]] for (uint i = 0; i < BLOCK_M; ++i)
        [[unroll]] for (uint j = 0; j < BLOCK_N / 4; ++j)
            sums[i][j] = unpack_results(load_addends(first_m + tile_row(i), first_n + tile_column(j)));
}

void fetch_round(uint round) {
    const uint k = round * TILE_K;
    fetch_a(a_start, p.rows - 1, p.a_strides[2], p.a_strides[3], k, p.depth - 1);
    fetch_b(b_start, p.columns - 1, p.b_strides[3], p.b_strides[2], k, p.depth - 1);
}

void place_round(uint round, uint buffer_) {
    const uint left = p.depth - round * TILE_K;
    place_a(buffer_, left);
    place_b(buffer_, left);
}

void main() {
    const uint tiles_m = (p.rows + TILE_M - 1) / TILE_M;
    const uint tiles_n = (p.columns + TILE_N - 1) / TILE_N;
    const uint part = linear_workgroup() / (tiles_m * tiles_n);
    const uint matrix = part / p.splits;
    const uint split = part - matrix * p.splits;
    if (matrix >= p.matrices) return;
    const uvec2 tile = tile_in_bands(linear_workgroup() - part * tiles_m * tiles_n, tiles_m, tiles_n);
    first_m = tile.x * TILE_M;
    first_n = tile.y * TILE_N;
    const uint outer = matrix / p.inner_batch;
    const uint inner = matrix - outer * p.inner_batch;
    a_start = matrix_start(outer, inner, p.a_strides);
    b_start = matrix_start(outer, inner, p.b_strides);
    addend_start = BYTE_OFFSET_ADDEND / R_BYTES + matrix_start(outer, inner, p.addend_strides);

    const uint rounds = (p.depth + TILE_K - 1) / TILE_K;
    begin_a(first_m, p.rows - 1, p.a_strides[2], p.a_strides[3]);
    begin_b(first_n, p.columns - 1, p.b_strides[3], p.b_strides[2]);
    const uint first_round = split * p.split_rounds;
    multiply_rounds(first_round, min(first_round + p.split_rounds, rounds));

    if (slice() > 0) return;

    [[unroll]] for (uint i = 0; i < BLOCK_M; ++i) {
        const uint m = first_m + tile_row(i);
        [[unroll]] for (uint j = 0; j < BLOCK_N / 4; ++j) {
            const uint n = first_n + tile_column(j);
            if (PARTIAL == 0) {
                store_quad(outer, inner, m, n, sums[i][j]);
            } else if (m < p.rows && n < p.columns) {
                const uint row = (split * p.matrices + matrix) * p.rows + m;
                partials[BYTE_OFFSET_Y / 16 + row * (p.partial_pitch / 4) + n / 4] = sums[i][j];
            }
        }
    }
}
