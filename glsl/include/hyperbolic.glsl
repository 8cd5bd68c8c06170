// The hyperbolic functions and their inverses in float32: sinh, cosh, asinh, acosh and atanh (tanh is in math.glsl).
//
// Near 0 odd polynomials, minimax fits; elsewhere exponentials and logarithms.

#ifndef DMLVK_HYPERBOLIC_GLSL
#define DMLVK_HYPERBOLIC_GLSL

#include "math.glsl"

// e^x / 2 for x >= 0 as far as sinh x and cosh x are finite, then infinity.
float half_exp(float x) { return exp_scaled(min(x, 100.0), 0.0, -1); }

float sinh_accurate(float x) {
    const float size = abs(x);
    precise float square = x * x;
    precise float q = fma(fma(fma(2.8169104e-6, square, 1.9836168e-4), square, 8.33335e-3), square, 0.16666667);
    precise float small = size + size * (square * q);
    const float half_e = half_exp(size);
    precise float large = half_e - 0.25 / half_e;
    return copy_sign(is_nan(x) ? x : size < 1.0 ? small : large, x);
}

float cosh_accurate(float x) {
    const float half_e = half_exp(abs(x));
    precise float result = half_e + 0.25 / half_e;
    return is_nan(x) ? x : result;
}

// From there on x^2 + 1 and x^2 - 1 are x^2 as far as the logarithm of x + sqrt(x^2 +- 1) shows it.
const float SQUARE_ALONE = 4096.0;

// ln(2 x) for finite x >= 1.
float log_of_double(float x) {
    float e;
    const float m = split_exponent(x, e);
    return log_reduced(m - 1.0, e + 1.0);
}

// ln(x + sqrt(x^2 + 1)) for |x|, with the sign of x.
float asinh_accurate(float x) {
    const float size = abs(x);
    precise float square = x * x;
    precise float q = fma(fma(fma(fma(fma(9.185277e-3, square, -1.9993646e-2), square, 3.0016966e-2), square, -4.4613797e-2),
                              square, 7.499893e-2), square, -0.16666666);
    precise float small = size + size * (square * q);
    const float bounded = min(size, SQUARE_ALONE);
    precise float root = sqrt(bounded * bounded + 1.0);
    precise float sum = root + bounded;
    precise float lost = bounded - (sum - root);
    const float large = size < SQUARE_ALONE ? log_sum(sum, lost) : log_of_double(size);
    return copy_sign(is_nan(x) || is_infinite(x) ? x : size < 0.53 ? small : large, x);
}

// ln(x + sqrt(x^2 - 1)) = ln(1 + (t + sqrt(t (t + 2)))) for t = x - 1; NaN below 1.
float acosh_accurate(float x) {
    precise float t = min(x, SQUARE_ALONE) - 1.0;
    precise float root = sqrt(max(t * (t + 2.0), 0.0));
    const float result = x >= SQUARE_ALONE ? log_of_double(x) : log1p_positive(root + t);
    return is_nan(x) ? x : x < 1.0 ? NOT_A_NUMBER : is_infinite(x) ? x : result;
}

// ln((1 + x) / (1 - x)) / 2: infinite at -1 and 1, NaN beyond.
float atanh_accurate(float x) {
    const uint size_bits = floatBitsToUint(x) & 0x7FFFFFFFu;
    const float size = uintBitsToFloat(size_bits);
    precise float square = x * x;
    precise float q = fma(fma(fma(fma(fma(fma(0.17543362, square, 2.498492e-2), square, 0.1026602), square, 0.10970186), square,
                                  0.14294572), square, 0.1999974), square, 0.33333337);
    precise float small = size + size * (square * q);
    const float large = 0.5 * log_sum((1.0 + size) / max(1.0 - size, 1e-10), 0.0);
    const float result = size < 0.5 ? small : size_bits == 0x3F800000u ? INFINITY : large;
    return copy_sign(size_bits > 0x3F800000u ? NOT_A_NUMBER : result, x);
}

#endif
