// Matrix product by cooperative matrices, whose second factor is laid out as invocations have it: float16 factors, float32 sums.
//
//   y = activation(alpha * sum over k of a[m, k] * b[k, n] + beta * c[m, n] + addend[m, n])
//
// A workgroup stages TILE_K of the depth of A at a time in shared memory. B goes from memory straight to the matrices, and while a step of
// MAT_K is multiplied, its invocations load that of the next round: between barriers there are many loads on their way, and shared memory,
// whose pipe is what small tiles wait for, has only one factor to pass. Each subgroup multiplies a block of SUB_M x SUB_N.
//
// Bindings: A, of which rows are whole words of 8; B, what gemm_pack.comp makes of it; C, Addend, Y; see include/gemm.glsl.
// Constants: LOCAL_SIZE_X, whole subgroups of 32, (TILE_M / SUB_M) * (TILE_N / SUB_N) of them; TILE_M, TILE_N; TILE_K, which divides B's
// terms, with the zeros behind them; SUB_M, SUB_N; MAT_M, MAT_N, MAT_K, all 16; BUFFERS (1, 2), the tiles in shared memory: with two there is
// one barrier a round; WHOLE_ROUNDS, whether TILE_K divides the depth; VECTOR_Y (1): how Y is stored (gemm_quads.glsl); HAS_C (1), ADDEND
// (0), the activation's id; PARTIAL (0), as in gemm_tiled. The words of a tile of A are a multiple of the invocations.
// Variant ADDS: whether there is an addend beside C.
// Parameters: steps, those that B has.
// Grid: linear over matrices, splits and tiles, a matrix's tiles neighbours.
//
// H200 (driver 580) keeps one count of all loads from memory on their way, and waits for all where it waits for one: what is loaded further
// ahead than a round is waited for with the round's own. So rounds are long, and their registers many.

#pragma use_vulkan_memory_model

// As in gemm_cooperative.
#define NO_SCALED_CLIP
#define SHORT_MATH

#include "tensor.glsl"
#include "gemm_quads.glsl"
#include "bands.glsl"

layout(set = 0, binding = BINDING_A, std430) readonly buffer WordsA { uvec4 words_a[]; };
layout(set = 0, binding = BINDING_B, std430) readonly buffer WordsB { uvec4 words_b[]; };

const uint SUBGROUPS_N = TILE_N / SUB_N;
const uint SUBGROUPS = TILE_M / SUB_M * SUBGROUPS_N;
const uint STEPS = TILE_K / MAT_K;

// A tile has lines of words of 8 along the depth, and a word of padding each, which spreads a column over the banks.
const uint WORDS = TILE_K / 8;
const uint PITCH = WORDS + 1;
const uint SIZE = TILE_M * PITCH;
const uint STAGED = TILE_M * WORDS / LOCAL_SIZE_X;
const uint SIZE_TILES = BUFFERS * SIZE;

uint first_m;
uint first_n;
uint start_a;

#include "matrix_fragments.glsl"
#include "cooperative_sums.glsl"
#include "cooperative_store.glsl"
#include "cooperative_begin.glsl"

uint places_a[STAGED];
uint places_b[BLOCKS_N];
uvec4 staged[STAGED];
uvec4 held[STEPS][BLOCKS_N];
MATRIX_A rows[2][BLOCKS_M];

// (line, word) of an invocation's words of a tile.
uvec2 word_of_a(uint i) {
    const uint e = i * LOCAL_SIZE_X + gl_LocalInvocationIndex;
    return uvec2(e / WORDS, e % WORDS);
}

// Past the depth a word is another one of the row, in whose place share_a writes zeros.
void fetch_a(uint k) {
    [[unroll]] for (uint i = 0; i < STAGED; ++i)
        staged[i] = words_a[places_a[i] + (WHOLE_ROUNDS != 0 ? k / 8 : min(k / 8, p.depth / 8 - 1 - min(word_of_a(i).y, p.depth / 8 - 1)))];
}

void share_a(uint buffer_at, uint k) {
    [[unroll]] for (uint i = 0; i < STAGED; ++i) {
        const bool is_there = WHOLE_ROUNDS != 0 || k / 8 + word_of_a(i).y < p.depth / 8;
        tiles[buffer_at * SIZE + word_of_a(i).x * PITCH + word_of_a(i).y] = is_there ? staged[i] : uvec4(0);
    }
}

void fetch_b(const uint slot, uint step) {
    [[unroll]] for (uint j = 0; j < BLOCKS_N; ++j) held[slot][j] = words_b[places_b[j] + step * gl_SubgroupSize];
}

void load_rows(const uint slot, uint start, uint step) {
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) {
        const uint m = gl_SubgroupID / SUBGROUPS_N * SUB_M + i * MAT_M;
        coopMatLoad(rows[slot][i], tiles, start + m * PITCH + step * (MAT_K / 8), PITCH, gl_CooperativeMatrixLayoutRowMajor);
    }
}

void multiply_step(const uint slot, const uint step) {
    [[unroll]] for (uint j = 0; j < BLOCKS_N; ++j) {
        MATRIX_B columns = MATRIX_B(0);
        [[unroll]] for (uint pair = 0; pair < FRAGMENT_ELEMENTS / 2; ++pair) {
            const f16vec2 both = unpackFloat2x16(held[step][j][pair]);
            columns[2 * pair] = both.x;
            columns[2 * pair + 1] = both.y;
        }
        [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) sums[i][j] = coopMatMulAdd(rows[slot][i], columns, sums[i][j]);
    }
}

// Adds up the depth from `first` to before `last`, where rounds start; leaves the sums in `sums` and shared memory free.
void multiply(uint first, uint last) {
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i)
        [[unroll]] for (uint j = 0; j < BLOCKS_N; ++j) sums[i][j] = MATRIX_SUMS(0);
#if ADDS
    if (ADDEND >= ADDEND_FIRST) begin_sums();
#endif
    [[unroll]] for (uint i = 0; i < STAGED; ++i)
        places_a[i] = start_a + min(first_m + word_of_a(i).x, p.rows - 1) * (p.a_strides[2] / 8) + min(word_of_a(i).y, p.depth / 8 - 1);
    [[unroll]] for (uint j = 0; j < BLOCKS_N; ++j) {
        const uint block = min((first_n + gl_SubgroupID % SUBGROUPS_N * SUB_N) / MAT_N + j, (p.columns - 1) / MAT_N);
        places_b[j] = BYTE_OFFSET_B / WORD_BYTES + block * p.steps * gl_SubgroupSize + gl_SubgroupInvocationID;
    }
    fetch_a(first);
    [[unroll]] for (uint step = 0; step < STEPS; ++step) fetch_b(step, first / MAT_K + step);
    share_a(0, first);
    barrier();
    // A condition of its own for each step, as it seems, lets the driver ask for all of them early: with one for all up to 8 % longer.
    const uint end = last / MAT_K;
    uint buffer_at = 0;
    for (uint k = first;;) {
        const uint next = k + TILE_K;
        if (next < last) fetch_a(next);
        load_rows(0, buffer_at * SIZE, 0);
        [[unroll]] for (uint step = 0; step < STEPS; ++step) {
            if (step + 1 < STEPS) load_rows((step + 1) % 2, buffer_at * SIZE, step + 1);
            multiply_step(step % 2, step);
            if (next / MAT_K + step < end) fetch_b(step, next / MAT_K + step);
        }
        if (next >= last) break;
        k = next;
        if (BUFFERS == 1) barrier();
        else buffer_at ^= 1;
        share_a(buffer_at, k);
        barrier();
    }
    barrier();
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
    start_a = BYTE_OFFSET_A / WORD_BYTES + matrix_start(outer, inner, p.a_strides) / 8;
#if ADDS
    addend_start = BYTE_OFFSET_ADDEND / R_BYTES + matrix_start(outer, inner, p.addend_strides);
#endif

    // As in gemm_cooperative: an element of each of C's sectors is asked for now.
    const bool asks = HAS_C != 0 && PARTIAL == 0;
    float asked = 0;
    if (asks) {
        const uint m = min(first_m + gl_SubgroupID / SUBGROUPS_N * SUB_M + gl_SubgroupInvocationID / (SUB_N / 4), p.rows - 1);
        const uint n = min(first_n + gl_SubgroupID % SUBGROUPS_N * SUB_N + gl_SubgroupInvocationID % (SUB_N / 4) * 4, p.columns - 1);
        asked = load_c(matrix_start(outer, inner, p.c_strides) + m * p.c_strides[2] + n * p.c_strides[3]);
    }

    const uint first = split * p.split_rounds * TILE_K;
    multiply(first, min(first + p.split_rounds * TILE_K, p.steps * MAT_K));

    if (asks && floatBitsToUint(asked) == p.depth && p.rows == 0) tiles[0] = uvec4(0); // never: what is asked for must seem to be used
    STORE_TILE(outer, inner, matrix, split)
}
