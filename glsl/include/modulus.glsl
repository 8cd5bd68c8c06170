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

// a - round(a / b) * b, exactly, for quotients below 2^11; `valid` is false where it cannot be had so.
//
// With b = high + low, both of half a significand, q * high and q * low are exact, and so are the differences: all are
// multiples of the finer last place below 2^24 of them (b/2 for the rest, 2^22 for q * low). Where |q| is 1 at most, a
// may be finer than b, but then a - q * b is exact at once. A float16's significand needs no halving at all.
// Where q is 0 the rest is a itself, untouched: a device may flush a subnormal that it computes with.
float nearest_remainder(float a, float b, out bool valid) {
    const float quotient = roundEven(a / b);
    const float size = abs(b);
    valid = abs(quotient) < 2048.0 && size > 1e-30 && size < 1e37;
#if defined(T_IS_FLOAT16)
    const float rest = a - quotient * b;
#else
    const float half_b = uintBitsToFloat((floatBitsToUint(b) + 0x800u) & 0xFFFFF000u);
    const float high = abs(quotient) > 1.0 ? half_b : b;
    const float rest = (a - quotient * high) - quotient * (b - high);
#endif
    return quotient == 0.0 ? a : rest;
}

bool signs_differ(float a, float b) { return int(floatBitsToUint(a) ^ floatBitsToUint(b)) < 0; }

// a mod b with the sign of a, as C's fmod.
float modulus_truncate(float a, float b) {
    bool valid;
    float rest = nearest_remainder(a, b, valid);
    if (!valid) return copy_sign(remainder(floatBitsToUint(a) & 0x7FFFFFFFu, floatBitsToUint(b) & 0x7FFFFFFFu), a);
    if (!is_zero(rest) && signs_differ(rest, a)) rest += copy_sign(abs(b), a);
    return copy_sign(rest, a);
}

// a mod b with the sign of b, as Python's %.
float modulus_floor(float a, float b) {
    bool valid;
    float rest = nearest_remainder(a, b, valid);
    if (!valid) rest = copy_sign(remainder(floatBitsToUint(a) & 0x7FFFFFFFu, floatBitsToUint(b) & 0x7FFFFFFFu), a);
    if (is_zero(rest)) return copy_sign(0.0, b);
    return signs_differ(rest, b) ? rest + b : rest;
}

#if defined(T_IS_FLOAT64)
// The double significand * 2^(exponent - 1075); exponent as biased in the format, at least 1. Exact for significand < 2^53.
double assemble(uint64_t significand, int exponent) {
    const uvec2 halves = unpackUint2x32(significand);
    if (halves == uvec2(0u)) return 0.0LF;
    const int last = halves.y != 0u ? 32 + findMSB(halves.y) : findMSB(halves.x);
    const int shift = min(52 - last, exponent - 1);
    const uint64_t shifted = significand << shift;
    const bool normal = shifted > SIGNIFICAND_OF_DOUBLE;
    return uint64BitsToDouble(normal ? (uint64_t(exponent - shift) << 52) + (shifted & SIGNIFICAND_OF_DOUBLE) : shifted);
}

// |a| mod |b| by long division, 11 quotient bits a step: a where a < b; NaN where a is infinite, b is 0 or either is NaN.
double remainder(double x, double y) {
    const uint64_t a = size_bits(x), b = size_bits(y), leading = uint64_t(1) << 52;
    if (a >= INFINITE_DOUBLE || b > INFINITE_DOUBLE || b == uint64_t(0)) return NOT_A_NUMBER;
    if (a < b) return uint64BitsToDouble(a);
    const uint64_t divisor = (b & SIGNIFICAND_OF_DOUBLE) | (b >= leading ? leading : uint64_t(0));
    const int exponent = max(int(b >> 52), 1);
    uint64_t rest = ((a & SIGNIFICAND_OF_DOUBLE) | (a >= leading ? leading : uint64_t(0))) % divisor;
    for (int left = max(int(a >> 52), 1) - exponent; left > 0; left -= 11) rest = (rest << min(left, 11)) % divisor;
    return assemble(rest, exponent);
}

double modulus_truncate(double a, double b) { return copy_sign(remainder(a, b), a); }

double modulus_floor(double a, double b) {
    const double rest = modulus_truncate(a, b);
    if (is_zero(rest)) return copy_sign(0.0LF, b);
    return is_negative(a) != is_negative(b) ? rest + b : rest;
}
#endif

#endif
