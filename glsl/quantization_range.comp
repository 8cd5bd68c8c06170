// The second of three steps of DynamicQuantizeLinear: from the range of all elements and 0 to the scale and the zero point.
//
//   scale = (largest - least) / 255, or 1 where the range is below 2^-118
//   zero point = clamp(rint(-least / scale) + LEAST, LEAST, LEAST + 255), LEAST the least number of the type
//
// Bindings: output, the scale; zero_point; partials, the accumulators that reduce_rows.comp left (FUNCTION RANGE).
// Variant: T, the accumulators' and the scale's type, FLOAT32; U, UINT8; LANES 1. Constants: SIGNED 0; those of team.glsl:
// TEAM is LOCAL_SIZE_X, and there is one workgroup.
// Parameters: chunks; those of accumulator.glsl.

#define TOGETHER 1
#include "reduction.glsl"
#include "quantizer.glsl"
#include "team.glsl"

LANES_BUFFER(writeonly, U, ZERO_POINT, zero_point)

// A subnormal number counts as 0, by its bits: on every device.
float end_of(float x) { return (floatBitsToUint(x) & 0x7F800000u) == 0u ? 0.0 : x; }

// range / 255 rounded to nearest, by integers: a device's division may be off. The quotient is normal, for the range is not
// below 2^-118. Infinity and NaN stay.
float scale_of(float range) {
    const uint bits = floatBitsToUint(range), exponent = bits >> 23;
    if (exponent >= 255u) return range;
    if (exponent < 127u - 118u) return 1.0;
    // 256 m / 255 = m + m / 255 has 24 or 25 bits before the point, and half a place never is all that is rounded: 255 is odd,
    // and where it divides m, 256 m / 255 is even.
    const uint mantissa = (bits & 0x007FFFFFu) | 0x00800000u;
    const uint quotient = mantissa + mantissa / 255u, rest = mantissa % 255u;
    if (quotient < 0x01000000u) return uintBitsToFloat(((exponent - 9u) << 23) + quotient + uint(rest >= 128u));
    return uintBitsToFloat(((exponent - 8u) << 23) + (quotient + 1u) / 2u);
}

void main() {
    const uint invocation = workgroup_invocation();
    Accumulator all = empty();
    for (uint chunk = invocation; chunk < p.chunks; chunk += TEAM) all = merged(all, load_partial(chunk));
    all = over_team(all);
    if (invocation != 0u) return;
    const float largest = end_of(from_order_up(bits_order(all.first)));
    const float least = end_of(from_order_down(bits_order(all.second)));
    const float scale = is_nan(largest) ? NOT_A_NUMBER : scale_of(largest - least);
    const int least_integer = SIGNED != 0u ? -128 : 0;
    output_elements[BYTE_OFFSET_OUTPUT / T_BYTES] = scale;
    const int zero_point = quantize(quantizer(scale, least_integer, least_integer, least_integer + 255), -least);
    ELEMENT(U, ZERO_POINT, zero_point, 0) = U(uint(zero_point));
}
