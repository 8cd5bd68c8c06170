// Exact moduli of floats, by their bits.
//
// A float remainder is exact by nature (it is a multiple of the finer operand's last place and smaller than b), but no
// formula in floats finds it, because q * b needs more bits than a float has. So the subtraction a - q * b runs on the
// significands as integers, modulo 2^32: the difference is small, so its low 32 bits are all of it.

#ifndef DMLVK_MODULUS_GLSL
#define DMLVK_MODULUS_GLSL

#include "math.glsl"

// The float significand * 2^(exponent - 150); exponent as biased in the format, at least 1. Exact for significand < 2^24.
float assemble(uint significand, int exponent) {
    if (significand == 0u) return 0.0;
    const int shift = min(23 - findMSB(significand), exponent - 1);
    const uint shifted = significand << shift;
    return uintBitsToFloat(shifted < 0x00800000u ? shifted : (uint(exponent - shift) << 23) + (shifted - 0x00800000u));
}

// |a| mod |b| for finite |a| >= |b| > 0 of any size: long division, 8 quotient bits a step.
float long_remainder(uint a, uint b) {
    const int a_exponent = max(int(a >> 23), 1);
    const int b_exponent = max(int(b >> 23), 1);
    const uint divisor = (b & 0x007FFFFFu) | (b >= 0x00800000u ? 0x00800000u : 0u);
    uint rest = ((a & 0x007FFFFFu) | (a >= 0x00800000u ? 0x00800000u : 0u)) % divisor;
    for (int left = a_exponent - b_exponent; left > 0; left -= 8) rest = (rest << min(left, 8)) % divisor;
    return assemble(rest, b_exponent);
}

// |a| mod |b|, given the bits of both without sign; a and b finite, b not 0.
float remainder(uint a, uint b) {
    if (a < b) return uintBitsToFloat(a);
    const uint distance = (a >> 23) - (b >> 23);
    // Up to 20 quotient bits at once, for normal numbers whose remainder is normal too: nearly all that is met.
    if (distance > 20u || b < (24u << 23)) return long_remainder(a, b);
    const uint a_significand = (a & 0x007FFFFFu) | 0x00800000u;
    const uint b_significand = (b & 0x007FFFFFu) | 0x00800000u;
    // Both as floats in [1, 2): whatever the sizes of a and b, the division is at its best; it is off by less than 1.
    const float ratio = uintBitsToFloat((a & 0x007FFFFFu) | 0x3F800000u) / uintBitsToFloat((b & 0x007FFFFFu) | 0x3F800000u);
    const uint quotient = uint(ratio * uintBitsToFloat((127u + distance) << 23));
    int rest = int((a_significand << distance) - quotient * b_significand);
    rest += rest < 0 ? int(b_significand) : 0;
    rest -= rest >= int(b_significand) ? int(b_significand) : 0;
    return float(rest) * uintBitsToFloat((b & 0x7F800000u) - (23u << 23));
}

// a mod b with the sign of a, as C's fmod.
float modulus_truncate(float a, float b) {
    const uint a_bits = floatBitsToUint(a) & 0x7FFFFFFFu;
    const uint b_bits = floatBitsToUint(b) & 0x7FFFFFFFu;
    if (a_bits >= 0x7F800000u || b_bits > 0x7F800000u || b_bits == 0u) return NOT_A_NUMBER;
    return copy_sign(remainder(a_bits, b_bits), a);
}

// a mod b with the sign of b, as Python's %.
float modulus_floor(float a, float b) {
    const float rest = modulus_truncate(a, b);
    const bool zero = (floatBitsToUint(rest) & 0x7FFFFFFFu) == 0u;
    const bool signs_differ = int(floatBitsToUint(a) ^ floatBitsToUint(b)) < 0;
    return zero ? copy_sign(0.0, b) : signs_differ ? rest + b : rest;
}

#endif
