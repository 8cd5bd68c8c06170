// Numbers in a format that no tensor has, by their bits, whatever a device makes of conversions and subnormal numbers.
//
//   uint format_bits(float x)      the bits of the number nearest to x; above the format's own they are 0
//   float format_number(uint bits) the number that bits stand for, of which those above the format's own do not count
//
// The includer has the constants FORMAT_SCHEME, FORMAT_BITS, FORMAT_SIGNED, FORMAT_MANTISSA, FORMAT_BIAS, FORMAT_LARGEST,
// FORMAT_INFINITY, FORMAT_NAN (dmlvk/spec/formats.py), SATURATE and FORMAT_ROUNDING, and the numbers SCHEME_* and ROUND_*.

#ifndef DMLVK_NUMBER_FORMAT_GLSL
#define DMLVK_NUMBER_FORMAT_GLSL

#include "math.glsl"

const uint FLOAT_MANTISSA = 23u, FLOAT_BIAS = 127u;
const uint LEAST_POWER = 0x00400000u; // 2^-127, a subnormal number

// bits / 2^count, to the nearest, halves to even.
uint halved(uint bits, uint count) { return (bits + (1u << (count - 1u)) - 1u + (bits >> count & 1u)) >> count; }

uint floating_bits(float x) {
    const uint bits = floatBitsToUint(x), magnitude = bits & 0x7FFFFFFFu;
    const uint exponent = max(magnitude >> FLOAT_MANTISSA, 1u), least = FLOAT_BIAS - FORMAT_BIAS + 1u;
    const uint significand = (magnitude & 0x007FFFFFu) | uint(magnitude >= 0x00800000u) << FLOAT_MANTISSA;
    // Numbers below the least normal one lose as many bits more. The significand's first bit and a carry count as exponent.
    const uint below = max(least, exponent) - exponent;
    uint code = (max(exponent, least) - least) << FORMAT_MANTISSA;
    code += halved(significand, min(FLOAT_MANTISSA - FORMAT_MANTISSA + below, FLOAT_MANTISSA + 2u));
    if (code > FORMAT_LARGEST) code = SATURATE != 0u && FORMAT_BITS <= 8u ? FORMAT_LARGEST : FORMAT_INFINITY;
    const bool none = is_nan(x);
    if (none) code = FORMAT_NAN;
    // The bits of -0 may be those of NaN, and BFLOAT16's NaN has no sign.
    const uint sign = 1u << (FORMAT_BITS - 1u);
    const bool unsigned_ = (code == 0u && FORMAT_NAN == sign && FORMAT_INFINITY == sign) || (none && FORMAT_BITS > 8u);
    return code | (bits >> 31 != 0u && !unsigned_ ? sign : 0u);
}

uint exponent_bits(float x) {
    const uint bits = floatBitsToUint(x), magnitude = bits & 0x7FFFFFFFu;
    if (is_nan(x)) return FORMAT_NAN;
    if (bits < LEAST_POWER || bits > 0x7FFFFFFFu) return SATURATE != 0u ? 0u : FORMAT_NAN;
    if (magnitude > FORMAT_LARGEST << FLOAT_MANTISSA) return SATURATE != 0u ? FORMAT_LARGEST : FORMAT_NAN;
    const bool normal = magnitude >= 0x00800000u;
    const uint fraction = magnitude & (normal ? 0x007FFFFFu : 0x003FFFFFu);
    const uint half_ = normal ? 0x00400000u : 0x00200000u;
    const bool up = FORMAT_ROUNDING == ROUND_UP ? fraction != 0u : FORMAT_ROUNDING == ROUND_NEAREST && fraction >= half_;
    return (magnitude >> FLOAT_MANTISSA) + uint(up);
}

uint integer_bits(float x) {
    const uint mask = (1u << FORMAT_BITS) - 1u;
    if (SATURATE != 0u) {
        const float least = FORMAT_SIGNED != 0u ? -float(FORMAT_LARGEST) - 1.0 : 0.0;
        return is_nan(x) ? 0u : uint(int(roundEven(clamp(x, least, float(FORMAT_LARGEST))))) & mask;
    }
    if (is_nan(x) || abs(x) >= 2147483648.0) return 0u; // the low bits of any float from there on
    const uint size = uint(abs(x)) + uint(abs(x) - trunc(abs(x)) >= 0.5);
    return (x < 0.0 ? 0u - size : size) & mask;
}

uint format_bits(float x) {
    if (FORMAT_SCHEME == SCHEME_EXPONENT) return exponent_bits(x);
    return FORMAT_SCHEME == SCHEME_INTEGER ? integer_bits(x) : floating_bits(x);
}

float floating_number(uint bits) {
    const uint sign = bits >> (FORMAT_BITS - 1u) & 1u, code = bits & ((1u << (FORMAT_BITS - 1u)) - 1u);
    const uint exponent = code >> FORMAT_MANTISSA, fraction = code & ((1u << FORMAT_MANTISSA) - 1u);
    uint number = ((exponent + FLOAT_BIAS - FORMAT_BIAS) << FLOAT_MANTISSA) | fraction << (FLOAT_MANTISSA - FORMAT_MANTISSA);
    if (FORMAT_BIAS == FLOAT_BIAS) number = code << (FLOAT_MANTISSA - FORMAT_MANTISSA);
    else if (exponent == 0u)
        number = floatBitsToUint(float(fraction) * power_of_two(1 - int(FORMAT_BIAS) - int(FORMAT_MANTISSA)));
    if (FORMAT_BIAS != FLOAT_BIAS && code > FORMAT_LARGEST)
        number = code == FORMAT_INFINITY && FORMAT_INFINITY != FORMAT_NAN ? 0x7F800000u : 0x7FC00000u;
    // NaN where -0 would be: only where what is beyond the largest number is that too.
    if (sign != 0u && code == 0u && FORMAT_NAN == 1u << (FORMAT_BITS - 1u) && FORMAT_INFINITY == FORMAT_NAN)
        return NOT_A_NUMBER;
    return uintBitsToFloat(number | sign << 31);
}

float format_number(uint bits) {
    if (FORMAT_SCHEME == SCHEME_EXPONENT)
        return bits == FORMAT_NAN ? NOT_A_NUMBER : uintBitsToFloat(bits == 0u ? LEAST_POWER : bits << FLOAT_MANTISSA);
    if (FORMAT_SCHEME == SCHEME_FLOATING) return floating_number(bits);
    return FORMAT_SIGNED != 0u ? float(bitfieldExtract(int(bits), 0, int(FORMAT_BITS)))
                               : float(bitfieldExtract(bits, 0, int(FORMAT_BITS)));
}

#endif
