// Batch normalization with given statistics, element for element:
//
//   y = activate(scale * (x - mean) / sqrt(variance + epsilon) + bias)
//
// Bindings: x, mean, variance, scale, bias read, y written; one joint index space of `count` units, strides a tensor.
//   WORDS 1  a unit is a 16-byte word of x and y, whose last dimension is contiguous; 0: one element
// `sizes` counts units; the steps of a tensor lead from unit to unit, in units for x and y and in elements for the
// others, and `element_steps` from element to element of a unit in mean, variance, scale and bias.
// Constants: RANK (dimensions after merging), SHARED_STATISTICS (1: a unit's elements share the other four tensors'
// values: their last stride is 0, or a unit is an element), UNITS (units that an invocation handles, one
// workgroup apart), ACTIVATION. Chosen for all of BatchNormalization.

#include "activation.glsl"
#include "dtype.glsl"
#include "tensor.glsl"

#if WORDS
#define UNIT_ELEMENTS T_PER_WORD
#define UNIT_BYTES 16
layout(set = 0, binding = BINDING_X, std430) readonly buffer X { uvec4 x_units[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { uvec4 y_units[]; };
#else
#define UNIT_ELEMENTS 1
#define UNIT_BYTES T_BYTES
layout(set = 0, binding = BINDING_X, std430) readonly buffer X { T x_units[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { T y_units[]; };
#endif
layout(set = 0, binding = BINDING_MEAN, std430) readonly buffer Mean { T mean_elements[]; };
layout(set = 0, binding = BINDING_VARIANCE, std430) readonly buffer Variance { T variance_elements[]; };
layout(set = 0, binding = BINDING_SCALE, std430) readonly buffer Scale { T scale_elements[]; };
layout(set = 0, binding = BINDING_BIAS, std430) readonly buffer Bias { T bias_elements[]; };

// mean, variance, scale, bias: where in their tensors, and their values.
vec4 values_at(uvec4 at) {
    return vec4(float(mean_elements[at.x]), float(variance_elements[at.y]), float(scale_elements[at.z]),
                float(bias_elements[at.w]));
}

void normalize_unit(uint unit) {
    uvec2 data = uvec2(BYTE_OFFSET_X, BYTE_OFFSET_Y) / UNIT_BYTES;
    uvec4 side = uvec4(BYTE_OFFSET_MEAN, BYTE_OFFSET_VARIANCE, BYTE_OFFSET_SCALE, BYTE_OFFSET_BIAS) / T_BYTES;
#define ADD_STEPS(dimension, coordinate)                                                                       \
    data += (coordinate) * uvec2(p.x_steps[dimension], p.y_steps[dimension]);                                  \
    side += (coordinate) * uvec4(p.mean_steps[dimension], p.variance_steps[dimension], p.scale_steps[dimension], \
                                 p.bias_steps[dimension]);
    FOR_EACH_COORDINATE(unit, RANK, p.sizes, ADD_STEPS)

    float values[UNIT_ELEMENTS];
#if WORDS
    unpack_word(x_units[data.x], values);
#else
    values[0] = float(x_units[data.x]);
#endif
    const uvec4 step = uvec4(p.element_steps[0], p.element_steps[1], p.element_steps[2], p.element_steps[3]);
    vec4 given = values_at(side);
    float deviation = sqrt(given.y + p.epsilon);
    [[unroll]] for (int i = 0; i < UNIT_ELEMENTS; ++i) {
        if (SHARED_STATISTICS == 0 && i > 0) {
            given = values_at(side + i * step);
            deviation = sqrt(given.y + p.epsilon);
        }
        const float value = given.z * ((values[i] - given.x) / deviation) + given.w;
        values[i] = activate(ACTIVATION, value, p.activation_param0, p.activation_param1);
    }
#if WORDS
    y_units[data.y] = pack_word(values);
#else
    y_units[data.y] = T(values[0]);
#endif
}

void main() {
    const uint first = linear_workgroup() * LOCAL_SIZE_X * UNITS + gl_LocalInvocationID.x;
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uint unit = first + i * LOCAL_SIZE_X;
        if (unit < p.count) normalize_unit(unit);
    }
}
