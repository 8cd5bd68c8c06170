// The sums of parts of the keys that attention sees, brought to the highest of their peaks.
//
//   sum over parts of exp(peak[part] - highest) * sums[part]  /  sum over parts of exp(peak[part] - highest) * weights[part]
//
// Parts have left their sums by part, row and column, and behind them a peak and a sum of weights for each part and row. Before including:
// SUMS, float or vec4 for so many neighbouring columns at once; SUMS sums_at(uint element); vec2 summary_at(uint place). Needs the
// parameter value_size and the constant PARTS_TOGETHER.

#ifndef DMLVK_ATTENTION_MERGED_GLSL
#define DMLVK_ATTENTION_MERGED_GLSL

#include "math.glsl"

// The columns from `column` on of one of so many `rows`. Parts are added in order, so the same bits come out every time. What was summed up is
// brought to a higher peak where the next parts have one: each part is read once, PARTS_TOGETHER on their way together.
SUMS merged(uint row, uint rows, uint column, uint parts) {
    float highest = -INFINITY;
    SUMS sum = SUMS(0.0);
    float weights = 0.0;
    for (uint first = 0; first < parts; first += PARTS_TOGETHER) {
        vec2 ends[PARTS_TOGETHER];
        SUMS sums[PARTS_TOGETHER];
        [[unroll]] for (uint i = 0; i < PARTS_TOGETHER; ++i) {
            const uint place = min(first + i, parts - 1) * rows + row;
            ends[i] = summary_at(place);
            sums[i] = sums_at(place * p.value_size + column);
        }
        const float before = highest;
        [[unroll]] for (uint i = 0; i < PARTS_TOGETHER; ++i) highest = first + i < parts ? max(highest, ends[i].x) : highest;
        const float base = is_infinite(highest) && highest < 0.0 ? 0.0 : highest;
        const float kept = is_infinite(before) && before < 0.0 ? 0.0 : exp_of_negative(before - base);
        sum *= kept;
        weights *= kept;
        [[unroll]] for (uint i = 0; i < PARTS_TOGETHER; ++i) {
            const bool there = first + i < parts;
            const float factor = there ? exp_of_negative(ends[i].x - base) : 0.0;
            weights = fma(factor, there ? ends[i].y : 0.0, weights);
            sum = fma(SUMS(factor), there ? sums[i] : SUMS(0.0), sum);
        }
    }
    return weights == 0.0 ? SUMS(0.0) : sum / weights;
}

#endif
