// Numbers of BFLOAT16: the upper halves of those of FLOAT32.

#ifndef DMLVK_BFLOAT16_GLSL
#define DMLVK_BFLOAT16_GLSL

#include "math.glsl"

// The nearest number that has the bits of BFLOAT16, halves to even.
float to_bfloat16(float x) {
    const uint bits = floatBitsToUint(x);
    return is_nan(x) ? NOT_A_NUMBER : uintBitsToFloat((bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u);
}

// Its bits.
uint bfloat16_bits(float x) { return floatBitsToUint(to_bfloat16(x)) >> 16; }

float bfloat16_number(uint bits) { return uintBitsToFloat(bits << 16); }

// Two numbers in a word, the first one in its lower half.
vec2 bfloat16_pair(uint word) { return vec2(bfloat16_number(word), uintBitsToFloat(word & 0xFFFF0000u)); }
uint bfloat16_word(vec2 pair) { return bfloat16_bits(pair.x) | floatBitsToUint(to_bfloat16(pair.y)); }

#endif
