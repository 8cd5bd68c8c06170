// An integer sum as a quantized number: clamp(rint(sum * multiplier) + zero point), the same bits on every device.
//
//   float exact_quotient(float a, float b)    a / b rounded to float32
//   int requantize(int sum, float multiplier, int zero_point, int least, int most)
//
// Vulkan lets a device's division err by 2.5 ULP, so the quotient is put right by its remainder, which is exact in integers.

#ifndef DMLVK_REQUANTIZER_GLSL
#define DMLVK_REQUANTIZER_GLSL

#include "math.glsl"

// Subnormal operands and quotients count as 0.
float exact_quotient(float a, float b) {
    const uint a_bits = floatBitsToUint(a), b_bits = floatBitsToUint(b);
    const uint a_exponent = a_bits >> 23 & 0xFFu, b_exponent = b_bits >> 23 & 0xFFu, sign = (a_bits ^ b_bits) & 0x80000000u;
    const float infinite = uintBitsToFloat(sign | 0x7F800000u), zero = uintBitsToFloat(sign);
    if (is_nan(a) || is_nan(b) || (a_exponent == 0u && b_exponent == 0u) || (a_exponent == 255u && b_exponent == 255u))
        return NOT_A_NUMBER;
    if (a_exponent == 255u || b_exponent == 0u) return infinite;
    if (a_exponent == 0u || b_exponent == 255u) return zero;

    uint dividend = (a_bits & 0x7FFFFFu) | 0x800000u;
    const uint divisor = (b_bits & 0x7FFFFFu) | 0x800000u;
    int exponent = int(a_exponent) - int(b_exponent) + 126;
    if (dividend < divisor) {
        dividend <<= 1;
        --exponent;
    }
    // floor(dividend * 2^23 / divisor), which has 24 bits. The estimate is off by a few, and so is its remainder small: 32 bits
    // of either product are enough for it.
    uint quotient = uint(float(dividend) / float(divisor) * 8388608.0);
    int remainder = int((dividend << 23) - quotient * divisor);
    [[unroll]] for (int i = 0; i < 4; ++i) {
        const int step = remainder < 0 ? -1 : remainder >= int(divisor) ? 1 : 0;
        quotient += uint(step);
        remainder -= step * int(divisor);
    }
    if (2 * remainder > int(divisor)) ++quotient; // half way between two numbers no quotient is
    if (exponent < 0) return zero;
    if (exponent > 253) return infinite;
    // The leading bit of the quotient adds 1 to the exponent, or 2 where rounding up made it a power of two.
    const int bits = (exponent << 23) + int(quotient);
    return bits >= 0x7F800000 ? infinite : uintBitsToFloat(sign | uint(bits));
}

int requantize(int sum, float multiplier, int zero_point, int least, int most) {
    precise float scaled = float(sum) * multiplier;
    if (is_nan(scaled)) return zero_point;
    return int(roundEven(clamp(scaled, float(least - zero_point), float(most - zero_point)))) + zero_point;
}

#endif
