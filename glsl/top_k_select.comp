// The K largest or smallest elements of long rows, a workgroup a row or a chunk of one: find the K-th, gather what is not
// behind it, sort that.
//
// Keys, order, bindings and parameters: include/top_k.glsl; K is at most CAPACITY. An element's order is its key followed by its
// position, so no two are equal. Its digits of 11 bits are counted from the top, each only for the elements whose digits so far
// are those of the K-th, until at most CAPACITY elements are not behind that: one count is enough for most data, and one more
// for each digit that many elements share. The order in which the candidates are gathered does not matter, for they are sorted.
//
// WORDS 1: rows consist of whole 16-byte words; an invocation has UNITS of them in flight. WORDS 0: elements p.x_step apart.
// Row r's units are cut into p.chunks chunks. Constant PHASE:
//   WHOLE       writes the outputs
//   CANDIDATES  writes each chunk's own K, packed, with their positions in the row, to VALUES and INDICES
//   MERGE       X is those of all chunks of a row, in order, so that equal ones still come in the order of their positions,
//               which ORIGINS has
// Binding of its own: ORIGINS. Parameters: units, chunks, position_shift (leaves a position's upper bits at the upper end).
// Grid: folded into x and y.
// Chosen for rows that do not fit into shared memory. X is read twice, the second time mostly from the cache.

#include "top_k.glsl"

layout(set = 0, binding = BINDING_ORIGINS, std430) readonly buffer Origins { uint origins[]; };

#if WORDS
#define UNIT uvec4
#define UNIT_ELEMENTS (WORD_BYTES / (T_BYTES * HALVES))
layout(set = 0, binding = BINDING_X, std430) readonly buffer XWords { uvec4 x_words[]; };

KEY element_of(uvec4 unit, uint j) {
#if HALVES == 2
    return uvec2(unit[2 * j + 1], unit[2 * j]);
#elif T_BYTES == 4
    return unit[j];
#elif T_BYTES == 2
    return j % 2 == 0 ? unit[j / 2] << 16 : unit[j / 2] & 0xFFFF0000u;
#else
    return unit[j / 4] << (24 - 8 * (j % 4)) & 0xFF000000u;
#endif
}
#else
#define UNIT KEY
#define UNIT_ELEMENTS 1
KEY element_of(KEY unit, uint j) { return unit; }
#endif

#define KEY_DIGITS (T_BYTES < 4 ? T_BYTES : 3)

shared uint bins[BINS];
shared uint run_counts[BINS / LEAST_SUBGROUP];
shared uint gathered;

// The K-th element's order, as far as `mask` says that it is known: the words of the key and then the position.
uvec3 threshold = uvec3(0);
uvec3 mask = uvec3(0);

#if HALVES == 2
uint upper_word(uvec2 key) { return key.x; }
uvec3 order_of(uvec2 key, uint position) { return uvec3(key, position << p.position_shift); }
#else
uint upper_word(uint key) { return key; }
uvec3 order_of(uint key, uint position) { return uvec3(key, position << p.position_shift, 0); }
#endif

// Counts of equal neighbours are added at once.
uint pending = 0;
uint run = 0;
void flush() {
    if (run > 0) atomicAdd(bins[pending], run);
    run = 0;
}
void count(uint bin) {
    if (bin != pending) flush();
    pending = bin;
    ++run;
}

// Few elements come past the first comparison.
void gather_element(KEY key, uint position) {
    if ((upper_word(key) & mask.x) > threshold.x) return;
    const uvec3 order = order_of(key, position) & mask;
    if (order.x == threshold.x) {
        if (order.y > threshold.y) return;
        if (order.y == threshold.y && order.z > threshold.z) return;
    }
    const uint slot = atomicAdd(gathered, 1);
    keys[slot] = key;
    positions[slot] = position;
}

uint start, first_unit, last_unit; // of the row in X, and of the chunk

UNIT load(uint unit) {
#if WORDS
    return x_words[start / UNIT_ELEMENTS + unit];
#else
    return bits_at(start + unit * p.x_step);
#endif
}

// Passes every element of the chunk to VISIT(key, position), UNITS loads in flight.
#define FOR_EACH_ELEMENT(VISIT)                                                                        \
    for (uint at = first_unit; at < last_unit; at += LOCAL_SIZE_X * UNITS) {                           \
        UNIT units[UNITS];                                                                             \
        [[unroll]] for (uint u = 0; u < UNITS; ++u) {                                                  \
            const uint unit = at + u * LOCAL_SIZE_X + gl_LocalInvocationID.x;                          \
            if (unit < last_unit) units[u] = load(unit);                                               \
        }                                                                                              \
        [[unroll]] for (uint u = 0; u < UNITS; ++u) {                                                  \
            const uint unit = at + u * LOCAL_SIZE_X + gl_LocalInvocationID.x;                          \
            if (unit < last_unit) {                                                                    \
                [[unroll]] for (uint j = 0; j < UNIT_ELEMENTS; ++j) {                                  \
                    const KEY key = key_of(element_of(units[u], j));                                   \
                    const uint position = unit * UNIT_ELEMENTS + j;                                    \
                    VISIT                                                                              \
                }                                                                                      \
            }                                                                                          \
        }                                                                                              \
    }

struct Found {
    uint bin;
    uint below; // elements in lower bins
    uint count; // and in this one
};

// Of neighbouring counts, one an invocation of the subgroup, `below` elements in all lower ones: the one in which the element
// lies that has `wanted` - 1 others before it; found.count is 0 where it is not among them.
Found find_in_subgroup(uint count, uint below, uint wanted) {
    const uint before = below + subgroupExclusiveAdd(count);
    const bool here = before < wanted && wanted <= before + count;
    return Found(
        subgroupMax(here ? gl_SubgroupInvocationID : 0), subgroupMax(here ? before : 0), subgroupMax(here ? count : 0));
}

// The bin in which that element lies: first among runs of as many bins as a subgroup has invocations, then in that run.
Found find_bin(uint wanted) {
    const uint width = gl_SubgroupSize, lane = gl_SubgroupInvocationID;
    for (uint i = gl_SubgroupID; i < BINS / width; i += gl_NumSubgroups) {
        const uint sum = subgroupAdd(bins[i * width + lane]);
        if (lane == 0) run_counts[i] = sum;
    }
    barrier();
    Found found = Found(0, 0, 0);
    uint below = 0;
    for (uint i = 0; i < BINS / width && found.count == 0; i += width) {
        const uint count = i + lane < BINS / width ? run_counts[i + lane] : 0;
        found = find_in_subgroup(count, below, wanted);
        found.bin += i;
        below += subgroupAdd(count);
    }
    const uint first = found.bin * width;
    found = find_in_subgroup(bins[first + lane], found.below, wanted);
    found.bin += first;
    return found;
}

// Narrows `threshold` down until at most CAPACITY elements are not behind it, and says how many.
uint find_threshold(uint length) {
    uint candidates = length;
    uint wanted = p.k;
    for (uint word = 0; word <= HALVES; ++word) {
        for (uint digit = 0; digit < (word < HALVES ? KEY_DIGITS : 3); ++digit) {
            if (candidates <= CAPACITY) return candidates;
            const uint shift = max(int(32 - RADIX_BITS * (digit + 1)), 0);
            const uint digit_mask = (0xFFFFFFFFu << shift) & (0xFFFFFFFFu >> (RADIX_BITS * digit));
            for (uint i = gl_LocalInvocationID.x; i < BINS; i += LOCAL_SIZE_X) bins[i] = 0;
            barrier();
            if (mask.x == 0) {
                FOR_EACH_ELEMENT(count(upper_word(key) >> (32 - RADIX_BITS));)
            } else {
                FOR_EACH_ELEMENT(
                    const uvec3 order = order_of(key, position);
                    if (all(equal(order & mask, threshold))) count((order[word] & digit_mask) >> shift);
                )
            }
            flush();
            barrier();
            const Found found = find_bin(wanted);
            wanted -= found.below;
            threshold[word] |= found.bin << shift;
            mask[word] |= digit_mask;
            candidates = p.k - wanted + found.count;
            barrier(); // all have read the bins
        }
    }
    return candidates;
}

void main() {
    const uint workgroup = linear_workgroup();
    const uint row = workgroup / p.chunks;
    const uint chunk = workgroup % p.chunks;
    if (row >= p.rows) return;
    const uvec3 row_start = find_row(row);
    start = row_start.x;
    // The first units % chunks chunks have one unit more.
    const uint each = p.units / p.chunks, more = p.units % p.chunks;
    first_unit = chunk * each + min(chunk, more);
    last_unit = first_unit + each + (chunk < more ? 1 : 0);

    if (gl_LocalInvocationID.x == 0) gathered = 0;
    const uint candidates = find_threshold((last_unit - first_unit) * UNIT_ELEMENTS);
    barrier();
    FOR_EACH_ELEMENT(gather_element(key, position);)
    barrier();
    const uint segment = power_of_two_from(candidates);
    sort_segments(segment, candidates, segment / 2);

    for (uint i = gl_LocalInvocationID.x; i < p.k; i += LOCAL_SIZE_X) {
        const uint position = positions[i];
        const uint from = row_start.x + position * p.x_step;
        if (PHASE == PHASE_CANDIDATES) {
            const uint to = workgroup * p.k + i;
            store_element(
                BYTE_OFFSET_VALUES / (T_BYTES * HALVES) + to, BYTE_OFFSET_INDICES / 4 + to, from, position);
        } else if (PHASE == PHASE_MERGE) {
            const uint origin = origins[BYTE_OFFSET_ORIGINS / 4 + row * p.units + position];
            store_element(row_start.y + i * p.value_step, row_start.z + i * p.index_step, from, origin);
        } else {
            store(row_start, i, position);
        }
    }
}
