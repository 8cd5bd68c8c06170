// A workgroup's tile of a product y = a b, in float32: y is (rows, columns), a (rows, depth), b (depth, columns).
//
// Constants of the kernel:
//   LOCAL_SIZE_X               invocations: SLICES times TILE_M / BLOCK_M * TILE_N / BLOCK_N, which is a multiple of 32
//   SLICES                     teams of invocations that share the rounds, a power of two; each has tiles of its own
//   TILE_M, TILE_N             the workgroup's rows and columns
//   BLOCK_M, BLOCK_N           those that an invocation sums in its registers; multiples of 4
//   TILE_K                     of the depth, that a round multiplies; a multiple of 4
//   WHOLE_ROUNDS               1 where the depth consists of whole rounds: then no operand ends within one
// TILE_M / BLOCK_M is 2, 4 or a multiple of 4, and TILE_N / BLOCK_N a multiple of 16 or 8, so that 32 invocations are whole.
//
// The kernel says where the operands come from, in two functions that it defines after including this:
//   void fetch_round(uint round)                 begins this invocation's share of a round's loads, into registers of its own
//   void place_round(uint round, uint buffer_)   puts them into shared memory, with the functions below
// (product_operand.glsl has both for an operand that is a strided matrix), calls
//   multiply_rounds(first, end)                  all invocations; rounds first to end - 1, at least one
// and finds its block in
//   sums[i][j][c]                                row tile_row(i), column tile_column(j) + c of the tile; of the first slice,
//                                                slice() == 0, only
// Sums begin with 0; SUMS_BEGIN, if it is defined, is a statement that makes them begin otherwise: loads there wait for memory
// together with those of the first round.
//
// What a round puts:
//   put_a(buffer, k, m, value)                   one number;     k < TILE_K, m < TILE_M
//   put_a_quad(buffer, k, m, vec4)               four rows m .. m + 3, m a multiple of 4
//   put_b(buffer, k, n, value), put_b_quad(...)  the same for b and columns
// Every place of both tiles must be written each round: zeros where an operand ends.
//
// While a round is multiplied out of one half of shared memory, the next one is under way to registers and then to the
// other half: one barrier a round. Rounds are not unrolled: short code is fast (see attention_blocks.comp). Tiles lie depth
// first, in vec4, so that a fragment is read in accesses of 16 bytes; a quad of padding a row spreads over the banks what is
// written along the depth.
// An invocation's block is in quads of rows and columns, which lie a whole tile's worth of invocations apart.
// A round waits for memory longer than it multiplies where few workgroups run: slices then wait at the same time. Their sums
// are added in the end, by halves, through the columns' shared memory: TILE_M is at most 4 * TILE_K where there are several.

#ifndef DMLVK_PRODUCT_TILE_GLSL
#define DMLVK_PRODUCT_TILE_GLSL

#include "bands.glsl"

// A slice's invocations, and their lanes along rows and columns.
const uint INVOCATIONS = LOCAL_SIZE_X / SLICES;
const uint LANES_M = TILE_M / BLOCK_M;
const uint LANES_N = TILE_N / BLOCK_N;
const uint BLOCK_QUADS_M = BLOCK_M / 4;
const uint BLOCK_QUADS_N = BLOCK_N / 4;
// Blocks of more than 64 sums leave registers for two workgroups a processor at most.
const bool LARGE = BLOCK_M * BLOCK_N > 64;
// Of 32 invocations, those side by side along rows and columns.
const uint MOST_M = LARGE ? 4 : 8;
const uint GROUP_M = LANES_M < MOST_M ? LANES_M : MOST_M;
const uint GROUP_N = 32 / GROUP_M;

// Short rounds stage the last one once more, in vain: a branch around that costs registers that are moved about in each round. On an
// H100 (2026-11-27), convolutions of one tap: of 512 to 128 channels of 32 x 28 x 28 pixels 91 us and 109, of 256 to 128 of 32 x 56 x
// 56 166 and 178. Rounds of 16 lose by it: 120 and 104, products 703 and 655.
const bool SHORT_ROUNDS = TILE_K <= 8;

// Whether the first factors of a round are on their way while the last ones of the round before are multiplied, behind the barrier. It takes
// registers: H200 (driver 580, 2026-11-29), 4096^3, rounds of 8 and 128 invocations of 128 sums 49.6 TFLOP/s so and 46.1 without, rounds
// of 16 and 64 invocations of 64 46.0 and 44.1, but 128 invocations of 64 46.7 and 46.9, of 128 46.5 and 47.1; products of 192 x 128 x
// 128 x 64 17.8 us and 13.5, and of 512 rows with weights in Q4_K 1,846 and 1,621, for want of a third workgroup.
const bool STEADY = SLICES == 1 && INVOCATIONS * TILE_K <= 1024;

// In quads, a row of the tiles and half of a slice's memory. Where 16 of the depth lie side by side, two of 8 neighbours still write to the
// same banks. To set every 8 rows further apart, so that none do, costs registers: 4096^3 with B transposed 2,912 us so and 2,914 without,
// products of 192 x 128 x 128 x 64 18.5 and 13.0.
const uint PITCH_A = TILE_M / 4 + 1;
const uint PITCH_B = TILE_N / 4 + 1;
const uint BUFFER_A = TILE_K * PITCH_A;
const uint BUFFER_B = TILE_K * PITCH_B;

shared vec4 tile_a[2 * SLICES * BUFFER_A];
shared vec4 tile_b[2 * SLICES * BUFFER_B];

vec4 sums[BLOCK_M][BLOCK_QUADS_N];

void fetch_round(uint round);
void place_round(uint round, uint buffer_);

uint slice() { return SLICES == 1 ? 0 : gl_LocalInvocationID.x / INVOCATIONS; }
uint invocation() { return SLICES == 1 ? gl_LocalInvocationID.x : gl_LocalInvocationID.x % INVOCATIONS; }

void put_a(uint buffer_, uint k, uint m, float value) { tile_a[buffer_ * BUFFER_A + k * PITCH_A + m / 4][m % 4] = value; }
void put_b(uint buffer_, uint k, uint n, float value) { tile_b[buffer_ * BUFFER_B + k * PITCH_B + n / 4][n % 4] = value; }
void put_a_quad(uint buffer_, uint k, uint m, vec4 values) { tile_a[buffer_ * BUFFER_A + k * PITCH_A + m / 4] = values; }
void put_b_quad(uint buffer_, uint k, uint n, vec4 values) { tile_b[buffer_ * BUFFER_B + k * PITCH_B + n / 4] = values; }

// Where this invocation's block begins, in quads. Of small blocks, two neighbours share columns and every second one rows:
// accesses of 16 bytes are made for 16 invocations at a time then. On an H200: 42 TFLOP/s with 64 sums an invocation, rows
// of 8 by 4 invocations 41; with 128 sums 30 and 45.
uint lane_m() {
    const uint lane = invocation() % 32;
    const uint inner = LARGE ? lane / GROUP_N : lane / (2 * GROUP_N) * 2 + lane % 2;
    return invocation() / 32 / (LANES_N / GROUP_N) * GROUP_M + inner;
}

uint lane_n() {
    const uint lane = invocation() % 32;
    const uint inner = LARGE ? lane % GROUP_N : lane / 2 % GROUP_N;
    return invocation() / 32 % (LANES_N / GROUP_N) * GROUP_N + inner;
}

uint tile_row(uint i) { return (i / 4 * LANES_M + lane_m()) * 4 + i % 4; }
uint tile_column(uint j) { return (j * LANES_N + lane_n()) * 4; }

// An invocation's factors at a depth, and those of the next one, which are asked for a step ahead.
vec4 rows[2][BLOCK_QUADS_M], columns[2][BLOCK_QUADS_N];

void load_factors(uint buffer_, uint k, uint slot) {
    const uint a_start = buffer_ * BUFFER_A + k * PITCH_A + lane_m();
    const uint b_start = buffer_ * BUFFER_B + k * PITCH_B + lane_n();
    [[unroll]] for (uint i = 0; i < BLOCK_QUADS_M; ++i) rows[slot][i] = tile_a[a_start + i * LANES_M];
    [[unroll]] for (uint j = 0; j < BLOCK_QUADS_N; ++j) columns[slot][j] = tile_b[b_start + j * LANES_N];
}

// Two columns at a time, down one pair and up the next, so that each product shares a factor with the one before. H200 (driver 580,
// 2026-11-29), 4096^3 in rounds of 16: 47.1 TFLOP/s so, 46.8 row by row, there and back, 45.4 row by row, 46.1 in squares of 2, 45.1 in
// squares of 4. Products alone, of factors that stay in registers, reach 54, 55 row by row, and 57 with two rows at a time, which
// are no faster with all else; with factors from shared memory 52.
void multiply_factors(uint slot) {
    [[unroll]] for (uint pair = 0; pair < BLOCK_N / 2; ++pair)
        [[unroll]] for (uint step = 0; step < BLOCK_M; ++step) {
            const uint i = pair % 2 == 0 ? step : BLOCK_M - 1 - step;
            [[unroll]] for (uint side = 0; side < 2; ++side) {
                const uint j = 2 * pair + (side + step) % 2;
                sums[i][j / 4][j % 4] = fma(rows[slot][i / 4][i % 4], columns[slot][j / 4][j % 4], sums[i][j / 4][j % 4]);
            }
        }
}

// Multiplies all of a round but the last step, whose factors it loads; the first step's are loaded.
void multiply_round(uint buffer_) {
    [[unroll]] for (uint k = 0; k + 1 < TILE_K; ++k) {
        load_factors(buffer_, k + 1, (k + 1) % 2);
        multiply_factors(k % 2);
    }
}

// Adds the sums of all slices to those of the first.
void add_slices() {
    [[unroll]] for (uint half_ = SLICES / 2; half_ > 0; half_ /= 2) {
        const uint block = BLOCK_M * BLOCK_QUADS_N * INVOCATIONS;
        const uint start = slice() % half_ * block + invocation();
        if (slice() >= half_ && slice() < 2 * half_) {
            [[unroll]] for (uint i = 0; i < BLOCK_M; ++i)
                [[unroll]] for (uint j = 0; j < BLOCK_QUADS_N; ++j)
                    tile_b[start + (i * BLOCK_QUADS_N + j) * INVOCATIONS] = sums[i][j];
        }
        barrier();
        if (slice() < half_) {
            [[unroll]] for (uint i = 0; i < BLOCK_M; ++i)
                [[unroll]] for (uint j = 0; j < BLOCK_QUADS_N; ++j)
                    sums[i][j] += tile_b[start + (i * BLOCK_QUADS_N + j) * INVOCATIONS];
        }
        barrier();
    }
}

void multiply_rounds(uint first, uint end) {
    [[unroll]] for (uint i = 0; i < BLOCK_M; ++i)
        [[unroll]] for (uint j = 0; j < BLOCK_QUADS_N; ++j) sums[i][j] = vec4(0);
#ifdef SUMS_BEGIN
    SUMS_BEGIN
#endif
    const uint count = (end - first + SLICES - 1) / SLICES;
    const uint own = first + slice() * count;
    const uint buffers = slice() * 2;
    // A slice without rounds, where they do not come out even, reads the last one in vain: nothing else keeps its loads inside.
    const uint begin = SLICES == 1 ? own : min(own, end - 1);
    fetch_round(begin);
    place_round(begin, buffers);
    barrier();
    if (STEADY) load_factors(buffers, 0, 0);
    uint now = buffers;
    [[dont_unroll]] for (uint i = 0; i < count; ++i) {
        const uint round = own + i;
        const uint next = min(round + 1, end - 1);
        const bool more = SHORT_ROUNDS || (i + 1 < count && round + 1 < end);
        if (more) fetch_round(next);
        if (STEADY) {
            multiply_round(now);
        } else if (SLICES == 1 || round < end) {
            load_factors(now, 0, 0);
            multiply_round(now);
            multiply_factors((TILE_K - 1) % 2);
        }
        now ^= 1;
        if (more) place_round(next, now);
        barrier();
        if (STEADY) {
            load_factors(now, 0, 0); // after the last round in vain
            multiply_factors((TILE_K - 1) % 2);
        }
    }
    if (SLICES > 1) add_slices();
}

#endif
