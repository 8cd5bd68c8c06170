// Products of a matrix with a few vectors (a product of few rows): bound by reading B once.
//
//   y = activation(alpha * sum over k of a[m, k] * b[k, n] + beta * c[m, n] + addend[m, n])
//
// With a GATE B has twice as many columns as Y, and Y is the gate of column n times column n + p.columns.
//
// Variant NORMALIZED: a is what include/normalized_row.glsl makes of A, whose squares are added up beside the products; the workgroup of the
// first columns writes the sum. There is one matrix then, in one part.
// Variant STAGED: more rows, whose terms pass through shared memory: each invocation would otherwise have those of all rows in registers.
// Blocks of B go from memory to registers, each asked for as soon as the one before it in its place is multiplied.
//
// Bindings: A, B, C, Addend, Y; see include/gemm.glsl. Where the columns, not the rows, are few, the host swaps the operands.
// Constants: ROWS (1), all rows of A, with a gate no more than 4, else 8; LOCAL_SIZE_X invocations, LANES (32, at least 2) of which share four columns and split
// their depth. ALONG_K (1): neighbouring invocations read neighbours along the depth (its stride in B is the smaller one),
// else neighbouring columns. LANES_NEAR (32): lanes along the depth that a subgroup surely has together, a power of two as LANES is.
// UNROLL (2) blocks of B are in flight at a time, with a gate half as many of both; VECTOR_A (1): A's rows are read four depths at
// a time; VECTOR_B (1): so is B, in the direction of ALONG_K; VECTOR_Y (1); PARTIAL (0), not with a gate; HAS_C (1), ADDEND (0), the
// activation's id; GATE (0), columns of Y then a multiple of 4.
// Grid: linear over matrices, splits and groups of LOCAL_SIZE_X / LANES quads of columns.
//
// An invocation multiplies blocks of four depths by four columns: four accesses of B, one of each row of A. The sums of lanes along the
// depth meet in their subgroups and, of these, in shared memory; those of other lanes in shared memory, two at a time. They are added
// in a fixed order. With PARTIAL the depth is split into p.splits parts of p.split_rounds times 4 * LANES, whose sums go to temporary
// memory as gemm_tiled's do.
// Chosen where the rows are too few for tiles.

#include "tensor.glsl"
#include "gemm_quads.glsl"
#include "gate.glsl"
#include "subgroups.glsl"

const uint COLUMNS = LOCAL_SIZE_X / LANES;
const uint HALVES = GATE != GATE_NONE ? 2 : 1;
const uint SUMS = HALVES * ROWS; // those of a row beside each other
const uint DEEP = UNROLL > HALVES ? UNROLL / HALVES : 1;
const uint NEAR = LANES < LANES_NEAR ? LANES : LANES_NEAR;
const uint SPANS = LOCAL_SIZE_X / NEAR;
const uint PAIRED = 2 * LOCAL_SIZE_X;

shared vec4 lane_sums[ALONG_K == 0 ? PAIRED : LANES > NEAR ? SUMS * SPANS : 1];

#ifdef NORMALIZED
const uint NORMALIZED_ROWS = ROWS;
#include "normalized_row.glsl"
float squares[ROWS];
bool writes_sum;
#endif

#ifdef STAGED
const uint ROW_QUADS = DEEP * LANES; // of a row, in a turn of the loop
const uint STAGED_QUADS = ROWS * ROW_QUADS;
const uint STAGED_EACH = (STAGED_QUADS + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;
shared vec4 staged_rows[2 * STAGED_QUADS];
vec4 on_their_way[STAGED_EACH];
#endif

layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Partials { vec4 partials[]; };

vec4 sums[SUMS];
uint a_start, b_start;
#include "gemm_blocks.glsl"

// Depths k to k + 3 of a row: as they are fetched, and their numbers, asked for once.
#ifdef NORMALIZED
Fetched fetch_row(uint row, uint k) { return fetch_numbers(row, k); }
vec4 numbers_of(Fetched fetched, uint row, uint k) {
    float numbers[4];
    numbers_of_row(fetched, row, k, writes_sum, squares[row], numbers);
    return vec4(numbers[0], numbers[1], numbers[2], numbers[3]);
}
#else
#define Fetched vec4
vec4 fetch_row(uint row, uint k) { return load_row(row, k); }
vec4 numbers_of(vec4 fetched, uint row, uint k) { return fetched; }
#endif

// A row with zeros for depths past the end.
vec4 inside_row(uint row, uint k) { return mix(vec4(0), numbers_of(fetch_row(row, k), row, k), inside(k)); }

// The blocks of round u of those that are loaded together, of depths from k on.
#define LOAD_BLOCKS(u, k) \
    [[unroll]] for (uint h = 0; h < HALVES; ++h) \
        [[unroll]] for (uint i = 0; i < 4; ++i) blocks[u * HALVES + h][i] = load_block(n + h * p.columns, k, i);

#ifdef STAGED
// Asks for the depths of all rows that a turn of the loop multiplies, from k on.
void fetch_rows(uint k) {
    [[unroll]] for (uint e = 0; e < STAGED_EACH; ++e) {
        const uint at = min(e * LOCAL_SIZE_X + workgroup_invocation(), STAGED_QUADS - 1);
        on_their_way[e] = fetch_row(at / ROW_QUADS, min(k + at % ROW_QUADS * 4, (p.depth - 1) / 4 * 4));
    }
}

void stage_rows(uint turn) {
    [[unroll]] for (uint e = 0; e < STAGED_EACH; ++e) {
        const uint at = e * LOCAL_SIZE_X + workgroup_invocation();
        if (at < STAGED_QUADS) staged_rows[turn * STAGED_QUADS + at] = on_their_way[e];
    }
}
#endif

// Where the partial sums of a row and columns n .. n + 3 go.
void store_partial(uint matrix, uint split, uint row, uint n, vec4 sum) {
    const uint line = (split * p.matrices + matrix) * ROWS + row;
    if (n < p.columns) partials[BYTE_OFFSET_Y / 16 + line * (p.partial_pitch / 4) + n / 4] = sum;
}

// Adds sums `first` and the next one, `low` and `high` of this invocation, over all lanes, and stores what they make.
void reduce(uint outer, uint inner, uint matrix, uint split, uint first_n, uint first, vec4 low, vec4 high) {
    const uint invocation = workgroup_invocation();
    if (first > 0) barrier();
    lane_sums[invocation] = low;
    lane_sums[LOCAL_SIZE_X + invocation] = high;
    barrier();
    // The first invocations add: one sum of four columns each, or with a gate two.
    const uint own = invocation / COLUMNS;
    if (own >= 2 / HALVES || first + own >= SUMS) return;
    const uint at = first_n + invocation % COLUMNS * 4;
    vec4 found[HALVES];
    [[unroll]] for (uint h = 0; h < HALVES; ++h) {
        found[h] = vec4(0);
        const uint start = (own + h) * LOCAL_SIZE_X + invocation % COLUMNS;
        for (uint i = 0; i < LANES; ++i) found[h] += lane_sums[start + i * COLUMNS];
#ifdef NORMALIZED
        found[h] *= row_factor((first + own) / HALVES);
#endif
    }
    const uint row = (first + own) / HALVES;
    if (GATE != GATE_NONE) store_gated(outer, inner, row, at, found[0], found[HALVES - 1]);
    else if (PARTIAL == 0) store_quad(outer, inner, row, at, found[0]);
    else store_partial(matrix, split, row, at, found[0]);
}
// With constant places: in a loop over the sums they leave the registers where there are more than a few, unrolled here or not. H200 (driver
// 580, 2026-11-29), us so and with such a loop: 4 rows by 768 x 768 6.4 and 8.3, by 4096 x 14336 60.5 and 62.1.
#define REDUCE(first) \
    if (first < SUMS) reduce(outer, inner, matrix, split, first_n, first, sums[min(first, SUMS - 1)], sums[min(first + 1, SUMS - 1)]);

void main() {
    const uint invocation = workgroup_invocation();
    const uint lane = ALONG_K != 0 ? invocation % LANES : invocation / COLUMNS;
    const uint column = ALONG_K != 0 ? invocation / LANES : invocation % COLUMNS;
    const uint groups = ((p.columns + 3) / 4 + COLUMNS - 1) / COLUMNS;
    const uint part = linear_workgroup() / groups;
    const uint matrix = part / p.splits;
    const uint split = part - matrix * p.splits;
    if (matrix >= p.matrices) return;
    const uint outer = matrix / p.inner_batch;
    const uint inner = matrix - outer * p.inner_batch;
    const uint first_n = (linear_workgroup() - part * groups) * COLUMNS * 4;
    const uint n = first_n + column * 4;
    a_start = matrix_start(outer, inner, p.a_strides);
    b_start = matrix_start(outer, inner, p.b_strides);

    [[unroll]] for (uint s = 0; s < SUMS; ++s) sums[s] = vec4(0);
#ifdef NORMALIZED
    [[unroll]] for (uint r = 0; r < ROWS; ++r) squares[r] = 0.0;
    writes_sum = first_n == 0 && column == 0;
#endif
    // In a round every lane has a block; whole rounds have all of it inside.
    const uint step = 4 * LANES;
    const uint end = min((split + 1) * p.split_rounds, (p.depth + step - 1) / step);
    const uint whole = min(end, p.depth / step);
    uint round = split * p.split_rounds;
#ifdef STAGED
    vec4 blocks[DEEP * HALVES][4];
    if (round + DEEP <= whole) {
        fetch_rows(round * step);
        [[unroll]] for (uint u = 0; u < DEEP; ++u) LOAD_BLOCKS(u, (round + u) * step + lane * 4)
        stage_rows(0);
        barrier();
    }
    uint turn = 0;
    for (; round + DEEP <= whole; round += DEEP) {
        const uint next = min(round + DEEP, whole - DEEP); // the last time the same again, which nobody uses
        fetch_rows(next * step);
        [[unroll]] for (uint u = 0; u < DEEP; ++u) {
            [[unroll]] for (uint r = 0; r < ROWS; ++r) {
                const vec4 values = staged_rows[turn * STAGED_QUADS + r * ROW_QUADS + u * LANES + lane];
                [[unroll]] for (uint h = 0; h < HALVES; ++h) multiply_block(r * HALVES + h, values, blocks[u * HALVES + h]);
            }
            LOAD_BLOCKS(u, (next + u) * step + lane * 4)
        }
        turn ^= 1;
        stage_rows(turn);
        barrier();
    }
#else
    for (; round + DEEP <= whole; round += DEEP) {
        vec4 blocks[DEEP * HALVES][4];
        [[unroll]] for (uint u = 0; u < DEEP; ++u) LOAD_BLOCKS(u, (round + u) * step + lane * 4)
        Fetched fetched[DEEP][ROWS]; // before the first of them is used, and with it something written
        [[unroll]] for (uint u = 0; u < DEEP; ++u)
            [[unroll]] for (uint r = 0; r < ROWS; ++r) fetched[u][r] = fetch_row(r, (round + u) * step + lane * 4);
        [[unroll]] for (uint u = 0; u < DEEP; ++u)
            [[unroll]] for (uint r = 0; r < ROWS; ++r) {
                const vec4 values = numbers_of(fetched[u][r], r, (round + u) * step + lane * 4);
                [[unroll]] for (uint h = 0; h < HALVES; ++h) multiply_block(r * HALVES + h, values, blocks[u * HALVES + h]);
            }
    }
#endif
    for (; round < end; ++round) {
        const uint k = round * step + lane * 4;
        if (k < p.depth) {
            vec4 rows[ROWS];
            [[unroll]] for (uint r = 0; r < ROWS; ++r) rows[r] = inside_row(r, k);
            [[unroll]] for (uint h = 0; h < HALVES; ++h) {
                vec4 block[4];
                [[unroll]] for (uint i = 0; i < 4; ++i) block[i] = inside_part(load_block(n + h * p.columns, k, i), k, i);
                [[unroll]] for (uint r = 0; r < ROWS; ++r) multiply_block(r * HALVES + h, rows[r], block);
            }
        }
    }
#ifdef NORMALIZED
    // Lanes of the first column have all of a row between them.
    [[unroll]] for (uint r = 0; r < ROWS; ++r) keep_squares(r, column == 0 ? squares[r] : 0.0, NEAR);
    if (ALONG_K != 0 && LANES <= NEAR) barrier(); // else there is one before the sums are read
#endif

    if (ALONG_K != 0) {
        const uint near = invocation % NEAR, span = invocation / NEAR;
        [[unroll]] for (uint distance = 1; distance < NEAR; distance *= 2)
            [[unroll]] for (uint s = 0; s < SUMS; ++s) sums[s] += subgroupShuffleXor(sums[s], distance);
        if (LANES > NEAR) {
            if (near == 0)
                [[unroll]] for (uint s = 0; s < SUMS; ++s) lane_sums[s * SPANS + span] = sums[s];
            barrier();
            if (lane >= NEAR) return;
            [[unroll]] for (uint s = 0; s < SUMS; ++s)
                for (uint i = 1; i < LANES / NEAR; ++i) sums[s] += lane_sums[s * SPANS + span + i];
        }
        [[unroll]] for (uint r = 0; r < ROWS; ++r)
            if (near == r % NEAR) {
#ifdef NORMALIZED
                [[unroll]] for (uint h = 0; h < HALVES; ++h) sums[r * HALVES + h] *= row_factor(r);
#endif
                if (GATE != GATE_NONE) store_gated(outer, inner, r, n, sums[r * HALVES], sums[r * HALVES + HALVES - 1]);
                else if (PARTIAL == 0) store_quad(outer, inner, r, n, sums[r]);
                else store_partial(matrix, split, r, n, sums[r]);
            }
        return;
    }

    REDUCE(0) REDUCE(2) REDUCE(4) REDUCE(6)
}
