// y = clamp(rint(((a - a's zero point) * a's scale + (b - b's zero point) * b's scale) / output's scale) + output's zero point).
//
// Both products, their sum and the quotient are rounded to float32 (include/quantizer.glsl).
//
// Bindings: a, b, output; scales and zero points of one element each (any bytes where there is no zero point).
// Variants: T and U, UINT8 for the bits of all integers; LANES.
// Constants: A_SIGNED 0, B_SIGNED 0, OUTPUT_SIGNED 0, HAS_A_ZERO_POINT 1, HAS_B_ZERO_POINT 1, HAS_OUTPUT_ZERO_POINT 1; those
//   of include/binary_items.glsl; LOCAL_SIZE_X.
// Parameters: those of include/binary_items.glsl.
// Rules: "groups" with LANES > 1, "elements" with 1.

#include "quantizer.glsl"

#define ONE_FLOAT(NAME, name) \
    layout(set = 0, binding = BINDING_##NAME, std430) readonly buffer NAME##Float { float name##_elements[]; };
#define ONE_INTEGER(NAME, name) \
    layout(set = 0, binding = BINDING_##NAME, std430) readonly buffer NAME##Integer { T name##_elements[]; };

ONE_FLOAT(A_SCALE, a_scale)
ONE_INTEGER(A_ZERO_POINT, a_zero_point)
ONE_FLOAT(B_SCALE, b_scale)
ONE_INTEGER(B_ZERO_POINT, b_zero_point)
ONE_FLOAT(OUTPUT_SCALE, output_scale)
ONE_INTEGER(OUTPUT_ZERO_POINT, output_zero_point)

int number(uint bits, uint is_signed) { return is_signed != 0u ? bitfieldExtract(int(bits), 0, 8) : int(bits); }

#define SCALE(NAME, name) name##_scale_elements[BYTE_OFFSET_##NAME##_SCALE / 4]
#define ZERO_POINT(NAME, name)                                                                                        \
    (HAS_##NAME##_ZERO_POINT != 0u                                                                                    \
         ? number(uint(name##_zero_point_elements[BYTE_OFFSET_##NAME##_ZERO_POINT]), NAME##_SIGNED)                   \
         : 0)

// Read once, before main.
float a_scale = SCALE(A, a), b_scale = SCALE(B, b);
int a_zero_point = ZERO_POINT(A, a), b_zero_point = ZERO_POINT(B, b);
int least = OUTPUT_SIGNED != 0u ? -128 : 0;
Quantizer output_quantizer = quantizer(SCALE(OUTPUT, output), ZERO_POINT(OUTPUT, output), least, least + 255);

uint quantized_sum(uint a, uint b) {
    precise float left = float(number(a, A_SIGNED) - a_zero_point) * a_scale;
    precise float right = float(number(b, B_SIGNED) - b_zero_point) * b_scale;
    precise float sum = left + right;
    return uint(quantize(output_quantizer, sum));
}

#define BINARY(a, b) quantized_sum(a, b)
#include "binary_items.glsl"
