// Attention in tiles, without ever writing the scores to memory; see include/attention.glsl.
//
// A workgroup has TILE_ROWS rows of a head of keys (its query heads' rows together) and walks that head's keys, TILE_KEYS
// at a time: scores in registers, DEPTH elements of the heads staged at a time; their peaks and weights through shared
// memory; then the weighted values, DEPTH keys staged at a time, are added to TILE_COLUMNS columns of sums in registers,
// which are brought to each new peak before (Milakov and Gimelshein's online softmax, as in FlashAttention).
//
//   peak' = max(peak, scores)   factor = exp(peak - peak')   weights = weights * factor + sum exp(scores - peak')
//   sums  = sums * factor + exp(scores - peak') * values     y = sums / weights
//
// Bindings: Q, K, V, BIAS, MASK, RELATIVE, LENGTHS, SINKS read, Y written; PARTIALS written where SPLIT.
// Constants: LOCAL_SIZE_X invocations, ACROSS of them (16) along keys and columns; TILE_ROWS, TILE_KEYS, TILE_COLUMNS,
// DEPTH, multiples of 4; STAGE, the groups of four elements that staging takes. SPLIT: the keys are shared out in parts of
// `part_tiles` tiles, whose sums go to PARTIALS with their peaks and weights, to be merged by attention_merge.
// Grid: x over tiles of rows, y over (batch entry, head of keys), z over parts of the keys, and within these tiles of
// columns.
//
// Everything is staged and summed in float32, so both types lose nothing on the way. What lies behind the last key counts as
// 0 with a weight of 0. Any sizes and strides; where all rows consist of aligned quads they are loaded so.

#include "attention.glsl"

layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YQuads { QUAD y_quads[]; };
layout(set = 0, binding = BINDING_PARTIALS, std430) writeonly buffer Partials { float partials[]; };

const uint DOWN = LOCAL_SIZE_X / ACROSS;
const uint ROWS = TILE_ROWS / DOWN;               // of an invocation,
const uint KEYS = TILE_KEYS / ACROSS;             // its scores in each of them,
const uint COLUMNS = TILE_COLUMNS / (4 * ACROSS); // and quads of columns
const uint DEPTH_QUADS = DEPTH / 4;
const uint PITCH = DEPTH_QUADS + 1; // one quad of padding spreads a column over the banks
const uint WEIGHT_PITCH = TILE_KEYS / 4 + 1;
const uint COLUMN_QUADS = TILE_COLUMNS / 4;
const uint SHARERS = LOCAL_SIZE_X / TILE_ROWS; // invocations that find a row's peak together

shared vec4 stage[STAGE];
shared vec4 weights[TILE_ROWS * WEIGHT_PITCH];
shared float found_peaks[LOCAL_SIZE_X];
shared float found_sums[LOCAL_SIZE_X];
shared float row_numbers[TILE_ROWS];

uint head_of(uint row, uint key_head) { return key_head * p.group + row % p.group; }

void stage_queries_and_keys(Sequence sequence, uint key_head, uint first_row, uint rows, uint first_key, uint first_d) {
    for (uint i = gl_LocalInvocationIndex; i < (TILE_ROWS + TILE_KEYS) * DEPTH_QUADS; i += LOCAL_SIZE_X) {
        const uint line = i / DEPTH_QUADS;
        const uint d = first_d + 4 * (i % DEPTH_QUADS);
        vec4 values = vec4(0.0);
        if (d < p.head_size) {
            if (line < TILE_ROWS) {
                const uint row = min(first_row + line, rows - 1);
                const uint head = head_of(row, key_head);
                values = load_q(q_start(sequence, row / p.group, head), head, d);
            } else {
                const uint j = min(first_key + line - TILE_ROWS, sequence.keys - 1);
                values = load_k(k_start(sequence, j, key_head), key_head, d);
            }
        }
        stage[line * PITCH + i % DEPTH_QUADS] = values;
    }
}

void stage_values(Sequence sequence, uint key_head, uint first_key, uint end_key, uint first_column) {
    for (uint i = gl_LocalInvocationIndex; i < DEPTH * COLUMN_QUADS; i += LOCAL_SIZE_X) {
        const uint j = first_key + i / COLUMN_QUADS;
        const uint column = first_column + 4 * (i % COLUMN_QUADS);
        vec4 values = vec4(0.0);
        if (j < end_key && column < p.value_size) values = load_v(v_start(sequence, j, key_head), key_head, column);
        stage[i] = values;
    }
}

void main() {
    const uint entry = gl_WorkGroupID.y / p.key_heads;
    const uint key_head = gl_WorkGroupID.y - entry * p.key_heads;
    const Sequence sequence = sequence_of(entry);
    const uint rows = sequence.queries * p.group;
    const uint first_row = gl_WorkGroupID.x * TILE_ROWS;
    if (first_row >= rows) return;
    const uint column_tiles = (p.value_size + TILE_COLUMNS - 1) / TILE_COLUMNS;
    const uint part = gl_WorkGroupID.z / column_tiles;
    const uint first_column = (gl_WorkGroupID.z - part * column_tiles) * TILE_COLUMNS;

    const uint across = gl_LocalInvocationIndex % ACROSS;
    const uint own_row = gl_LocalInvocationIndex / ACROSS * ROWS;
    const uint shared_row = gl_LocalInvocationIndex / SHARERS;
    const uint sharer = gl_LocalInvocationIndex % SHARERS;
    const uint last_row = min(first_row + TILE_ROWS, rows) - 1;
    const uint end_key = keys_seen(sequence, last_row / p.group);
    const uint part_keys = p.part_tiles * TILE_KEYS;
    const uint part_end = SPLIT != 0 ? min(end_key, (part + 1) * part_keys) : end_key;

    vec4 sums[ROWS][COLUMNS];
    [[unroll]] for (uint r = 0; r < ROWS; ++r)
        [[unroll]] for (uint c = 0; c < COLUMNS; ++c) sums[r][c] = vec4(0.0);
    // Of the row that this invocation shares.
    const bool first_part = SPLIT == 0 || part == 0;
    float peak = first_part ? first_peak(head_of(min(first_row + shared_row, rows - 1), key_head)) : -INFINITY;
    float weight_sum = first_part ? first_weights() : 0.0;

    const uint window_start = first_seen(sequence, first_row / p.group) / TILE_KEYS * TILE_KEYS;
    for (uint first_key = SPLIT != 0 ? max(part * part_keys, window_start) : window_start; first_key < part_end; first_key += TILE_KEYS) {
        float products[ROWS][KEYS];
        [[unroll]] for (uint r = 0; r < ROWS; ++r)
            [[unroll]] for (uint n = 0; n < KEYS; ++n) products[r][n] = 0.0;
        for (uint d = 0; d < p.head_size; d += DEPTH) {
            barrier();
            stage_queries_and_keys(sequence, key_head, first_row, rows, first_key, d);
            barrier();
            [[unroll]] for (uint i = 0; i < DEPTH_QUADS; ++i) {
                vec4 a[ROWS];
                [[unroll]] for (uint r = 0; r < ROWS; ++r) a[r] = stage[(own_row + r) * PITCH + i];
                [[unroll]] for (uint n = 0; n < KEYS; ++n) {
                    const vec4 b = stage[(TILE_ROWS + across + n * ACROSS) * PITCH + i];
                    [[unroll]] for (uint r = 0; r < ROWS; ++r)
                        [[unroll]] for (int e = 0; e < 4; ++e) products[r][n] = fma(a[r][e], b[e], products[r][n]);
                }
            }
        }

        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
            const uint row = min(first_row + own_row + r, rows - 1);
            const uint s = row / p.group;
            const uint seen = min(part_end, keys_seen(sequence, s));
            [[unroll]] for (uint n = 0; n < KEYS; ++n) {
                const uint key = across + n * ACROSS;
                float score = -INFINITY;
                if (first_key + key < seen && first_key + key >= first_seen(sequence, s))
                    score = scaled(products[r][n]) + added(sequence, s, head_of(row, key_head), first_key + key);
                weights[(own_row + r) * WEIGHT_PITCH + key / 4][key % 4] = score;
            }
        }
        barrier();

        float higher = peak;
        for (uint i = sharer; i < TILE_KEYS / 4; i += SHARERS) {
            const vec4 scores = weights[shared_row * WEIGHT_PITCH + i];
            higher = max(higher, max(max(scores.x, scores.y), max(scores.z, scores.w)));
        }
        found_peaks[gl_LocalInvocationIndex] = higher;
        barrier();
        [[unroll]] for (uint i = 0; i < SHARERS; ++i) higher = max(higher, found_peaks[shared_row * SHARERS + i]);
        const float base = subtracted(higher);
        float sum = 0.0;
        for (uint i = sharer; i < TILE_KEYS / 4; i += SHARERS) {
            vec4 found = weights[shared_row * WEIGHT_PITCH + i] - base;
            [[unroll]] for (int e = 0; e < 4; ++e) {
                found[e] = exp_accurate(found[e]);
                sum += found[e];
            }
            weights[shared_row * WEIGHT_PITCH + i] = found;
        }
        found_sums[gl_LocalInvocationIndex] = sum;
        const float factor = exp_accurate(peak - base);
        if (sharer == 0) row_numbers[shared_row] = factor;
        peak = higher;
        barrier();
        weight_sum *= factor;
        [[unroll]] for (uint i = 0; i < SHARERS; ++i) weight_sum += found_sums[shared_row * SHARERS + i];
        [[unroll]] for (uint r = 0; r < ROWS; ++r)
            [[unroll]] for (uint c = 0; c < COLUMNS; ++c) sums[r][c] *= row_numbers[own_row + r];

        for (uint first = 0; first < TILE_KEYS; first += DEPTH) {
            if (first > 0) barrier();
            stage_values(sequence, key_head, first_key + first, part_end, first_column);
            barrier();
            [[unroll]] for (uint i = 0; i < DEPTH_QUADS; ++i) {
                vec4 own[ROWS];
                [[unroll]] for (uint r = 0; r < ROWS; ++r) own[r] = weights[(own_row + r) * WEIGHT_PITCH + first / 4 + i];
                [[unroll]] for (int e = 0; e < 4; ++e)
                    [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
                        const vec4 values = stage[(4 * i + e) * COLUMN_QUADS + across + c * ACROSS];
                        [[unroll]] for (uint r = 0; r < ROWS; ++r) sums[r][c] = fma(vec4(own[r][e]), values, sums[r][c]);
                    }
            }
        }
    }

    const uint all_rows = p.queries * p.group;
    const uint first_of_part = (part * gl_NumWorkGroups.y + gl_WorkGroupID.y) * all_rows;
    if (SPLIT != 0) {
        if (sharer == 0 && first_column == 0 && first_row + shared_row < rows) {
            const uint place = p.summaries + 2 * (first_of_part + first_row + shared_row);
            partials[BYTE_OFFSET_PARTIALS / 4 + place] = peak;
            partials[BYTE_OFFSET_PARTIALS / 4 + place + 1] = weight_sum;
        }
    } else {
        barrier();
        if (sharer == 0) row_numbers[shared_row] = weight_sum;
        barrier();
    }
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        const uint row = first_row + own_row + r;
        if (row >= rows) continue;
        const uint y_row = BYTE_OFFSET_Y / T_BYTES + y_start(sequence, row / p.group, head_of(row, key_head));
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
            [[unroll]] for (int e = 0; e < 4; ++e) shares[e] = share(sums[r][c][e], row_numbers[own_row + r]);
            if (QUADS != 0) {
                y_quads[(y_row + column) / 4] = pack_quad(shares);
            } else {
                [[unroll]] for (int e = 0; e < 4; ++e)
                    if (column + e < p.value_size) y[y_row + (column + e) * p.y_strides[3]] = T(shares[e]);
            }
        }
    }
}
