// What the kernels of the K largest or smallest elements of a row share: keys, sorting in shared memory, and the outputs.
//
// Elements are compared as unsigned keys: the smallest K are chosen, and among equal keys those that come first in the row.
// T is the unsigned type of the element's size; of 64-bit elements it is UINT32, and HALVES is 2. Bits stand at the upper end of
// their word, and
//   integers   key = bits ^ p.flip, which turns a signed type's order and the direction round
//   IS_FLOAT   the same of integers in the order of the numbers: -0 as 0, every NaN above infinity
// Values are copied by their position, so every bit of them is kept.
//
// Constants: IS_FLOAT, CAPACITY (of the shared memory, in elements). Parameters: rows; k; flip (of the two halves of a key, the
// upper first); index_words (of an index: 1 UINT32, 2 UINT64); kept_rank, kept_sizes and kept_divisors of the dimensions beside
// the axis, merged; for x, values and indices kept_* and *_step along the axis, all in elements.
// Bindings: X read, VALUES and INDICES written.

#ifndef DMLVK_TOP_K_GLSL
#define DMLVK_TOP_K_GLSL

#include "subgroups.glsl"
#include "tensor.glsl"

#if HALVES == 2
#define KEY uvec2 // the upper half first
#else
#define KEY uint
#endif

layout(set = 0, binding = BINDING_X, std430) readonly buffer X { T x[]; };
layout(set = 0, binding = BINDING_VALUES, std430) writeonly buffer Values { T values[]; };
layout(set = 0, binding = BINDING_INDICES, std430) writeonly buffer Indices { uint index_words[]; };

uint x_start() { return BYTE_OFFSET_X / (T_BYTES * HALVES); }

// Where a row starts in x, in values and in indices, in elements.
uvec3 find_row(uint row) {
    uvec3 start = uvec3(x_start(), BYTE_OFFSET_VALUES / (T_BYTES * HALVES), BYTE_OFFSET_INDICES / (4 * p.index_words));
#define ADD_KEPT(dimension, coordinate) \
    start += (coordinate) * uvec3(p.kept_x[dimension], p.kept_values[dimension], p.kept_indices[dimension]);
    FOR_EACH_COORDINATE_FAST(row, p.kept_rank, p.kept_sizes, p.kept_divisors, ADD_KEPT)
    return start;
}

// An element's bits at the upper end.
KEY bits_at(uint element) {
#if HALVES == 2
    return uvec2(x[2 * element + 1], x[2 * element]);
#else
    return uint(x[element]) << (32 - 8 * T_BYTES);
#endif
}

KEY key_of(KEY bits) {
#if HALVES == 2
    return bits ^ uvec2(p.flip[0], p.flip[1]);
#else
    if (IS_FLOAT != 0) {
        const uint magnitude = bits & 0x7FFFFFFFu;
        const bool is_nan = magnitude > (T_BYTES == 2 ? 0x7C000000u : 0x7F800000u);
        const uint sign = uint(int(bits) >> 31);
        bits = magnitude == 0u ? 0x80000000u : bits ^ (sign | 0x80000000u);
        if (is_nan) bits = 0xFFFFFFFFu;
        bits &= 0xFFFFFFFFu << (32 - 8 * T_BYTES);
    }
    return bits ^ p.flip[0];
#endif
}

void store_element(uint to_value, uint to_index, uint from, uint position) {
#if HALVES == 2
    values[2 * to_value] = x[2 * from];
    values[2 * to_value + 1] = x[2 * from + 1];
#else
    values[to_value] = x[from];
#endif
    index_words[to_index * p.index_words] = position;
    if (p.index_words == 2) index_words[to_index * p.index_words + 1] = 0u;
}

// Element `place` of a row's output, from `position` of the row, which starts as find_row says.
void store(uvec3 start, uint place, uint position) {
    store_element(start.y + place * p.value_step, start.z + place * p.index_step, start.x + position * p.x_step, position);
}

// -- sorting

bool comes_before(KEY a, uint a_position, KEY b, uint b_position) {
#if HALVES == 2
    if (a.x != b.x) return a.x < b.x;
    if (a.y != b.y) return a.y < b.y;
#else
    if (a != b) return a < b;
#endif
    return a_position < b_position;
}

shared KEY keys[CAPACITY];
shared uint positions[CAPACITY];

void exchange(uint low, uint high) {
    const KEY a = keys[low], b = keys[high];
    const uint a_position = positions[low], b_position = positions[high];
    if (comes_before(b, b_position, a, a_position)) {
        keys[low] = b;
        keys[high] = a;
        positions[low] = b_position;
        positions[high] = a_position;
    }
}

// Pair i of those whose two elements lie `distance` apart, and of those that lie as mirror images in runs of `run` elements:
// the element that comes first, and the other.
uvec2 pair_apart(uint i, uint distance) {
    const uint low = 2 * i - (i & (distance - 1));
    return uvec2(low, low + distance);
}
uvec2 mirrored_pair(uint i, uint run) {
    const uint offset = i & (run / 2 - 1);
    const uint low = 2 * i - offset;
    return uvec2(low, low + run - 1 - 2 * offset);
}

// Waits for the invocations that wrote what comes next, where that and what was written lie in runs of this length: a
// subgroup's own pairs lie in runs of twice its size.
void wait(uint run) {
    if (run <= 2 * gl_SubgroupSize) {
        subgroupBarrier();
    } else {
        barrier();
    }
}

// Exchanges over `count` pairs of shared memory. A segment of `segment` elements has `length`; what would lie behind them
// counts as larger than all, and stays there.
#define EXCHANGE_ALL(PAIR, reach)                                                              \
    for (uint i = workgroup_invocation(); i < count; i += LOCAL_SIZE_X) {                      \
        const uvec2 pair_ = PAIR(i, reach);                                                    \
        if ((pair_.y & (segment - 1)) < length) exchange(pair_.x, pair_.y);                    \
    }

// The steps of a bitonic merge in which the elements lie up to `distance` apart. `next` is the run of what follows.
void merge_steps(uint distance, uint segment, uint length, uint count, uint next) {
    for (; distance > 0; distance /= 2) {
        EXCHANGE_ALL(pair_apart, distance)
        wait(distance > 1 ? 2 * distance : max(next, 2));
    }
}

// Sorts each segment, a power of two: a bitonic sort whose every exchange puts the smaller element first. Between barriers.
void sort_segments(uint segment, uint length, uint count) {
    for (uint run = 2; run <= segment; run *= 2) {
        EXCHANGE_ALL(mirrored_pair, run)
        const uint next = run < segment ? 2 * run : 0xFFFFFFFFu;
        wait(run > 2 ? run : next);
        merge_steps(run / 4, segment, length, count, next);
    }
}

uint power_of_two_from(uint least) { return least < 2 ? 1 : 2u << findMSB(least - 1); }

#endif
