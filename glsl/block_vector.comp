// Products of a few rows with weights in blocks: bound by one read of the weights.
//
//   y[m, n] = activation(alpha * sum over k of a[m, k] * number (include/block_codes.glsl) of code k of column n + beta * c[n])
//
// With a GATE there are twice as many columns of weights as of Y, and Y is the gate of column n times column n + p.columns.
//
// Bindings: A; B, weights as block_pack.comp lays them out; C, Y; see include/gemm.glsl.
// Constants: the format's. ROWS (1), rows of A that an invocation sums; LOCAL_SIZE_X invocations; LANES (8), how many of them share four
// columns and take turns at their chunks, of which LANES_NEAR (8, both powers of two, the latter no more than a subgroup) are neighbours;
// STAGED (0), words of shared memory that hold the rows of A, or 0 where they are read from memory; with UNROLL (2) of 1 loops stay loops,
// for drivers that are slow to compile.
// VECTOR_A (1): rows of A start on 16 bytes and have a multiple of 8 neighbours. VECTOR_Y, HAS_C, ADDEND, the activation's id.
// Grid: linear over groups of ROWS rows and groups of LOCAL_SIZE_X / LANES quads of columns, the latter neighbours.
//
// A chunk of a column is one load of 16 bytes (of 8 bits two), side by side for near lanes, and the next ones are on their way while one is
// multiplied. Near lanes need words of A that lie a chunk apart: a cache answers one such at a time, and as many of them took longer
// than all else. In shared memory those of neighbouring chunks lie side by side. Codes are summed
// less the middle of their range, which leaves next to nothing to cancel, and what that is short of is added once a block with the sum
// of A's numbers. The lanes' sums are added in a fixed order.

#include "tensor.glsl"
#include "gemm_quads.glsl"
#include "gate.glsl"
#include "block_codes.glsl"
#include "subgroups.glsl"

const uint HALVES = GATE != GATE_NONE ? 2 : 1;
const uint SUMS = HALVES * ROWS;
const uint TEAMS = LOCAL_SIZE_X / LANES;
const uint SPANS = LOCAL_SIZE_X / LANES_NEAR;
const uint BLOCKS_EACH = BLOCK < CHUNK ? CHUNK / BLOCK : 1;
const uint GROUPS_EACH = GROUPS_OF_EIGHT / BLOCKS_EACH;
const uint EIGHT_WORDS = T_BYTES / 2; // of eight numbers

layout(set = 0, binding = BINDING_A, std430) readonly buffer WordsA { uvec4 words_a[]; };

shared uvec4 staged[STAGED > 0 ? STAGED : 1];
shared vec4 span_sums[LANES > LANES_NEAR ? SUMS * SPANS : 1];

vec4 sums[SUMS];

// The word of eight numbers of row `row` of A, and of chunk `chunk` and its group g, that has number `w`.
uint staged_at(uint row, uint chunk, uint g, uint w) {
    return ((row * GROUPS_OF_EIGHT + g) * EIGHT_WORDS + w) * p.chunks + chunk;
}

// The first word of eight numbers of a row of A, from k on.
uint word_of_a(uint row, uint k) {
    return (BYTE_OFFSET_A / T_BYTES + min(row, p.rows - 1) * p.a_strides[2] + k) / (WORD_BYTES / T_BYTES);
}

// Group g of a chunk of a row of A, zeros past the end. The row is one of those from first_row on.
void load_eight(uint first_row, uint r, uint chunk, uint g, out float values[8]) {
    const uint k = chunk * CHUNK + g * 8;
    if (VECTOR_A != 0) {
        const bool inside = k < p.depth;
        [[unroll]] for (uint w = 0; w < EIGHT_WORDS; ++w) {
            uvec4 bits;
            if (STAGED > 0) bits = staged[staged_at(r, chunk, g, w)];
            else bits = inside ? words_a[word_of_a(first_row + r, inside ? k : 0) + w] : uvec4(0);
            [[unroll]] for (uint i = 0; i < 4; ++i) {
#if T_BYTES == 2
                const vec2 pair = unpackHalf2x16(bits[i]);
                values[2 * i] = pair.x, values[2 * i + 1] = pair.y;
#else
                values[4 * w + i] = uintBitsToFloat(bits[i]);
#endif
            }
        }
    } else {
        const uint start = min(first_row + r, p.rows - 1) * p.a_strides[2];
        [[unroll]] for (uint i = 0; i < 8; ++i)
            values[i] = k + i < p.depth ? load_a(start + min(k + i, p.depth - 1) * p.a_strides[3]) : 0.0;
    }
}

// Puts the rows from first_row on into shared memory. Neighbouring invocations have words of one chunk, which lie together in memory.
void stage_rows(uint first_row) {
    const uint each = p.chunks * GROUPS_OF_EIGHT * EIGHT_WORDS;
    for (uint i = gl_LocalInvocationIndex; i < ROWS * each; i += LOCAL_SIZE_X) {
        const uint row = i / each;
        const uint word = i - row * each;
        const uint eight = word / EIGHT_WORDS, w = word % EIGHT_WORDS;
        const bool inside = eight * 8 < p.depth;
        const uvec4 bits = inside ? words_a[word_of_a(first_row + row, inside ? eight * 8 : 0) + w] : uvec4(0);
        staged[staged_at(row, eight / GROUPS_OF_EIGHT, eight % GROUPS_OF_EIGHT, w)] = bits;
    }
}

vec4 products[ROWS];
float totals[ROWS];

// Adds the products of eight codes of each of four columns.
void multiply_eight(uint first_row, uint chunk, uint g, Chunk codes[4]) {
    float values[ROWS][8];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        load_eight(first_row, r, chunk, g, values[r]);
        if (OFFSET != OFFSET_NONE)
            [[unroll]] for (uint e = 0; e < 8; ++e) totals[r] += values[r][e];
    }
    [[unroll]] for (uint c = 0; c < 4; ++c) {
        float own[8];
        eight_of(codes[c], g, own);
        [[unroll]] for (uint r = 0; r < ROWS; ++r)
            [[unroll]] for (uint e = 0; e < 8; ++e) products[r][c] = fma(values[r][e], own[e], products[r][c]);
    }
}

// Adds those of a chunk's block number `part` to the sums from `to` on.
void multiply_block(uint to, uint first_row, uint chunk, uint part, Chunk codes[4], Terms terms) {
    [[unroll]] for (uint r = 0; r < ROWS; ++r) products[r] = vec4(0), totals[r] = 0.0;
    const uint first = part * GROUPS_EACH;
    if (UNROLL > 1) {
        [[unroll]] for (uint i = 0; i < GROUPS_EACH; ++i) multiply_eight(first_row, chunk, first + i, codes);
    } else {
        [[dont_unroll]] for (uint i = 0; i < GROUPS_EACH; ++i) multiply_eight(first_row, chunk, first + i, codes);
    }
    const vec4 rest = fma(terms.scale, vec4(float(CENTRE)) - terms.zero, terms.minimum);
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        sums[to + r] = fma(terms.scale, products[r], sums[to + r]);
        if (OFFSET != OFFSET_NONE) sums[to + r] = fma(rest, vec4(totals[r]), sums[to + r]);
    }
}

void main() {
    const uint invocation = workgroup_invocation();
    const uint near = invocation % LANES_NEAR, span = invocation / LANES_NEAR;
    const uint team = span % TEAMS, far = span / TEAMS;
    const uint quads = (p.columns + 3) / 4;
    const uint groups = (quads + TEAMS - 1) / TEAMS;
    const uint row_group = linear_workgroup() / groups;
    const uint first_row = row_group * ROWS;
    if (first_row >= p.rows) return;
    const uint first_quad = (linear_workgroup() - row_group * groups) * TEAMS;
    const uint quad = min(first_quad + team, quads - 1);

    const uint ends = HALVES * p.columns, behind = HALVES > 1 ? quads : 0;
    [[unroll]] for (uint r = 0; r < SUMS; ++r) sums[r] = vec4(0);
    Chunk next_codes[HALVES][4];
    Terms next_terms[HALVES][BLOCKS_EACH];
#define FETCH(at)                                                                                                              \
    [[unroll]] for (uint h = 0; h < HALVES; ++h) {                                                                             \
        const uint chunk = min(at, p.chunks - 1), own = quad + h * behind;                                                     \
        [[unroll]] for (uint c = 0; c < 4; ++c) next_codes[h][c] = load_chunk(min(own * 4 + c, ends - 1), chunk);              \
        [[unroll]] for (uint i = 0; i < BLOCKS_EACH; ++i) {                                                                    \
            const uint block = BLOCK < CHUNK ? chunk * BLOCKS_EACH + i : chunk * CHUNK / BLOCK;                                \
            next_terms[h][i] = terms_of(own, min(block, p.blocks - 1));                                                        \
        }                                                                                                                      \
    }
    uint first = far * LANES_NEAR + near;
    FETCH(first)
    if (STAGED > 0) {
        stage_rows(first_row);
        barrier();
    }
    while (first < p.chunks) {
        Chunk codes[HALVES][4];
        Terms terms[HALVES][BLOCKS_EACH];
        [[unroll]] for (uint h = 0; h < HALVES; ++h) {
            [[unroll]] for (uint c = 0; c < 4; ++c) codes[h][c] = next_codes[h][c];
            [[unroll]] for (uint i = 0; i < BLOCKS_EACH; ++i) terms[h][i] = next_terms[h][i];
        }
        const uint chunk = first;
        first += LANES;
        FETCH(first)
        [[unroll]] for (uint h = 0; h < HALVES; ++h)
            [[unroll]] for (uint i = 0; i < BLOCKS_EACH; ++i) multiply_block(h * ROWS, first_row, chunk, i, codes[h], terms[h][i]);
    }

    [[unroll]] for (uint distance = 1; distance < LANES_NEAR; distance *= 2)
        [[unroll]] for (uint r = 0; r < SUMS; ++r) sums[r] += subgroupShuffleXor(sums[r], distance);
    if (LANES > LANES_NEAR) {
        if (near == 0)
            [[unroll]] for (uint r = 0; r < SUMS; ++r) span_sums[r * SPANS + span] = sums[r];
        barrier();
        if (far > 0) return;
        [[unroll]] for (uint r = 0; r < SUMS; ++r)
            for (uint i = 1; i < LANES / LANES_NEAR; ++i) sums[r] += span_sums[r * SPANS + i * TEAMS + team];
    }
    if (first_quad + team >= quads) return;
    [[unroll]] for (uint r = 0; r < ROWS; ++r)
        if (near == r % LANES_NEAR) {
            if (GATE != GATE_NONE) store_gated(0, 0, first_row + r, quad * 4, sums[r], sums[SUMS - ROWS + r]);
            else store_quad(0, 0, first_row + r, quad * 4, sums[r]);
        }
}
