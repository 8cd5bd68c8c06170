// Products with weights in blocks by cooperative matrices: float16 factors, float32 sums.
//
//   y[m, n] = activation(alpha * sum over k of a[m, k] * number (include/block_codes.glsl) of code k of column n + ...)
//
// Bindings: A; B, weights as block_pack.comp lays them out; C, Addend, Y; see include/gemm.glsl. Numbers of the weights are rounded to
// float16 on their way to shared memory, and so is A where it is FLOAT32: only for operators compiled with
// ALLOW_HALF_PRECISION_COMPUTATION.
// Constants: the format's; those of include/cooperative_tile.glsl, both operands along the depth; VECTOR_Y (1), HAS_C (1), ADDEND (0),
// the activation's id; PARTIAL (0), as in gemm_tiled. Variant ADDS: whether there is an addend beside C. Rows of A start on 16 bytes of float16 (32 of float32) and have whole words of 8.
// Grid: linear over splits and tiles, the latter neighbours.
//
// Chosen for so many rows that summing them one by one takes longer than unpacking each weight once for a tile of them.

#pragma use_vulkan_memory_model

#define NO_SCALED_CLIP
#define HALF_ARITHMETIC

#include "tensor.glsl"
#include "gemm_quads.glsl"
#include "bands.glsl"
#include "block_codes.glsl"

layout(set = 0, binding = BINDING_A, std430) readonly buffer WordsA { uvec4 words_a[]; };

uint first_m;
uint first_n;

// Eight elements as they lie in memory: of A, or of the weights.
struct Raw {
    uint e[8];
    EightCodes codes;
};

// Of A, zeros unless `valid`.
Raw eight_of_a(uint first, bool valid) {
    Raw raw;
    [[unroll]] for (uint w = 0; w < T_BYTES / 2; ++w)
        [[unroll]] for (uint i = 0; i < 4; ++i) raw.e[4 * w + i] = valid ? words_a[first / (WORD_BYTES / T_BYTES) + w][i] : 0u;
    return raw;
}

uvec4 packed_a(Raw raw) {
#if T_BYTES == 2
    return uvec4(raw.e[0], raw.e[1], raw.e[2], raw.e[3]);
#else
    uvec4 word;
    [[unroll]] for (uint i = 0; i < 4; ++i)
        word[i] = packHalf2x16(vec2(uintBitsToFloat(raw.e[2 * i]), uintBitsToFloat(raw.e[2 * i + 1])));
    return word;
#endif
}

uint place_a(uint line, uint word) {
    return BYTE_OFFSET_A / T_BYTES + min(first_m + line, p.rows - 1) * p.a_strides[2] + 8 * word;
}

Raw fetch_a(uint place, uint line, uint word, uint k) { return eight_of_a(place + k, true); }
Raw head_a(uint place, uint line, uint word, uint k, uint count) { return eight_of_a(place + k, 8 * word < count); }

uint place_b(uint line, uint word) { return min(first_n + line, p.columns - 1); }

uvec4 packed_b(Raw raw) { return rounded_numbers_of(raw.codes); }

Raw eight_of_b(uint column, uint eight) {
    Raw raw;
    raw.codes = load_eight_codes(column, eight);
    return raw;
}

// Past the depth there are zeros of A, and weights that are numbers.
Raw fetch_b(uint place, uint line, uint word, uint k) { return eight_of_b(place, k / 8 + word); }
Raw head_b(uint place, uint line, uint word, uint k, uint count) {
    return eight_of_b(place, min(k / 8 + word, (p.depth - 1) / 8));
}

#include "cooperative_tile.glsl"
#include "cooperative_store.glsl"

void main() {
    const uint tiles_m = (p.rows + TILE_M - 1) / TILE_M;
    const uint tiles_n = (p.columns + TILE_N - 1) / TILE_N;
    const uint split = linear_workgroup() / (tiles_m * tiles_n);
    if (split >= p.splits) return;
    const uvec2 tile = tile_in_bands(linear_workgroup() - split * tiles_m * tiles_n, tiles_m, tiles_n);
    first_m = tile.x * TILE_M;
    first_n = tile.y * TILE_N;
    const uint first = split * p.split_rounds * TILE_K;
    multiply(first, min(first + p.split_rounds * TILE_K, p.depth));
    STORE_TILE(0, 0, 0, split)
}
