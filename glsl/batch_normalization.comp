// Batch normalization with given statistics, element for element:
//
//   y = activate(scale * (x - mean) / sqrt(variance + epsilon) + bias)
//
// Bindings: x, mean, variance, scale, bias, output.
// Variants: T, the data type of all; U, the same; LANES.
// An invocation handles ITEMS items (items.glsl) of x that lie `repeat_step` apart in one dimension, in which the other four
// tensors do not move: what it makes of these, it makes once. Neighbouring invocations take neighbouring items.
// With RUNS, the innermost dimension is two: runs of run_size elements, no fewer than LANES, that share an element of the
// other four tensors, one after the other. The lanes of an item are then in one run or in two.
// Constants: RANK 1, ITEMS 1, RUNS 0, ACTIVATION 0, the modes of each tensor's lanes (lanes.glsl) 0, LOCAL_SIZE_X.
// Parameters: count of invocations; sizes of the index space, the innermost in items, that of the dimension `repeated` divided
//   by ITEMS and rounded up, which is repeat_step (its whole size is repeat_size), and what divides by them; inner_size, the
//   innermost in elements; strides in elements, for a step of one item in each dimension, and for one of one element in the
//   innermost; x_repeat and output_repeat, for repeat_step; run_size, and what divides by it, and the other four tensors'
//   run_steps from run to run.
// Rules: "groups" and "runs" (RUNS 1) with LANES > 1, "elements" with 1.

#include "activation.glsl"
#include "items.glsl"
#include "lanes.glsl"

LANES_BUFFER(readonly, T, X, x)
LANES_BUFFER(readonly, T, MEAN, mean)
LANES_BUFFER(readonly, T, VARIANCE, variance)
LANES_BUFFER(readonly, T, SCALE, scale)
LANES_BUFFER(readonly, T, BIAS, bias)
LANES_BUFFER(, U, OUTPUT, output)

#define VISIT(dimension, coordinate)                                    \
    x_index += (coordinate) * p.x_strides[dimension];                   \
    mean_index += (coordinate) * p.mean_strides[dimension];             \
    variance_index += (coordinate) * p.variance_strides[dimension];     \
    scale_index += (coordinate) * p.scale_strides[dimension];           \
    bias_index += (coordinate) * p.bias_strides[dimension];             \
    output_index += (coordinate) * p.output_strides[dimension];         \
    if (uint(dimension) == p.repeated) repetition = (coordinate);

// The lanes of a tensor: all of them, or one by one those that there are.
#define LOAD_SOME(values, NAME, name, count, index)                                                     \
    if (LANES == 1 || (count) == LANES) {                                                               \
        LOAD_LANES(T, values, NAME, name, NAME##_MODE, index, p.name##_step)                            \
    } else {                                                                                            \
        [[unroll]] for (uint j = 0; j < LANES; ++j)                                                     \
            values[j] = float(ELEMENT(T, NAME, name, (index) + min(j, (count) - 1u) * p.name##_step));  \
    }

float reciprocal_deviation(float variance) { return 1.0 / sqrt(variance + p.epsilon); }

// The mean, the reciprocal deviation, the scale and the bias of a run.
vec4 values_at(uvec4 at) {
    return vec4(float(ELEMENT(T, MEAN, mean, at.x)), reciprocal_deviation(float(ELEMENT(T, VARIANCE, variance, at.y))),
                float(ELEMENT(T, SCALE, scale, at.z)), float(ELEMENT(T, BIAS, bias, at.w)));
}

uint x_index, mean_index, variance_index, scale_index, bias_index, output_index, repetition;

// The lanes that the item of repetition r has: fewer at the end of a row, none past the last.
uint lanes_of(uint repetition) {
    if (repetition >= p.repeat_size) return 0;
    return min(p.inner_size - (p.repeated == RANK - 1 ? repetition : innermost) * LANES, LANES);
}

// `whole`, a constant, says that no item is cut off. Then there is no branch between the loads, so that all are under way
// before the first is used.
void normalize(const bool whole) {
    float x[ITEMS][LANES];
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        const uint lanes = whole ? LANES : lanes_of(repetition + i * p.repeat_step);
        if (whole || lanes > 0) {
            const uint at = x_index + i * p.x_repeat;
            LOAD_SOME(x[i], X, x, lanes, at)
        }
    }

    float mean[LANES], factor[LANES], scale[LANES], bias[LANES];
    if (RUNS != 0) {
        const uint first = innermost * LANES, run = quotient(first, uvec2(p.run_divisor[0], p.run_divisor[1]));
        const uint left = (run + 1u) * p.run_size - first;
        const uvec4 step = uvec4(p.run_steps[0], p.run_steps[1], p.run_steps[2], p.run_steps[3]);
        const uvec4 at = uvec4(mean_index, variance_index, scale_index, bias_index) + run * step;
        const vec4 one = values_at(at), other = values_at(left < LANES ? at + step : at);
        [[unroll]] for (uint j = 0; j < LANES; ++j) {
            const vec4 values = j < left ? one : other;
            mean[j] = values.x;
            factor[j] = values.y;
            scale[j] = values.z;
            bias[j] = values.w;
        }
    } else {
        const uint given = whole ? LANES : lanes_of(repetition);
        LOAD_SOME(mean, MEAN, mean, given, mean_index)
        LOAD_SOME(factor, VARIANCE, variance, given, variance_index)
        LOAD_SOME(scale, SCALE, scale, given, scale_index)
        LOAD_SOME(bias, BIAS, bias, given, bias_index)
        [[unroll]] for (int j = 0; j < LANES; ++j) factor[j] = reciprocal_deviation(factor[j]);
    }

    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        const uint lanes = whole ? LANES : lanes_of(repetition + i * p.repeat_step);
        if (lanes == 0) continue;
        const uint at = output_index + i * p.output_repeat;
        float y[LANES];
        [[unroll]] for (int j = 0; j < LANES; ++j) {
            const float value = scale[j] * ((x[i][j] - mean[j]) * factor[j]) + bias[j];
            y[j] = activate(ACTIVATION, value, p.activation_param0, p.activation_param1);
        }
        if (LANES == 1 || lanes == LANES) {
            STORE_LANES(U, OUTPUT, output, OUTPUT_MODE, at, p.output_step, y)
        } else {
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < lanes) ELEMENT(U, OUTPUT, output, at + j * p.output_step) = U(y[j]);
        }
    }
}

void main() {
    if (beyond(p.count)) return;
    x_index = mean_index = variance_index = scale_index = bias_index = output_index = repetition = 0;
    LOCATE(linear_invocation())
    if (lanes_of(repetition + (ITEMS - 1u) * p.repeat_step) == LANES) normalize(true);
    else normalize(false);
}
