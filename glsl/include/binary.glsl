// The binary operators, from two inputs of the data type macro T to U, under one switch.
//
//   U_MATH binary(uint operation, T_MATH a, T_MATH b, T_MATH param0, T_MATH param1)
//
// `operation` is the OperatorType's number, best a specialisation constant so that one case remains. The parameters are
// the operator's number attributes in the struct's order, cast to T. One more operator is one more line here (two, where
// floats and integers differ). Where U is another type than T, only comparisons are there.
//   bool compare(uint operation, T_MATH a, T_MATH b)   whether the comparison of that number holds
//   BINARY(a, b)   what a kernel of binary operators computes: the operator OPERATION, and after it the activation
//                  ACTIVATION, with the kernel's parameters

#ifndef DMLVK_BINARY_GLSL
#define DMLVK_BINARY_GLSL

#include "activation.glsl"
#include "lanes.glsl"
#include "modulus.glsl"
#include "scalar.glsl"
#include "trigonometry.glsl"

// A float as an integer in the same order, 0 and -0 alike: a device may take subnormals for 0 where it compares floats.
#if defined(T_IS_FLOAT64)
int64_t ordered(double x) {
    const int64_t bits = doubleBitsToInt64(x);
    return bits < 0 ? int64_t(SIGN_OF_DOUBLE) - bits : bits;
}
bool unordered(double a, double b) { return is_nan(a) || is_nan(b); }
#elif T_IS_FLOAT
int ordered(float x) {
    const int bits = floatBitsToInt(x);
    return bits < 0 ? int(0x80000000u) - bits : bits;
}
bool unordered(float a, float b) { return is_nan(a) || is_nan(b); }
#else
T_MATH ordered(T_MATH x) { return x; }
bool unordered(T_MATH a, T_MATH b) { return false; }
#endif

// Whether the operator's comparison holds; none does with NaN.
bool compare(uint operation, T_MATH a, T_MATH b) {
    if (unordered(a, b)) return false;
    switch (operation) {
        case OP_ELEMENT_WISE_LOGICAL_EQUALS: return ordered(a) == ordered(b);
        case OP_ELEMENT_WISE_LOGICAL_GREATER_THAN: return ordered(a) > ordered(b);
        case OP_ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL: return ordered(a) >= ordered(b);
        case OP_ELEMENT_WISE_LOGICAL_LESS_THAN: return ordered(a) < ordered(b);
        case OP_ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL: return ordered(a) <= ordered(b);
    }
    return false;
}

// The gradient of max(least, min(x, most)): 0 at the bounds, too.
T_MATH clip_gradient(T_MATH x, T_MATH gradient, T_MATH least, T_MATH most) {
    const bool outside = compare(OP_ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL, x, least) ||
                         compare(OP_ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL, x, most);
    return outside ? T_MATH(0) : gradient;
}

T_MATH relu_gradient(T_MATH x, T_MATH gradient) {
    return compare(OP_ELEMENT_WISE_LOGICAL_GREATER_THAN, x, T_MATH(0)) ? gradient : T_MATH(0);
}

#if !U_IS_T
U_MATH binary(uint operation, T_MATH a, T_MATH b, T_MATH param0, T_MATH param1) {
    return U_MATH(compare(operation, a, b));
}

#elif T_IS_FLOAT
// (a + b) / 2. Large numbers are halved first, that their sum may not overflow; small ones not, for they may be subnormal.
REAL mean(REAL a, REAL b) {
    precise REAL halved = 0.5 * a + 0.5 * b; // precise: or llvmpipe adds first
    return abs(a) > 1.0 ? halved : 0.5 * (a + b);
}

// precise: in a chain of operators a and b may be one value, and x - x is NaN for infinity.
precise U_MATH binary(uint operation, T_MATH a, T_MATH b, T_MATH param0, T_MATH param1) {
    switch (operation) {
        case OP_ELEMENT_WISE_ADD:
        case OP_ELEMENT_WISE_ADD1: return a + b;
        case OP_ELEMENT_WISE_ATAN_YX: return atan2_accurate(a, b);
        case OP_ELEMENT_WISE_CLIP_GRAD1: return clip_gradient(a, b, param0, param1);
        case OP_ELEMENT_WISE_DIFFERENCE_SQUARE: return (a - b) * (a - b);
        case OP_ELEMENT_WISE_DIVIDE: return divide(a, b);
        case OP_ELEMENT_WISE_MAX: return unordered(a, b) ? NOT_A_NUMBER : max(a, b);
        case OP_ELEMENT_WISE_MEAN: return mean(a, b);
        case OP_ELEMENT_WISE_MIN: return unordered(a, b) ? NOT_A_NUMBER : min(a, b);
        case OP_ELEMENT_WISE_MODULUS_FLOOR: return modulus_floor(a, b);
        case OP_ELEMENT_WISE_MODULUS_TRUNCATE: return modulus_truncate(a, b);
        case OP_ELEMENT_WISE_MULTIPLY: return a * b;
        case OP_ELEMENT_WISE_SUBTRACT: return a - b;
        case OP_ACTIVATION_PARAMETERIZED_RELU: return a < 0.0 ? b * a : a;
        case OP_ACTIVATION_RELU_GRAD: return relu_gradient(a, b);
    }
    return a;
}

#else
// Division goes through magnitudes, because / and % are undefined for negative operands of % and for 0.
#if T_BYTES == 8
#define T_MAGNITUDE uint64_t
#else
#define T_MAGNITUDE uint
#endif

T_MAGNITUDE magnitude(T_MATH x) { return x < T_MATH(0) ? T_MAGNITUDE(0) - T_MAGNITUDE(x) : T_MAGNITUDE(x); }
T_MATH negate_if(bool negative, T_MAGNITUDE x) { return negative ? T_MATH(T_MAGNITUDE(0) - x) : T_MATH(x); }
bool signs_differ(T_MATH a, T_MATH b) { return (a ^ b) < T_MATH(0); }

T_MATH divide(T_MATH a, T_MATH b) {
    if (b == T_MATH(0)) return T_MATH(0);
    return negate_if(signs_differ(a, b), magnitude(a) / magnitude(b));
}

T_MATH modulus_truncate(T_MATH a, T_MATH b) {
    if (b == T_MATH(0)) return T_MATH(0);
    return negate_if(a < T_MATH(0), magnitude(a) % magnitude(b));
}

T_MATH modulus_floor(T_MATH a, T_MATH b) {
    const T_MATH rest = modulus_truncate(a, b);
    return rest != T_MATH(0) && signs_differ(a, b) ? rest + b : rest;
}

// (a + b) / 2 toward zero, without the sum, which may overflow.
T_MATH mean(T_MATH a, T_MATH b) {
    const T_MATH below = (a & b) + ((a ^ b) >> 1);
    return below < T_MATH(0) ? below + ((a ^ b) & T_MATH(1)) : below;
}

U_MATH binary(uint operation, T_MATH a, T_MATH b, T_MATH param0, T_MATH param1) {
    switch (operation) {
        case OP_ELEMENT_WISE_ADD: return a + b;
        case OP_ELEMENT_WISE_BIT_AND: return a & b;
        case OP_ELEMENT_WISE_BIT_OR: return a | b;
        case OP_ELEMENT_WISE_BIT_SHIFT_LEFT: return b < T_MATH(8 * T_BYTES) ? a << uint(b) : T_MATH(0);
        case OP_ELEMENT_WISE_BIT_SHIFT_RIGHT: return b < T_MATH(8 * T_BYTES) ? a >> uint(b) : T_MATH(0);
        case OP_ELEMENT_WISE_BIT_XOR: return a ^ b;
        case OP_ELEMENT_WISE_CLIP_GRAD1: return clip_gradient(a, b, param0, param1);
        case OP_ELEMENT_WISE_DIFFERENCE_SQUARE: return (a - b) * (a - b);
        case OP_ELEMENT_WISE_DIVIDE: return divide(a, b);
        case OP_ELEMENT_WISE_LOGICAL_AND: return U_MATH(a != T_MATH(0) && b != T_MATH(0));
        case OP_ELEMENT_WISE_LOGICAL_EQUALS:
        case OP_ELEMENT_WISE_LOGICAL_GREATER_THAN:
        case OP_ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL:
        case OP_ELEMENT_WISE_LOGICAL_LESS_THAN:
        case OP_ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL: return U_MATH(compare(operation, a, b));
        case OP_ELEMENT_WISE_LOGICAL_OR: return U_MATH(a != T_MATH(0) || b != T_MATH(0));
        case OP_ELEMENT_WISE_LOGICAL_XOR: return U_MATH((a != T_MATH(0)) != (b != T_MATH(0)));
        case OP_ELEMENT_WISE_MAX: return max(a, b);
        case OP_ELEMENT_WISE_MEAN: return mean(a, b);
        case OP_ELEMENT_WISE_MIN: return min(a, b);
        case OP_ELEMENT_WISE_MODULUS_FLOOR: return modulus_floor(a, b);
        case OP_ELEMENT_WISE_MODULUS_TRUNCATE: return modulus_truncate(a, b);
        case OP_ELEMENT_WISE_MULTIPLY: return a * b;
        case OP_ELEMENT_WISE_SUBTRACT: return a - b;
        case OP_ACTIVATION_PARAMETERIZED_RELU: return a < T_MATH(0) ? a * b : a;
        case OP_ACTIVATION_RELU_GRAD: return relu_gradient(a, b);
    }
    return a;
}
#endif

#if U_IS_T && T_IS_FLOAT && !defined(T_IS_FLOAT64) // no FLOAT64 operator has an activation
#define BINARY(a, b)                                                                                                     \
    activate(ACTIVATION, binary(OPERATION, a, b, scalar(p.param0[0], p.param0[1]), scalar(p.param1[0], p.param1[1])),    \
             p.activation_param0, p.activation_param1)
#else
#define BINARY(a, b) binary(OPERATION, a, b, scalar(p.param0[0], p.param0[1]), scalar(p.param1[0], p.param1[1]))
#endif

#endif
