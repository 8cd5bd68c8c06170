// The logarithm of a sum of powers of e without overflow: ln(e^x0 + e^x1 + ...).
//
// Kept are the largest element and the powers of all others, of which one instance of the largest is none. So the logarithm of
// the sum, largest + log1p(sum of e^(x - largest) over the others), is accurate even where the others together are smaller
// than the last place of 1. A NaN makes `others` NaN, for good; of infinities that is all that `others` tells.
//
// Before including: TOGETHER.

#ifndef DMLVK_LOG_SUM_EXP_GLSL
#define DMLVK_LOG_SUM_EXP_GLSL

#include "powers.glsl"

struct LogSumExp {
    REAL largest; // of no element -infinity
    REAL others; // relative to power_base(largest)
};

LogSumExp merged(LogSumExp a, LogSumExp b) {
    const bool swapped = b.largest > a.largest;
    const LogSumExp high = swapped ? b : a, low = swapped ? a : b;
    const REAL share = is_infinite(low.largest) ? 0.0 : power(low.largest, power_base(high.largest));
    return LogSumExp(high.largest, high.others + (1.0 + low.others * power_base(low.largest).correction) * share);
}

// Makes a larger element of the values the largest, and the one that it replaces one of the values.
void raise(inout LogSumExp own, inout REAL values[TOGETHER], REAL largest, PowerBase base) {
    const PowerBase own_base = power_base(own.largest);
    if (own_base.shift != base.shift || own_base.exponent != base.exponent)
        own.others *= own_base.correction * power(own.largest, base);
    // (A device that flushes subnormal numbers may have made the largest 0.)
    const REAL least = largest - 1e-30;
    bool replaced = false;
    [[unroll]] for (int i = 0; i < TOGETHER; ++i) {
        const bool here = !replaced && values[i] >= least;
        if (here) values[i] = own.largest;
        replaced = replaced || here;
    }
    own.largest = largest;
}

void update(inout LogSumExp own, REAL values[TOGETHER]) {
    REAL largest = own.largest;
    [[unroll]] for (int i = 0; i < TOGETHER; ++i) largest = max(largest, values[i]); // it may overlook NaN
    if (is_infinite(largest)) {
        own.largest = largest;
        [[unroll]] for (int i = 0; i < TOGETHER; ++i) own.others = is_nan(values[i]) ? values[i] : own.others;
        return;
    }
    const PowerBase base = power_base(largest);
    if (largest > own.largest) raise(own, values, largest, base);
    [[unroll]] for (int i = 0; i < TOGETHER; ++i) own.others += power(values[i], base);
}

REAL logarithm(LogSumExp sum) {
    if (is_nan(sum.others)) return sum.others;
    if (is_infinite(sum.largest)) return sum.largest;
    return sum.largest + log1p_positive(sum.others * power_base(sum.largest).correction);
}

#endif
