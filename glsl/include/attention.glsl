// What every attention kernel shares: the sequences, the operands' addresses and what is added to a score.
//
//   y[s, head] = sum over keys j of weight[j] * (v[j, head] + bias),  weight = softmax over j of score(s, head, j)
//   score      = capped(scale * (q[s, head] + bias) . (k[j, head] + bias)) + relative[s, j] + (masked(s, j) ? mask_filter : 0)
//
// Needs the parameter block and the bindings of the attention rows of the manifest, and declares the buffers Q, K, V, BIAS,
// MASK, RELATIVE, LENGTHS, SINKS and Y. What a desc lacks is bound to some other range and never read.
// Q, K, V and Y have a start and four strides each, in elements, for (batch entry, row, head, element), so that no kernel
// knows whether they are stacked or where the past lies.
// Constants: GROUP query heads share a head of keys and values: the kernels count the rows of one such head together, row =
// query * GROUP + head in group, so that a tile serves all of them, and a driver divides by a constant. Q_BIAS and KV_BIAS
// say whether there is a bias to add; MASK_BOUNDS, what the mask holds of each batch entry: its end, or its end and its
// start; MASK_BOOLEAN, HAS_RELATIVE; LENGTHS, the type of the lengths of the past, one a batch entry, at most p.most_past,
// or LENGTHS_NONE; UNPADDED, where the mask lists sequences that follow each other without padding; QUADS, where rows of Q,
// K, V and BIAS consist of aligned groups of four elements; WINDOWED, where a query sees no more than p.window keys, its own
// the last; CAPPED, where products do not exceed p.softcap; HAS_SINKS, where each query head has the score of one key more,
// which has no value: sums begin with it.

#ifndef DMLVK_ATTENTION_GLSL
#define DMLVK_ATTENTION_GLSL

#include "attention_lengths.glsl"
#include "math.glsl"
#include "strided_quads.glsl"
#include "tensor.glsl"

STRIDED_QUADS(Q, q)
STRIDED_QUADS(K, k)
STRIDED_QUADS(V, v)
STRIDED_QUADS(BIAS, bias)
layout(set = 0, binding = BINDING_MASK, std430) readonly buffer Mask { int mask[]; };
layout(set = 0, binding = BINDING_RELATIVE, std430) readonly buffer Relative { T relative[]; };
layout(set = 0, binding = BINDING_SINKS, std430) readonly buffer Sinks { T sinks[]; };
layout(set = 0, binding = BINDING_Y, std430) buffer Y { T y[]; };

int mask_number(uint place) { return mask[BYTE_OFFSET_MASK / 4 + place * p.mask_strides[3]]; }

// One sequence: a batch entry, or with UNPADDED any run of rows.
struct Sequence {
    uint entry;       // whose bounds, mask and relative position bias it has
    uint first_query; // of all entries' rows, with UNPADDED
    uint queries;
    uint first_key;   // of all entries' rows, with UNPADDED
    uint keys;
    uint end;         // keys with those that there is no room for
    int first_masked; // keys from here on, and
    int first_valid;  // those before this one, are masked
};

Sequence sequence_of(uint entry) {
    Sequence found = Sequence(entry, 0u, p.queries, 0u, p.keys, p.keys, int(p.keys), 0);
    if (LENGTHS != LENGTHS_NONE) {
        found.end = past_length(entry, p.most_past) + p.new_keys;
        found.keys = min(found.end, p.keys);
    }
    if (MASK_BOUNDS != MASK_BOUNDS_NONE) found.first_masked = mask_number(entry);
    if (MASK_BOUNDS == MASK_BOUNDS_ENDS_AND_STARTS)
        found.first_valid = mask[BYTE_OFFSET_MASK / 4 + p.mask_strides[2] + entry * p.mask_strides[3]];
    if (UNPADDED != 0) {
        const int first = max(mask_number(p.batch + entry), 0);
        const int last = min(mask_number(p.batch + entry + 1), int(p.batch * p.queries));
        const int start = max(mask_number(2 * p.batch + 1 + entry), 0);
        const int next = min(mask_number(2 * p.batch + 2 + entry), int(p.batch * p.keys));
        const int end = min(next, mask_number(2 * p.batch + 1 + entry) + mask_number(entry));
        found.first_query = uint(first);
        found.queries = uint(clamp(last - first, 0, int(p.queries)));
        found.first_key = uint(start);
        found.keys = uint(clamp(end - start, 0, int(p.keys)));
    }
    return found;
}

// Which tile of rows and which head a workgroup has, in a grid of (tiles, heads). Where tiles may see different numbers of keys, those with
// most come first, of all heads of a band, or those that come last would end last. A band is a few workgroups for each processor: keys
// of more heads at a time would leave the cache. H200 (driver 580, 2026-11-29), us so and head by head: 32 heads of 4096 rows of 64 265 and
// 308, 128 of 512 rows of 128 66 and 80, 256 of 4096 rows of 128 4,256 and 4,774, in bands of twice as many workgroups 4,310.
uvec2 own_tile() {
    if (LENGTHS == LENGTHS_NONE) return gl_WorkGroupID.xy;
    const uint tiles = gl_NumWorkGroups.x;
    const uint band = max(BAND_WORKGROUPS / tiles, 1);
    const uint place = gl_WorkGroupID.y * tiles + gl_WorkGroupID.x;
    const uint first = place / (band * tiles) * band;
    const uint heads = min(band, gl_NumWorkGroups.y - first);
    const uint tile = (place - first * tiles) / heads;
    return uvec2(tiles - 1 - tile, place - first * tiles - tile * heads + first);
}

// How many keys query s of a sequence sees: with lengths, and without p.both_ways, those up to its own.
uint keys_seen(Sequence sequence, uint s) {
    if (LENGTHS == LENGTHS_NONE || p.both_ways != 0) return sequence.keys;
    return min(uint(max(int(sequence.end + s + 1) - int(p.queries), 0)), sequence.keys);
}

// The first key that query s of a sequence sees.
uint first_seen(Sequence sequence, uint s) {
    const uint end = keys_seen(sequence, s);
    return WINDOWED != 0 && end > p.window ? end - p.window : 0u;
}

// What sums begin with: the peak, and the weights.
float first_peak(uint head) {
    return HAS_SINKS != 0 ? float(sinks[BYTE_OFFSET_SINKS / T_BYTES + head * p.sinks_stride]) : -INFINITY;
}
float first_weights() { return HAS_SINKS != 0 ? 1.0 : 0.0; }

// A product times the scale, brought below the cap.
float scaled(float product) {
    const float value = p.scale * product;
    if (CAPPED == 0) return value;
    return p.softcap * tanh_accurate(value / p.softcap);
}

uint row_start(uint entry, uint first, uint row, uint rows, uint head, uint start, uint strides[4]) {
    if (UNPADDED != 0) {
        entry = (first + row) / rows;
        row = first + row - entry * rows;
    }
    return start + entry * strides[0] + row * strides[1] + head * strides[2];
}

// Where a row of a head starts, in elements: query rows and rows of y by query head, the others by their own.
uint q_start(Sequence sequence, uint s, uint head) {
    return row_start(sequence.entry, sequence.first_query, s, p.queries, head, p.q_start, p.q_strides);
}
uint k_start(Sequence sequence, uint j, uint head) {
    return row_start(sequence.entry, sequence.first_key, j, p.keys, head, p.k_start, p.k_strides);
}
uint v_start(Sequence sequence, uint j, uint head) {
    return row_start(sequence.entry, sequence.first_key, j, p.keys, head, p.v_start, p.v_strides);
}
uint y_start(Sequence sequence, uint s, uint head) {
    return row_start(sequence.entry, sequence.first_query, s, p.queries, head, 0, p.y_strides);
}

// Elements d to d + 3 of a row of a head, with their bias; 0 behind the row's end.
vec4 load_q(uint start, uint head, uint d) {
    vec4 values = q_at(start, d, p.head_size, p.q_strides[3], QUADS);
    if (Q_BIAS != 0) values += bias_at(head * p.head_size * p.bias_stride, d, p.head_size, p.bias_stride, QUADS);
    return values;
}
vec4 load_k(uint start, uint head, uint d) {
    vec4 values = k_at(start, d, p.head_size, p.k_strides[3], QUADS);
    const uint first = (p.k_bias + head * p.head_size) * p.bias_stride;
    if (KV_BIAS != 0) values += bias_at(first, d, p.head_size, p.bias_stride, QUADS);
    return values;
}
vec4 load_v(uint start, uint head, uint d) {
    vec4 values = v_at(start, d, p.value_size, p.v_strides[3], QUADS);
    const uint first = (p.v_bias + head * p.value_size) * p.bias_stride;
    if (KV_BIAS != 0) values += bias_at(first, d, p.value_size, p.bias_stride, QUADS);
    return values;
}

// What the mask adds to the score of query s of a query head and key j.
float filtered(Sequence sequence, uint s, uint head, uint j) {
    bool masked = MASK_BOUNDS != MASK_BOUNDS_NONE && (int(j) >= sequence.first_masked || int(j) < sequence.first_valid);
    if (MASK_BOOLEAN != 0) {
        const uint element = sequence.entry * p.mask_strides[0] + head * p.mask_strides[1] + s * p.mask_strides[2] +
                             j * p.mask_strides[3];
        masked = mask[BYTE_OFFSET_MASK / 4 + element] == 0;
    }
    return masked ? p.mask_filter : 0.0;
}

// What the relative position bias and the mask add to it.
float added(Sequence sequence, uint s, uint head, uint j) {
    float sum = filtered(sequence, s, head, j);
    if (HAS_RELATIVE != 0) {
        const uint element = sequence.entry * p.relative_strides[0] + head * p.relative_strides[1] +
                             s * p.relative_strides[2] + j * p.relative_strides[3];
        sum += float(relative[BYTE_OFFSET_RELATIVE / T_BYTES + element]);
    }
    return sum;
}

// A peak that may be subtracted from scores: of none, or of -infinity alone, 0, so that their weights are 0.
float subtracted(float peak) { return floatBitsToUint(peak) == floatBitsToUint(-INFINITY) ? 0.0 : peak; }

// The quotient of sums of weights, 0 where there are none.
float share(float value, float weights) { return weights == 0.0 ? 0.0 : value / weights; }

#endif
