// The ScaleBias of an operator: g(x) = x * scale + bias, which takes the place of its input.
//
//   T_MATH scale_bias(T_MATH x, REAL scale, REAL bias)   of integers in float32, and cast back
//
// No operator that changes the type has one: where U is another type than T, g(x) is x.

#ifndef DMLVK_SCALE_BIAS_GLSL
#define DMLVK_SCALE_BIAS_GLSL

#include "cast.glsl"
#include "lanes.glsl"

T_MATH scale_bias(T_MATH x, REAL scale, REAL bias) {
#if !U_IS_T
    return x;
#elif defined(T_IS_FLOAT64)
    precise double result = x * scale + bias;
    return result;
#else
    precise float result = float(x) * scale + bias;
    return from_float(result);
#endif
}

#endif
