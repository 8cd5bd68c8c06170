// y[i] = start + i * delta, i counting the elements in logical order (FillValueSequence).
//
// Integers wrap modulo 2^bits: 64 bits in two words. Floats are one product and one sum in float32.
//
// Bindings: output. Variants, constants and parameters: include/fill.glsl, where position is i, and
// Constants: ARITHMETIC, the numbers that the output holds.
// Parameters: start, delta: their bits in the output's type.

float number(uint bits) { return ARITHMETIC == ARITHMETIC_FLOAT16 ? unpackHalf2x16(bits).x : uintBitsToFloat(bits); }

uvec2 value_at(uint i, uint source) {
    if (ARITHMETIC == ARITHMETIC_INTEGERS) {
        uint high, low, carry;
        umulExtended(i, p.delta[0], high, low);
        low = uaddCarry(low, p.start[0], carry);
        return uvec2(low, high + i * p.delta[1] + p.start[1] + carry);
    }
    precise const float product = float(i) * number(p.delta[0]); // precise: not contracted to one rounding
    precise const float sum = number(p.start[0]) + product;
    return uvec2(ARITHMETIC == ARITHMETIC_FLOAT16 ? packHalf2x16(vec2(sum, 0.0)) : floatBitsToUint(sum), 0u);
}

#include "fill.glsl"
