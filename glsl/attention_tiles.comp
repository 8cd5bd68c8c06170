// Attention in tiles, without ever writing the scores to memory; see include/attention.glsl.
//
// A workgroup has TILE_ROWS rows of a head of keys (its query heads' rows together) and walks that head's keys, TILE_KEYS
// at a time: scores in registers, DEPTH elements of the heads at a time; their weights through shared memory; then the
// weighted values, DEPTH keys at a time, are added to TILE_COLUMNS columns of sums in registers, which are brought to each
// new peak before (Milakov and Gimelshein's online softmax, as in FlashAttention).
//
//   peak' = max(peak, scores)   factor = exp(peak - peak')   weights = weights * factor + sum exp(scores - peak')
//   sums  = sums * factor + exp(scores - peak') * values     y = sums / weights
//
// A chunk, DEPTH elements of a tile's keys or DEPTH of its values, is multiplied out of one half of the staging memory while
// the next one, of whichever kind, is under way to registers and then to the other half: one barrier a chunk. ACROSS
// invocations of a subgroup, STEP apart, have the same rows, so that their peaks and sums of weights need no barrier at all.
// Lines of shared memory are padded by a quad, and the rows of an invocation lie apart, so that a subgroup's accesses meet
// different banks.
//
// Bindings: Q, K, V, BIAS, MASK, RELATIVE, LENGTHS, SINKS read, Y written; PARTIALS written where SPLIT.
// Constants: LOCAL_SIZE_X invocations, a multiple of STEP * ACROSS; ACROSS of them along keys and columns, a power of two;
// STEP, 1 or 2, so that STEP * ACROSS is at most the least subgroup: with 2, neighbours share keys and columns, and 16
// invocations, for which an access is made, read 128 bytes of keys instead of 256 (3 to 10 % faster on an H200); TILE_ROWS,
// TILE_KEYS, TILE_COLUMNS, DEPTH, multiples of 4; HEAD, head_size rounded up to whole chunks, where the queries stay in shared
// memory, 0 where they are staged with each chunk of keys. SPLIT: the keys are shared out in parts of `part_tiles` tiles,
// whose sums go to PARTIALS with their peaks and weights, to be merged by attention_merge.
// Grid: x over tiles of rows, y over (batch entry, head of keys), z over parts of the keys, and within these tiles of
// columns.
//
// Everything is staged and summed in float32, so both types lose nothing on the way. What lies behind the last key counts as
// 0 with a weight of 0. Any sizes and strides; where all rows consist of aligned quads they are loaded so.

#include "attention.glsl"
#include "subgroups.glsl"

layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YQuads { QUAD y_quads[]; };
layout(set = 0, binding = BINDING_PARTIALS, std430) writeonly buffer Partials { float partials[]; };

const uint DOWN = LOCAL_SIZE_X / ACROSS;
const uint ROWS = TILE_ROWS / DOWN;               // of an invocation,
const uint KEYS = TILE_KEYS / ACROSS;             // its scores in each of them,
const uint COLUMNS = TILE_COLUMNS / (4 * ACROSS); // and quads of columns
const uint DEPTH_QUADS = DEPTH / 4;
const uint PITCH = DEPTH_QUADS + 1; // of keys, and of queries beside them
const uint QUERY_PITCH = HEAD == 0 ? PITCH : HEAD / 4 + 1;
const uint WEIGHT_PITCH = TILE_KEYS / 4 + 1;
const uint COLUMN_QUADS = TILE_COLUMNS / 4;

const uint LINES = HEAD == 0 ? TILE_KEYS + TILE_ROWS : TILE_KEYS; // of a chunk of keys: these, then the queries
const uint KEYS_STAGE = LINES * PITCH;
const uint VALUES_STAGE = DEPTH * COLUMN_QUADS;
const uint STAGE = KEYS_STAGE > VALUES_STAGE ? KEYS_STAGE : VALUES_STAGE;
const uint KEY_QUADS = LINES * DEPTH_QUADS;
const uint KEY_SHARE = (KEY_QUADS + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X; // what an invocation stages of a chunk
const uint VALUE_SHARE = (VALUES_STAGE + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;

shared vec4 stage[2 * STAGE];
shared vec4 weights[TILE_ROWS * WEIGHT_PITCH];
shared vec4 queries[HEAD == 0 ? 1 : TILE_ROWS * QUERY_PITCH];

vec4 staged_keys[KEY_SHARE];
vec4 staged_values[VALUE_SHARE];
float products[ROWS][KEYS];
vec4 sums[ROWS][COLUMNS];

Sequence sequence;
uint key_head;
uint rows;
uint first_row;
uint first_column;
uint part_end;
uint invocation;
uint across;
uint down;

uint head_of(uint row) { return key_head * GROUP + row % GROUP; }

uint tile_row(uint r) { return down + r * DOWN; }
uint row_of(uint r) { return min(first_row + tile_row(r), rows - 1); }
uint key_of(uint n) { return across + n * ACROSS; }

vec4 query_quad(uint line, uint d) {
    const uint row = min(first_row + line, rows - 1);
    return load_q(q_start(sequence, row / GROUP, head_of(row)), head_of(row), d);
}

// The loads of a chunk, without a branch: places are clamped, and what lies behind an end becomes 0 when it is placed.
void fetch_keys(uint first_key, uint first_d) {
    [[unroll]] for (uint i = 0; i < KEY_SHARE; ++i) {
        const uint e = min(i * LOCAL_SIZE_X + invocation, KEY_QUADS - 1);
        const uint line = e / DEPTH_QUADS;
        const uint d = min(first_d + 4 * (e % DEPTH_QUADS), (p.head_size - 1) / 4 * 4);
        if (HEAD == 0 && line >= TILE_KEYS) {
            staged_keys[i] = query_quad(line - TILE_KEYS, d);
        } else {
            staged_keys[i] = load_k(k_start(sequence, min(first_key + line, sequence.keys - 1), key_head), key_head, d);
        }
    }
}

void place_keys(uint at, uint first_d) {
    [[unroll]] for (uint i = 0; i < KEY_SHARE; ++i) {
        const uint e = i * LOCAL_SIZE_X + invocation;
        if (KEY_QUADS % LOCAL_SIZE_X != 0 && e >= KEY_QUADS) break;
        const bool there = first_d + 4 * (e % DEPTH_QUADS) < p.head_size;
        stage[at + e / DEPTH_QUADS * PITCH + e % DEPTH_QUADS] = there ? staged_keys[i] : vec4(0.0);
    }
}

void fetch_values(uint first_key) {
    [[unroll]] for (uint i = 0; i < VALUE_SHARE; ++i) {
        const uint e = min(i * LOCAL_SIZE_X + invocation, VALUES_STAGE - 1);
        const uint j = min(first_key + e / COLUMN_QUADS, sequence.keys - 1);
        const uint column = min(first_column + 4 * (e % COLUMN_QUADS), (p.value_size - 1) / 4 * 4);
        staged_values[i] = load_v(v_start(sequence, j, key_head), key_head, column);
    }
}

void place_values(uint at, uint first_key) {
    [[unroll]] for (uint i = 0; i < VALUE_SHARE; ++i) {
        const uint e = i * LOCAL_SIZE_X + invocation;
        if (VALUES_STAGE % LOCAL_SIZE_X != 0 && e >= VALUES_STAGE) break;
        const bool there = first_key + e / COLUMN_QUADS < part_end && first_column + 4 * (e % COLUMN_QUADS) < p.value_size;
        stage[at + e] = there ? staged_values[i] : vec4(0.0);
    }
}

void place_queries() {
    for (uint e = invocation; e < TILE_ROWS * (HEAD / 4); e += LOCAL_SIZE_X) {
        const uint line = e / (HEAD / 4);
        const uint d = 4 * (e % (HEAD / 4));
        queries[line * QUERY_PITCH + d / 4] = d < p.head_size ? query_quad(line, d) : vec4(0.0);
    }
}

void multiply_keys(uint at, uint first_d) {
    [[unroll]] for (uint i = 0; i < DEPTH_QUADS; ++i) {
        vec4 a[ROWS];
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
            if (HEAD == 0) {
                a[r] = stage[at + (TILE_KEYS + tile_row(r)) * PITCH + i];
            } else {
                a[r] = queries[tile_row(r) * QUERY_PITCH + first_d / 4 + i];
            }
        }
        [[unroll]] for (uint n = 0; n < KEYS; ++n) {
            const vec4 b = stage[at + key_of(n) * PITCH + i];
            [[unroll]] for (uint r = 0; r < ROWS; ++r)
                [[unroll]] for (int e = 0; e < 4; ++e) products[r][n] = fma(a[r][e], b[e], products[r][n]);
        }
    }
}

void multiply_values(uint at, uint first) {
    [[unroll]] for (uint i = 0; i < DEPTH_QUADS; ++i) {
        vec4 own[ROWS];
        [[unroll]] for (uint r = 0; r < ROWS; ++r) own[r] = weights[tile_row(r) * WEIGHT_PITCH + first / 4 + i];
        [[unroll]] for (int e = 0; e < 4; ++e)
            [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
                const vec4 values = stage[at + (4 * i + e) * COLUMN_QUADS + across + c * ACROSS];
                [[unroll]] for (uint r = 0; r < ROWS; ++r) sums[r][c] = fma(vec4(own[r][e]), values, sums[r][c]);
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
    const uint column_tiles = (p.value_size + TILE_COLUMNS - 1) / TILE_COLUMNS;
    const uint part = gl_WorkGroupID.z / column_tiles;
    first_column = (gl_WorkGroupID.z - part * column_tiles) * TILE_COLUMNS;
    invocation = workgroup_invocation();
    across = invocation / STEP % ACROSS;
    down = invocation / (STEP * ACROSS) * STEP + invocation % STEP;

    const uint last_row = min(first_row + TILE_ROWS, rows) - 1;
    const uint end_key = keys_seen(sequence, last_row / GROUP);
    const uint part_keys = p.part_tiles * TILE_KEYS;
    part_end = SPLIT != 0 ? min(end_key, (part + 1) * part_keys) : end_key;
    const uint window_start = first_seen(sequence, first_row / GROUP) / TILE_KEYS * TILE_KEYS;
    const uint start_key = SPLIT != 0 ? max(part * part_keys, window_start) : window_start;
    const uint last_chunk = (p.head_size - 1) / DEPTH * DEPTH;

    const bool first_part = SPLIT == 0 || part == 0;
    float peaks[ROWS];
    float totals[ROWS]; // of this invocation's weights; the sinks are the first one's
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        peaks[r] = first_part ? first_peak(head_of(row_of(r))) : -INFINITY;
        totals[r] = first_part && across == 0 ? first_weights() : 0.0;
        [[unroll]] for (uint c = 0; c < COLUMNS; ++c) sums[r][c] = vec4(0.0);
    }

    uint at = 0;
    if (start_key < part_end) {
        fetch_keys(start_key, 0);
        if (HEAD != 0) place_queries();
        place_keys(at, 0);
        barrier();
    }
    [[dont_unroll]] for (uint first_key = start_key; first_key < part_end; first_key += TILE_KEYS) {
        [[unroll]] for (uint r = 0; r < ROWS; ++r)
            [[unroll]] for (uint n = 0; n < KEYS; ++n) products[r][n] = 0.0;
        [[dont_unroll]] for (uint d = 0; d < last_chunk; d += DEPTH) {
            fetch_keys(first_key, d + DEPTH);
            multiply_keys(at, d);
            at = STAGE - at;
            place_keys(at, d + DEPTH);
            barrier();
        }
        fetch_values(first_key);
        multiply_keys(at, last_chunk);

        // Without a branch but one: what is behind the last key is read where that one is, and its score is -INFINITY.
        float higher[ROWS];
        uint raised = 0;
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
            const uint s = row_of(r) / GROUP;
            const uint from = first_seen(sequence, s);
            const uint seen = max(min(part_end, keys_seen(sequence, s)), from) - from;
            higher[r] = peaks[r];
            [[unroll]] for (uint n = 0; n < KEYS; ++n) {
                const uint key = first_key + key_of(n);
                const float score =
                    scaled(products[r][n]) + added(sequence, s, head_of(row_of(r)), min(key, sequence.keys - 1));
                products[r][n] = key - from < seen ? score : -INFINITY;
                higher[r] = max(higher[r], products[r][n]);
            }
            [[unroll]] for (uint distance = STEP; distance < STEP * ACROSS; distance *= 2)
                higher[r] = max(higher[r], subgroupShuffleXor(higher[r], distance));
            raised |= uint(higher[r] > peaks[r]);
        }
        if (raised != 0) {
            [[unroll]] for (uint r = 0; r < ROWS; ++r) {
                const float factor = exp_of_negative(peaks[r] - subtracted(higher[r]));
                peaks[r] = higher[r];
                totals[r] *= factor;
                [[unroll]] for (uint c = 0; c < COLUMNS; ++c) sums[r][c] *= factor;
            }
        }
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
            const float base = subtracted(peaks[r]);
            [[unroll]] for (uint n = 0; n < KEYS; ++n) {
                const float weight = exp_weight(products[r][n] - base);
                totals[r] += weight;
                weights[tile_row(r) * WEIGHT_PITCH + key_of(n) / 4][key_of(n) % 4] = weight;
            }
        }
        at = STAGE - at;
        place_values(at, first_key);
        barrier();

        const uint last_value_chunk = (min(part_end - first_key, TILE_KEYS) - 1) / DEPTH * DEPTH;
        [[dont_unroll]] for (uint i = 0; i < last_value_chunk; i += DEPTH) {
            fetch_values(first_key + i + DEPTH);
            multiply_values(at, i);
            at = STAGE - at;
            place_values(at, first_key + i + DEPTH);
            barrier();
        }
        fetch_keys(first_key + TILE_KEYS, 0);
        multiply_values(at, last_value_chunk);
        at = STAGE - at;
        place_keys(at, 0);
        barrier();
    }

    [[unroll]] for (uint r = 0; r < ROWS; ++r)
        [[unroll]] for (uint distance = STEP; distance < STEP * ACROSS; distance *= 2)
            totals[r] += subgroupShuffleXor(totals[r], distance);
    const uint all_rows = p.queries * GROUP;
    const uint first_of_part = (part * gl_NumWorkGroups.y + own.y) * all_rows;
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        const uint row = first_row + tile_row(r);
        if (row >= rows) continue;
        if (SPLIT != 0 && across == 0 && first_column == 0) {
            const uint place = BYTE_OFFSET_PARTIALS / 4 + p.summaries + 2 * (first_of_part + row);
            partials[place] = peaks[r];
            partials[place + 1] = totals[r];
        }
        const uint y_row = BYTE_OFFSET_Y / T_BYTES + y_start(sequence, row / GROUP, head_of(row));
        [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
            const uint column = first_column + 4 * (across + c * ACROSS);
            if (column >= p.value_size) continue;
            if (SPLIT != 0) {
                const uint place = BYTE_OFFSET_PARTIALS / 4 + (first_of_part + row) * p.value_size + column;
                [[unroll]] for (int e = 0; e < 4; ++e)
                    if (column + e < p.value_size) partials[place + e] = sums[r][c][e];
                continue;
            }
            vec4 shares;
            [[unroll]] for (int e = 0; e < 4; ++e) shares[e] = share(sums[r][c][e], totals[r]);
            if (QUADS != 0) {
                y_quads[(y_row + column) / 4] = pack_quad(shares);
            } else {
                [[unroll]] for (int e = 0; e < 4; ++e)
                    if (column + e < p.value_size) y[y_row + (column + e) * p.y_strides[3]] = T(shares[e]);
            }
        }
    }
}
