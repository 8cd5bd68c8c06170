// y = a chain of pointwise operators of up to six inputs, element for element: what lies between them stays in registers.
//
// The chain is a program of specialisation constants, which a driver folds to just the arithmetic: operation k, of OPERATIONS,
// is the operator OPERATION_k of unary.glsl or binary.glsl, a comparison, a choice, logic on their results, or
// ROUND_TO_BFLOAT16, and OPERANDS_k names its operands, 4 bits each from the lowest on:
//   0 to 5    an input                      6, 7   p.numbers[2 k], p.numbers[2 k + 1]
//   8 + j     the result of operation j     15     none
// The last result is stored. Truth is 1, else 0. An input may be of INT32 where T is FLOAT32: its bits go to CAST only. An
// operator of one operand has the two numbers as its parameters. Arithmetic is float32. Results of FLOAT32 are those of the
// operators one by one, bit for bit: no compiler sees that one's operand is another's result, or it would take products and
// sums together, and quotients (an H200's does, even where they are `precise`). Those of FLOAT16 are rounded once, at the
// end.
//
// Bindings: x0 to x5, of which the first INPUTS are read, output. The output may be the bytes of any: an invocation reads only
//   what it writes.
// Variants: T, the data type of all, and U, the same; LANES.
// Constants: OPERATIONS 1, INPUTS 1, OPERATION_0 to 7, OPERANDS_0 to 7, RANK 1, ITEMS 1, RUNS 0 (items.glsl), X0_MODE to
//   X5_MODE 0, OUTPUT_MODE 0 (lanes.glsl), LOCAL_SIZE_X.
// Parameters: of the items (items.glsl); each tensor's strides in elements for a step of one item in its dimensions, and for
//   one of one element in the innermost; numbers; zero, which is 0.
// Rules: "groups" and "runs" (RUNS 1) with LANES > 1, "elements" with 1.

#include "binary.glsl"
#include "items.glsl"
#include "lanes.glsl"
#include "unary.glsl"

LANES_BUFFER(readonly, T, X0, x0)
LANES_BUFFER(readonly, T, X1, x1)
LANES_BUFFER(readonly, T, X2, x2)
LANES_BUFFER(readonly, T, X3, x3)
LANES_BUFFER(readonly, T, X4, x4)
LANES_BUFFER(readonly, T, X5, x5)
LANES_BUFFER(, T, OUTPUT, output)

#define EACH_INPUT(DO)              \
    DO(X0, x0)                      \
    if (INPUTS > 1u) { DO(X1, x1) } \
    if (INPUTS > 2u) { DO(X2, x2) } \
    if (INPUTS > 3u) { DO(X3, x3) } \
    if (INPUTS > 4u) { DO(X4, x4) } \
    if (INPUTS > 5u) { DO(X5, x5) }
#define LOAD_GROUP(NAME, name) LOAD_LANES(T, name[i], NAME, name, NAME##_MODE, name##_index, p.name##_step)
#define LOAD_REST(NAME, name) name[i][j] = T_MATH(ELEMENT(T, NAME, name, name##_index + j * p.name##_step));
#define BEGIN_SECOND(NAME, name) \
    name##_first = name##_index; \
    name##_index = 0;

#define VISIT(dimension, coordinate)                    \
    x0_index += (coordinate) * p.x0_strides[dimension]; \
    x1_index += (coordinate) * p.x1_strides[dimension]; \
    x2_index += (coordinate) * p.x2_strides[dimension]; \
    x3_index += (coordinate) * p.x3_strides[dimension]; \
    x4_index += (coordinate) * p.x4_strides[dimension]; \
    x5_index += (coordinate) * p.x5_strides[dimension]; \
    output_index[i] += (coordinate) * p.output_strides[dimension];
#define NEXT_RUN EACH_INPUT(BEGIN_SECOND)

// x, of which a compiler knows nothing.
float opaque(float x) {
#if T_BYTES == 4
    return uintBitsToFloat(floatBitsToUint(x) ^ p.zero);
#else
    return x;
#endif
}

// The nearest number that has the bits of BFLOAT16, halves to even.
float to_bfloat16(float x) {
    const uint bits = floatBitsToUint(x);
    return is_nan(x) ? NOT_A_NUMBER : uintBitsToFloat((bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u);
}

float truth(bool holds) { return holds ? 1.0 : 0.0; }

float apply(uint operation, bool is_unary, float a, float b, float c, float param0, float param1) {
    switch (operation) {
        case OP_CAST: return float(floatBitsToInt(a));
        case ROUND_TO_BFLOAT16: return to_bfloat16(a);
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

void main() {
    if (beyond_items()) return;
    T_MATH x0[MOST_ITEMS][LANES], x1[MOST_ITEMS][LANES], x2[MOST_ITEMS][LANES], x3[MOST_ITEMS][LANES],
        x4[MOST_ITEMS][LANES], x5[MOST_ITEMS][LANES];
    uint output_index[MOST_ITEMS];
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        uint x0_index = 0, x1_index = 0, x2_index = 0, x3_index = 0, x4_index = 0, x5_index = 0;
        output_index[i] = 0;
#if LANES > 1
        if (RUNS != 0u) {
            uint x0_first = 0, x1_first = 0, x2_first = 0, x3_first = 0, x4_first = 0, x5_first = 0;
            LOCATE_RUNS(i)
            output_index[i] = element;
            EACH_INPUT(LOAD_RUNS)
            continue;
        }
#endif
        LOCATE(item_number(i))
        lanes[i] = lanes_here();
        if (LANES == 1 || lanes[i] == LANES) {
            EACH_INPUT(LOAD_GROUP)
        } else {
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < lanes[i]) { EACH_INPUT(LOAD_REST) }
        }
    }
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        if (!has_item(i)) continue;
        T_MATH y[LANES];
        [[unroll]] for (int j = 0; j < LANES; ++j) y[j] = chain(x0[i][j], x1[i][j], x2[i][j], x3[i][j], x4[i][j], x5[i][j]);
        if (LANES == 1 || lanes[i] == LANES) {
            STORE_LANES(T, OUTPUT, output, OUTPUT_MODE, output_index[i], p.output_step, y)
        } else {
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < lanes[i]) ELEMENT(T, OUTPUT, output, output_index[i] + j * p.output_step) = T(y[j]);
        }
    }
}
