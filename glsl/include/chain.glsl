// chain(x0 to x5): the last of several pointwise operations on numbers: what lies between them stays in registers.
//
// The chain is a program of specialisation constants, which a driver folds to just the arithmetic: operation k, of OPERATIONS,
// is the operator OPERATION_k of unary.glsl or binary.glsl, a power, a comparison, a choice, logic on their results, or
// ROUND_TO_BFLOAT16, and OPERANDS_k names its operands, 4 bits each from the lowest on:
//   0 to 5    an input                      6, 7   p.numbers[2 k], p.numbers[2 k + 1]
//   8 + j     the result of operation j     15     none
// Truth is 1, else 0. An input may be of INT32 where T is FLOAT32: its bits go to CAST only. An operator of one operand has
// the two numbers as its parameters. Arithmetic is float32. Results of FLOAT32 are those of the operators one by one, bit for
// bit: no compiler sees that one's operand is another's result, or it would take products and sums together, and quotients
// (an H200's does, even where they are `precise`). Those of FLOAT16 are rounded once, at the end, by who stores them.
//
// The kernel has the constants OPERATIONS, OPERATION_0 to 7 and OPERANDS_0 to 7, and the parameters numbers, and zero, which
// is 0.

#ifndef DMLVK_CHAIN_GLSL
#define DMLVK_CHAIN_GLSL

// What the operators make is of the type that they take.
#define U T
#define U_MATH T_MATH
#define U_BYTES T_BYTES
#define U_IS_FLOAT T_IS_FLOAT
#define U_IS_SIGNED T_IS_SIGNED
#define U_GROUP T_GROUP

#include "bfloat16.glsl"
#include "binary.glsl"
#include "power.glsl"
#include "unary.glsl"

// x, of which a compiler knows nothing.
float opaque(float x) {
#if T_BYTES == 4
    return uintBitsToFloat(floatBitsToUint(x) ^ p.zero);
#else
    return x;
#endif
}

float truth(bool holds) { return holds ? 1.0 : 0.0; }

float apply(uint operation, bool is_unary, float a, float b, float c, float param0, float param1) {
    switch (operation) {
        case OP_CAST: return float(floatBitsToInt(a));
        case ROUND_TO_BFLOAT16: return to_bfloat16(a);
        case OP_ELEMENT_WISE_POW: return power(a, b);
        case OP_ELEMENT_WISE_IF: return a != 0.0 ? b : c;
        case OP_ELEMENT_WISE_IS_INFINITY: return truth(is_infinity(a, uint(param0)));
        case OP_ELEMENT_WISE_IS_NAN: return truth(is_nan(a));
        case OP_ELEMENT_WISE_LOGICAL_AND: return truth(a != 0.0 && b != 0.0);
        case OP_ELEMENT_WISE_LOGICAL_NOT: return truth(a == 0.0);
        case OP_ELEMENT_WISE_LOGICAL_OR: return truth(a != 0.0 || b != 0.0);
        case OP_ELEMENT_WISE_LOGICAL_XOR: return truth((a != 0.0) != (b != 0.0));
        case OP_ELEMENT_WISE_LOGICAL_EQUALS:
        case OP_ELEMENT_WISE_LOGICAL_GREATER_THAN:
        case OP_ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL:
        case OP_ELEMENT_WISE_LOGICAL_LESS_THAN:
        case OP_ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL: return truth(compare(operation, a, b));
    }
    return is_unary ? unary(operation, a, param0, param1) : binary(operation, a, b, 0.0, 0.0);
}

#define OPERATE(k)                                                                                        \
    if (OPERATIONS > uint(k)) {                                                                           \
        values[FIRST_NUMBER] = p.numbers[2 * k];                                                          \
        values[FIRST_NUMBER + 1u] = p.numbers[2 * k + 1];                                                 \
        values[FIRST_RESULT + uint(k)] =                                                                  \
            opaque(apply(OPERATION_##k, ((OPERANDS_##k >> 4u) & 15u) == NONE, values[OPERANDS_##k & 15u], \
                         values[(OPERANDS_##k >> 4u) & 15u], values[(OPERANDS_##k >> 8u) & 15u],          \
                         p.numbers[2 * k], p.numbers[2 * k + 1]));                                        \
    }

// The chain of one element. One more result than operands can name is stored, so NONE has a place.
float chain(float x0, float x1, float x2, float x3, float x4, float x5) {
    float values[FIRST_RESULT + 8u] = {x0, x1, x2, x3, x4, x5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
    OPERATE(0)
    OPERATE(1)
    OPERATE(2)
    OPERATE(3)
    OPERATE(4)
    OPERATE(5)
    OPERATE(6)
    OPERATE(7)
    return values[FIRST_RESULT + OPERATIONS - 1u];
}

#endif
