// Quotients rounded to integers, the same bits on every device: rint(x / scale) with a quotient rounded to float32.
//
//   Quantizer quantizer(float scale, int zero_point, int least, int most)
//   int quantize(Quantizer q, float x)    clamp(rint(x / scale) + zero_point, least, most); NaN counts as 0
//
// least to most is a range of at most 9 bits that holds zero_point, so that quotients beyond 256 are clamped.
//
// Vulkan lets a device's division err by 2.5 ULP, which is why an estimate with one multiplication by a reciprocal, off by
// less than 2^-12 up to 256, decides only where it is not that close to half an integer. There the exact remainder does.

#ifndef DMLVK_QUANTIZER_GLSL
#define DMLVK_QUANTIZER_GLSL

#include "math.glsl"

#define ESTIMATE_ERROR 0x39800000u // 2^-12

// scale = mantissa / (shift0 * shift1), mantissa from 1 to 2 in magnitude; two shifts, for each alone has room for only half
// the exponents. A scale of 0, an infinite one and NaN have a factor that makes the quotient what it should be.
struct Quantizer {
    float shift0, shift1, mantissa;
    float factor; // shift1 / mantissa
    float least, most; // of the rounded quotient
    int zero_point;
};

Quantizer quantizer(float scale, int zero_point, int least, int most) {
    const uint bits = floatBitsToUint(scale);
    const int exponent = int(bits >> 23 & 0xFFu) - 127, half_exponent = exponent >> 1;
    Quantizer q;
    q.shift0 = power_of_two(-half_exponent);
    q.shift1 = power_of_two(half_exponent - exponent);
    q.mantissa = uintBitsToFloat((bits & 0x807FFFFFu) | 0x3F800000u);
    q.factor = q.shift1 / q.mantissa;
    if (exponent == -127) q.factor = copy_sign(INFINITY, scale);
    if (exponent == 128) q.factor = is_nan(scale) ? scale : 0.0;
    q.least = float(least - zero_point);
    q.most = float(most - zero_point);
    q.zero_point = zero_point;
    return q;
}

// rint(x / scale) for an estimate of the quotient that is NaN or next to half an integer.
float round_exactly(Quantizer q, float x, float estimate) {
    if (is_nan(estimate)) return 0.0;
    const float lower = floor(abs(estimate)), middle = lower + 0.5;
    precise float dividend = abs(x * q.shift0 * q.shift1);
    const float divisor = abs(q.mantissa);
    // dividend - divisor * middle, without rounding: middle has few bits, so two halves of divisor have exact products with
    // it, and both differences are of nearly equal numbers.
    const float high = uintBitsToFloat(floatBitsToUint(divisor) & 0xFFFFF000u);
    precise float remainder = (dividend - high * middle) - (divisor - high) * middle;
    // The remainder of a quotient half a place of float32 above `middle`: up to there, and as far below, a quotient rounds to
    // it. (Below 0.5 the places are smaller, but there both 0.5 and what is below it become 0.)
    precise float reach = divisor * uintBitsToFloat((floatBitsToUint(middle) & 0x7F800000u) - (24u << 23));
    const bool up = remainder > reach || (remainder >= -reach && (uint(lower) & 1u) == 1u);
    return copy_sign(up ? lower + 1.0 : lower, estimate);
}

int quantize(Quantizer q, float x) {
    precise float estimate = x * q.shift0 * q.factor;
    float rounded = roundEven(clamp(estimate, q.least, q.most));
    // How far the estimate is from half an integer, as bits: they order numbers of one sign, and NaN comes last.
    precise float distance = abs(estimate - rounded) - 0.5;
    const uint bits = floatBitsToUint(distance) & 0x7FFFFFFFu;
    if (bits < ESTIMATE_ERROR || bits > 0x7F800000u) rounded = clamp(round_exactly(q, x, estimate), q.least, q.most);
    return int(rounded) + q.zero_point;
}

#endif
