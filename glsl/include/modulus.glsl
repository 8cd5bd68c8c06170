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

// The remainder where the direct way below does not apply: long division, 8 quotient bits a step.
float long_remainder(uint a, uint b) {
    if (a >= 0x7F800000u || b > 0x7F800000u || b == 0u) return NOT_A_NUMBER;
    if (a < b) return uintBitsToFloat(a);
    const uint divisor = (b & 0x007FFFFFu) | (b >= 0x00800000u ? 0x00800000u : 0u);
    const int exponent = max(int(b >> 23), 1);
    uint rest = ((a & 0x007FFFFFu) | (a >= 0x00800000u ? 0x00800000u : 0u)) % divisor;
    for (int left = max(int(a >> 23), 1) - exponent; left > 0; left -= 8) rest = (rest << min(left, 8)) % divisor;
    return assemble(rest, exponent);
}

// |a| mod |b|, given the bits of both without sign: a where a < b; NaN where a is infinite, b is 0 or either is NaN.
float remainder(uint a, uint b) {
    const bool below = a < b;
    const uint distance = below ? 0u : (a >> 23) - (b >> 23);
    // Up to 20 quotient bits at once, for finite numbers whose remainder is normal: nearly all that is met, so that the
    // branch is rarely taken and the rest has none.
    if (distance > 20u || b - (24u << 23) >= (231u << 23) || a >= 0x7F800000u) return long_remainder(a, b);
    const uint a_significand = (a & 0x007FFFFFu) | 0x00800000u;
    const uint b_significand = (b & 0x007FFFFFu) | 0x00800000u;
    // Both as floats in [1, 2): whatever the sizes of a and b, the division is at its best; it is off by less than 1.
    const float ratio = uintBitsToFloat((a & 0x007FFFFFu) | 0x3F800000u) / uintBitsToFloat((b & 0x007FFFFFu) | 0x3F800000u);
    const uint quotient = uint(ratio * uintBitsToFloat((127u + distance) << 23));
    int rest = int((a_significand << distance) - quotient * b_significand);
    rest += rest < 0 ? int(b_significand) : 0;
    rest -= rest >= int(b_significand) ? int(b_significand) : 0;
    return below ? uintBitsToFloat(a) : float(rest) * uintBitsToFloat((b & 0x7F800000u) - (23u << 23));
}

// a mod b with the sign of a, as C's fmod.
float modulus_truncate(float a, float b) {
    return copy_sign(remainder(floatBitsToUint(a) & 0x7FFFFFFFu, floatBitsToUint(b) & 0x7FFFFFFFu), a);
}

// a mod b with the sign of b, as Python's %.
float modulus_floor(float a, float b) {
    const float rest = remainder(floatBitsToUint(a) & 0x7FFFFFFFu, floatBitsToUint(b) & 0x7FFFFFFFu);
    const bool signs_differ = int(floatBitsToUint(a) ^ floatBitsToUint(b)) < 0;
    return copy_sign(signs_differ && floatBitsToUint(rest) != 0u ? abs(b) - rest : rest, b);
}

#endif
