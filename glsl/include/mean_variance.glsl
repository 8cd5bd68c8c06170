// What the mean_variance_* kernels share: where rows lie, how their units are loaded, scaled and stored.
//
//   y = activate(scale * (x - mean) / sqrt(variance + epsilon) + bias)
//
// A row is the set of elements that share a mean: one index into the kept dimensions, all of the reduced ones. Elements
// of a row are numbered with the last reduced dimension fastest, and move in units:
//   WORDS 1  a unit is a 16-byte word of consecutive elements; rows, and runs within them, start at whole words
//   WORDS 0  a unit is one element, anywhere
// Steps of x and y are in units; those of scale and bias in elements.
//
// Constants:
//   ROW_RUNS              0: x and y have one dimension within a row, 1: as many as the parameters say
//   HAS_SCALE, HAS_BIAS   whether the tensors are there (an absent one has some other buffer bound, which is not read)
//   SIDE_SHARED           consecutive elements of a row that share scale and bias: 1, a whole unit, or 0 for the row
//   SIDE_WORDS            1: scale and bias lie consecutively along the row, from a whole word on, and load as words
//   NORMALIZE_VARIANCE    0 leaves out the division
//   ACTIVATION            as in activation.glsl

#ifndef DMLVK_MEAN_VARIANCE_GLSL
#define DMLVK_MEAN_VARIANCE_GLSL

#include "accumulate.glsl"
#include "activation.glsl"
#include "dtype.glsl"
#include "tensor.glsl"

#if WORDS
#define UNIT uvec4
#define UNIT_ELEMENTS T_PER_WORD
#define UNIT_BYTES 16
#define ZERO_UNIT uvec4(0)
#else
#define UNIT float
#define UNIT_ELEMENTS 1
#define UNIT_BYTES T_BYTES
#define ZERO_UNIT 0.0
#endif

#if WORDS
layout(set = 0, binding = BINDING_X, std430) readonly buffer X { uvec4 x_units[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { uvec4 y_units[]; };
#else
layout(set = 0, binding = BINDING_X, std430) readonly buffer X { T x_units[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { T y_units[]; };
#endif
layout(set = 0, binding = BINDING_SCALE, std430) readonly buffer Scale { T scale_elements[]; };
layout(set = 0, binding = BINDING_BIAS, std430) readonly buffer Bias { T bias_elements[]; };
layout(set = 0, binding = BINDING_SCALE, std430) readonly buffer ScaleWords { uvec4 scale_words[]; };
layout(set = 0, binding = BINDING_BIAS, std430) readonly buffer BiasWords { uvec4 bias_words[]; };

// Where a row starts: x and y in units, scale and bias in elements.
struct Row {
    uint x;
    uint y;
    uint scale;
    uint bias;
};

Row row_start(uint row) {
    Row start = Row(BYTE_OFFSET_X / UNIT_BYTES, BYTE_OFFSET_Y / UNIT_BYTES, 0, 0);
#define ADD_KEPT(dimension, coordinate)                        \
    start.x += (coordinate) * p.kept_x[dimension];             \
    start.y += (coordinate) * p.kept_y[dimension];             \
    start.scale += (coordinate) * p.kept_scale[dimension];     \
    start.bias += (coordinate) * p.kept_bias[dimension];
    FOR_EACH_COORDINATE(row, p.kept_rank, p.kept_sizes, ADD_KEPT)
    return start;
}

// Where a unit of the row lies in x and y.
uvec2 unit_at(Row row, uint unit) {
    uvec2 at = uvec2(row.x, row.y);
#define ADD_UNIT(dimension, coordinate) at += (coordinate) * uvec2(p.row_x[dimension], p.row_y[dimension]);
    if (ROW_RUNS == 0) {
        ADD_UNIT(0, unit)
    } else {
        FOR_EACH_COORDINATE(unit, p.row_rank, p.row_sizes, ADD_UNIT)
    }
    return at;
}

UNIT load_unit(Row row, uint unit) { return UNIT(x_units[unit_at(row, unit).x]); }

void unpack_unit(UNIT unit, out float values[UNIT_ELEMENTS]) {
#if WORDS
    unpack_word(unit, values);
#else
    values[0] = unit;
#endif
}

// Scale and bias of an element of the row: (1, 0) where they are absent.
vec2 side_values(Row row, uint element) {
    uvec2 at = uvec2(BYTE_OFFSET_SCALE, BYTE_OFFSET_BIAS) / T_BYTES + uvec2(row.scale, row.bias);
    if (SIDE_SHARED != 0) {
#define ADD_SIDE(dimension, coordinate) at += (coordinate) * uvec2(p.side_scale[dimension], p.side_bias[dimension]);
        FOR_EACH_COORDINATE(element, p.side_rank, p.side_sizes, ADD_SIDE)
    }
    vec2 values = vec2(1, 0);
    if (HAS_SCALE != 0) values.x = float(scale_elements[at.x]);
    if (HAS_BIAS != 0) values.y = float(bias_elements[at.y]);
    return values;
}

// Scale and bias that a whole row shares, once a row; `unit_side_values` passes them on.
vec2 row_side_values(Row row) { return SIDE_SHARED == 0 ? side_values(row, 0) : vec2(1, 0); }

void unit_side_values(Row row, uint unit, vec2 row_values, out float scale[UNIT_ELEMENTS], out float bias[UNIT_ELEMENTS]) {
#if WORDS
    if (SIDE_WORDS != 0) {
        const uvec2 at = (uvec2(BYTE_OFFSET_SCALE, BYTE_OFFSET_BIAS) / T_BYTES + uvec2(row.scale, row.bias)) / T_PER_WORD + unit;
        [[unroll]] for (int i = 0; i < UNIT_ELEMENTS; ++i) {
            scale[i] = 1.0;
            bias[i] = 0.0;
        }
        if (HAS_SCALE != 0) unpack_word(scale_words[at.x], scale);
        if (HAS_BIAS != 0) unpack_word(bias_words[at.y], bias);
        return;
    }
#endif
    vec2 values = row_values;
    [[unroll]] for (int i = 0; i < UNIT_ELEMENTS; ++i) {
        if (SIDE_SHARED != 0 && (i == 0 || SIDE_SHARED == 1)) values = side_values(row, unit * UNIT_ELEMENTS + i);
        scale[i] = values.x;
        bias[i] = values.y;
    }
}

// 1 / sqrt(variance + epsilon), or 1.
float reciprocal_deviation(Statistics statistics) {
    return NORMALIZE_VARIANCE != 0 ? 1.0 / sqrt(statistics.squares / statistics.count + p.epsilon) : 1.0;
}

// Normalizes a unit of the row and writes it.
void store_normalized(Row row, uint unit, UNIT x, Statistics statistics, float factor, vec2 row_values) {
    float values[UNIT_ELEMENTS], scale[UNIT_ELEMENTS], bias[UNIT_ELEMENTS];
    unpack_unit(x, values);
    unit_side_values(row, unit, row_values, scale, bias);
    [[unroll]] for (int i = 0; i < UNIT_ELEMENTS; ++i) {
        float value = ((values[i] - statistics.mean) - statistics.remainder) * factor;
        if (HAS_SCALE != 0) value *= scale[i];
        if (HAS_BIAS != 0) value += bias[i];
        values[i] = activate(ACTIVATION, value, p.activation_param0, p.activation_param1);
    }
    const uint at = unit_at(row, unit).y;
#if WORDS
    y_units[at] = pack_word(values);
#else
    y_units[at] = T(values[0]);
#endif
}

#endif
