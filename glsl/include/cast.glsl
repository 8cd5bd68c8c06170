// Casts to the data type macro U, from T and from float32: exact, or rounded once, whatever the driver makes of conversions.
//
//   U_MATH cast_element(T_MATH x)   float to integer: toward zero, clamped to the range, NaN to 0. Integer to integer: the
//                                   low bits. To a float: to nearest even.
//   U_MATH from_float(float x)      the same of a float32
//
// FLOAT16 is rounded where it is stored. So that this is the only rounding, cast_element gives it floats that have more bits
// than FLOAT16, the last of which is set where bits were lost (rounding to odd). The conversion of 32-bit integers is left to
// the driver, which rounds to nearest even.

#ifndef DMLVK_CAST_GLSL
#define DMLVK_CAST_GLSL

#include "math.glsl"

// -- float to integer

#if !U_IS_FLOAT
const U_MATH U_HALF_RANGE = U_MATH(1) << (8 * U_BYTES - 1 - U_IS_SIGNED);
const U_MATH U_LARGEST = U_HALF_RANGE - U_MATH(1) + U_HALF_RANGE;
const U_MATH U_LEAST = U_IS_SIGNED == 1 ? U_MATH(0) - U_LARGEST - U_MATH(1) : U_MATH(0);

#define DEFINE_TO_INTEGER(REAL)                                                                          \
    U_MATH to_integer(REAL x) {                                                                          \
        const REAL end = REAL(uintBitsToFloat(uint(127 + 8 * U_BYTES - U_IS_SIGNED) << 23));             \
        const REAL start = U_IS_SIGNED == 1 ? -end : REAL(0);                                            \
        return is_nan(x) ? U_MATH(0) : x >= end ? U_LARGEST : x <= start ? U_LEAST : U_MATH(x);          \
    }
DEFINE_TO_INTEGER(float)
#if defined(T_IS_FLOAT64)
DEFINE_TO_INTEGER(double)
#endif
#endif

// -- float to float

#if defined(U_IS_FLOAT64)
// Exact. A subnormal goes by its integer multiple of 2^-149, because a device may flush it to 0 where it computes.
double widen(float x) {
    const uint bits = floatBitsToUint(x);
    if ((bits & 0x7F800000u) != 0u) return double(x);
    const double unit = packDouble2x32(uvec2(0u, uint(1023 - 149) << 20));
    uvec2 halves = unpackDouble2x32(double(bits & 0x007FFFFFu) * unit);
    halves.y |= bits & 0x80000000u;
    return packDouble2x32(halves);
}
#endif

#if defined(T_IS_FLOAT64) && U_IS_FLOAT
// The nearest float, or for FLOAT16 the float rounded to odd, by bits: devices differ in how they round and flush.
float narrow(double x) {
    if (is_nan(x)) return NOT_A_NUMBER;
    const uvec2 halves = unpackDouble2x32(x);
    const uint high = halves.y & 0x7FFFFFFFu, low = halves.x;
    const int exponent = int(high >> 20) - (1023 - 127); // as biased in a float
    uint bits = 0x7F800000u;
#if defined(U_IS_FLOAT16)
    if (exponent < 1) bits = 0u; // far below FLOAT16's least
    else if (exponent < 255) bits = (uint(exponent) << 23) | (high & 0xFFFFFu) << 3 | low >> 29 | uint((low << 3) != 0u);
#else
    if (exponent < 255) {
        // The float's 24 bits and two more, the last for all that follow.
        const uint significand = (0x100000u | (high & 0xFFFFFu)) << 5 | low >> 27 | uint((low << 5) != 0u);
        const int shift = clamp(3 - exponent, 2, 28);
        const uint rounded = (significand + (1u << (shift - 1)) - 1u + (significand >> shift & 1u)) >> shift;
        bits = (uint(max(exponent, 1) - 1) << 23) + rounded; // the significand's leading bit and a carry count as exponent
    }
#endif
    return uintBitsToFloat(bits | (halves.y & 0x80000000u));
}
#endif

// -- 64-bit integers to float

#if !T_IS_FLOAT && T_BYTES == 8 && defined(U_IS_FLOAT64)
double to_float(T_MATH x) {
    const uvec2 halves = unpackUint2x32(uint64_t(x));
    const double high = T_IS_SIGNED == 1 ? double(int(halves.y)) : double(halves.y);
    return high * 4294967296.0LF + double(halves.x); // two exact terms
}
#elif !T_IS_FLOAT && T_BYTES == 8 && U_IS_FLOAT
// By the upper 32 bits that count, the last of which stands for all that follow.
float to_float(T_MATH x) {
    const bool negative = x < T_MATH(0);
    const uint64_t magnitude = negative ? uint64_t(0) - uint64_t(x) : uint64_t(x);
    const uvec2 halves = unpackUint2x32(magnitude);
    const int shift = findMSB(halves.y) + 1;
    const uint lost = shift == 0 ? 0u : halves.x << (32 - shift);
    const float result = float(uint(magnitude >> shift) | uint(lost != 0u)) * power_of_two(shift);
    return negative ? -result : result;
}
#endif

// -- all pairs

U_MATH from_float(float x) {
#if !U_IS_FLOAT
    return to_integer(x);
#elif defined(U_IS_FLOAT64)
    return widen(x);
#else
    return x;
#endif
}

U_MATH cast_element(T_MATH x) {
#if defined(T_IS_FLOAT64)
#if defined(U_IS_FLOAT64)
    return x;
#elif U_IS_FLOAT
    return narrow(x);
#else
    return to_integer(x);
#endif
#elif T_IS_FLOAT
    return from_float(x);
#elif U_IS_FLOAT && T_BYTES == 8
    return to_float(x);
#elif T_IS_SIGNED && !U_IS_FLOAT && U_BYTES == 8
    return U_MATH(int64_t(x)); // by its sign first
#else
    return U_MATH(x);
#endif
}

#endif
