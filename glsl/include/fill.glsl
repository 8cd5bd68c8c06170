// What the fills share: a walk over the output, each element the bits that the kernel's value_at() makes of its place.
//
// An element's bits are a uvec2 (low, high). T is the unsigned type of an element's size; a 64-bit element is HALVES = 2
// elements of UINT32 and otherwise 1, so no 64-bit feature is needed.
//
// Before including this, a kernel defines
//   uvec2 value_at(uint position, uint source)
// Both arguments are linear in the coordinates: position counts by p.position_strides from p.position, source by
// p.source_strides from 0, for an input's elements.
//
// Variants: T; WORDS, how an invocation writes:
//   1  a 16-byte word, and element by element what is left of a row. Every row of the output is contiguous and starts on a
//      word. The rule "words": packed tensors are one row.
//   0  one element, any strides. The rule "elements".
// Constants: LOCAL_SIZE_X, RANK 1, HALVES 1.
// Parameters: count of items (words or elements); sizes of the index space, the innermost in items, and what divides by
//   them; inner_size, the innermost in elements; position, and the three sets of strides for a step of one item, those of
//   source and output in T; position_step and source_step, for one element of an item.

#ifndef DMLVK_FILL_GLSL
#define DMLVK_FILL_GLSL

#include "tensor.glsl"

layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer Output { T output_elements[]; };
#if WORDS
layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer OutputWords { uvec4 output_words[]; };
#endif

#define ELEMENTS (WORDS == 1 ? WORD_BYTES / (T_BYTES * HALVES) : 1u)

void store(uint index, uvec2 bits) {
    output_elements[index] = T(bits.x);
    if (HALVES == 2u) output_elements[index + 1u] = T(bits.y);
}

void main() {
    if (beyond(p.count)) return;
    uint position = p.position, source = 0u, index = 0u, inner = 0u;
#define VISIT(dimension, coordinate)                                  \
    position += (coordinate) * p.position_strides[dimension];         \
    source += (coordinate) * p.source_strides[dimension];             \
    index += (coordinate) * p.output_strides[dimension];              \
    inner = uint(dimension) == RANK - 1u ? (coordinate) : inner;
    FOR_EACH_COORDINATE_FAST(linear_invocation(), RANK, p.sizes, p.divisors, VISIT)

#if WORDS
    const uint elements = min(p.inner_size - inner * ELEMENTS, ELEMENTS);
    if (elements == ELEMENTS) {
        const uint parts = 4 / T_BYTES, part_bits = 8 * T_BYTES; // of a component
        uvec4 word = uvec4(0u);
        [[unroll]] for (uint i = 0u; i < 4u * parts; ++i) {
            const uint element = i / HALVES;
            const uvec2 bits = value_at(position + element * p.position_step, source + element * p.source_step);
            word[i / parts] = bitfieldInsert(word[i / parts], bits[i % HALVES], int(i % parts * part_bits), int(part_bits));
        }
        output_words[BYTE_OFFSET_OUTPUT / 16 + index * T_BYTES / 16] = word;
        return;
    }
    index += BYTE_OFFSET_OUTPUT / T_BYTES;
    [[dont_unroll]] for (uint i = 0u; i < elements; ++i)
        store(index + i * HALVES, value_at(position + i * p.position_step, source + i * p.source_step));
#else
    store(index + BYTE_OFFSET_OUTPUT / T_BYTES, value_at(position, source));
#endif
}

#endif
