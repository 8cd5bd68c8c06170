// What every kernel for integer products shares: which rows and columns meet, and what becomes of a finished sum.
//
// A matrix product is a convolution with a window of one tap, so both are one problem: for each of the groups (the batch of a
// matrix product), rows of x (its M; the pixels of a convolution: batch entry, H and W) meet columns of w (its N; the
// output channels of a group):
//   sum(row, column) = sum over taps t and channels c of (x[row under t, c] - x's zero point) * (w[column, c, t] - w's)
// where a position outside of the input counts as x's zero point. By the type T of the output:
//   INT32    y = sum
//   UINT8    y = clamp(rint((sum + bias) * (x's scale * w's scale / output's)) + output's zero point)   requantizer.glsl
//   FLOAT32, FLOAT16    y = sum * (x's scale * w's scale) + bias
//
// Variants: T; U, an unsigned type for the bits of x, w and their zero points; SUM, the type in which is added: int, which is
// exact modulo 2^32 and for 8 bits, or float, where the output is.
// Constants: X_SIGNED, W_SIGNED, Y_SIGNED; HAS_X_ZERO_POINT, HAS_W_ZERO_POINT, HAS_BIAS, HAS_OUTPUT_ZERO_POINT: the
// buffers of absent ones are not read, nor are scales that T has no use for. ROW_PARAMETERS: whether scales of x or the
// output, or the output's zero point, differ from row to row.
// Parameters: strides in elements, of x over (outer group, inner group, batch entry, channel, H, W), of y likewise with
// columns for channels, of w over (outer group, inner group, column, channel, H, W); of scales and zero points over rows, or
// over (inner group, column); of the bias over (outer group, inner group, row, column).

#ifndef DMLVK_INTEGER_GLSL
#define DMLVK_INTEGER_GLSL

#include "requantizer.glsl"

#if T_IS_FLOAT
#define SCALE_TYPE T
#define SCALE_BYTES T_BYTES
#define BIAS_TYPE T
#define BIAS_MATH float
#else
#define SCALE_TYPE float
#define SCALE_BYTES 4
#define BIAS_TYPE int
#define BIAS_MATH int
#endif

layout(set = 0, binding = BINDING_X_SCALE, std430) readonly buffer XScale { SCALE_TYPE x_scales[]; };
layout(set = 0, binding = BINDING_X_ZERO_POINT, std430) readonly buffer XZeroPoint { U x_zero_points[]; };
layout(set = 0, binding = BINDING_W_SCALE, std430) readonly buffer WScale { SCALE_TYPE w_scales[]; };
layout(set = 0, binding = BINDING_W_ZERO_POINT, std430) readonly buffer WZeroPoint { U w_zero_points[]; };
layout(set = 0, binding = BINDING_BIAS, std430) readonly buffer Bias { BIAS_TYPE biases[]; };
layout(set = 0, binding = BINDING_OUTPUT_SCALE, std430) readonly buffer OutputScale { SCALE_TYPE output_scales[]; };
layout(set = 0, binding = BINDING_OUTPUT_ZERO_POINT, std430) readonly buffer OutputZeroPoint { T output_zero_points[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { T y[]; };

// A group's place in the strides.
struct Group {
    uint outer, inner;
};

Group group_of(uint number) {
    const uint outer = number / p.inner_groups;
    return Group(outer, number - outer * p.inner_groups);
}

// A row's batch entry and its position in the output.
uvec3 pixel_of(uint row) {
    uint rest = row / p.output_sizes[1];
    const uint column = row - rest * p.output_sizes[1];
    const uint batch = rest / p.output_sizes[0];
    return uvec3(batch, rest - batch * p.output_sizes[0], column);
}

// Where a pixel meets the input under a tap; false where that is outside of it.
bool source_position(uvec3 pixel, uvec2 tap, out uvec2 position) {
    position = uvec2(pixel.y * p.steps[0] + tap.x * p.dilations[0] - p.starts[0],
                     pixel.z * p.steps[1] + tap.y * p.dilations[1] - p.starts[1]);
    return position.x < p.input_sizes[0] && position.y < p.input_sizes[1];
}

uint x_zero_point(uint row) {
    return HAS_X_ZERO_POINT != 0 ? uint(x_zero_points[BYTE_OFFSET_X_ZERO_POINT / U_BYTES + row * p.x_zero_point_stride]) : 0u;
}

uint w_zero_point(Group group, uint column) {
    const uint element = group.inner * p.w_zero_point_strides[0] + column * p.w_zero_point_strides[1];
    return HAS_W_ZERO_POINT != 0 ? uint(w_zero_points[BYTE_OFFSET_W_ZERO_POINT / U_BYTES + element]) : 0u;
}

// The number of 8 or 16 bits.
int number(uint bits, uint is_signed) { return is_signed != 0 ? bitfieldExtract(int(bits), 0, 8 * U_BYTES) : int(bits); }

float scale_of_product(Group group, uint row, uint column) {
    const uint element = group.inner * p.w_scale_strides[0] + column * p.w_scale_strides[1];
    precise float product = float(x_scales[BYTE_OFFSET_X_SCALE / SCALE_BYTES + row * p.x_scale_stride]) *
        float(w_scales[BYTE_OFFSET_W_SCALE / SCALE_BYTES + element]);
    return product;
}

BIAS_MATH bias_of(Group group, uint row, uint column) {
    const uint element = group.outer * p.bias_strides[0] + group.inner * p.bias_strides[1] + row * p.bias_strides[2] +
        column * p.bias_strides[3];
    return BIAS_MATH(biases[BYTE_OFFSET_BIAS / SCALE_BYTES + element]);
}

// The factor of a sum, and the output's zero point. They depend on the column alone where ROW_PARAMETERS is 0.
struct Finish {
    float factor;
    int zero_point;
};

Finish finish_of(Group group, uint row, uint column) {
#if T_IS_FLOAT
    return Finish(scale_of_product(group, row, column), 0);
#elif T_BYTES == 1
    const float scale = output_scales[BYTE_OFFSET_OUTPUT_SCALE / 4 + row * p.output_scale_stride];
    int zero_point = 0;
    if (HAS_OUTPUT_ZERO_POINT != 0) {
        const uint element = BYTE_OFFSET_OUTPUT_ZERO_POINT + row * p.output_zero_point_stride;
        zero_point = number(uint(output_zero_points[element]), Y_SIGNED);
    }
    return Finish(exact_quotient(scale_of_product(group, row, column), scale), zero_point);
#else
    return Finish(1.0, 0);
#endif
}

// The number that is stored for a finished sum.
T_MATH finished(Group group, uint row, uint column, SUM sum, Finish finish) {
#if T_IS_FLOAT
    precise float value = float(sum) * finish.factor;
    if (HAS_BIAS != 0) value += bias_of(group, row, column);
    return value;
#elif T_BYTES == 1
    if (HAS_BIAS != 0) sum += bias_of(group, row, column);
    const int least = Y_SIGNED != 0 ? -128 : 0;
    return uint(requantize(sum, finish.factor, finish.zero_point, least, least + 255));
#else
    return sum;
#endif
}

uint y_element(Group group, uvec3 pixel, uint column) {
    return group.outer * p.y_strides[0] + group.inner * p.y_strides[1] + pixel.x * p.y_strides[2] + column * p.y_strides[3] +
        pixel.y * p.y_strides[4] + pixel.z * p.y_strides[5];
}

void store(Group group, uint row, uvec3 pixel, uint column, SUM sum, Finish finish) {
    y[BYTE_OFFSET_Y / T_BYTES + y_element(group, pixel, column)] = T(finished(group, row, column, sum, finish));
}

#endif
