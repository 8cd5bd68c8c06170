// The unary operators, from the data type macro T to U, under one switch.
//
//   U_MATH unary(uint operation, T_MATH x, T_MATH param0, T_MATH param1)
//   UNARY(x)   what a kernel of unary operators computes: the operator OPERATION of g(x), where g(x) = x * scale + bias if
//              HAS_SCALE_BIAS, else x, with the kernel's parameters scale, bias, param0 and param1
//
// `operation` is the OperatorType's number, best a specialisation constant so that one case remains. The parameters are
// the operator's number attributes in the struct's order, cast to T. One more operator is one more line here. Where U is
// another type than T, only the operators that change the type are there.

#ifndef DMLVK_UNARY_GLSL
#define DMLVK_UNARY_GLSL

#include "activation.glsl"
#include "cast.glsl"
#include "hyperbolic.glsl"
#include "lanes.glsl"
#include "power.glsl"
#include "scalar.glsl"
#include "scale_bias.glsl"
#include "trigonometry.glsl"

#if !T_IS_FLOAT
uint bit_count(T_MATH x) {
#if T_BYTES == 8
    const uvec2 halves = unpackUint2x32(uint64_t(x));
    return bitCount(halves.x) + bitCount(halves.y);
#else
    return bitCount(x);
#endif
}
#else
bool is_infinity(REAL x, uint mode) {
    return is_infinite(x) && (mode == IS_INFINITY_MODE_EITHER || is_negative(x) == (mode == IS_INFINITY_MODE_NEGATIVE));
}

// x as an integer, with the sign of x where that is 0. By floor alone: on a processor without AVX-512 lavapipe (Mesa 22.3) takes
// all doubles from 2^24 on for integers in trunc and roundEven, and the latter brings halves toward 0.
REAL round_element(REAL x, uint mode) {
    const REAL size = abs(x), below = floor(size);
    const REAL rest = size - below; // exact
    const bool half_up = mode != ROUNDING_MODE_HALVES_TO_NEAREST_EVEN || floor(below * 0.5) * 2.0 != below;
    const bool up = mode != ROUNDING_MODE_TOWARD_ZERO && (rest > 0.5 || rest == 0.5 && half_up);
    return copy_sign(up ? below + 1.0 : below, x);
}

// By bits, for a device may take a subnormal for 0.
REAL sign_of(REAL x) { return is_zero(x) || is_nan(x) ? 0.0 : copy_sign(1.0, x); }
#endif

#if !U_IS_T
U_MATH unary(uint operation, T_MATH x, T_MATH param0, T_MATH param1) {
    switch (operation) {
#if !T_IS_FLOAT
        case OP_ELEMENT_WISE_BIT_COUNT: return U_MATH(bit_count(x));
#else
        case OP_ELEMENT_WISE_IS_INFINITY: return U_MATH(is_infinity(x, uint(param0)));
        case OP_ELEMENT_WISE_IS_NAN: return U_MATH(is_nan(x));
#endif
        default: return cast_element(x);
    }
}

#elif T_IS_FLOAT
// precise: in a chain of operators x may be another's result.
precise U_MATH unary(uint operation, T_MATH x, T_MATH param0, T_MATH param1) {
    switch (operation) {
        case OP_ELEMENT_WISE_IDENTITY: return x;
        case OP_ELEMENT_WISE_ABS: return abs(x);
        case OP_ELEMENT_WISE_ACOS: return acos_accurate(x);
        case OP_ELEMENT_WISE_ACOSH: return acosh_accurate(x);
        case OP_ELEMENT_WISE_ASIN: return asin_accurate(x);
        case OP_ELEMENT_WISE_ASINH: return asinh_accurate(x);
        case OP_ELEMENT_WISE_ATAN: return atan_accurate(x);
        case OP_ELEMENT_WISE_ATANH: return atanh_accurate(x);
        case OP_ELEMENT_WISE_CEIL: return ceil(x);
        case OP_ELEMENT_WISE_CLIP1: return activate(OP_ELEMENT_WISE_CLIP, x, param0, param1);
        case OP_ELEMENT_WISE_CONSTANT_POW: return constant_power(x, param0);
        case OP_ELEMENT_WISE_COS: return cos_accurate(x);
        case OP_ELEMENT_WISE_COSH: return cosh_accurate(x);
        case OP_ELEMENT_WISE_ERF: return erf(x);
        case OP_ELEMENT_WISE_EXP: return exp_accurate(x);
        case OP_ELEMENT_WISE_FLOOR: return floor(x);
        case OP_ELEMENT_WISE_LOG: return log_accurate(x);
        case OP_ELEMENT_WISE_NEGATE: return -x;
        case OP_ELEMENT_WISE_RECIP: return 1.0 / x;
        case OP_ELEMENT_WISE_ROUND: return round_element(x, uint(param0));
        case OP_ELEMENT_WISE_SIGN: return sign_of(x);
        case OP_ELEMENT_WISE_SIN: return sin_accurate(x);
        case OP_ELEMENT_WISE_SINH: return sinh_accurate(x);
        case OP_ELEMENT_WISE_SQRT: return sqrt(x);
        case OP_ELEMENT_WISE_TAN: return tan_accurate(x);
        case OP_ELEMENT_WISE_TANH: return tanh_accurate(x);
        case OP_ELEMENT_WISE_THRESHOLD: return is_nan(x) ? x : max(x, param0);
        default: return activate(operation, x, param0, param1);
    }
}

#else
U_MATH unary(uint operation, T_MATH x, T_MATH param0, T_MATH param1) {
    const T_MATH zero = T_MATH(0);
    switch (operation) {
        case OP_ELEMENT_WISE_ABS: return x < zero ? zero - x : x;
        case OP_ELEMENT_WISE_BIT_COUNT: return U_MATH(bit_count(x));
        case OP_ELEMENT_WISE_BIT_NOT: return ~x;
        case OP_ELEMENT_WISE_CLIP1: return max(param0, min(x, param1));
        case OP_ELEMENT_WISE_LOGICAL_NOT: return U_MATH(x == zero);
        case OP_ELEMENT_WISE_NEGATE: return zero - x;
        case OP_ELEMENT_WISE_SIGN: return x > zero ? T_MATH(1) : x < zero ? zero - T_MATH(1) : zero;
        case OP_ELEMENT_WISE_THRESHOLD: return max(x, param0);
        case OP_ACTIVATION_RELU: return max(x, zero);
        case OP_ACTIVATION_SHRINK:
            // ~x >= param1 is x < -param1, without the negative that the least number lacks
            return x > param1 ? x - param0 : T_IS_SIGNED == 1 && ~x >= param1 ? x + param0 : zero;
        default: return x; // ElementWiseIdentity
    }
}
#endif

#define UNARY(x)                                                                     \
    unary(OPERATION, HAS_SCALE_BIAS == 0u ? (x) : scale_bias(x, REAL_OF(p.scale), REAL_OF(p.bias)), \
          scalar(p.param0[0], p.param0[1]), scalar(p.param1[0], p.param1[1]))

#endif
