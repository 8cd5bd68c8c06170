// The binary operators, for the data type macro T, under one switch.
//
//   T_MATH binary(uint operation, T_MATH a, T_MATH b)
//
// `operation` is the OperatorType's number, best a specialisation constant so that one case remains. One more operator
// is one more line here (two, where floats and integers differ).

#ifndef DMLVK_BINARY_GLSL
#define DMLVK_BINARY_GLSL

#include "modulus.glsl"

#if T_IS_FLOAT
T_MATH binary(uint operation, T_MATH a, T_MATH b) {
    const bool unordered = is_nan(a) || is_nan(b);
    switch (operation) {
        case OP_ELEMENT_WISE_ADD:
        case OP_ELEMENT_WISE_ADD1: return a + b;
        case OP_ELEMENT_WISE_DIVIDE: return divide(a, b);
        case OP_ELEMENT_WISE_MAX: return unordered ? NOT_A_NUMBER : max(a, b);
        case OP_ELEMENT_WISE_MIN: return unordered ? NOT_A_NUMBER : min(a, b);
        case OP_ELEMENT_WISE_MODULUS_FLOOR: return modulus_floor(a, b);
        case OP_ELEMENT_WISE_MODULUS_TRUNCATE: return modulus_truncate(a, b);
        case OP_ELEMENT_WISE_MULTIPLY: return a * b;
        case OP_ELEMENT_WISE_SUBTRACT: return a - b;
        case OP_ACTIVATION_PARAMETERIZED_RELU: return a < 0.0 ? b * a : a;
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

T_MATH binary(uint operation, T_MATH a, T_MATH b) {
    switch (operation) {
        case OP_ELEMENT_WISE_ADD: return a + b;
        case OP_ELEMENT_WISE_DIVIDE: return divide(a, b);
        case OP_ELEMENT_WISE_MAX: return max(a, b);
        case OP_ELEMENT_WISE_MIN: return min(a, b);
        case OP_ELEMENT_WISE_MODULUS_FLOOR: return modulus_floor(a, b);
        case OP_ELEMENT_WISE_MODULUS_TRUNCATE: return modulus_truncate(a, b);
        case OP_ELEMENT_WISE_MULTIPLY: return a * b;
        case OP_ELEMENT_WISE_SUBTRACT: return a - b;
        case OP_ACTIVATION_PARAMETERIZED_RELU: return a < T_MATH(0) ? a * b : a;
    }
    return a;
}
#endif

#endif
