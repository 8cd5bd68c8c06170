// The unary operators, for the data type macro T, under one switch.
//
//   T_MATH unary(uint operation, T_MATH x, T_MATH param0, T_MATH param1)
//   UNARY(x)   what a kernel of unary operators computes: the operator OPERATION of g(x), where g(x) = x * scale + bias if
//              HAS_SCALE_BIAS, else x, with the kernel's parameters scale, bias, param0 and param1
//
// `operation` is the OperatorType's number, best a specialisation constant so that one case remains. The parameters are
// the operator's number attributes in the struct's order, cast to T. One more operator is one more line here.

#ifndef DMLVK_UNARY_GLSL
#define DMLVK_UNARY_GLSL

#include "activation.glsl"
#include "scalar.glsl"

#if defined(T_IS_FLOAT64)
// Only ElementWiseIdentity has this type.
T_MATH unary(uint operation, T_MATH x, T_MATH param0, T_MATH param1) { return x; }

#elif T_IS_FLOAT
T_MATH unary(uint operation, T_MATH x, T_MATH param0, T_MATH param1) {
    switch (operation) {
        case OP_ELEMENT_WISE_IDENTITY: return x;
        case OP_ELEMENT_WISE_ABS: return abs(x);
        case OP_ELEMENT_WISE_CEIL: return ceil(x);
        case OP_ELEMENT_WISE_CLIP1: return activate(OP_ELEMENT_WISE_CLIP, x, param0, param1);
        case OP_ELEMENT_WISE_ERF: return erf(x);
        case OP_ELEMENT_WISE_EXP: return exp_accurate(x);
        case OP_ELEMENT_WISE_FLOOR: return floor(x);
        case OP_ELEMENT_WISE_LOG: return log_accurate(x);
        case OP_ELEMENT_WISE_NEGATE: return -x;
        case OP_ELEMENT_WISE_RECIP: return 1.0 / x;
        case OP_ELEMENT_WISE_SQRT: return sqrt(x);
        case OP_ELEMENT_WISE_TANH: return tanh_accurate(x);
        default: return activate(operation, x, param0, param1);
    }
}

#else
T_MATH unary(uint operation, T_MATH x, T_MATH param0, T_MATH param1) {
    const T_MATH zero = T_MATH(0);
    switch (operation) {
        case OP_ELEMENT_WISE_ABS: return x < zero ? zero - x : x;
        case OP_ELEMENT_WISE_CLIP1: return max(param0, min(x, param1));
        case OP_ELEMENT_WISE_NEGATE: return zero - x;
        case OP_ACTIVATION_RELU: return max(x, zero);
        case OP_ACTIVATION_SHRINK:
            return x > param1 ? x - param0 : T_IS_SIGNED == 1 && x < zero - param1 ? x + param0 : zero;
        default: return x; // ElementWiseIdentity
    }
}
#endif

T_MATH scale_bias(T_MATH x, float scale, float bias) {
#if defined(T_IS_FLOAT64)
    return x * T_MATH(scale) + T_MATH(bias);
#else
    precise float result = float(x) * scale + bias;
    return from_float(result);
#endif
}

#define UNARY(x)                                                                     \
    unary(OPERATION, HAS_SCALE_BIAS == 0u ? (x) : scale_bias(x, p.scale, p.bias),    \
          scalar(p.param0[0], p.param0[1]), scalar(p.param1[0], p.param1[1]))

#endif
