// y = on where the position along an axis equals the index there, else off (OneHot).
//
// Bindings: indices, as 32-bit words; values: off first, on further along; output. Variants, constants and parameters:
// include/fill.glsl, where position is the coordinate along the axis and source an index's first word, and
// Constants: INDEX_WORDS, INDEX_SIGNED (include/index.glsl).
// Parameters: axis_size; on, the second value's place, in T.

#include "index.glsl"

layout(set = 0, binding = BINDING_INDICES, std430) readonly buffer Indices { uint index_words[]; };
layout(set = 0, binding = BINDING_VALUES, std430) readonly buffer Values { T value_elements[]; };

uvec2 value_at(uint position, uint source) {
    const uint word = BYTE_OFFSET_INDICES / 4 + source;
    const uint index = resolve_index(index_words[word], INDEX_WORDS == 2u ? index_words[word + 1u] : 0u, p.axis_size);
    const uint value = BYTE_OFFSET_VALUES / T_BYTES + (position == index ? p.on : 0u);
    return uvec2(value_elements[value], HALVES == 2u ? uint(value_elements[value + 1u]) : 0u);
}

#include "fill.glsl"
