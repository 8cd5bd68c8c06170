// y = g(x)^e, element for element, where e may be of another type than x: ElementWisePow.
//
// g(x) = x * scale + bias where HAS_SCALE_BIAS, else x. The exponent's type is a constant, and its elements are taken out of
// 32-bit words, so that a module serves all of them. What is computed:
//   x float              power.glsl. An integer exponent is rounded to float32, but for its parity.
//   x integer, e whole   the low bits of the power, by squaring. A negative power is the quotient 1 / x^-e toward zero, and 0
//                        for x = 0.
//   x integer, e not     power.glsl, cast.
//   x and e FLOAT64      math64.glsl.
//
// Bindings: x, exponent, output. The output may be the bytes of x or of exponent: an invocation writes only elements that it
// alone needs.
// Variants: T, the data type of x, and U, that of output, which is the same; LANES.
// Constants: EXPONENT_BYTES 4, EXPONENT_IS_FLOAT 1, EXPONENT_IS_SIGNED 1, HAS_SCALE_BIAS 0, RANK 1, ITEMS 1 (items.glsl),
//   X_MODE 0, EXPONENT_MODE 0 (MODE_BROADCAST, or else one access a lane), OUTPUT_MODE 0 (lanes.glsl), LOCAL_SIZE_X.
// Parameters: those of items.glsl; each tensor's strides in elements for a step of one item in its dimensions, and for one
//   of one element in the innermost; scale and bias.
// Rules: "groups" with LANES > 1, "elements" with 1.

#include "items.glsl"
#include "lanes.glsl"
#include "power.glsl"
#include "scalar.glsl"
#include "scale_bias.glsl"

LANES_BUFFER(readonly, T, X, x)
layout(set = 0, binding = BINDING_EXPONENT, std430) readonly buffer ExponentWords { uint exponent_words[]; };
LANES_BUFFER(, U, OUTPUT, output)

#if defined(T_IS_FLOAT64)
#define EXPONENT_BITS uvec2

uvec2 exponent_bits(uint index) {
    const uint place = BYTE_OFFSET_EXPONENT / 4u + 2u * index;
    return uvec2(exponent_words[place], exponent_words[place + 1u]);
}

T_MATH power_of(T_MATH x, uvec2 exponent) { return power(x, packDouble2x32(exponent)); }
#else
#define EXPONENT_BITS uint

// An exponent: a whole number by size and sign, or a float.
struct Exponent {
    bool whole, negative;
    uint size;
    float number;
};

// A float that is a whole number. From 2^32 on its size is one of the same powers modulo 2^32: those of an odd number
// return after 2^30 steps at the latest, and those of an even one are 0 from the 32nd on.
Exponent of_float(float number) {
    const uint bits = floatBitsToUint(number) & 0x7FFFFFFFu;
    const uint shift = (bits >> 23) - 150u;
    const uint significand = (bits & 0x007FFFFFu) | 0x00800000u;
    uint size;
    if (bits < 0x4F800000u) size = uint(uintBitsToFloat(bits));
    else size = (shift < 32u ? significand << shift : 0u) | 0x80000000u;
    const bool whole = bits < 0x7F800000u && (bits >= 0x4B000000u || float(size) == uintBitsToFloat(bits));
    return Exponent(whole, floatBitsToInt(number) < 0, size, number);
}

uint exponent_bits(uint index) {
    const uint place = BYTE_OFFSET_EXPONENT + index * EXPONENT_BYTES;
    return bitfieldExtract(exponent_words[place / 4u], int(place % 4u) * 8, int(EXPONENT_BYTES) * 8);
}

Exponent of_bits(uint bits) {
    if (EXPONENT_IS_FLOAT == 1u) return of_float(EXPONENT_BYTES == 2u ? unpackHalf2x16(bits).x : uintBitsToFloat(bits));
    const int value = bitfieldExtract(int(bits), 0, int(EXPONENT_BYTES) * 8);
    const bool negative = EXPONENT_IS_SIGNED == 1u && value < 0;
    const uint size = negative ? 0u - uint(value) : bits;
    return Exponent(true, negative, size, negative ? -float(size) : float(size));
}

#if T_IS_FLOAT
// The power of |x| with the sign that the exponent's parity gives, which float32 may not know.
T_MATH power_of(T_MATH x, Exponent exponent) {
    if (EXPONENT_IS_FLOAT == 1u) return power(x, exponent.number);
    const uint sign = (exponent.size & 1u) << 31;
    const uint bits = floatBitsToUint(x);
    const float result = power(uintBitsToFloat(bits & 0x7FFFFFFFu), exponent.number);
    return uintBitsToFloat(floatBitsToUint(result) ^ (bits & sign));
}
#else
T_MATH power_of(T_MATH x, Exponent exponent) {
    if (!exponent.whole) return from_float(power(float(x), exponent.number));
    if (exponent.negative && exponent.size != 0u) {
        if (x != T_MATH(1) && (T_IS_SIGNED == 0 || x != T_MATH(-1))) return T_MATH(0);
        exponent.size &= 1u;
    }
    uint result = 1u;
    for (uint square = uint(x), left = exponent.size; left != 0u; left >>= 1) {
        if ((left & 1u) != 0u) result *= square;
        square *= square;
    }
    return T_MATH(result);
}
#endif

T_MATH power_of(T_MATH x, uint exponent) { return power_of(x, of_bits(exponent)); }
#endif

#define VISIT(dimension, coordinate)                                \
    x_index += (coordinate) * p.x_strides[dimension];               \
    exponent_index += (coordinate) * p.exponent_strides[dimension]; \
    output_index[i] += (coordinate) * p.output_strides[dimension];

void main() {
    if (beyond_items()) return;
    T_MATH x[MOST_ITEMS][LANES];
    EXPONENT_BITS exponents[MOST_ITEMS][LANES];
    uint output_index[MOST_ITEMS];
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        uint x_index = 0, exponent_index = 0;
        output_index[i] = 0;
        LOCATE(item_number(i))
        lanes[i] = lanes_here();
        if (LANES == 1 || lanes[i] == LANES) {
            LOAD_LANES(T, x[i], X, x, X_MODE, x_index, p.x_step)
        } else {
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < lanes[i]) x[i][j] = T_MATH(ELEMENT(T, X, x, x_index + j * p.x_step));
        }
        [[unroll]] for (uint j = 0; j < LANES; ++j) {
            if (j > 0 && EXPONENT_MODE == MODE_BROADCAST) exponents[i][j] = exponents[i][0];
            else if (j < lanes[i]) exponents[i][j] = exponent_bits(exponent_index + j * p.exponent_step);
        }
    }
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        if (!has_item(i)) continue;
        U_MATH y[LANES];
        [[unroll]] for (int j = 0; j < LANES; ++j) {
            const T_MATH base = HAS_SCALE_BIAS == 0u ? x[i][j] : scale_bias(x[i][j], REAL_OF(p.scale), REAL_OF(p.bias));
            y[j] = power_of(base, exponents[i][j]);
        }
        if (LANES == 1 || lanes[i] == LANES) {
            STORE_LANES(U, OUTPUT, output, OUTPUT_MODE, output_index[i], p.output_step, y)
        } else {
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < lanes[i]) ELEMENT(U, OUTPUT, output, output_index[i] + j * p.output_step) = U(y[j]);
        }
    }
}
