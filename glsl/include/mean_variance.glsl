// What the mean_variance_* kernels share: where rows lie, how their units are loaded, scaled and stored.
//
//   y = activate(scale * (x - mean) / sqrt(variance + epsilon) + bias + add)
//
// A row is the set of elements that share a mean: one index into the kept dimensions, all of the reduced ones. Elements
// of a row are numbered with the last reduced dimension fastest, and move in units:
//   WORDS 1  a unit is a 16-byte word of consecutive elements; rows, and runs within them, start at whole words
//   WORDS 0  a unit is one element, anywhere
// The elements of a word belong to one row, or with ACROSS (a macro of the kernel) each to a row of its own: then `row`
// below is the first of UNIT_ROWS neighbouring rows, and a unit has one element of each.
// Steps of x, add and y are in units; those of the other tensors in elements.
//
// Constants:
//   ROW_RANK              dimensions of x and y within a row, after merging
//   HAS_SCALE, HAS_BIAS, HAS_ADD   whether the tensors are there (an absent one has some other buffer bound, not read)
//   SIDE_SHARED           consecutive elements of a row that share scale and bias: 1, a whole unit, or 0 for the row
//   SIDE_WORDS            1: scale and bias lie consecutively along the row, from a whole word on, and load as words
//   USE_MEAN              0: nothing is subtracted, and the variance is the mean of the squares
//   USE_VARIANCE          0 leaves out the division
//   HAS_STATISTICS        1: mean and variance of each row are outputs (bound to y and left alone where not)
//   ACTIVATION            as in activation.glsl

#ifndef DMLVK_MEAN_VARIANCE_GLSL
#define DMLVK_MEAN_VARIANCE_GLSL

#include "accumulate.glsl"
#include "activation.glsl"
#include "dtype.glsl"
#include "tensor.glsl"

#if WORDS
#define UNIT uvec4
#define WIDTH T_PER_WORD
#define UNIT_BYTES WORD_BYTES
#define ZERO_UNIT uvec4(0)
#define BUFFER_UNIT uvec4
#else
#define UNIT float
#define WIDTH 1
#define UNIT_BYTES T_BYTES
#define ZERO_UNIT 0.0
#define BUFFER_UNIT T
#endif

// Elements of a row in a unit, rows in a unit, and the row and the element of value i of a unit.
#ifdef ACROSS
#define UNIT_ELEMENTS 1
#define UNIT_ROWS WIDTH
#define ROW_OF(i) (i)
#else
#define UNIT_ELEMENTS WIDTH
#define UNIT_ROWS 1
#define ROW_OF(i) 0
#endif

layout(set = 0, binding = BINDING_X, std430) readonly buffer X { BUFFER_UNIT x_units[]; };
layout(set = 0, binding = BINDING_ADD, std430) readonly buffer Add { BUFFER_UNIT add_units[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { BUFFER_UNIT y_units[]; };
layout(set = 0, binding = BINDING_SCALE, std430) readonly buffer Scale { T scale_elements[]; };
layout(set = 0, binding = BINDING_BIAS, std430) readonly buffer Bias { T bias_elements[]; };
layout(set = 0, binding = BINDING_SCALE, std430) readonly buffer ScaleWords { uvec4 scale_words[]; };
layout(set = 0, binding = BINDING_BIAS, std430) readonly buffer BiasWords { uvec4 bias_words[]; };
layout(set = 0, binding = BINDING_MEAN, std430) writeonly buffer Mean { T mean_elements[]; };
layout(set = 0, binding = BINDING_VARIANCE, std430) writeonly buffer Variance { T variance_elements[]; };

// Where a row starts: x, y and add in units, scale and bias in elements.
struct Row {
    uint x;
    uint y;
    uint add;
    uint scale;
    uint bias;
};

Row row_start(uint row) {
    Row start = Row(BYTE_OFFSET_X / UNIT_BYTES, BYTE_OFFSET_Y / UNIT_BYTES, BYTE_OFFSET_ADD / UNIT_BYTES, 0, 0);
#define ADD_KEPT(dimension, coordinate)                        \
    start.x += (coordinate) * p.kept_x[dimension];             \
    start.y += (coordinate) * p.kept_y[dimension];             \
    start.add += (coordinate) * p.kept_add[dimension];         \
    start.scale += (coordinate) * p.kept_scale[dimension];     \
    start.bias += (coordinate) * p.kept_bias[dimension];
    FOR_EACH_COORDINATE_FAST(row, p.kept_rank, p.kept_sizes, p.kept_divisors, ADD_KEPT)
    return start;
}

// Where a unit of the row lies in x, y and add.
uvec3 unit_at(Row row, uint unit) {
    uvec3 at = uvec3(row.x, row.y, row.add);
#define ADD_UNIT(dimension, coordinate) \
    at += (coordinate) * uvec3(p.row_x[dimension], p.row_y[dimension], p.row_add[dimension]);
    FOR_EACH_COORDINATE_FAST(unit, ROW_RANK, p.row_sizes, p.row_divisors, ADD_UNIT)
    return at;
}

UNIT load_unit(Row row, uint unit) { return UNIT(x_units[unit_at(row, unit).x]); }

void unpack_unit(UNIT unit, out float values[WIDTH]) {
#if WORDS
    unpack_word(unit, values);
#else
    values[0] = unit;
#endif
}

// Scale and bias of an element of the row that is `neighbour` rows on: (1, 0) where they are absent.
vec2 side_values(Row row, uint neighbour, uint element) {
    uvec2 at = uvec2(BYTE_OFFSET_SCALE, BYTE_OFFSET_BIAS) / T_BYTES + uvec2(row.scale, row.bias);
    at += neighbour * uvec2(p.neighbour_scale, p.neighbour_bias);
    if (SIDE_SHARED != 0) {
#define ADD_SIDE(dimension, coordinate) at += (coordinate) * uvec2(p.side_scale[dimension], p.side_bias[dimension]);
        FOR_EACH_COORDINATE_FAST(element, p.side_rank, p.side_sizes, p.side_divisors, ADD_SIDE)
    }
    vec2 values = vec2(1, 0);
    if (HAS_SCALE != 0) values.x = float(scale_elements[at.x]);
    if (HAS_BIAS != 0) values.y = float(bias_elements[at.y]);
    return values;
}

// The numbers that are computed once a row: scale and bias, where the whole row shares them, and later
// 1 / sqrt(variance + epsilon), or 1.
struct Factors {
    vec2 side[UNIT_ROWS];
    float reciprocal[UNIT_ROWS];
};

void load_side(Row row, inout Factors factors) {
    if (SIDE_SHARED == 0)
        [[unroll]] for (int j = 0; j < UNIT_ROWS; ++j) factors.side[j] = side_values(row, j, 0);
}

void unit_side_values(Row row, uint unit, Factors factors, out float scale[WIDTH], out float bias[WIDTH]) {
#if WORDS
    if (SIDE_WORDS != 0) {
        const uvec2 at = (uvec2(BYTE_OFFSET_SCALE, BYTE_OFFSET_BIAS) / T_BYTES + uvec2(row.scale, row.bias)) / T_PER_WORD + unit;
        [[unroll]] for (int i = 0; i < WIDTH; ++i) {
            scale[i] = 1.0;
            bias[i] = 0.0;
        }
        if (HAS_SCALE != 0) unpack_word(scale_words[at.x], scale);
        if (HAS_BIAS != 0) unpack_word(bias_words[at.y], bias);
        return;
    }
#endif
    vec2 values;
    [[unroll]] for (int i = 0; i < WIDTH; ++i) {
        if (SIDE_SHARED == 0)
            values = factors.side[ROW_OF(i)];
        else if (i == 0 || SIDE_SHARED == 1)
            values = side_values(row, ROW_OF(i), unit * UNIT_ELEMENTS + (i - ROW_OF(i)));
        scale[i] = values.x;
        bias[i] = values.y;
    }
}

// Statistics of elements from a first mean (0 without USE_MEAN), and the sums of their deviations from it and of the
// squares of these.
Statistics statistics_of(float count, float mean, vec2 deviations) {
    return USE_MEAN != 0 ? centred(count, mean, deviations) : Statistics(count, 0.0, 0.0, deviations.y);
}

float reciprocal_deviation(Statistics statistics) {
    return USE_VARIANCE != 0 ? 1.0 / sqrt(statistics.squares / statistics.count + p.epsilon) : 1.0;
}

// Writes a row's mean and variance, if they are outputs. `row` counts single rows, also with ACROSS.
void store_statistics(uint row, Statistics statistics) {
    if (HAS_STATISTICS == 0) return;
    uvec2 at = uvec2(BYTE_OFFSET_MEAN, BYTE_OFFSET_VARIANCE) / T_BYTES + row % UNIT_ROWS * uvec2(p.neighbour_mean, p.neighbour_variance);
#define ADD_STATISTICS(dimension, coordinate) at += (coordinate) * uvec2(p.kept_mean[dimension], p.kept_variance[dimension]);
    FOR_EACH_COORDINATE_FAST(row / UNIT_ROWS, p.kept_rank, p.kept_sizes, p.kept_divisors, ADD_STATISTICS)
    mean_elements[at.x] = T(statistics.mean + statistics.remainder);
    variance_elements[at.y] = T(statistics.squares / statistics.count);
}

// Normalizes a unit of the row, or of UNIT_ROWS rows, and writes it.
void store_normalized(Row row, uint unit, UNIT x, Statistics statistics[UNIT_ROWS], Factors factors) {
    float values[WIDTH], scale[WIDTH], bias[WIDTH], add[WIDTH];
    unpack_unit(x, values);
    const uvec3 at = unit_at(row, unit);
    if (HAS_ADD != 0) unpack_unit(UNIT(add_units[at.z]), add);
    unit_side_values(row, unit, factors, scale, bias);
    [[unroll]] for (int i = 0; i < WIDTH; ++i) {
        float value = values[i];
        if (USE_MEAN != 0) value = (value - statistics[ROW_OF(i)].mean) - statistics[ROW_OF(i)].remainder;
        value *= factors.reciprocal[ROW_OF(i)];
        if (HAS_SCALE != 0) value *= scale[i];
        if (HAS_BIAS != 0) value += bias[i];
        if (HAS_ADD != 0) value += add[i];
        values[i] = activate(ACTIVATION, value, p.activation_param0, p.activation_param1);
    }
#if WORDS
    y_units[at.y] = pack_word(values);
#else
    y_units[at.y] = T(values[0]);
#endif
}

#endif
