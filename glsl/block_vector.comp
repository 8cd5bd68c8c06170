// Products of a few rows with weights in blocks: bound by one read of the weights.
//
//   y[m, n] = activation(alpha * sum over k of a[m, k] * number (include/block_codes.glsl) of code k of column n + beta * c[n])
//
// With a GATE there are twice as many columns of weights as of Y, and Y is the gate of column n times column n + p.columns.
//
// Bindings: A; B, weights as block_pack.comp lays them out; C, Y; see include/gemm.glsl.
// Constants: the format's. ROWS (1), rows of A that an invocation sums; LOCAL_SIZE_X invocations; LANES (8), how many of them share four
// columns and take turns at their chunks, of which LANES_NEAR (8, both powers of two, the latter no more than a subgroup) are neighbours;
// UNROLL (2) chunks are in flight at a time, of each column or with a gate of both, and with 1 loops stay loops, for drivers that are
// slow to compile.
// VECTOR_A (1): rows of A start on 16 bytes and have a multiple of 8 neighbours. VECTOR_Y, HAS_C, ADDEND, the activation's id.
// Grid: linear over groups of ROWS rows and groups of LOCAL_SIZE_X / LANES quads of columns, the latter neighbours.
//
// A chunk of a column is one load of 16 bytes (of 8 bits two), side by side for near lanes. A's rows come from the nearest cache, which
// answers few addresses at a time: teams of near lanes beside each other have other columns, and read the same of A. Codes are summed
// less the middle of their range, which leaves next to nothing to cancel, and what that is short of is added once a block with the sum
// of A's numbers. The lanes' sums are added in a fixed order.

#include "tensor.glsl"
#include "gemm_quads.glsl"
#include "gate.glsl"
#include "block_codes.glsl"
#include "subgroups.glsl"

const uint HALVES = GATE != GATE_NONE ? 2 : 1;
const uint DEEP = UNROLL > HALVES ? UNROLL / HALVES : 1;
const uint SUMS = HALVES * ROWS;
const uint TEAMS = LOCAL_SIZE_X / LANES;
const uint SPANS = LOCAL_SIZE_X / LANES_NEAR;
const uint BLOCKS_EACH = BLOCK < CHUNK ? CHUNK / BLOCK : 1;
const uint GROUPS_EACH = GROUPS_OF_EIGHT / BLOCKS_EACH;

layout(set = 0, binding = BINDING_A, std430) readonly buffer WordsA { uvec4 words_a[]; };

shared vec4 span_sums[LANES > LANES_NEAR ? SUMS * SPANS : 1];

vec4 sums[SUMS];

// Eight numbers of a row of A from k on, zeros past the end.
void load_eight(uint row, uint k, out float values[8]) {
    const uint start = min(row, p.rows - 1) * p.a_strides[2];
    if (VECTOR_A != 0) {
        const bool inside = k < p.depth;
        const uint word = (BYTE_OFFSET_A / T_BYTES + start + (inside ? k : 0)) / (WORD_BYTES / T_BYTES);
        [[unroll]] for (uint w = 0; w < T_BYTES / 2; ++w) {
            const uvec4 bits = inside ? words_a[word + w] : uvec4(0);
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
        [[unroll]] for (uint i = 0; i < 8; ++i)
            values[i] = k + i < p.depth ? load_a(start + min(k + i, p.depth - 1) * p.a_strides[3]) : 0.0;
    }
}

vec4 products[ROWS];
float totals[ROWS];

// Adds the products of eight codes of each of four columns.
void multiply_eight(uint first_row, uint chunk, uint g, Chunk codes[4]) {
    float values[ROWS][8];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        load_eight(first_row + r, chunk * CHUNK + g * 8, values[r]);
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
    for (uint first = far * LANES_NEAR + near; first < p.chunks; first += DEEP * LANES) {
        Chunk codes[DEEP * HALVES][4];
        Terms terms[DEEP * HALVES][BLOCKS_EACH];
        [[unroll]] for (uint u = 0; u < DEEP * HALVES; ++u) {
            const uint chunk = min(first + u / HALVES * LANES, p.chunks - 1), own = quad + u % HALVES * behind;
            [[unroll]] for (uint c = 0; c < 4; ++c) codes[u][c] = load_chunk(min(own * 4 + c, ends - 1), chunk);
            [[unroll]] for (uint i = 0; i < BLOCKS_EACH; ++i)
                terms[u][i] = terms_of(own, min(BLOCK < CHUNK ? chunk * BLOCKS_EACH + i : chunk * CHUNK / BLOCK, p.blocks - 1));
        }
        [[unroll]] for (uint u = 0; u < DEEP * HALVES; ++u)
            [[unroll]] for (uint i = 0; i < BLOCKS_EACH; ++i)
                multiply_block(u % HALVES * ROWS, first_row, first + u / HALVES * LANES, i, codes[u], terms[u][i]);
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
