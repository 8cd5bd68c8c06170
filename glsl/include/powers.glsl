// Powers of e relative to the largest of a set, many at a time: e^(x - largest) for little more than a polynomial.
//
// x - largest is not exact in float32, and the power's relative error would be as large as that difference's absolute one. So
// powers are taken relative to a base that may be left out exactly: a power of two, 2^n with n the whole part of
// largest / ln 2, as long as |largest| < 224, because x = n' ln 2 + r gives e^x = 2^n' e^r without any difference. From
// there on largest itself is the base: every x within 109 of it lies within a factor of 2 of it, so that x - largest is exact.
// e^(x - largest) is power(x, base) * base.correction, and sums of powers are corrected as a whole.
// power() is good to 1 ULP, is at most 2, and is 0 from 2^-126 down, as also of -infinity. NaN stays.
// A float16 result keeps nothing of what x - largest loses; there exp2 is the device's, which Vulkan bounds.

#ifndef DMLVK_POWERS_GLSL
#define DMLVK_POWERS_GLSL

#include "math.glsl"

struct PowerBase {
    float shift;      // taken from x
    uint exponent;    // 2^-n, as the bits to which n' is added
    float least;      // where powers are 0
    float correction; // e^(base - largest), in (1/2, 1]
};

PowerBase power_base(float largest) {
    const float finite = largest == -INFINITY ? -3.4028235e38 : largest; // -infinity - -infinity would be NaN
#if T_IS_FLOAT16
    return PowerBase(finite, 0u, finite - 88.0, 1.0);
#else
    const float shift = abs(finite) < 224.0 ? 0.0 : finite;
    int n;
    float r = reduce_exponent(finite - shift, n); // largest = shift + n ln 2 + r, n the nearest
    const float half_if_above = r < 0.0 ? 0.5 : 1.0;
    n -= int(r < 0.0);
    return PowerBase(shift, uint(127 - n) << 23, finite - 88.0, (1.0 + expm1_reduced(-r)) * half_if_above);
#endif
}

float power(float x, PowerBase base) {
#if T_IS_FLOAT16
    return exp2((x - base.shift) * LOG2_E);
#else
    int n;
    const float r = reduce_exponent(x - base.shift, n);
    const float scale = uintBitsToFloat((uint(n) << 23) + base.exponent);
    precise float result = fma(expm1_reduced(r), scale, scale);
    return x < base.least ? 0.0 : result;
#endif
}

#endif
