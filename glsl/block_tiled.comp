// Products with weights in blocks, tile by tile through shared memory, in float32.
//
//   y[m, n] = activation(alpha * sum over k of a[m, k] * number (include/block_codes.glsl) of code k of column n + ...)
//
// Bindings: A; B, weights as block_pack.comp lays them out; C, Addend, Y; see include/gemm.glsl. Constants: the format's; the tile's
// (include/product_tile.glsl), whose TILE_K is a multiple of 8; VECTOR_A (1), whether rows of A are read four numbers at a time; VECTOR_Y
// (1), HAS_C (1), ADDEND (0), the activation's id; PARTIAL (0), as in gemm_tiled.
// Grid: linear over splits and tiles, the latter neighbours.
//
// An invocation makes numbers of eight codes of a column at a time. Chosen for many rows where no matrices multiply them.

#include "tensor.glsl"
#include "gemm_quads.glsl"
#include "block_codes.glsl"
#include "product_tile.glsl"

#define OPERAND(name) name##_a
#define OPERAND_TILE TILE_M
#define OPERAND_ALONG_K 1
#define OPERAND_VECTOR VECTOR_A
#define OPERAND_QUAD load_a_quad
#define OPERAND_ELEMENT load_a
#define OPERAND_PUT put_a
#define OPERAND_PUT_QUAD put_a_quad
#include "product_operand.glsl"

layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Partials { vec4 partials[]; };

// An invocation's groups of eight codes of a round: neighbours have neighbouring columns.
const uint EIGHTS = TILE_N * TILE_K / 8;
const uint SHARE_B = (EIGHTS + INVOCATIONS - 1) / INVOCATIONS;

EightCodes codes[SHARE_B];
uint first_m, first_n;

uvec2 place_of_eight(uint i) {
    const uint e = min(i * INVOCATIONS + invocation(), EIGHTS - 1);
    return uvec2(e / TILE_N, e % TILE_N);
}

void fetch_round(uint round) {
    const uint k = round * TILE_K;
    fetch_a(0, p.rows - 1, p.a_strides[2], p.a_strides[3], k, p.depth - 1);
    [[unroll]] for (uint i = 0; i < SHARE_B; ++i) {
        const uvec2 at = place_of_eight(i);
        codes[i] = load_eight_codes(min(first_n + at.y, p.columns - 1), min(k / 8 + at.x, (p.depth - 1) / 8));
    }
}

void place_round(uint round, uint buffer_) {
    place_a(buffer_, p.depth - round * TILE_K);
    [[unroll]] for (uint i = 0; i < SHARE_B; ++i) {
        const uvec2 at = place_of_eight(i);
        float numbers[8];
        numbers_of(codes[i], numbers);
        if (EIGHTS % INVOCATIONS == 0 || i * INVOCATIONS + invocation() < EIGHTS)
            [[unroll]] for (uint e = 0; e < 8; ++e) put_b(buffer_, at.x * 8 + e, at.y, numbers[e]);
    }
}

void main() {
    const uint tiles_m = (p.rows + TILE_M - 1) / TILE_M;
    const uint tiles_n = (p.columns + TILE_N - 1) / TILE_N;
    const uint split = linear_workgroup() / (tiles_m * tiles_n);
    if (split >= p.splits) return;
    const uvec2 tile = tile_in_bands(linear_workgroup() - split * tiles_m * tiles_n, tiles_m, tiles_n);
    first_m = tile.x * TILE_M;
    first_n = tile.y * TILE_N;
    begin_a(first_m, p.rows - 1, p.a_strides[2], p.a_strides[3]);
    const uint first_round = split * p.split_rounds;
    multiply_rounds(first_round, min(first_round + p.split_rounds, (p.depth + TILE_K - 1) / TILE_K));
    if (slice() > 0) return;
    [[unroll]] for (uint i = 0; i < BLOCK_M; ++i) {
        const uint m = first_m + tile_row(i);
        [[unroll]] for (uint j = 0; j < BLOCK_N / 4; ++j) {
            const uint n = first_n + tile_column(j);
            if (PARTIAL == 0) {
                store_quad(0, 0, m, n, sums[i][j]);
            } else if (m < p.rows && n < p.columns) {
                partials[BYTE_OFFSET_Y / 16 + (split * p.rows + m) * (p.partial_pitch / 4) + n / 4] = sums[i][j];
            }
        }
    }
}
