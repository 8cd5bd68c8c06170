// Attention in tiles as attention_tiles.comp has it, for many rows: an invocation has a block of 8 rows by 8 keys of scores and
// of 8 rows by COLUMNS quads of sums, and every factor lies in shared memory with the summed dimension first, so that four
// accesses of 16 bytes are multiplied to 64 terms, where tiles need six.
//
// A chunk, DEPTH elements of a tile's queries and keys or DEPTH of its values, is multiplied out of one half of the staging
// memory while the next one is under way to registers and then to the other half: one barrier a chunk.
//
// Short code is fast here. On an H200, programs of 72 KB and more took one to seven times as long from one pipeline of the same
// code to the next; products alone, in 74 KB, took 1.5 ms, and 7.1 without barriers, which keep subgroups at the same
// instructions. Their loops do not fit a processor's cache of instructions, it seems. So chunks are short and not unrolled as a
// whole, and the exponential is the shortest.
//
// What it takes on an H200, as experiments that leave out one part show: of 2.03 ms for 64 heads of 2048 rows of 64, products
// alone 1.59 (43 TFLOP/s), exponentials 0.17, loads 0.24, barriers 0.06.
//
// Bindings: Q, K, V, BIAS, MASK, RELATIVE, LENGTHS, SINKS read, Y written.
// Numbers of the manifest: BLOCK rows and keys of an invocation, and the UNROLLED terms of a loop's body.
// Constants: TILE_ROWS, TILE_KEYS, multiples of 8, whose 64th is the number of invocations; TILE_COLUMNS, a multiple of half
// of TILE_KEYS; DEPTH, a multiple of UNROLLED that divides TILE_KEYS; WHOLE, where head_size is a multiple of DEPTH and value_size
// is TILE_COLUMNS. TILE_KEYS / 4 invocations are of one subgroup.
// Grid: x over tiles of rows, y over (batch entry, head of keys).
//
// Everything is staged and summed in float32, so both types lose nothing on the way. What lies behind the last key counts as
// 0 with a weight of 0. Any sizes and strides, but no sequences without padding between them; where all rows consist of aligned
// quads they are loaded so.

#include "attention.glsl"
#include "subgroups.glsl"

layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YQuads { QUAD y_quads[]; };

const uint LANES_M = TILE_ROWS / BLOCK;
const uint LANES_N = TILE_KEYS / BLOCK;
const uint COLUMNS = TILE_COLUMNS / (4 * LANES_N);
const uint DEPTH_QUADS = DEPTH / 4;
const uint COLUMN_QUADS = TILE_COLUMNS / 4;

// In quads, with one of padding, which spreads over the banks what is written along the depth.
const uint ROW_PITCH = TILE_ROWS / 4 + 1;
const uint KEY_PITCH = TILE_KEYS / 4 + 1;

const uint KEYS_STAGE = DEPTH * KEY_PITCH;
const uint QUERIES_STAGE = DEPTH * ROW_PITCH;
const uint VALUES_STAGE = DEPTH * COLUMN_QUADS;
const uint STAGE = KEYS_STAGE + QUERIES_STAGE > VALUES_STAGE ? KEYS_STAGE + QUERIES_STAGE : VALUES_STAGE;

// What an invocation stages of a chunk.
const uint KEY_QUADS = TILE_KEYS * DEPTH_QUADS;
const uint QUERY_QUADS = TILE_ROWS * DEPTH_QUADS;
const uint KEY_SHARE = (KEY_QUADS + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;
const uint QUERY_SHARE = (QUERY_QUADS + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;
const uint VALUE_SHARE = (VALUES_STAGE + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;

shared vec4 stage[2 * STAGE];
shared vec4 weights[TILE_KEYS * ROW_PITCH];

vec4 staged[KEY_SHARE > VALUE_SHARE ? KEY_SHARE : VALUE_SHARE]; // keys or values
vec4 staged_queries[QUERY_SHARE];
vec4 products[BLOCK][2];
vec4 sums[BLOCK][COLUMNS];

Sequence sequence;
uint key_head;
uint rows;
uint first_row;
uint end_key;
uint invocation;
uint lane_m;
uint lane_n;

uint head_of(uint row) { return key_head * GROUP + row % GROUP; }

uint tile_row(uint i) { return (i / 4 * LANES_M + lane_m) * 4 + i % 4; }
uint tile_key(uint j) { return (j / 4 * LANES_N + lane_n) * 4 + j % 4; }
uint row_of(uint i) { return min(first_row + tile_row(i), rows - 1); }

// The first element and the line of access i of an invocation's share of lines of DEPTH elements.
uvec2 place_of(uint i, uint quads) {
    const uint e = min(i * LOCAL_SIZE_X + invocation, quads - 1);
    return uvec2(e % DEPTH_QUADS * 4, e / DEPTH_QUADS);
}

// The loads of a chunk, without a branch: places are clamped, and what lies behind an end becomes 0 when it is placed.
void fetch_keys(uint first_key, uint first_d) {
    [[unroll]] for (uint i = 0; i < KEY_SHARE; ++i) {
        const uvec2 place = place_of(i, KEY_QUADS);
        const uint d = WHOLE != 0 ? first_d + place.x : min(first_d + place.x, (p.head_size - 1) / 4 * 4);
        staged[i] = load_k(k_start(sequence, min(first_key + place.y, sequence.keys - 1), key_head), key_head, d);
    }
    [[unroll]] for (uint i = 0; i < QUERY_SHARE; ++i) {
        const uvec2 place = place_of(i, QUERY_QUADS);
        const uint row = min(first_row + place.y, rows - 1);
        const uint d = WHOLE != 0 ? first_d + place.x : min(first_d + place.x, (p.head_size - 1) / 4 * 4);
        staged_queries[i] = load_q(q_start(sequence, row / GROUP, head_of(row)), head_of(row), d);
    }
}

void put_column(uint at, uint pitch, uint line, vec4 values) {
    [[unroll]] for (uint e = 0; e < 4; ++e) stage[at + e * pitch + line / 4][line % 4] = values[e];
}

void place_keys(uint at, uint first_d) {
    [[unroll]] for (uint i = 0; i < KEY_SHARE; ++i) {
        if (KEY_QUADS % LOCAL_SIZE_X != 0 && i * LOCAL_SIZE_X + invocation >= KEY_QUADS) break;
        const uvec2 place = place_of(i, KEY_QUADS);
        if (WHOLE == 0 && first_d + place.x >= p.head_size) staged[i] = vec4(0.0);
        put_column(at + place.x * KEY_PITCH, KEY_PITCH, place.y, staged[i]);
    }
    [[unroll]] for (uint i = 0; i < QUERY_SHARE; ++i) {
        if (QUERY_QUADS % LOCAL_SIZE_X != 0 && i * LOCAL_SIZE_X + invocation >= QUERY_QUADS) break;
        const uvec2 place = place_of(i, QUERY_QUADS);
        if (WHOLE == 0 && first_d + place.x >= p.head_size) staged_queries[i] = vec4(0.0);
        put_column(at + KEYS_STAGE + place.x * ROW_PITCH, ROW_PITCH, place.y, staged_queries[i]);
    }
}

void fetch_values(uint first_key) {
    [[unroll]] for (uint i = 0; i < VALUE_SHARE; ++i) {
        const uint e = min(i * LOCAL_SIZE_X + invocation, VALUES_STAGE - 1);
        const uint j = min(first_key + e / COLUMN_QUADS, sequence.keys - 1);
        const uint first_d = 4 * (e % COLUMN_QUADS);
        const uint column = WHOLE != 0 ? first_d : min(first_d, (p.value_size - 1) / 4 * 4);
        staged[i] = load_v(v_start(sequence, j, key_head), key_head, column);
    }
}

void place_values(uint at, uint first_key) {
    [[unroll]] for (uint i = 0; i < VALUE_SHARE; ++i) {
        const uint e = i * LOCAL_SIZE_X + invocation;
        if (VALUES_STAGE % LOCAL_SIZE_X != 0 && e >= VALUES_STAGE) break;
        if (WHOLE == 0 && 4 * (e % COLUMN_QUADS) >= p.value_size) staged[i] = vec4(0.0);
        if (first_key + DEPTH > end_key && first_key + e / COLUMN_QUADS >= end_key) staged[i] = vec4(0.0);
        stage[at + e] = staged[i];
    }
}

// Two columns of `quads` quads at a time, down one pair and up the next: see product_tile.glsl. H200 (driver 580, 2026-11-29), us so and row
// by row: 64 heads of 2048 rows of 64 1,888 and 1,949, 32 of 2048 of 128 1,767 and 1,830, 96 of 512 of 64 244 and 252.
#define ADD_PRODUCTS(totals, a, b, quads)                                                                 \
    [[unroll]] for (uint pair = 0; pair < 2 * quads; ++pair)                                              \
        [[unroll]] for (uint step = 0; step < BLOCK; ++step)                                              \
            [[unroll]] for (uint side = 0; side < 2; ++side) {                                            \
                const uint i = pair % 2 == 0 ? step : BLOCK - 1 - step;                                   \
                const uint j = 2 * pair + (side + step) % 2;                                              \
                totals[i][j / 4][j % 4] = fma(a[i / 4][i % 4], b[j / 4][j % 4], totals[i][j / 4][j % 4]); \
            }

void multiply_keys(uint at) {
    [[dont_unroll]] for (uint first = 0; first < DEPTH; first += UNROLLED) {
        [[unroll]] for (uint term = 0; term < UNROLLED; ++term) {
            const uint k = first + term;
            vec4 a[2], b[2];
            [[unroll]] for (uint i = 0; i < 2; ++i) {
                a[i] = stage[at + KEYS_STAGE + k * ROW_PITCH + i * LANES_M + lane_m];
                b[i] = stage[at + k * KEY_PITCH + i * LANES_N + lane_n];
            }
            ADD_PRODUCTS(products, a, b, 2)
        }
    }
}

void multiply_values(uint at, uint first_key) {
    [[dont_unroll]] for (uint first = 0; first < DEPTH; first += UNROLLED) {
        [[unroll]] for (uint term = 0; term < UNROLLED; ++term) {
            const uint k = first + term;
            vec4 a[2], b[COLUMNS];
            [[unroll]] for (uint i = 0; i < 2; ++i) a[i] = weights[(first_key + k) * ROW_PITCH + i * LANES_M + lane_m];
            [[unroll]] for (uint c = 0; c < COLUMNS; ++c) b[c] = stage[at + k * COLUMN_QUADS + c * LANES_N + lane_n];
            ADD_PRODUCTS(sums, a, b, COLUMNS)
        }
    }
}

void main() {
    const uvec2 own = own_tile();
    const uint entry = own.y / p.key_heads;
    key_head = own.y - entry * p.key_heads;
    sequence = sequence_of(entry);
    rows = sequence.queries * GROUP;
    first_row = own.x * TILE_ROWS;
    if (first_row >= rows) return;
    invocation = workgroup_invocation();
    // Two neighbours share keys and columns and every second one rows: accesses of 16 bytes are made for 16 invocations.
    lane_n = invocation / 2 % LANES_N;
    lane_m = invocation / (2 * LANES_N) * 2 + invocation % 2;

    const uint last_row = min(first_row + TILE_ROWS, rows) - 1;
    end_key = keys_seen(sequence, last_row / GROUP);
    const uint start_key = first_seen(sequence, first_row / GROUP) / TILE_KEYS * TILE_KEYS;

    // The keys that all rows see.
    const uint from_all = first_seen(sequence, last_row / GROUP);
    const uint end_all = keys_seen(sequence, first_row / GROUP);
    const uint last_chunk = (p.head_size - 1) / DEPTH * DEPTH;

    float peaks[BLOCK];
    float totals[BLOCK]; // of this invocation's weights; the sinks are the first one's
    [[unroll]] for (uint i = 0; i < BLOCK; ++i) {
        peaks[i] = first_peak(head_of(row_of(i)));
        totals[i] = lane_n == 0 ? first_weights() : 0.0;
        [[unroll]] for (uint c = 0; c < COLUMNS; ++c) sums[i][c] = vec4(0.0);
    }

    uint at = 0;
    if (start_key < end_key) {
        fetch_keys(start_key, 0);
        place_keys(at, 0);
        barrier();
    }
    [[dont_unroll]] for (uint first_key = start_key; first_key < end_key; first_key += TILE_KEYS) {
        [[unroll]] for (uint i = 0; i < BLOCK; ++i)
            [[unroll]] for (uint j = 0; j < 2; ++j) products[i][j] = vec4(0.0);
        [[dont_unroll]] for (uint d = 0; d < last_chunk; d += DEPTH) {
            fetch_keys(first_key, d + DEPTH);
            multiply_keys(at);
            at = STAGE - at;
            place_keys(at, d + DEPTH);
            barrier();
        }
        fetch_values(first_key);
        multiply_keys(at);
        at = STAGE - at;

        // What is behind the last key is read where that one is; a tile that some row does not see all of has scores of -INFINITY.
        float higher[BLOCK];
        uint raised = 0;
        [[unroll]] for (uint i = 0; i < BLOCK; ++i) {
            const uint s = row_of(i) / GROUP;
            [[unroll]] for (uint j = 0; j < BLOCK; ++j) {
                const uint key = min(first_key + tile_key(j), sequence.keys - 1);
                products[i][j / 4][j % 4] = scaled(products[i][j / 4][j % 4]) + added(sequence, s, head_of(row_of(i)), key);
            }
            if (first_key < from_all || first_key + TILE_KEYS > end_all) {
                const uint from = first_seen(sequence, s);
                const uint seen = max(min(end_key, keys_seen(sequence, s)), from) - from;
                [[unroll]] for (uint j = 0; j < BLOCK; ++j)
                    if (first_key + tile_key(j) - from >= seen) products[i][j / 4][j % 4] = -INFINITY;
            }
            higher[i] = peaks[i];
            [[unroll]] for (uint j = 0; j < BLOCK; ++j) higher[i] = max(higher[i], products[i][j / 4][j % 4]);
            [[unroll]] for (uint distance = 2; distance < 2 * LANES_N; distance *= 2)
                higher[i] = max(higher[i], subgroupShuffleXor(higher[i], distance));
            raised |= uint(higher[i] > peaks[i]);
        }
        if (raised != 0) {
            [[unroll]] for (uint i = 0; i < BLOCK; ++i) {
                const float factor = exp_of_negative(peaks[i] - subtracted(higher[i]));
                peaks[i] = higher[i];
                totals[i] *= factor;
                [[unroll]] for (uint c = 0; c < COLUMNS; ++c) sums[i][c] *= factor;
            }
        }
        [[unroll]] for (uint i = 0; i < 2; ++i)
            [[unroll]] for (uint j = 0; j < BLOCK; ++j) {
                vec4 weight;
                [[unroll]] for (uint e = 0; e < 4; ++e) {
                    weight[e] = exp_weight(products[4 * i + e][j / 4][j % 4] - subtracted(peaks[4 * i + e]));
                    totals[4 * i + e] += weight[e];
                }
                weights[tile_key(j) * ROW_PITCH + i * LANES_M + lane_m] = weight;
            }
        place_values(at, first_key);
        barrier();

        const uint last_value_chunk = (min(end_key - first_key, TILE_KEYS) - 1) / DEPTH * DEPTH;
        [[dont_unroll]] for (uint k = 0; k < last_value_chunk; k += DEPTH) {
            fetch_values(first_key + k + DEPTH);
            multiply_values(at, k);
            at = STAGE - at;
            place_values(at, first_key + k + DEPTH);
            barrier();
        }
        fetch_keys(first_key + TILE_KEYS, 0);
        multiply_values(at, last_value_chunk);
        at = STAGE - at;
        place_keys(at, 0);
        barrier();
    }

    [[unroll]] for (uint i = 0; i < BLOCK; ++i)
        [[unroll]] for (uint distance = 2; distance < 2 * LANES_N; distance *= 2)
            totals[i] += subgroupShuffleXor(totals[i], distance);
    [[unroll]] for (uint i = 0; i < BLOCK; ++i) {
        const uint row = first_row + tile_row(i);
        if (row >= rows) continue;
        const float part = totals[i] == 0.0 ? 0.0 : 1.0 / totals[i]; // of weights there are none, or at least 1
        const uint y_row = BYTE_OFFSET_Y / T_BYTES + y_start(sequence, row / GROUP, head_of(row));
        [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
            const uint column = 4 * (c * LANES_N + lane_n);
            if (column >= p.value_size) continue;
            const vec4 shares = sums[i][c] * part;
            if (QUADS != 0) {
                y_quads[(y_row + column) / 4] = pack_quad(shares);
            } else {
                [[unroll]] for (int e = 0; e < 4; ++e)
                    if (column + e < p.value_size) y[y_row + (column + e) * p.y_strides[3]] = T(shares[e]);
            }
        }
    }
}
