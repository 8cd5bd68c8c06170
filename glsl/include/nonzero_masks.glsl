// Which elements of a tile are not zero, as masks of 32 elements in shared memory, the first one's bit the lowest.
//
// Elements are compared as bits, T being the unsigned type of their size: whether a device flushes subnormal numbers, or
// knows NaN, does not matter. IS_FLOAT leaves out the sign, so that -0 is zero.
//
// Variants: T; WORDS, what a unit is:
//   1  a 16-byte word of elements. Rows of the input are contiguous and start on words; if there is more than one row,
//      rows are whole words.
//   0  one element, any strides.
// Constants: LOCAL_SIZE_X; UNITS, of an invocation, so that a tile has at most a mask an invocation; RANK, of the walk;
// IS_FLOAT.
// Parameters: units, whole ones; tail, elements behind the last whole word; sizes of the input in units, what divides by
// them, and strides in units.
// Binding: X. Needs GL_KHR_shader_subgroup_shuffle.

#ifndef DMLVK_NONZERO_MASKS_GLSL
#define DMLVK_NONZERO_MASKS_GLSL

#include "subgroups.glsl"
#include "tensor.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer X { T x[]; };
#if WORDS
#define UNIT uvec4
#define UNIT_BYTES WORD_BYTES
layout(set = 0, binding = BINDING_X, std430) readonly buffer XWords { uvec4 x_units[]; };
#else
#define UNIT uint
#define UNIT_BYTES T_BYTES
#define x_units x
#endif

#define UNIT_ELEMENTS (UNIT_BYTES / T_BYTES)
#define MASK_UNITS (MASK_ELEMENTS / UNIT_ELEMENTS)
#define TILE_UNITS (LOCAL_SIZE_X * UNITS)
#define TILE_MASKS (TILE_UNITS / MASK_UNITS)

shared uint tile_masks[MOST_INVOCATIONS];

bool is_nonzero(uint element) { return (element & (0xFFFFFFFFu >> (32 - 8 * T_BYTES) >> IS_FLOAT)) != 0u; }

// A bit for each element of a unit.
uint nonzero_bits(UNIT unit) {
#if WORDS
    const int parts = 4 / T_BYTES, part_bits = 8 * T_BYTES; // of a component
    uint bits = 0u;
    [[unroll]] for (int i = 0; i < UNIT_ELEMENTS; ++i)
        bits |= uint(is_nonzero(bitfieldExtract(unit[i / parts], i % parts * part_bits, part_bits))) << i;
    return bits;
#else
    return uint(is_nonzero(unit));
#endif
}

UNIT load_unit(uint unit) {
    uint at = BYTE_OFFSET_X / UNIT_BYTES;
#define VISIT(dimension, coordinate) at += (coordinate) * p.strides[dimension];
    FOR_EACH_COORDINATE_FAST(unit, RANK, p.sizes, p.divisors, VISIT)
#undef VISIT
    return UNIT(x_units[at]);
}

// The elements behind the last whole word, of an input that is one row.
uint tail_bits() {
    uint bits = 0u;
    const uint first = BYTE_OFFSET_X / T_BYTES + p.units * UNIT_ELEMENTS;
    [[dont_unroll]] for (uint i = 0u; i < p.tail; ++i) bits |= uint(is_nonzero(uint(x[first + i]))) << i;
    return bits;
}

// Puts the masks of the tile that starts at a unit into tile_masks; returns how many of this invocation's elements are not
// zero. Every invocation of the workgroup must call, once all have read what they want of the tile before.
uint find_masks(uint first) {
    const uint invocation = workgroup_invocation();
    if (invocation < TILE_MASKS) tile_masks[invocation] = 0u;
    UNIT units[UNITS];
    [[unroll]] for (uint u = 0u; u < UNITS; ++u)
        units[u] = load_unit(min(first + u * LOCAL_SIZE_X + invocation, p.units - 1u));
    barrier();
    const uint neighbours = min(MASK_UNITS, gl_SubgroupSize);
    uint count = 0u;
    [[unroll]] for (uint u = 0u; u < UNITS; ++u) {
        const uint own = u * LOCAL_SIZE_X + invocation;
        uint bits = first + own < p.units ? nonzero_bits(units[u]) : 0u;
        if (first + own == p.units) bits = tail_bits();
        count += bitCount(bits);
        bits <<= own % MASK_UNITS * UNIT_ELEMENTS;
        for (uint distance = 1u; distance < neighbours; distance *= 2u) bits |= subgroupShuffleXor(bits, distance);
        if (own % neighbours == 0u) atomicOr(tile_masks[own / MASK_UNITS], bits);
    }
    barrier();
    return count;
}

#endif
