// The average of windows of a quantized tensor, one invocation an output.
//
//   y = clamp(rint((sum * input scale) / (divisor * output scale)) + output zero point), where sum is that of x - input zero
//   point over the window's elements inside the input; see spec/ops/pooling.py
//
// The sum is an exact integer, of 64 bits; it, both products and the quotient are rounded to float32 (include/quantizer.glsl).
//
// Bindings: input, output; scales and zero points of one element or one a channel (any bytes where there is no zero point).
// Variants: T, UINT8 for the bits of both types.
// Constants: INPUT_SIGNED, OUTPUT_SIGNED, HAS_INPUT_ZERO_POINT, HAS_OUTPUT_ZERO_POINT; TAPS, elements of a line that are read
// together; those of include/pooling_positions.glsl.
// Grid: x folded into y, over all outputs.

#include "pooling_positions.glsl"
#include "quantizer.glsl"
#include "wide.glsl"

layout(set = 0, binding = BINDING_INPUT, std430) readonly buffer Input { T x[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer Output { T y[]; };
layout(set = 0, binding = BINDING_INPUT_SCALE, std430) readonly buffer InputScale { float input_scales[]; };
layout(set = 0, binding = BINDING_INPUT_ZERO_POINT, std430) readonly buffer InputZeroPoint { T input_zero_points[]; };
layout(set = 0, binding = BINDING_OUTPUT_SCALE, std430) readonly buffer OutputScale { float output_scales[]; };
layout(set = 0, binding = BINDING_OUTPUT_ZERO_POINT, std430) readonly buffer OutputZeroPoint { T output_zero_points[]; };

int number(uint bits, uint is_signed) { return is_signed == 1 ? bitfieldExtract(int(bits), 0, 8) : int(bits); }

void main() {
    if (beyond(p.outputs)) return;
    const Position at = position_of(linear_invocation());
    const Window w = window_of(at.at);
    const uint plane = BYTE_OFFSET_INPUT + element_of(Position(at.n, at.c, w.first), p.input_strides);
    const uvec3 tap_strides = uvec3(p.input_strides[2] * p.dilations[0], p.input_strides[3] * p.dilations[1],
                                    p.input_strides[4] * p.dilations[2]);
    const uint channel = at.c % p.channels; // N may continue C
    const int zero_point = HAS_INPUT_ZERO_POINT == 1
        ? number(uint(input_zero_points[BYTE_OFFSET_INPUT_ZERO_POINT + channel * p.side_strides[1]]), INPUT_SIGNED)
        : 0;
    uvec2 sum = uvec2(0);
    for (uint d = 0; d < w.count.x; ++d) {
        for (uint h = 0; h < w.count.y; ++h) {
            const uint line = plane + d * tap_strides.x + h * tap_strides.y;
            for (uint v = 0; v < w.count.z; v += TAPS) {
                uint values[TAPS];
                [[unroll]] for (uint t = 0; t < TAPS; ++t)
                    values[t] = uint(x[line + min(v + t, w.count.z - 1) * tap_strides.z]);
                int part = 0;
                [[unroll]] for (uint t = 0; t < TAPS; ++t)
                    part += v + t < w.count.z ? number(values[t], INPUT_SIGNED) - zero_point : 0;
                sum = wide_sum(sum, part);
            }
        }
    }
    const uint zero_bits = HAS_OUTPUT_ZERO_POINT == 1
        ? uint(output_zero_points[BYTE_OFFSET_OUTPUT_ZERO_POINT + channel * p.side_strides[3]])
        : 0;
    const bool counts = w.divisor > 0.0;
    precise float numerator = wide_float(sum) * input_scales[BYTE_OFFSET_INPUT_SCALE / 4 + channel * p.side_strides[0]];
    precise float denominator = w.divisor * output_scales[BYTE_OFFSET_OUTPUT_SCALE / 4 + channel * p.side_strides[2]];
    const int least = OUTPUT_SIGNED == 1 ? -128 : 0;
    const Quantizer q = quantizer(counts ? denominator : 1.0, number(zero_bits, OUTPUT_SIGNED), least, least + 255);
    y[BYTE_OFFSET_OUTPUT + element_of(at, p.output_strides)] = T(quantize(q, counts ? numerator : 0.0));
}
