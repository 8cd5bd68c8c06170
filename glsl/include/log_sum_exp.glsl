// The logarithm of a sum of powers of e, element by element, without overflow: ln(e^x0 + e^x1 + ...).
//
// Kept are the largest element, and the others' powers relative to its own: others = sum of e^(x - largest) over all elements
// but one instance of the largest. So the logarithm of the sum, largest + log1p(others), is accurate even where the others
// together are smaller than the last place of 1. A NaN makes `others` NaN, for good.

#ifndef DMLVK_LOG_SUM_EXP_GLSL
#define DMLVK_LOG_SUM_EXP_GLSL

#include "math.glsl"

struct LogSumExp {
    float largest;
    float others;
};

// Of no element: changes nothing.
LogSumExp no_powers() { return LogSumExp(-INFINITY, 0.0); }

// e^(x - largest) for x <= largest, with what rounding keeps out of the difference; 1 where both are the same infinity.
// A float16 result keeps nothing of what a driver's own exponential is off by.
float power_below(float x, float largest) {
    if (x == largest) return 1.0;
#if T_IS_FLOAT16
    return exp(x - largest);
#else
    precise float difference = x - largest;
    precise float shift = difference - x;
    precise float lost = (x - (difference - shift)) - (largest + shift);
    return exp_sum(difference, is_finite(lost) ? lost : 0.0);
#endif
}

LogSumExp merged(LogSumExp a, LogSumExp b) {
    const bool swapped = b.largest > a.largest;
    const float largest = swapped ? b.largest : a.largest, other = swapped ? a.largest : b.largest;
    const float others = swapped ? b.others : a.others, below = swapped ? a.others : b.others;
    // (Of no element there is no power; -infinity has none either.)
    const float power = other == -INFINITY ? 0.0 : power_below(other, largest);
    return LogSumExp(largest, is_nan(below) ? below : others + (1.0 + below) * power);
}

void update(inout LogSumExp own, float x) { own = merged(own, is_nan(x) ? LogSumExp(-INFINITY, x) : LogSumExp(x, 0.0)); }

float logarithm(LogSumExp sum) {
    if (is_nan(sum.others)) return sum.others;
    return sum.largest == INFINITY ? INFINITY : sum.largest + log1p_positive(sum.others);
}

#endif
