// Powers of e relative to the largest of a set, many at a time: e^(x - largest) for little more than a polynomial.
//
// x - largest is not exact in float32, and the power's relative error would be as large as that difference's absolute one. So
// powers are taken relative to a base that may be left out exactly: a power of two, 2^n with n a little below
// largest / ln 2, as long as |largest| < 224, because x = n' ln 2 + r gives e^x = 2^n' e^r without any difference. From
// there on the base is e^shift, shift a little below largest: every x within 109 of largest lies within a factor of 2 of it,
// so that x - shift is exact. Bases are that coarse so that most larger largests keep the base, and sums relative to it.
// e^(x - largest) is power(x, base) * base.correction, and sums of powers are corrected as a whole.
// power() is good to 1 ULP, is less than 2^32, and is 0 from 2^-126 down, as also of -infinity. NaN stays; what it makes of
// infinity is of no use.
// In float64 the base is e^largest, and what x - largest loses goes into the power.
// A float16 result keeps nothing of what x - largest loses: there the base is e^largest, and exp2 the device's, which Vulkan
// bounds.

#ifndef DMLVK_POWERS_GLSL
#define DMLVK_POWERS_GLSL

#include "math.glsl"

#if defined(T_IS_FLOAT64)
#define LARGEST_FLOAT 1.7976931348623157e308LF
#else
#define LARGEST_FLOAT 3.4028235e38
#endif

struct PowerBase {
    REAL shift;      // taken from x
    uint exponent;    // 2^-n, as the bits to which n' is added
    REAL least;      // where powers are 0
    REAL correction; // e^largest below the base's power: in (2^-32, 1]
};

PowerBase power_base(REAL largest) {
    const REAL finite = clamp(largest, -LARGEST_FLOAT, LARGEST_FLOAT); // infinity - infinity would be NaN
#if defined(T_IS_FLOAT64)
    return PowerBase(finite, 0u, finite - 746.0LF, 1.0LF);
#elif T_IS_FLOAT16
    return PowerBase(finite, 0u, finite - 88.0, 1.0);
#else
    const bool is_near = abs(finite) < 224.0;
    const REAL shift = is_near ? 0.0 : floor(finite * (1.0 / 16.0)) * 16.0;
    const REAL whole = is_near ? floor(finite * (LOG2_E / 32.0)) * 32.0 : 0.0; // n
    int m;
    const REAL r = reduce_exponent(finite - shift, m); // largest = shift + m ln 2 + r
    const int n = int(whole);
    const REAL correction = scale_exponent(1.0 + expm1_reduced(-r), n - m);
    return PowerBase(shift, uint(127 - n) << 23, fma(whole, LN2, shift - 88.0), correction);
#endif
}

REAL power(REAL x, PowerBase base) {
#if defined(T_IS_FLOAT64)
    double difference, lost;
    two_sum(x, -base.shift, difference, lost);
    return x < base.least ? 0.0LF : exp_scaled(difference, lost, 0);
#elif T_IS_FLOAT16
    return exp2((x - base.shift) * LOG2_E);
#else
    int n;
    const REAL r = reduce_exponent(x - base.shift, n);
    const REAL scale = uintBitsToFloat((uint(n) << 23) + base.exponent);
    precise REAL result = fma(expm1_reduced(r), scale, scale);
    return x < base.least ? 0.0 : result;
#endif
}

// e^(x - largest) of a single x below it.
REAL power_below(REAL x, REAL largest) {
    const PowerBase base = power_base(largest);
    return power(x, base) * base.correction;
}

#endif
