// x to the power of y, as C's pow, in float32: within 1.1 ULP, and exact where the result is a small integer.
//
// 2^(y log2 x) loses as many bits as log2 x y has before its point, up to 8, so the logarithm and the product are kept
// as sums of two floats. Products of two halves of 12 significant bits are exact, which needs no fused multiply-add.

#ifndef DMLVK_POWER_GLSL
#define DMLVK_POWER_GLSL

#include "math.glsl"

// log2 x = high + low for positive finite x, as good as 33 bits of it; high is the sum rounded.
void log2_sum(float x, out float high, out float low) {
    const uint bits = floatBitsToUint(x);
    const bool subnormal = bits < 0x00800000u;
    float e;
    const float m = split_exponent(subnormal ? float(bits) : x, e);
    e = subnormal ? e - 149.0 : e;
    // m = c (1 + s) / (1 - s) for the nearest c of 3/4, 1 and 5/4, so that s = (m - c) / (m + c) is below 0.08 in size.
    const float c = m < 0.86 ? 0.75 : m > 1.12 ? 1.25 : 1.0;
    const float log2_c_high = m < 0.86 ? -0.4149169921875 : m > 1.12 ? 0.3218994140625 : 0.0;
    const float log2_c_low = m < 0.86 ? -0.000120507095 : m > 1.12 ? 2.8680824e-5 : 0.0;
    // s = s_high + s_low, the second by what the first leaves of the dividend.
    precise float dividend = m - c;
    precise float divisor = m + c;
    const float divisor_high = upper_half(divisor);
    precise float divisor_low = (divisor - divisor_high) + (m >= c ? c - (divisor - m) : m - (divisor - c));
    const float s_high = upper_half(dividend / divisor);
    precise float s_low = ((dividend - s_high * divisor_high) - s_high * divisor_low) / divisor;
    // log2 of (1 + s) / (1 - s) = 2 / ln 2 (s + s^3 / 3 + ...), where 2 / ln 2 = SCALE_HIGH + SCALE_LOW.
    const float SCALE_HIGH = 2.884765625;
    const float SCALE_LOW = 6.244568e-4;
    precise float s = s_high + s_low;
    precise float z = s * s;
    precise float rest = s_low + s * (z * fma(fma(0.14406964, z, 0.19999605), z, 0.33333334));
    precise float whole = e + log2_c_high; // exact
    precise float leading = s_high * SCALE_HIGH; // exact, and smaller than a whole that is not 0
    precise float sum = whole + leading;
    precise float lost = leading - (sum - whole);
    precise float trailing = (s_high * SCALE_LOW + rest * (SCALE_HIGH + SCALE_LOW)) + (log2_c_low + lost);
    precise float total = sum + trailing;
    precise float left = trailing - (total - sum);
    high = total;
    low = left;
}

// 2^(high + low) for a small correction `low`; 0 and infinity where the result is beyond the type.
float exp2_sum(float high, float low) {
    const float bounded = clamp(high, -160.0, 130.0);
    precise float rounded = fma(bounded, 1.0, ROUNDING);
    precise float r = bounded - (rounded - ROUNDING); // exact
    // e^(r ln 2) - 1 = r ln 2 + r^2 (...), where r ln 2 is the greater part: the product of the upper halves is exact.
    const float LN2_UPPER = 0.693115234375;
    const float LN2_REST = 3.1946183e-5;
    const float r_high = upper_half(r);
    precise float leading = r_high * LN2_UPPER;
    precise float q = r * r * fma(fma(fma(fma(fma(1.5314794e-5, r, 1.5466937e-4), r, 1.3333432e-3), r, 9.618037e-3), r,
                                      5.550411e-2), r, 0.24022651);
    precise float trailing = ((r - r_high) * LN2_UPPER + r * LN2_REST) + q;
    precise float sum = 1.0 + leading;
    precise float lost = leading - (sum - 1.0);
    precise float mantissa = sum + (trailing + lost + low * (0.6931472 * (sum + trailing)));
    const int n = rounded_bits(rounded);
    const int half_n = n >> 1;
    precise float result = mantissa * power_of_two(half_n) * power_of_two(n - half_n);
    return high > 129.0 ? INFINITY : high < -151.0 ? 0.0 : result;
}

// C's pow: 1 where y is 0 or x is 1, whatever the other; NaN for a negative x and a y that is no integer; the zeros and
// infinities keep the sign of x for odd y.
float power(float x, float y) {
    const uint x_size = floatBitsToUint(x) & 0x7FFFFFFFu;
    const uint y_size = floatBitsToUint(y) & 0x7FFFFFFFu;
    const bool x_negative = floatBitsToUint(x) > 0x7FFFFFFFu;
    const bool y_negative = floatBitsToUint(y) > 0x7FFFFFFFu;
    // From 2^24 on every float is an even integer; below 1 only 0 is an integer.
    const float y_magnitude = uintBitsToFloat(y_size);
    const bool y_large = y_size >= 0x4B800000u;
    const uint y_integer = y_large || y_size < 0x3F800000u ? 0u : uint(y_magnitude);
    const bool is_integer = y_large || y_size == 0u || (y_size >= 0x3F800000u && float(y_integer) == y_magnitude);
    const bool negative = x_negative && is_integer && (y_integer & 1u) != 0u;

    float log_high, log_low;
    log2_sum(x_size == 0u || x_size >= 0x7F800000u ? 1.0 : uintBitsToFloat(x_size), log_high, log_low);
    const float y_high = upper_half(y);
    const float y_low = y - y_high;
    const float log_upper = upper_half(log_high);
    const float log_rest = log_high - log_upper;
    precise float product = y * log_high;
    precise float product_low =
        ((y_high * log_upper - product) + y_high * log_rest + y_low * log_upper) + (y_low * log_rest + y * log_low);
    float magnitude = exp2_sum(product, product_low);

    const bool one = x_size == 0x3F800000u;
    const bool finite = x_size < 0x7F800000u;
    if (x_size == 0u || !finite) magnitude = (x_size == 0u) == y_negative ? INFINITY : 0.0;
    if (one || y_size == 0u) magnitude = 1.0;
    if (x_negative && !is_integer && finite && x_size != 0u) magnitude = NOT_A_NUMBER;
    const bool unordered = x_size > 0x7F800000u || y_size > 0x7F800000u;
    if (unordered && y_size != 0u && !(one && !x_negative)) magnitude = NOT_A_NUMBER;
    return negative ? -magnitude : magnitude;
}

// x^3 by products: what x * x loses is exact in halves of 12 bits, so the error is below 1 ULP.
precise float cube(float x) {
    const float high = upper_half(x);
    const float low = x - high;
    const float square = x * x;
    const float lost = ((high * high - square) + 2.0 * (high * low)) + low * low;
    const float result = square * x;
    return is_finite(result) ? result + lost * x : result;
}

// The power for a y that all invocations share. The square and the cube, by far the most common, cost few products.
precise float constant_power(float x, float y) {
    if (y == 2.0) return x * x;
    if (y == 3.0) return cube(x);
    return power(x, y);
}

#endif
