// What the resampling kernels share: the elements around positions, results. See spec/ops/resample.py (Resample3).
//
// Bindings: X, Y; element strides x_strides, y_strides of the dimensions, which are in the order in which y lies in memory.
//   Those of the innermost are of an item (see the kernels), x_step and y_step of an element; of a mapped dimension
//   x_strides is always of an element.
// Constants: RANK, MAPPED (a bit a dimension: whether its positions are worked out; else output o is element o), LINEAR,
//   X_MODE and Y_MODE (lanes.glsl).
// Parameters of a mapped dimension: those of resample_positions.glsl.

#ifndef DMLVK_RESAMPLE_GLSL
#define DMLVK_RESAMPLE_GLSL

#include "lanes.glsl"
#include "resample_positions.glsl"
#include "tensor.glsl"

LANES_BUFFER(readonly, T, X, x)
LANES_BUFFER(, T, Y, y)

bool is_mapped(int d) { return (MAPPED >> d & 1u) != 0u; }

// An average as the tensor's type. One within 2^-11 of a half between integers is taken for that half, so that float32
// roundings, which are smaller, do not decide.
T_MATH result_of(float average) {
#if T_IS_FLOAT
    return average;
#else
    return T_MATH(roundEven(roundEven(average * 1024.0) / 1024.0));
#endif
}

// The first `lanes` of LANES values, from element `at` of y on.
#define STORE_Y(at, lanes, values)                                                           \
    if (LANES == 1 || (lanes) == LANES) {                                                    \
        STORE_LANES(T, Y, y, Y_MODE, at, p.y_step, values)                                   \
    } else {                                                                                 \
        [[unroll]] for (uint l_ = 0; l_ < LANES; ++l_)                                       \
            if (l_ < (lanes)) ELEMENT(T, Y, y, (at) + l_ * p.y_step) = T(values[l_]);        \
    }

// Of the elements around an output's position in all mapped dimensions but the columns': where they lie, and their weights.
// surround(d, coordinate) works out those of a dimension; corner(c, outer) gives element c of CORNERS and its weight.
// FOR_EACH_CORNER(c) is a loop over them, four at a time, so that up to as many rows are read before one is needed.
uint x_base, y_base;
uint low_offset[5], high_offset[5];
float low_weight[5], high_weight[5];

struct Corner {
    uint at;
    float weight;
};

void surround(int d, uint coordinate) {
    const Position at = position_of(d, coordinate);
    if (LINEAR == 1u) {
        const Pair pair = pair_of(d, at);
        low_offset[d] = pair.low * p.x_strides[d];
        high_offset[d] = pair.high * p.x_strides[d];
        low_weight[d] = pair.low_weight;
        high_weight[d] = pair.high_weight;
    } else {
        x_base += clamp_input(d, at.whole) * p.x_strides[d];
    }
}

#define FOR_EACH_CORNER(c)                              \
    for (uint four_ = 0u; four_ < CORNERS; four_ += 4u) \
        [[unroll]] for (uint c = four_, k_ = 0u; k_ < min(CORNERS, 4u); ++k_, ++c)

// `outer`, how many dimensions count, is a constant.
Corner corner(uint c, int outer) {
    Corner found = Corner(x_base, 1.0);
    if (LINEAR == 1u) {
        uint bit = 0u;
        [[unroll]] for (int d = 0; d < outer; ++d) {
            if (!is_mapped(d)) continue;
            const bool high = (c >> bit & 1u) != 0u;
            found.at += high ? high_offset[d] : low_offset[d];
            found.weight *= high ? high_weight[d] : low_weight[d];
            ++bit;
        }
    }
    return found;
}

#endif
