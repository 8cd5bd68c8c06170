// A rung of the ladder of a matrix product by cooperative matrices: the loop of gemm_cooperative with so much of it as RUNG says, to
// see what each part costs. No operator; for dmlvk_bench.ladder.
//
//   RUNG 0  the subgroup's matrices are loaded once and multiplied from registers
//   RUNG 1  they are loaded from shared memory at each step, whose tiles are written once
//   RUNG 2  with the two barriers of a round
//   RUNG 3  with the tiles written to shared memory at each round, from registers that are loaded once
//   RUNG 4  with the loads of the next tiles: the sums of the product A B, of p.size rows, columns and depth, in which row i of A is
//           row i % p.lines, and column i of B is column i % p.lines: few lines are in a cache, p.size of them come from memory
//
// Each subgroup adds its matrices of sums to one, so that nothing is left out.
//
// Bindings: X, A {p.size, p.size} and after it B {p.size, p.size} of float16; Y, MAT_M x MAT_N float32 for each subgroup.
// Constants: those of include/cooperative_tile.glsl, with A_ALONG_K 1, B_ALONG_K 0 and one of BUFFERS; RUNG.
// Parameters: size, a multiple of the tile's sizes; lines, likewise; nothing, 0, which the compiler does not know.
// Grid: linear over tiles.

#pragma use_vulkan_memory_model

#include "tensor.glsl"
#include "bands.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer X { uvec4 x_words[]; };
layout(set = 0, binding = BINDING_Y, scalar) writeonly buffer Y { float y[]; };

uint first_m;
uint first_n;

#define Raw uvec4
uvec4 packed_a(Raw raw) { return raw; }
uvec4 packed_b(Raw raw) { return raw; }

uint place_a(uint line, uint word) {
    return BYTE_OFFSET_X / WORD_BYTES + (first_m + line) % p.lines * (p.size / 8) + word;
}
uint place_b(uint line, uint word) {
    return BYTE_OFFSET_X / WORD_BYTES + (p.size + line) * (p.size / 8) + (first_n / 8 + word) % (p.lines / 8);
}
Raw fetch_a(uint place, uint line, uint word, uint k) { return x_words[place + k / 8]; }
Raw fetch_b(uint place, uint line, uint word, uint k) { return x_words[place + k * (p.size / 8)]; }
Raw head_a(uint place, uint line, uint word, uint k, uint count) { return fetch_a(place, line, word, k); }
Raw head_b(uint place, uint line, uint word, uint k, uint count) { return fetch_b(place, line, word, k); }

#include "cooperative_tile.glsl"

void from_registers(uint rounds) {
    LOAD_MATRICES(rows[0], columns[0], 0, 0)
    for (uint round = 0; round < rounds; ++round)
        [[unroll]] for (uint step = 0; step < STEPS; ++step) multiply_matrices(0);
}

void from_shared_memory(uint rounds) {
    for (uint round = 1;; ++round) {
        // Where the tiles stay as they are the compiler must not know that they lie in the same place in the next round.
        const uint buffer_at = RUNG < 3 ? round & p.nothing : 0;
        multiply_tiles(buffer_at, 0, round * TILE_K, RUNG >= 4 && round < rounds);
        multiply_matrices((STEPS - 1) % 2);
        if (round >= rounds) break;
        if (RUNG >= 2) barrier();
        if (RUNG >= 3) share_tiles(buffer_at, 0);
        if (RUNG >= 2) barrier();
    }
}

void main() {
    const uint tiles_m = p.size / TILE_M;
    const uint tiles_n = p.size / TILE_N;
    if (linear_workgroup() >= tiles_m * tiles_n) return;
    const uvec2 tile = tile_in_bands(linear_workgroup(), tiles_m, tiles_n);
    first_m = tile.x * TILE_M;
    first_n = tile.y * TILE_N;
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i)
        [[unroll]] for (uint j = 0; j < BLOCKS_N; ++j) sums[i][j] = MATRIX_SUMS(0);
    [[unroll]] for (uint i = 0; i < STAGED_A; ++i) places_a[i] = place_a(word_of_a(i).x, word_of_a(i).y);
    [[unroll]] for (uint i = 0; i < STAGED_B; ++i) places_b[i] = place_b(word_of_b(i).x, word_of_b(i).y);
    fetch_head(0, TILE_K);
    share_tiles(0, 0);
    barrier();
    if (RUNG == 0) from_registers(p.size / TILE_K);
    else from_shared_memory(p.size / TILE_K);

    MATRIX_SUMS sum = MATRIX_SUMS(0);
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i)
        [[unroll]] for (uint j = 0; j < BLOCKS_N; ++j) sum += sums[i][j];
    const uint subgroup = linear_workgroup() * SUBGROUPS + gl_SubgroupID;
    coopMatStore(sum, y, BYTE_OFFSET_Y / 4 + subgroup * MAT_M * MAT_N, MAT_N, gl_CooperativeMatrixLayoutRowMajor);
}
