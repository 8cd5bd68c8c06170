// What the batch_gradient_* kernels share: where rows lie, and what is made of their units.
//
//   c              = 1 / sqrt(variance + epsilon)
//   scale gradient = c * sum of dy * (x - mean)
//   bias gradient  = sum of dy
//   dx             = scale * c * dy                                                   TRAINING 0: the statistics were given
//   dx             = scale * c * (dy - mean of dy - (x - mean) * c * c * mean of dy * (x - mean))     TRAINING 1: were x's own
//
// A row is the set of elements that share a mean: one index into the kept dimensions, all of the summed ones. Elements of a
// row are numbered with the last summed dimension fastest, and move in units:
//   WORDS 1  a unit is a 16-byte word of consecutive elements; rows, and runs within them, start at whole words
//   WORDS 0  a unit is one element, anywhere
// The elements of a word belong to one row, or with ACROSS (a macro of the kernel) each to a row of its own: then `row`
// below is the first of UNIT_ROWS neighbouring rows, and a unit has one element of each.
// Steps of x, dy and dx are in units; those of the other tensors in elements.
//
// Bindings: x, dy, mean, variance, scale read; dx, scale_gradient, bias_gradient written.
// Constants: ROW_RANK, dimensions of x within a row, after merging; TRAINING; with ACROSS also GIVEN_WORDS, 1 where mean,
//   variance and scale of neighbouring rows lie in whole words.
// Parameters: rows, in units; row_units, in a row; row_elements, too; epsilon; kept_sizes, kept_rank and row_sizes, and what
//   divides by them; steps of each tensor; and from one of UNIT_ROWS neighbours to the next, neighbour_*.

#ifndef DMLVK_BATCH_GRADIENT_GLSL
#define DMLVK_BATCH_GRADIENT_GLSL

#include "dtype.glsl"
#include "tensor.glsl"

#if WORDS
#define UNIT uvec4
#define WIDTH T_PER_WORD
#define UNIT_BYTES WORD_BYTES
#define BUFFER_UNIT uvec4
#else
#define UNIT float
#define WIDTH 1
#define UNIT_BYTES T_BYTES
#define BUFFER_UNIT T
#endif

// Elements of a row in a unit, rows in a unit, and the row of value i of a unit.
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
layout(set = 0, binding = BINDING_DY, std430) readonly buffer DY { BUFFER_UNIT dy_units[]; };
layout(set = 0, binding = BINDING_DX, std430) writeonly buffer DX { BUFFER_UNIT dx_units[]; };
layout(set = 0, binding = BINDING_MEAN, std430) readonly buffer Mean { T mean_elements[]; };
layout(set = 0, binding = BINDING_VARIANCE, std430) readonly buffer Variance { T variance_elements[]; };
layout(set = 0, binding = BINDING_SCALE, std430) readonly buffer Scale { T scale_elements[]; };
#if WORDS && defined(ACROSS)
layout(set = 0, binding = BINDING_MEAN, std430) readonly buffer MeanWords { uvec4 mean_words[]; };
layout(set = 0, binding = BINDING_VARIANCE, std430) readonly buffer VarianceWords { uvec4 variance_words[]; };
layout(set = 0, binding = BINDING_SCALE, std430) readonly buffer ScaleWords { uvec4 scale_words[]; };
#endif
layout(set = 0, binding = BINDING_SCALE_GRADIENT, std430) writeonly buffer ScaleGradient { T scale_gradient_elements[]; };
layout(set = 0, binding = BINDING_BIAS_GRADIENT, std430) writeonly buffer BiasGradient { T bias_gradient_elements[]; };

// Where a row starts in x, dy and dx.
uvec3 row_start(uint row) {
    uvec3 start = uvec3(BYTE_OFFSET_X, BYTE_OFFSET_DY, BYTE_OFFSET_DX) / UNIT_BYTES;
#define ADD_KEPT(dimension, coordinate) \
    start += (coordinate) * uvec3(p.kept_x[dimension], p.kept_dy[dimension], p.kept_dx[dimension]);
    FOR_EACH_COORDINATE_FAST(row, p.kept_rank, p.kept_sizes, p.kept_divisors, ADD_KEPT)
    return start;
}

// Where a unit of the row lies in x, dy and dx.
uvec3 unit_at(uvec3 start, uint unit) {
    uvec3 at = start;
#define ADD_UNIT(dimension, coordinate) \
    at += (coordinate) * uvec3(p.row_x[dimension], p.row_dy[dimension], p.row_dx[dimension]);
    FOR_EACH_COORDINATE_FAST(unit, ROW_RANK, p.row_sizes, p.row_divisors, ADD_UNIT)
    return at;
}

void unpack_unit(UNIT unit, out float values[WIDTH]) {
#if WORDS
    unpack_word(unit, values);
#else
    values[0] = unit;
#endif
}

// The numbers that are known of a row beforehand.
struct Given {
    float mean;
    float reciprocal; // c
    float scale;
};

uvec3 given_at(uint row) {
    uvec3 at = uvec3(BYTE_OFFSET_MEAN, BYTE_OFFSET_VARIANCE, BYTE_OFFSET_SCALE) / T_BYTES;
#define ADD_GIVEN(dimension, coordinate) \
    at += (coordinate) * uvec3(p.kept_mean[dimension], p.kept_variance[dimension], p.kept_scale[dimension]);
    FOR_EACH_COORDINATE_FAST(row, p.kept_rank, p.kept_sizes, p.kept_divisors, ADD_GIVEN)
    return at;
}

float reciprocal_deviation(float variance) { return 1.0 / sqrt(variance + p.epsilon); }

// Of the row that is `neighbour` rows on.
Given given_of(uint row, uint neighbour) {
    const uvec3 at = given_at(row) + neighbour * uvec3(p.neighbour_mean, p.neighbour_variance, p.neighbour_scale);
    const float reciprocal = reciprocal_deviation(float(variance_elements[at.y]));
    return Given(float(mean_elements[at.x]), reciprocal, float(scale_elements[at.z]));
}

Given[UNIT_ROWS] given_of_unit(uint row) {
    Given given[UNIT_ROWS];
#if WORDS && defined(ACROSS)
    if (GIVEN_WORDS != 0) {
        const uvec3 at = given_at(row) / T_PER_WORD;
        float means[WIDTH], variances[WIDTH], scales[WIDTH];
        unpack_word(mean_words[at.x], means);
        unpack_word(variance_words[at.y], variances);
        unpack_word(scale_words[at.z], scales);
        [[unroll]] for (int j = 0; j < UNIT_ROWS; ++j)
            given[j] = Given(means[j], reciprocal_deviation(variances[j]), scales[j]);
        return given;
    }
#endif
    [[unroll]] for (int j = 0; j < UNIT_ROWS; ++j) given[j] = given_of(row, j);
    return given;
}

// The sums of a row are (of dy, of dy * (x - mean)).
void add_unit(UNIT x, UNIT dy, Given given[UNIT_ROWS], inout vec2 sums[UNIT_ROWS]) {
    float values[WIDTH], gradients[WIDTH];
    unpack_unit(x, values);
    unpack_unit(dy, gradients);
    [[unroll]] for (int i = 0; i < WIDTH; ++i)
        sums[ROW_OF(i)] += vec2(gradients[i], gradients[i] * (values[i] - given[ROW_OF(i)].mean));
}

void store_sums(uint row, uint neighbour, Given given, vec2 sums) {
    uvec2 at = uvec2(BYTE_OFFSET_SCALE_GRADIENT, BYTE_OFFSET_BIAS_GRADIENT) / T_BYTES;
    at += neighbour * uvec2(p.neighbour_scale_gradient, p.neighbour_bias_gradient);
#define ADD_SUMS(dimension, coordinate) \
    at += (coordinate) * uvec2(p.kept_scale_gradient[dimension], p.kept_bias_gradient[dimension]);
    FOR_EACH_COORDINATE_FAST(row, p.kept_rank, p.kept_sizes, p.kept_divisors, ADD_SUMS)
    scale_gradient_elements[at.x] = T(sums.y * given.reciprocal);
    bias_gradient_elements[at.y] = T(sums.x);
}

// dx = ((dy - offset) - (x - mean) * slope) * factor
struct Line {
    float mean;
    float offset;
    float slope;
    float factor;
};

Line line_of(Given given, vec2 sums) {
    const vec2 means = TRAINING != 0 ? sums / float(p.row_elements) : vec2(0);
    return Line(given.mean, means.x, means.y * given.reciprocal * given.reciprocal, given.scale * given.reciprocal);
}

void store_gradient(uint at, UNIT x, UNIT dy, Line lines[UNIT_ROWS]) {
    float values[WIDTH], gradients[WIDTH];
    unpack_unit(x, values);
    unpack_unit(dy, gradients);
    [[unroll]] for (int i = 0; i < WIDTH; ++i) {
        const Line line = lines[ROW_OF(i)];
        float gradient = gradients[i];
        if (TRAINING != 0) gradient = (gradient - line.offset) - (values[i] - line.mean) * line.slope;
        gradients[i] = gradient * line.factor;
    }
#if WORDS
    dx_units[at] = pack_word(gradients);
#else
    dx_units[at] = T(gradients[0]);
#endif
}

#endif
