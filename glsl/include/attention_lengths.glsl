// How many rows of the past of a batch entry are valid, in attention.
//
// Needs the buffer LENGTHS, the parameter lengths_stride and the constant LENGTHS: the type of its numbers,
// LENGTHS_INT32, LENGTHS_FLOAT32 or LENGTHS_FLOAT16.

#ifndef DMLVK_ATTENTION_LENGTHS_GLSL
#define DMLVK_ATTENTION_LENGTHS_GLSL

#include "math.glsl"

layout(set = 0, binding = BINDING_LENGTHS, std430) readonly buffer Lengths { uint past_lengths[]; };

// At most `most`; a number that is none counts as 0.
uint past_length(uint entry, uint most) {
    const uint place = entry * p.lengths_stride;
    const uint first = BYTE_OFFSET_LENGTHS / 4;
    if (LENGTHS == LENGTHS_INT32) return uint(clamp(int(past_lengths[first + place]), 0, int(most)));
    float number = 0.0;
    if (LENGTHS == LENGTHS_FLOAT32) number = uintBitsToFloat(past_lengths[first + place]);
    if (LENGTHS == LENGTHS_FLOAT16) {
        const vec2 pair = unpackHalf2x16(past_lengths[first + place / 2]);
        number = place % 2 == 0 ? pair.x : pair.y;
    }
    return is_nan(number) ? 0u : uint(clamp(number, 0.0, float(most)));
}

#endif
