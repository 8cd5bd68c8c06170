// The terms of lines of windows side by side, so that a convolution of few channels has whole words of them.
//
//   lines[n, d, h, o, t * channels + c] = x[n, c, d, h, o * position_step + t * tap_step + position_start], 0 outside
//
// for each output position o along W and each tap t of a line; after the last term come zeros up to a whole word of 8. What is
// left of the convolution has windows of one column, and as many channels as there are terms. A filter is laid out by the same
// kernel: each of its lines has one position, under which all of its taps lie.
//
// Bindings: X, from element p.start on; LINES. Parameters: the sizes of N, D, H, o and the words of a line, and what divides by
// them; the strides of X in {N, C, D, H, W}; its channels; the terms of a line; the width of X; the arithmetic of positions,
// modulo 2^32.
// Constants: LOCAL_SIZE_X (256).
// Grid: linear over words.
//
// Chosen before convolution_cooperative for float16 whose channels do not fill words.

#include "tensor.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer X { T x[]; };
layout(set = 0, binding = BINDING_LINES, std430) writeonly buffer Lines { uvec4 lines[]; };

void main() {
    if (beyond(p.count)) return;
    uint at[5];
#define VISIT(dimension, coordinate) at[dimension] = coordinate;
    FOR_EACH_COORDINATE_FAST(linear_invocation(), 5, p.sizes, p.divisors, VISIT)
    const uint first = BYTE_OFFSET_X / T_BYTES + p.start + at[0] * p.strides[0] + at[1] * p.strides[2] + at[2] * p.strides[3];
    const uint term = 8 * at[4];
    const uint tap = quotient(term, uvec2(p.channel_divisor[0], p.channel_divisor[1]));
    uint channel = term - tap * p.channels;
    uint column = at[3] * p.position_step + tap * p.tap_step + p.position_start;
    float values[8];
    bool inside[8];
    [[unroll]] for (uint i = 0; i < 8; ++i) {
        inside[i] = term + i < p.terms && column < p.width;
        values[i] = float(x[inside[i] ? first + channel * p.strides[1] + column * p.strides[4] : BYTE_OFFSET_X / T_BYTES]);
        ++channel;
        column += channel == p.channels ? p.tap_step : 0;
        channel = channel == p.channels ? 0 : channel;
    }
    uvec4 word;
    [[unroll]] for (uint i = 0; i < 4; ++i)
        word[i] = packHalf2x16(vec2(inside[2 * i] ? values[2 * i] : 0.0, inside[2 * i + 1] ? values[2 * i + 1] : 0.0));
    lines[BYTE_OFFSET_LINES / 16 + linear_invocation()] = word;
}
