// The sums of a tile of a matrix product by cooperative matrices: float16 factors, float32 sums.
//
//   sum[m, n] = sum over k of a[m, k] * b[k, n], for TILE_M rows and TILE_N columns of the product
//
// A workgroup stages TILE_K of the depth at a time in shared memory; each of its subgroups multiplies a block of SUB_M rows
// by SUB_N columns, which it keeps in cooperative matrices of MAT_M x MAT_N, the sizes that the device multiplies. The next
// AHEAD tiles are on their way from memory, in registers, while the current one is multiplied; and so are the next matrices from
// shared memory. With two BUFFERS the next tile is written to the other half of shared memory, so that one barrier a round is
// enough. A depth that is no multiple of TILE_K has its short tile first, before the loop.
//
// A tile of an operand lies in shared memory as in the tensor: in lines of float16 along the dimension in which its
// elements are neighbours, the depth (A_ALONG_K, B_ALONG_K) or the rows or columns, one line for each index of the other.
// Lines are staged in words of 8 elements, 16 bytes; one word of padding a line spreads a column over the banks.
//
// Constants: LOCAL_SIZE_X invocations, whole subgroups, (TILE_M / SUB_M) * (TILE_N / SUB_N) of them; TILE_M, TILE_N, TILE_K;
// SUB_M, SUB_N; MAT_M, MAT_N, MAT_K; BUFFERS (1, 2); AHEAD (1, 2, 4); SPREAD (1), over how many steps of the multiplication the
// loads of a further tile are spread, at most the steps that there are, 0 for before the first matrices are loaded; A_ALONG_K,
// B_ALONG_K.
// The words of an operand's tile are a multiple of the invocations.
//
// The includer defines, before the include, where words come from, `Raw` being 8 elements as they lie in memory:
//   uint place_a(uint line, uint word)                     whatever it wants to know of a word before the loop, such as where it starts
//   Raw fetch_a(uint place, uint line, uint word, uint k)  the word, for the tile of the depth that starts at k, all of it inside
//   Raw head_a(uint place, uint line, uint word, uint k, uint count)   the same with `count` of the depth there, zeros after them
//   uvec4 packed_a(Raw raw)                                as 8 float16
// and place_b, fetch_b, head_b and packed_b likewise; and includes this file last but for main(). fetch does nothing but load, without a branch: a
// load behind a condition of its own, or a conversion behind a load, waits for memory there and then. The loop's own
// condition, the same for all invocations, keeps the compiler from moving the loads down to where their values are used.
//
// For other factors than float16 it also defines what cooperative_sums.glsl asks for; FACTORS, how many are in a word of 16 bytes; and
// PLACE_A, the type that place_a returns. SUMS_BEGIN is a statement after which sums need not be 0 (see take_sums).

#ifndef DMLVK_COOPERATIVE_TILE_GLSL
#define DMLVK_COOPERATIVE_TILE_GLSL

#ifndef FACTORS
#define FACTORS (WORD_BYTES / 2)
#define PLACE_A uint
#endif

const uint WORDS_A = (A_ALONG_K != 0 ? TILE_K : TILE_M) / FACTORS;
const uint WORDS_B = (B_ALONG_K != 0 ? TILE_K : TILE_N) / FACTORS;
const uint LINES_A = A_ALONG_K != 0 ? TILE_M : TILE_K;
const uint LINES_B = B_ALONG_K != 0 ? TILE_N : TILE_K;
const uint PITCH_A = WORDS_A + 1;
const uint PITCH_B = WORDS_B + 1;
const uint SIZE_A = LINES_A * PITCH_A;
const uint SIZE_B = LINES_B * PITCH_B;
const uint STAGED_A = LINES_A * WORDS_A / LOCAL_SIZE_X;
const uint STAGED_B = LINES_B * WORDS_B / LOCAL_SIZE_X;

const uint STEPS = TILE_K / MAT_K;
const uint PARTS = SPREAD > 1 ? SPREAD : 1;
const uint TURNS = AHEAD > BUFFERS ? AHEAD : BUFFERS;
const uint SUBGROUPS_N = TILE_N / SUB_N;
const uint SUBGROUPS = TILE_M / SUB_M * SUBGROUPS_N;

// Whether the last step of a round is multiplied while the next tiles are written, when all have read this round's. H200 (driver 580,
// 2026-11-29), us so and without: 3x3 convolutions of 256 channels of 32 x 56 x 56 in NHWC 335 and 356, in NCHW 369 and 389, of 320
// channels of 2 x 64 x 64 58.6 and 61.1, a product of 256 x 4096 x 14336 101 and 104.
#ifndef LATE
#define LATE true
#endif

const uint SIZE_TILES = BUFFERS * (SIZE_A + SIZE_B);

#include "cooperative_sums.glsl"

PLACE_A places_a[STAGED_A];
uint places_b[STAGED_B];
Raw staged_a[AHEAD][STAGED_A];
Raw staged_b[AHEAD][STAGED_B];

// (line, word) of an invocation's words of the tiles.
uvec2 word_of_a(uint i) {
    const uint e = i * LOCAL_SIZE_X + gl_LocalInvocationIndex;
    return uvec2(e / WORDS_A, e % WORDS_A);
}

uvec2 word_of_b(uint i) {
    const uint e = i * LOCAL_SIZE_X + gl_LocalInvocationIndex;
    return uvec2(e / WORDS_B, e % WORDS_B);
}

// One of PARTS parts of the words of the tiles that start at k, to one of AHEAD places.
void fetch_part(const uint place, uint k, uint part) {
    [[unroll]] for (uint i = 0; i < STAGED_A; ++i)
        if (i % PARTS == part) staged_a[place][i] = fetch_a(places_a[i], word_of_a(i).x, word_of_a(i).y, k);
    [[unroll]] for (uint i = 0; i < STAGED_B; ++i)
        if (i % PARTS == part) staged_b[place][i] = fetch_b(places_b[i], word_of_b(i).x, word_of_b(i).y, k);
}

void fetch_head(uint k, uint count) {
    [[unroll]] for (uint i = 0; i < STAGED_A; ++i) staged_a[0][i] = head_a(places_a[i], word_of_a(i).x, word_of_a(i).y, k, count);
    [[unroll]] for (uint i = 0; i < STAGED_B; ++i) staged_b[0][i] = head_b(places_b[i], word_of_b(i).x, word_of_b(i).y, k, count);
}

void share_tiles(uint buffer_at, const uint place) {
    const uint start = buffer_at * (SIZE_A + SIZE_B);
    [[unroll]] for (uint i = 0; i < STAGED_A; ++i)
        tiles[start + word_of_a(i).x * PITCH_A + word_of_a(i).y] = packed_a(staged_a[place][i]);
    [[unroll]] for (uint i = 0; i < STAGED_B; ++i)
        tiles[start + SIZE_A + word_of_b(i).x * PITCH_B + word_of_b(i).y] = packed_b(staged_b[place][i]);
}

// The subgroup's matrices of a step of MAT_K, from a buffer's tiles at `start`.
#define LOAD_MATRICES(rows, columns, start, step)                                                                          \
    {                                                                                                                      \
        const uint k = (step) * MAT_K;                                                                                     \
        [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) {                                                                   \
            const uint m = gl_SubgroupID / SUBGROUPS_N * SUB_M + i * MAT_M;                                                \
            if (A_ALONG_K != 0)                                                                                            \
                coopMatLoad(rows[i], tiles, (start) + m * PITCH_A + k / FACTORS, PITCH_A, gl_CooperativeMatrixLayoutRowMajor);   \
            else                                                                                                           \
                coopMatLoad(rows[i], tiles, (start) + k * PITCH_A + m / FACTORS, PITCH_A, gl_CooperativeMatrixLayoutColumnMajor); \
        }                                                                                                                  \
        [[unroll]] for (uint j = 0; j < BLOCKS_N; ++j) {                                                                   \
            const uint n = gl_SubgroupID % SUBGROUPS_N * SUB_N + j * MAT_N;                                                \
            if (B_ALONG_K != 0)                                                                                            \
                coopMatLoad(columns[j], tiles, (start) + SIZE_A + n * PITCH_B + k / FACTORS, PITCH_B, gl_CooperativeMatrixLayoutColumnMajor); \
            else                                                                                                           \
                coopMatLoad(columns[j], tiles, (start) + SIZE_A + k * PITCH_B + n / FACTORS, PITCH_B, gl_CooperativeMatrixLayoutRowMajor); \
        }                                                                                                                  \
    }

MATRIX_A rows[2][BLOCKS_M];
MATRIX_B columns[2][BLOCKS_N];

void multiply_matrices(const uint slot) {
    [[unroll]] for (uint j = 0; j < BLOCKS_N; ++j)
        [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) sums[i][j] = coopMatMulAdd(rows[slot][i], columns[slot][j], sums[i][j]);
}

// Multiplies a buffer's tiles but for the last step, whose matrices it loads, and in its first steps fetches those that start at `next` to a
// place, if there are some.
void multiply_tiles(uint buffer_at, const uint place, uint next, bool fetches) {
    const uint start = buffer_at * (SIZE_A + SIZE_B);
    if (SPREAD == 0 && fetches) fetch_part(place, next, 0);
    LOAD_MATRICES(rows[0], columns[0], start, 0)
    [[unroll]] for (uint step = 0; step < STEPS; ++step) {
        if (step < SPREAD && fetches) fetch_part(place, next, step);
        if (step + 1 < STEPS) {
            LOAD_MATRICES(rows[(step + 1) % 2], columns[(step + 1) % 2], start, step + 1)
            multiply_matrices(step % 2);
        }
    }
}

// Adds up the depth from `first` to before `last`; leaves the sums in `sums` and shared memory free.
void multiply(uint first, uint last) {
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i)
        [[unroll]] for (uint j = 0; j < BLOCKS_N; ++j) sums[i][j] = MATRIX_SUMS(0);
#ifdef SUMS_BEGIN
    SUMS_BEGIN
#endif
    [[unroll]] for (uint i = 0; i < STAGED_A; ++i) places_a[i] = place_a(word_of_a(i).x, word_of_a(i).y);
    [[unroll]] for (uint i = 0; i < STAGED_B; ++i) places_b[i] = place_b(word_of_b(i).x, word_of_b(i).y);

    const uint head = (last - first - 1) % TILE_K + 1;
    fetch_head(first, head);
    [[unroll]] for (uint i = 1; i < AHEAD; ++i) {
        const uint k = first + head + (i - 1) * TILE_K;
        if (k < last)
            [[unroll]] for (uint part = 0; part < PARTS; ++part) fetch_part(i, k, part);
    }
    share_tiles(0, 0);
    barrier();
    for (uint k = first + head;;) {
        [[unroll]] for (uint turn = 0; turn < TURNS; ++turn) {
            const uint next = k + (AHEAD - 1) * TILE_K;
            multiply_tiles(turn % BUFFERS, turn % AHEAD, next, next < last);
            if (k >= last) {
                multiply_matrices((STEPS - 1) % 2);
                barrier();
                return;
            }
            if (!LATE) multiply_matrices((STEPS - 1) % 2);
            if (BUFFERS == 1) barrier();
            share_tiles((turn + 1) % BUFFERS, (turn + 1) % AHEAD);
            if (LATE) multiply_matrices((STEPS - 1) % 2);
            barrier();
            k += TILE_K;
        }
    }
}

#endif
