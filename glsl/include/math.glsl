// Exponentials, logarithms and what is made of them, in float32: exp, expm1, log, log1p, tanh, sigmoid, softplus, erf and
// gelu. With trigonometry.glsl, hyperbolic.glsl and power.glsl, which build on it, this is the only home of special functions.
//
// Vulkan lets the built-in functions be off by far more than a few units in the last place (ULP), and drivers use that
// freedom, so these build on add, multiply, divide, square root and bit casts alone. Coefficients are minimax fits made for
// these intervals. Every function propagates NaN and reaches its limits at the infinities without overflow on the way.
// `precise` keeps a compiler from rewriting sums whose rounding errors are meant to cancel, and keeps two kernels that
// inline the same function equal to the last bit. It does not reach `fma`, which a device may also round twice or merge with
// another one: where that would matter, products and sums stand alone.
//
// Where T is FLOAT16, or the includer defines SHORT_MATH, most functions have a second form that is good to about 2^-17,
// which adds a hundredth of a ULP of FLOAT16 to the half of rounding. There exp2, 3 + 2 |y| ULP, and log2, 3 ULP outside
// [1/2, 2] and 2^-21 within, come from the device: of all built-in functions these two have errors that Vulkan bounds. Near a
// zero, where that bound is worth nothing, a short polynomial takes their place.
//
// Where T is FLOAT64 the same names take and give doubles as well (math64.glsl), and REAL, the type that floats of T are computed
// in, is double; it is float for all other types.

#ifndef DMLVK_MATH_GLSL
#define DMLVK_MATH_GLSL

#if defined(T_IS_FLOAT16) && !defined(SHORT_MATH)
#define SHORT_MATH
#endif

#define INFINITY uintBitsToFloat(0x7F800000u)
#define NOT_A_NUMBER uintBitsToFloat(0x7FC00000u)

// Bit tests, because a driver may assume that no value is NaN or infinite.
bool is_nan(float x) { return (floatBitsToUint(x) & 0x7FFFFFFFu) > 0x7F800000u; }
bool is_finite(float x) { return (floatBitsToUint(x) & 0x7FFFFFFFu) < 0x7F800000u; }
bool is_infinite(float x) { return (floatBitsToUint(x) & 0x7FFFFFFFu) == 0x7F800000u; }
bool is_zero(float x) { return (floatBitsToUint(x) & 0x7FFFFFFFu) == 0u; }
bool is_negative(float x) { return floatBitsToUint(x) >> 31 != 0u; }

// 0 for what is infinite or NaN: a correction must not make NaN of an infinite sum.
float finite_or_zero(float value) { return is_finite(value) ? value : 0.0; }

// a / b for every b. GLSL bounds the error of / for |b| up to 2^126 only: past that the reciprocal that an H200 multiplies
// with is 0. Both are scaled by a power of two then, which is exact, for the quotient is far below 1 but where a is huge too.
precise float divide(float a, float b) {
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

// The upper 12 significant bits, which square exactly.
float upper_half(float x) { return uintBitsToFloat(floatBitsToUint(x) & 0xFFFFF000u); }

// ln 2 in two parts: the first has 15 significant bits, so that n * LN2_HIGH is exact for |n| < 512.
const float LN2_HIGH = 0.693145751953125;
const float LN2_LOW = 1.42860677e-6;
const float LN2 = 0.693147182;
const float LOG2_E = 1.44269504;

// x + ROUNDING has the nearest integer to x in its low bits, for |x| < 2^22: x + ROUNDING - ROUNDING is that integer. The sum is
// an fma: SwiftShader (Chromium 156) takes x + ROUNDING - ROUNDING for x, in copies of an inlined function, though it is precise.
const float ROUNDING = 12582912.0;
int rounded_bits(float sum) { return floatBitsToInt(sum) - floatBitsToInt(ROUNDING); }

// x 2^n for a normal result, by the exponent's bits.
float scale_exponent(float x, int n) { return uintBitsToFloat(floatBitsToUint(x) + (uint(n) << 23)); }

// e^r - 1 for |r| <= ln(2) / 2; relative error 2^-26 before rounding.
float expm1_reduced(float r) {
    precise float q = fma(fma(fma(fma(1.3946415e-3, r, 8.366565e-3), r, 4.1666284e-2), r, 0.16666543), r, 0.5);
    precise float result = fma(r * r, q, r);
    return result;
}

// x - n ln 2, the nearest n to x / ln 2 as an integer.
float reduce_exponent(float x, out int n) {
    precise float sum = fma(x, LOG2_E, ROUNDING);
    precise float whole = sum - ROUNDING;
    precise float high = x - whole * LN2_HIGH; // exact; precise does not bind an fma
    precise float r = fma(whole, -LN2_LOW, high);
    n = rounded_bits(sum);
    return r;
}

// e^(x + low) 2^shift for |x| < 175, a small correction `low` that x is too coarse to hold, and shift 0 or -1. 1 ULP.
float exp_scaled(float x, float low, int shift) {
    int n;
    precise float r = reduce_exponent(x, n) + low;
    // The scale is applied in two steps, because it may be beyond the largest or below the smallest normal.
    n += shift;
    const int half_n = n >> 1;
    precise float result = (1.0 + expm1_reduced(r)) * power_of_two(half_n) * power_of_two(n - half_n);
    return result;
}

// e^(x + low). 1 ULP.
float exp_sum(float x, float low) { return x > 89.0 ? INFINITY : x < -104.0 ? 0.0 : exp_scaled(x, low, 0); }

// 2^y for |y| <= 126, to 2^-23, or within 3 + 2 |y| ULP with SHORT_MATH.
float exp2_bounded(float y) {
#ifdef SHORT_MATH
    return exp2(y);
#else
    precise float sum = fma(y, 1.0, ROUNDING);
    precise float r = y - (sum - ROUNDING);
    precise float mantissa =
        fma(fma(fma(fma(fma(1.3276479e-3, r, 9.675541e-3), r, 5.550713e-2), r, 0.2402212), r, 0.69314694), r, 1.0000001);
    return scale_exponent(mantissa, rounded_bits(sum));
#endif
}

float exp_accurate(float x) {
#ifdef SHORT_MATH
    // 0 where float32 has 0: what is added up of -infinity must be nothing.
    return is_nan(x) ? x : x < -87.0 ? 0.0 : exp2_bounded(min(x * LOG2_E, 126.0));
#else
    return exp_sum(x, 0.0);
#endif
}

// e^x for x <= 0, without a branch; 0 below -87, where it is no normal number. 1 ULP, or as exp2_bounded with SHORT_MATH. NaN
// by itself.
float exp_of_negative(float x) {
#ifdef SHORT_MATH
    const float result = exp2(x * LOG2_E);
#else
    int n;
    const float r = reduce_exponent(x, n);
    precise float result = (1.0 + expm1_reduced(r)) * uintBitsToFloat((uint(n) << 23) + floatBitsToUint(1.0));
#endif
    return x < -87.0 ? 0.0 : result;
}

// e^x for x <= 0, where it is added to a sum of at least 1: off by 2^-23 at most, beside what exp2 itself is off by. What
// rounding x / ln 2 adds to the relative error, the smallness of e^x takes away: |x| e^x is below 0.37.
float exp_weight(float x) { return exp2(x * LOG2_E); }

#ifdef SHORT_MATH
// e^x - 1.
float expm1(float x) {
    precise float small = x * fma(fma(fma(4.1735772e-2, x, 0.16690955), x, 0.49999928), x, 1.0);
    precise float large = exp2_bounded(clamp(x, -18.0, 87.0) * LOG2_E) - 1.0;
    return abs(x) >= 0.1875 ? large : small; // NaN is small
}
#else
// (e^x - 1) / 2 for x in [-18, 89]. 2 ULP.
float half_expm1(float x) {
    int n;
    const float r = reduce_exponent(x, n);
    const float half_scale = power_of_two(n - 1);
    precise float result = fma(expm1_reduced(r), half_scale, half_scale - 0.5);
    return result;
}

// e^x - 1. 2 ULP.
float expm1(float x) { return is_nan(x) ? x : 2.0 * half_expm1(clamp(x, -18.0, 89.0)); }
#endif

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
#ifdef SHORT_MATH
    // No float16 is subnormal here. The bound of log2 is absolute between 1/2 and 2.
    const float f = x - 1.0;
    precise float small = f * fma(fma(fma(fma(0.20541981, f, -0.25471434), f, 0.333285), f, -0.4999741), f, 1.0);
    const float result = abs(f) < 0.15 ? small : log2(x) * LN2;
#else
    const bool subnormal = bits < 0x00800000u;
    float e;
    // A subnormal's bits are its multiple of 2^-149, which an integer conversion keeps even where floats are flushed.
    const float m = split_exponent(subnormal ? float(bits) : x, e);
    const float result = log_reduced(m - 1.0, subnormal ? e - 149.0 : e);
#endif
    return (bits & 0x7FFFFFFFu) == 0u ? -INFINITY : bits > 0x7F800000u ? NOT_A_NUMBER : is_infinite(x) ? x : result;
}

// ln(u + low) for finite normal u > 0 and a small correction. 1 ULP.
float log_sum(float u, float low) {
    float e;
    const float m = split_exponent(u, e);
    precise float f = (m - 1.0) + low * power_of_two(-int(min(e, 126.0)));
    return log_reduced(f, e);
}

// ln(1 + x) for x >= 0. 2 ULP.
float log1p_positive(float x) {
    precise float u = 1.0 + x;
    precise float lost = x < 1.0 ? x - (u - 1.0) : 1.0 - (u - x); // what rounding took from u
    return is_nan(x) || is_infinite(x) ? x : u < 1.41421354 ? log_reduced(x, 0.0) : log_sum(u, lost);
}

// 3 ULP.
float tanh_accurate(float x) {
#ifdef SHORT_MATH
    precise float square = x * x;
    precise float small = x * fma(fma(0.12877114, square, -0.33324608), square, 1.0);
    precise float large = 1.0 - 2.0 / (1.0 + exp2_bounded(min(abs(x), 10.0) * (2.0 * LOG2_E)));
    return abs(x) >= 0.25 ? copy_sign(large, x) : small; // NaN is small
#else
    const float t = half_expm1(2.0 * min(abs(x), 10.0));
    precise float result = min(t / (t + 1.0), 1.0);
    // NaN inside copy_sign: with the choice around it, llvmpipe of Mesa 22.3 makes x & ~tanh(x) of the bits in some kernels.
    return copy_sign(is_nan(x) ? x : result, x);
#endif
}

// 1 / (1 + e^-x). 3 ULP.
float sigmoid(float x) {
#ifdef SHORT_MATH
    precise float result = 1.0 / (1.0 + exp2_bounded(clamp(x, -87.0, 87.0) * -LOG2_E));
    return x < -87.0 ? 0.0 : is_nan(x) ? x : result;
#else
    precise float result = 1.0 / (1.0 + exp_accurate(-x));
    return result;
#endif
}

// ln(1 + e^x) without overflow: the larger of 0 and x, plus what is left. NaN by the exponential.
float softplus(float x) {
    const float e = exp_accurate(-abs(x));
#ifdef SHORT_MATH
    precise float q = fma(fma(fma(fma(fma(fma(1.4141002e-2, e, -6.6401727e-2), e, 0.14922379), e, -0.23503855), e,
                                  0.33109447), e, -0.49986964), e, 0.99999875);
    precise float result = fma(e, q, max(x, 0.0)); // of e, ln(1 + e)
#else
    precise float q = fma(fma(fma(fma(fma(fma(fma(fma(-3.2440247e-3, e, 1.9851461e-2), e, -5.6959536e-2), e, 0.10603655), e,
                                      -0.15305594), e, 0.1967594), e, -0.24954134), e, 0.33329964), e, -0.499999);
    precise float result = max(x, 0.0) + fma(e * e, q, e); // of e, ln(1 + e)
#endif
    return result;
}

// The error function: an odd polynomial near 0, from there on 1 - erfc x, whose logarithm to base 2 is a polynomial; beyond 4,
// or 3 for float16, that rounds to 1. 2 ULP.
float erf(float x) {
    precise float s = x * x;
#ifdef SHORT_MATH
    precise float small = x * fma(fma(0.10659908, s, -0.37575468), s, 1.1283759);
    const float t = min(abs(x), 3.0);
    precise float logarithm = fma(fma(fma(fma(1.4807378e-2, t, -0.12115547), t, -0.94220454), t, -1.6184256), t, -1.4093089e-3);
    const float from = 0.4;
#else
    precise float q = fma(fma(fma(fma(fma(fma(7.853862e-5, s, -8.0101937e-4), s, 5.1883277e-3), s, -2.6853813e-2), s,
                                  0.112835854), s, -0.37612626), s, 0.12837917);
    precise float small = fma(x, q, x);
    const float t = min(abs(x), 4.0);
    precise float logarithm = fma(fma(fma(fma(fma(fma(2.2626022e-4, t, -3.8543576e-3), t, 2.9998206e-2), t, -0.14578839), t,
                                          -0.923842), t, -1.6242546), t, -9.01754e-4);
    const float from = 0.96875;
#endif
    precise float large = 1.0 - exp2_bounded(logarithm);
    return abs(x) >= from ? copy_sign(large, x) : small; // NaN is small
}

// x times the normal distribution's cumulative function, 0.5 x erfc(-x / sqrt(2)): the larger of 0 and x, less t Q(t) for
// t = |x| and the upper tail Q(t) = 0.5 erfc(t / sqrt(2)). NaN, and by the formula also -infinity, is NaN.
float gelu(float x) {
    precise float positive = fma(0.5, abs(x), 0.5 * x); // max(x, 0) that keeps NaN; exact
#ifdef SHORT_MATH
    // log2 Q(t) is a polynomial; at 5.9, t Q(t) is less than half of the least float16.
    const float t = min(abs(x), 5.9);
    precise float logarithm = fma(fma(fma(fma(fma(fma(3.2445267e-5, t, -7.4842753e-4), t, 7.942302e-3), t, -5.305189e-2), t,
                                          -0.45917037), t, -1.1510367), t, -1.0000076);
    precise float result = fma(-t, exp2_bounded(logarithm), positive);
    return result;
#else
    // Q(t) = e^(-t^2 / 2) v q(v), where t^2 is needed beyond float32 and q is smooth in v = 1 / (1 + 0.35 t). A few ULP as
    // far as the result is a normal number; at 14.75 the tail is 0.
    const float t = min(abs(x), 14.75);
    const float high = upper_half(t);
    precise float square = high * high;
    precise float square_low = (t - high) * (t + high);
    int n;
    precise float r = reduce_exponent(-0.5 * square, n) - 0.5 * square_low;
    precise float v = 1.0 / fma(0.35, t, 1.0);
    precise float q = fma(fma(fma(fma(fma(fma(fma(fma(-2.9161487e-2, v, 0.14404875), v, -0.25587654), v, 0.15936348), v,
                          -2.3243183e-2), v, 0.10556588), v, 0.11981781), v, 0.139864), v, 0.13962127);
    // e^r 2^n with 2^64 more, for n goes down to -157
    const float exponential = scale_exponent(1.0 + expm1_reduced(r), n + 64);
    precise float result = fma(-t, (v * 5.4210109e-20) * q * exponential, positive);
    return result;
#endif
}

#if defined(T_IS_FLOAT64)
#define REAL double
#include "math64.glsl"
#else
#define REAL float
#endif

#endif
