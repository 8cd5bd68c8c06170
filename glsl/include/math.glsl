// The only special functions: exp, expm1, log, log1p, tanh, sigmoid, softplus, erf and gelu in float32.
//
// Vulkan lets the built-in functions be off by far more than a few units in the last place (ULP), and drivers use that
// freedom, so these build on add, multiply, divide and bit casts alone. Coefficients are minimax fits made for these
// intervals. Every function propagates NaN and reaches its limits at the infinities without overflow on the way.
// `precise` keeps a compiler from rewriting sums whose rounding errors are meant to cancel, and keeps two kernels that
// inline the same function equal to the last bit.

#ifndef DMLVK_MATH_GLSL
#define DMLVK_MATH_GLSL

#define INFINITY uintBitsToFloat(0x7F800000u)
#define NOT_A_NUMBER uintBitsToFloat(0x7FC00000u)

// Bit tests, because a driver may assume that no value is NaN or infinite.
bool is_nan(float x) { return (floatBitsToUint(x) & 0x7FFFFFFFu) > 0x7F800000u; }
bool is_infinite(float x) { return (floatBitsToUint(x) & 0x7FFFFFFFu) == 0x7F800000u; }

// a / b for every b. GLSL bounds the error of / for |b| up to 2^126 only: past that the reciprocal that an H200 multiplies
// with is 0. Both are scaled by a power of two then, which is exact, for the quotient is far below 1 but where a is huge too.
float divide(float a, float b) {
    const float factor = abs(b) > 1e37 ? 0.0625 : 1.0;
    return (a * factor) / (b * factor);
}

// 0 for a negative number, else x; NaN stays. By bits: a driver may take `x < 0.0 ? 0.0 : x` for max(x, 0.0), which loses NaN.
float not_negative(float x) {
    const uint bits = floatBitsToUint(x);
    return bits > 0x80000000u && bits <= 0xFF800000u ? 0.0 : x;
}

float copy_sign(float magnitude, float sign_from) {
    return uintBitsToFloat((floatBitsToUint(magnitude) & 0x7FFFFFFFu) | (floatBitsToUint(sign_from) & 0x80000000u));
}

// 2^n for n in [-126, 127].
float power_of_two(int n) { return uintBitsToFloat(uint(n + 127) << 23); }

// ln 2 in two parts: the first has 16 significant bits, so that n * LN2_HIGH is exact for |n| < 256.
const float LN2_HIGH = 0.693145751953125;
const float LN2_LOW = 1.42860677e-6;
const float LOG2_E = 1.44269504;

// e^r - 1 for |r| <= ln(2) / 2; relative error 3e-10 before rounding.
float expm1_reduced(float r) {
    precise float q = fma(fma(fma(fma(fma(1.9915622e-4, r, 1.3942046e-3), r, 8.33327e-3), r, 4.1666344e-2), r,
                              0.16666667), r, 0.5);
    precise float result = fma(r * r, q, r);
    return result;
}

// e^(x + low) for a small correction `low` that x is too coarse to hold. 1 ULP.
float exp_sum(float x, float low) {
    precise float n = roundEven(clamp(x, -150.0, 130.0) * LOG2_E);
    precise float r = ((x - n * LN2_HIGH) - n * LN2_LOW) + low;
    // The scale is applied in two steps, because 2^n alone may be beyond the largest or below the smallest normal.
    const int half_n = int(n) >> 1;
    precise float result = (1.0 + expm1_reduced(r)) * power_of_two(half_n) * power_of_two(int(n) - half_n);
    return x > 89.0 ? INFINITY : x < -104.0 ? 0.0 : is_nan(x) ? x : result;
}

float exp_accurate(float x) { return exp_sum(x, 0.0); }

// e^x - 1. 2 ULP.
float expm1(float x) {
    const float bounded = clamp(x, -18.0, 89.0);
    precise float n = roundEven(bounded * LOG2_E);
    precise float r = (bounded - n * LN2_HIGH) - n * LN2_LOW;
    const int half_n = int(n) >> 1;
    const float scale = power_of_two(half_n);
    const float rest = power_of_two(int(n) - half_n);
    precise float result = (expm1_reduced(r) * scale + (scale - power_of_two(-int(n) + half_n))) * rest;
    return x > 89.0 ? INFINITY : is_nan(x) ? x : n == 0.0 ? expm1_reduced(bounded) : result;
}

// ln(2^e * (1 + f)) for f in [sqrt(1/2) - 1, sqrt(2) - 1].
float log_reduced(float f, float e) {
    precise float q = fma(fma(fma(fma(fma(fma(fma(fma(6.9155805e-2, f, -0.11789879), f, 0.11872916), f, -0.12384332), f,
                                              0.14218664), f, -0.16669253), f, 0.20002227), f, -0.24999987), f, 0.3333331);
    precise float square = f * f;
    precise float result = e * LN2_HIGH + (f + (fma(-0.5, square, square * f * q) + e * LN2_LOW));
    return result;
}

// Splits positive normal x = 2^e * m with m in [sqrt(1/2), sqrt(2)).
float split_exponent(float x, out float e) {
    const uint bits = floatBitsToUint(x) + (0x3F800000u - 0x3F3504F3u);
    e = float(int(bits >> 23) - 127);
    return uintBitsToFloat((bits & 0x007FFFFFu) + 0x3F3504F3u);
}

// ln x; -infinity at 0, NaN below. 1 ULP.
float log_accurate(float x) {
    const uint bits = floatBitsToUint(x);
    const bool subnormal = bits < 0x00800000u;
    float e;
    // A subnormal's bits are its multiple of 2^-149, which an integer conversion keeps even where floats are flushed.
    const float m = split_exponent(subnormal ? float(bits) : x, e);
    const float result = log_reduced(m - 1.0, subnormal ? e - 149.0 : e);
    return (bits & 0x7FFFFFFFu) == 0u ? -INFINITY : bits > 0x7F800000u ? NOT_A_NUMBER : is_infinite(x) ? x : result;
}

// ln(1 + x) for x >= 0. 2 ULP.
float log1p_positive(float x) {
    precise float u = 1.0 + x;
    precise float lost = x < 1.0 ? x - (u - 1.0) : 1.0 - (u - x); // what rounding took from u
    float e;
    const float m = split_exponent(u, e);
    precise float f = (m - 1.0) + lost * power_of_two(-int(min(e, 126.0)));
    return is_nan(x) || is_infinite(x) ? x : e == 0.0 ? log_reduced(x, 0.0) : log_reduced(f, e);
}

// 4 ULP.
float tanh_accurate(float x) {
    const float t = expm1(2.0 * min(abs(x), 10.0));
    precise float result = min(t / (t + 2.0), 1.0);
    // NaN inside copy_sign: with the choice around it, llvmpipe of Mesa 22.3 makes x & ~tanh(x) of the bits in some kernels.
    return copy_sign(is_nan(x) ? x : result, x);
}

// 1 / (1 + e^-x). 4 ULP.
float sigmoid(float x) {
    const float e = exp_accurate(-abs(x));
    precise float result = (x < 0.0 ? e : 1.0) / (1.0 + e);
    return is_nan(x) ? x : result;
}

// ln(1 + e^x) without overflow: the larger of 0 and x, plus what is left.
float softplus(float x) {
    precise float result = max(x, 0.0) + log1p_positive(exp_accurate(-abs(x)));
    return is_nan(x) ? x : result;
}

// erfc(t) for t >= 0, given t^2 = square + square_low: t^2 is needed beyond float32. A few ULP as far as the result is a
// normal number. e^(t^2) erfc(t) is a smooth function of v = 1 / (1 + 0.4 t).
float erfc_tail(float t, float square, float square_low) {
    precise float v = 1.0 / (1.0 + 0.4 * t);
    precise float u = v - 0.625; // from the middle of its range, where the terms do not cancel
    precise float q = fma(fma(fma(fma(fma(fma(fma(fma(fma(-2.8636817e-2, u, 3.173989e-2), u, 7.4775614e-2), u, -7.606246e-2),
                              u, -0.1850348), u, 8.814391e-2), u, 0.6174524), u, 0.94625247), u, 0.85224015), u, 0.5145367);
    precise float result = v * q * exp_sum(-square, -square_low);
    return result;
}

// The upper 12 significant bits, which square exactly.
float upper_half(float x) { return uintBitsToFloat(floatBitsToUint(x) & 0xFFFFF000u); }

// The error function. 2 ULP.
float erf(float x) {
    const float magnitude = abs(x);
    if (magnitude < 1.0) {
        precise float s = x * x;
        precise float q = fma(fma(fma(fma(fma(fma(7.853862e-5, s, -8.0101937e-4), s, 5.1883277e-3), s, -2.6853813e-2), s,
                                      0.112835854), s, -0.37612626), s, 1.1283791);
        precise float result = x * q;
        return result;
    }
    const float t = min(magnitude, 4.0); // beyond, 1 - erfc rounds to 1
    const float high = upper_half(t);
    precise float low = (t - high) * (t + high);
    precise float result = 1.0 - erfc_tail(t, high * high, low);
    return copy_sign(is_nan(x) ? x : result, x); // as in tanh_accurate
}

// x times the normal distribution's cumulative function, 0.5 x erfc(-x / sqrt(2)). A few ULP, also where x is far below 0.
float gelu(float x) {
    const float t = min(abs(x), 14.75); // beyond, erfc is 0
    const float high = upper_half(t);
    precise float low = 0.5 * ((t - high) * (t + high));
    const float tail = erfc_tail(0.70710678 * t, 0.5 * high * high, low);
    precise float result = 0.5 * x * (x < 0.0 ? tail : 2.0 - tail);
    return is_nan(x) ? x : result;
}

#endif
