// Attention of few queries over a cache, which their own keys and values join: a step of a language model; see
// include/attention.glsl.
//
// LANES neighbouring invocations have a key at a time, each HEAD_CHUNKS of its 16-byte words and VALUE_CHUNKS of its value's, and
// as many groups of them as fit the workgroup take the keys of a part in turns, KEYS each at once, so that all of their loads
// are on their way together. Nothing is shared until the part is done: each group has its own peak, weights and sums for all
// ROWS rows, which are the queries of all heads that share the keys. Then TOGETHER rows at a time they are brought together.
//
// The part in which the new rows stand writes them to the cache, keys turned, and reads them from shared memory. A part's first keys
// and values are on their way while queries and new rows are staged.
//
// With SPLIT a head has several parts. Each leaves what it has found in PARTIALS and counts; the one that counts last brings them together, in their
// order, and clears the count. A dispatch for that took 5 us on an H200, between timestamps (2026-11-28).
//
// Bindings: Q, BIAS, MASK, RELATIVE, LENGTHS, SINKS, NEW_K, NEW_V, COSINES, SINES, POSITIONS read; K and V, the cache, read and
// written; Y written; PARTIALS and COUNTERS, one for each (batch entry, head of keys), read and written. Strides of NEW_K and NEW_V are those of Q.
// Constants: those above; ROWS = NEW_ROWS * GROUP, a multiple of TOGETHER; TURN and POSITION_WORDS, see include/attention_turn.glsl. Rows of K and V
// consist of whole words.
// Grid: x over parts, y over (batch entry, head of keys). How many keys a part has follows from the length: see
// include/attention_parts.glsl. Workgroups behind the last part leave at once.
// Chosen for so few rows that they fit registers.

#include "attention.glsl"
#include "attention_parts.glsl"
#include "attention_turn.glsl"
#include "dtype.glsl"
#include "last_workgroup.glsl"
#include "workgroup.glsl"

layout(set = 0, binding = BINDING_K, std430) readonly buffer KWords { uvec4 k_words[]; };
layout(set = 0, binding = BINDING_V, std430) readonly buffer VWords { uvec4 v_words[]; };
layout(set = 0, binding = BINDING_K, std430) writeonly buffer KWritten { uint k_written[]; };
layout(set = 0, binding = BINDING_V, std430) writeonly buffer VWritten { uint v_written[]; };
layout(set = 0, binding = BINDING_NEW_K, std430) readonly buffer NewK { T new_k[]; };
layout(set = 0, binding = BINDING_NEW_V, std430) readonly buffer NewV { T new_v[]; };
layout(set = 0, binding = BINDING_PARTIALS, std430) coherent buffer Partials { float partials[]; };
layout(set = 0, binding = BINDING_PARTIALS, std430) coherent buffer PartialPairs { vec2 partial_pairs[]; };
layout(set = 0, binding = BINDING_COUNTERS, std430) coherent buffer Counters { uint counters[]; };

const uint GROUPS = LOCAL_SIZE_X / LANES;
const uint HEAD_WORDS = HEAD_CHUNKS * LANES; // at least those of a row
const uint VALUE_WORDS = VALUE_CHUNKS * LANES;
const uint HEAD_ELEMENTS = HEAD_WORDS * T_PER_WORD;
const uint VALUE_ELEMENTS = VALUE_WORDS * T_PER_WORD;
const uint T_PER_UINT = 4 / T_BYTES;

shared float queries[ROWS * HEAD_ELEMENTS];
shared uvec4 new_keys[NEW_ROWS * HEAD_WORDS];
shared uvec4 new_values[NEW_ROWS * VALUE_WORDS];
shared float found[TOGETHER * GROUPS * VALUE_ELEMENTS];
shared vec2 summaries[TOGETHER * GROUPS]; // peak, weights
// Of each row, when parts are brought together: the factor of each part's sums, that of what was summed up before, and all weights.
shared float factors[ROWS * PARTS_TOGETHER];
shared float kept_shares[ROWS];
shared float totals[ROWS];

// The memory of a workgroup is free again for the next sum.
vec2 sum_of_key(vec2 value) {
    const vec2 sum = sum_over_lanes(value, 0);
    if (LANES > gl_SubgroupSize) barrier();
    return sum;
}

uint row_of(uint strides[4], uint entry, uint row, uint head) {
    return entry * strides[0] + row * strides[1] + head * strides[2];
}

// What an invocation stages of queries, in elements, and of new keys and values, in 32 bits.
const uint QUERIES_EACH = (ROWS * HEAD_ELEMENTS + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;
const uint KEYS_EACH = (NEW_ROWS * HEAD_WORDS * 4 + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;
const uint VALUES_EACH = (NEW_ROWS * VALUE_WORDS * 4 + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;

// Pairs of results that an invocation of the workgroup that counts last brings together.
const uint PAIRS_EACH = (ROWS * VALUE_ELEMENTS / 2 + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;

uint packed_uint(float values[T_PER_UINT]) {
#if T_BYTES == 2
    return packHalf2x16(vec2(values[0], values[1]));
#else
    return floatBitsToUint(values[0]);
#endif
}

// Brings the queries, turned, with zeros behind the end of each, and the new rows to shared memory; those of this part to the cache, too.
// Loads stand behind no branch, so that all of them wait for memory together: addresses are clamped.
void stage(Sequence sequence, uint key_head, uint before, uint start, uint end) {
    const uint entry = sequence.entry;
    [[unroll]] for (uint n = 0; n < QUERIES_EACH; ++n) {
        const uint i = min(n * LOCAL_SIZE_X + gl_LocalInvocationIndex, ROWS * HEAD_ELEMENTS - 1);
        const uint row = i / HEAD_ELEMENTS;
        const uint d = min(i - row * HEAD_ELEMENTS, p.head_size - 1);
        const uint s = row / GROUP;
        const uint first = BYTE_OFFSET_Q / T_BYTES + q_start(sequence, s, key_head * GROUP + row % GROUP);
        float value = float(q[first + d * p.q_strides[3]]);
        if (TURN != TURN_NONE) {
            const float partner = float(q[first + partner_of(d, p.head_size) * p.q_strides[3]]);
            value = turned(table_row(entry, s, before + s), d, value, partner);
        }
        queries[i] = i - row * HEAD_ELEMENTS < p.head_size ? value : 0.0;
    }
    [[unroll]] for (uint n = 0; n < KEYS_EACH; ++n) {
        const uint i = min(n * LOCAL_SIZE_X + gl_LocalInvocationIndex, NEW_ROWS * HEAD_WORDS * 4 - 1);
        const uint s = i / (HEAD_WORDS * 4);
        const uint at = (i - s * HEAD_WORDS * 4) * T_PER_UINT;
        const uint row = BYTE_OFFSET_NEW_K / T_BYTES + row_of(p.new_k_strides, entry, s, key_head);
        const uint table = table_row(entry, s, before + s);
        float values[T_PER_UINT];
        [[unroll]] for (uint e = 0; e < T_PER_UINT; ++e) {
            const uint d = min(at + e, p.head_size - 1);
            values[e] = float(new_k[row + d * p.new_k_strides[3]]);
            if (TURN != TURN_NONE) {
                const float partner = float(new_k[row + partner_of(d, p.head_size) * p.new_k_strides[3]]);
                values[e] = turned(table, d, values[e], partner);
            }
        }
        const uint bits = packed_uint(values);
        new_keys[i / 4][i % 4] = bits;
        const uint j = before + s;
        const uint place = (BYTE_OFFSET_K / T_BYTES + k_start(sequence, j, key_head) + at) / T_PER_UINT;
        if (j >= start && j < end && at < p.head_size) k_written[place] = bits;
    }
    [[unroll]] for (uint n = 0; n < VALUES_EACH; ++n) {
        const uint i = min(n * LOCAL_SIZE_X + gl_LocalInvocationIndex, NEW_ROWS * VALUE_WORDS * 4 - 1);
        const uint s = i / (VALUE_WORDS * 4);
        const uint at = (i - s * VALUE_WORDS * 4) * T_PER_UINT;
        const uint row = BYTE_OFFSET_NEW_V / T_BYTES + row_of(p.new_v_strides, entry, s, key_head);
        float values[T_PER_UINT];
        [[unroll]] for (uint e = 0; e < T_PER_UINT; ++e)
            values[e] = float(new_v[row + min(at + e, p.value_size - 1) * p.new_v_strides[3]]);
        const uint bits = packed_uint(values);
        new_values[i / 4][i % 4] = bits;
        const uint j = before + s;
        const uint place = (BYTE_OFFSET_V / T_BYTES + v_start(sequence, j, key_head) + at) / T_PER_UINT;
        if (j >= start && j < end && at < p.value_size) v_written[place] = bits;
    }
}

void store_result(Sequence sequence, uint key_head, uint r, uint column, float value) {
    const uint row = y_start(sequence, r / GROUP, key_head * GROUP + r % GROUP);
    y[BYTE_OFFSET_Y / T_BYTES + row + column * p.y_strides[3]] = T(value);
}

// Brings the sums of all parts of the head to the highest of their peaks and stores the result, in all invocations of the workgroup:
//
//   sum over parts of exp(peak[part] - highest) * sums[part]  /  sum over parts of exp(peak[part] - highest) * weights[part]
//
// PARTS_TOGETHER parts are on their way together, and as many neighbouring invocations, a power of two of one subgroup, have a row's peaks and
// weights: each exponential is found once. (Where each invocation found those of its columns, 10 parts took 2 us more on an H200.) What was summed
// up is brought to a higher peak where the next parts have one. The order of additions follows from the number of parts: the same bits
// come out every time.
void merge(Sequence sequence, uint key_head, uint parts) {
    const uint invocation = workgroup_invocation();
    const uint rows = gl_NumWorkGroups.y * ROWS, first_row = gl_WorkGroupID.y * ROWS;
    const uint row_pairs = p.value_size / 2, pairs = ROWS * row_pairs;
    const uint row = min(invocation / PARTS_TOGETHER, ROWS - 1); // whose peak and weights this invocation has
    vec2 sums[PAIRS_EACH];
    [[unroll]] for (uint n = 0; n < PAIRS_EACH; ++n) sums[n] = vec2(0);
    float highest = -INFINITY, weights = 0.0;
    for (uint first = 0; first < parts; first += PARTS_TOGETHER) {
        const uint part = first + invocation % PARTS_TOGETHER;
        const uint end_place = min(part, parts - 1) * rows + first_row + row;
        const vec2 end = partial_pairs[(BYTE_OFFSET_PARTIALS / 4 + p.summaries) / 2 + end_place];
        vec2 own[PAIRS_EACH][PARTS_TOGETHER];
        [[unroll]] for (uint n = 0; n < PAIRS_EACH; ++n) {
            const uint pair = BYTE_OFFSET_PARTIALS / 8 + first_row * row_pairs + min(n * LOCAL_SIZE_X + invocation, pairs - 1);
            [[unroll]] for (uint i = 0; i < PARTS_TOGETHER; ++i)
                own[n][i] = partial_pairs[min(first + i, parts - 1) * rows * row_pairs + pair];
        }
        const float before = highest;
        if (part < parts) highest = max(highest, end.x);
        [[unroll]] for (uint distance = 1; distance < PARTS_TOGETHER; distance *= 2)
            highest = max(highest, subgroupShuffleXor(highest, distance));
        const float base = subtracted(highest);
        const float kept = exp_of_negative(before - base);
        const float factor = part < parts ? exp_of_negative(end.x - base) : 0.0;
        float more = part < parts ? factor * end.y : 0.0;
        [[unroll]] for (uint distance = 1; distance < PARTS_TOGETHER; distance *= 2) more += subgroupShuffleXor(more, distance);
        weights = fma(weights, kept, more);
        if (first > 0) barrier();
        if (invocation < ROWS * PARTS_TOGETHER) factors[invocation] = factor, kept_shares[row] = kept, totals[row] = weights;
        barrier();
        [[unroll]] for (uint n = 0; n < PAIRS_EACH; ++n) {
            const uint r = min(n * LOCAL_SIZE_X + invocation, pairs - 1) / row_pairs;
            sums[n] *= kept_shares[r];
            [[unroll]] for (uint i = 0; i < PARTS_TOGETHER; ++i)
                sums[n] = fma(vec2(factors[r * PARTS_TOGETHER + i]), first + i < parts ? own[n][i] : vec2(0), sums[n]);
        }
    }
    [[unroll]] for (uint n = 0; n < PAIRS_EACH; ++n) {
        const uint pair = n * LOCAL_SIZE_X + invocation;
        if (pair < pairs) {
            const uint r = pair / row_pairs, column = 2 * (pair - r * row_pairs);
            [[unroll]] for (uint c = 0; c < 2; ++c) store_result(sequence, key_head, r, column + c, share(sums[n][c], totals[r]));
        }
    }
}

void main() {
    const uint entry = gl_WorkGroupID.y / p.key_heads;
    const uint key_head = gl_WorkGroupID.y - entry * p.key_heads;
    const Sequence sequence = sequence_of(entry);
    const uint before = sequence.end - NEW_ROWS;
    const uvec2 keys = keys_of_parts(before);
    const uint part_keys = keys_of_part(keys.y - keys.x, p.parts);
    const uint start = keys.x + gl_WorkGroupID.x * part_keys;
    if (start >= sequence.keys) return;
    const uint end = min(start + part_keys, sequence.keys);
    const uint parts = (sequence.keys - keys.x - 1) / part_keys + 1;
    const bool is_split = SPLIT != 0 && parts > 1;
    const uint invocation = workgroup_invocation();
    const uint lane = invocation % LANES;
    const uint group = invocation / LANES;
    const uint last_head_word = p.head_size / T_PER_WORD - 1;
    const uint last_value_word = p.value_size / T_PER_WORD - 1;
    uvec4 key_words[KEYS][HEAD_CHUNKS];
    uvec4 value_words[KEYS][VALUE_CHUNKS];
#define FETCH(first)                                                                                          \
    [[unroll]] for (uint n = 0; n < KEYS; ++n) {                                                              \
        const uint j = min((first) + n * GROUPS + group, end - 1);                                            \
        const uint key = (BYTE_OFFSET_K / T_BYTES + k_start(sequence, j, key_head)) / T_PER_WORD;             \
        const uint value = (BYTE_OFFSET_V / T_BYTES + v_start(sequence, j, key_head)) / T_PER_WORD;           \
        [[unroll]] for (uint c = 0; c < HEAD_CHUNKS; ++c)                                                     \
            key_words[n][c] = k_words[key + min(c * LANES + lane, last_head_word)];                           \
        [[unroll]] for (uint c = 0; c < VALUE_CHUNKS; ++c)                                                    \
            value_words[n][c] = v_words[value + min(c * LANES + lane, last_value_word)];                      \
    }
    FETCH(start)
    stage(sequence, key_head, before, start, end);
    barrier();

    float own[ROWS][HEAD_CHUNKS][T_PER_WORD];
    float sums[ROWS][VALUE_CHUNKS][T_PER_WORD];
    float peaks[ROWS];
    float weights[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        const bool first = gl_WorkGroupID.x == 0 && group == 0;
        peaks[r] = first ? first_peak(key_head * GROUP + r % GROUP) : -INFINITY;
        weights[r] = first ? first_weights() : 0.0;
        [[unroll]] for (uint c = 0; c < HEAD_CHUNKS; ++c)
            [[unroll]] for (uint e = 0; e < T_PER_WORD; ++e)
                own[r][c][e] = queries[(r * HEAD_WORDS + c * LANES + lane) * T_PER_WORD + e];
        [[unroll]] for (uint c = 0; c < VALUE_CHUNKS; ++c)
            [[unroll]] for (uint e = 0; e < T_PER_WORD; ++e) sums[r][c][e] = 0.0;
    }

    for (uint first = start; first < end; first += GROUPS * KEYS) {
        if (first > start) FETCH(first)
        if (first + GROUPS * KEYS > before) {
            [[unroll]] for (uint n = 0; n < KEYS; ++n) {
                const uint j = min(first + n * GROUPS + group, end - 1);
                if (j < before) continue;
                [[unroll]] for (uint c = 0; c < HEAD_CHUNKS; ++c)
                    key_words[n][c] = new_keys[(j - before) * HEAD_WORDS + min(c * LANES + lane, last_head_word)];
                [[unroll]] for (uint c = 0; c < VALUE_CHUNKS; ++c)
                    value_words[n][c] = new_values[(j - before) * VALUE_WORDS + min(c * LANES + lane, last_value_word)];
            }
        }

        float scores[ROWS][KEYS];
        [[unroll]] for (uint n = 0; n < KEYS; ++n) {
            [[unroll]] for (uint r = 0; r < ROWS; ++r) scores[r][n] = 0.0;
            [[unroll]] for (uint c = 0; c < HEAD_CHUNKS; ++c) {
                float elements[T_PER_WORD];
                unpack_word(key_words[n][c], elements);
                [[unroll]] for (uint r = 0; r < ROWS; ++r)
                    [[unroll]] for (uint e = 0; e < T_PER_WORD; ++e)
                        scores[r][n] = fma(own[r][c][e], elements[e], scores[r][n]);
            }
            [[unroll]] for (uint r = 0; r < ROWS; r += 2) {
                const uint next = min(r + 1, ROWS - 1);
                const vec2 pair = sum_of_key(vec2(scores[r][n], scores[next][n]));
                scores[r][n] = pair.x;
                if (next > r) scores[next][n] = pair.y;
            }
        }
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
            const uint s = r / GROUP;
            const uint head = key_head * GROUP + r % GROUP;
            float higher = peaks[r];
            [[unroll]] for (uint n = 0; n < KEYS; ++n) {
                const uint j = first + n * GROUPS + group;
                const bool seen = j < end && j < keys_seen(sequence, s) && j >= first_seen(sequence, s);
                scores[r][n] = seen ? scaled(scores[r][n]) + added(sequence, s, head, min(j, end - 1)) : -INFINITY;
                higher = max(higher, scores[r][n]);
            }
            const float base = subtracted(higher);
            const float factor = exp_of_negative(peaks[r] - base);
            peaks[r] = higher;
            weights[r] *= factor;
            [[unroll]] for (uint c = 0; c < VALUE_CHUNKS; ++c)
                [[unroll]] for (uint e = 0; e < T_PER_WORD; ++e) sums[r][c][e] *= factor;
            [[unroll]] for (uint n = 0; n < KEYS; ++n) {
                scores[r][n] = exp_of_negative(scores[r][n] - base);
                weights[r] += scores[r][n];
            }
        }
        [[unroll]] for (uint n = 0; n < KEYS; ++n)
            [[unroll]] for (uint c = 0; c < VALUE_CHUNKS; ++c) {
                float elements[T_PER_WORD];
                unpack_word(value_words[n][c], elements);
                [[unroll]] for (uint r = 0; r < ROWS; ++r)
                    [[unroll]] for (uint e = 0; e < T_PER_WORD; ++e)
                        sums[r][c][e] = fma(scores[r][n], elements[e], sums[r][c][e]);
            }
    }

    const uint first_of_part = (gl_WorkGroupID.x * gl_NumWorkGroups.y + gl_WorkGroupID.y) * ROWS;
    [[unroll]] for (uint first_row = 0; first_row < ROWS; first_row += TOGETHER) {
        if (first_row > 0) barrier();
        [[unroll]] for (uint i = 0; i < TOGETHER; ++i) {
            const uint r = first_row + i;
            if (lane == 0) summaries[i * GROUPS + group] = vec2(peaks[r], weights[r]);
            [[unroll]] for (uint c = 0; c < VALUE_CHUNKS; ++c)
                [[unroll]] for (uint e = 0; e < T_PER_WORD; ++e)
                    found[(i * GROUPS + group) * VALUE_ELEMENTS + (c * LANES + lane) * T_PER_WORD + e] = sums[r][c][e];
        }
        barrier();
        for (uint at = invocation; at < TOGETHER * p.value_size; at += LOCAL_SIZE_X) {
            const uint i = at / p.value_size;
            const uint column = at - i * p.value_size;
            const uint r = first_row + i;
            float highest = summaries[i * GROUPS].x;
            for (uint g = 1; g < GROUPS; ++g) highest = max(highest, summaries[i * GROUPS + g].x);
            const float base = subtracted(highest);
            float sum = 0.0;
            float total = 0.0;
            for (uint g = 0; g < GROUPS; ++g) {
                const vec2 summary = summaries[i * GROUPS + g];
                const float factor = exp_of_negative(summary.x - base);
                total = fma(factor, summary.y, total);
                sum = fma(factor, found[(i * GROUPS + g) * VALUE_ELEMENTS + column], sum);
            }
            if (is_split) {
                partials[BYTE_OFFSET_PARTIALS / 4 + (first_of_part + r) * p.value_size + column] = sum;
                if (column == 0) {
                    const uint place = BYTE_OFFSET_PARTIALS / 4 + p.summaries + 2 * (first_of_part + r);
                    partials[place] = highest;
                    partials[place + 1] = total;
                }
            } else {
                store_result(sequence, key_head, r, column, share(sum, total));
            }
        }
    }
    if (is_split) {
        bool is_last;
        COUNT_WORKGROUP(counters[BYTE_OFFSET_COUNTERS / 4 + gl_WorkGroupID.y], parts, is_last)
        if (is_last) merge(sequence, key_head, parts);
    }
}
