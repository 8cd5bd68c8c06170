// The weights of a resampling along one dimension: y[o][i] is what output o takes of input element i.
//
//   y[o][i] = sum of f(|k - x(o)| s) over the elements k that count as i; x(o) = (o - output offset) / scale - input offset
//
// f is 1 - d, or the cubic convolution kernel with the coefficient a; s is filter_scale. Elements k outside count as the
// edge's, or not at all. See spec/ops/resample.py (ResampleWeights).
//
// Bindings: Y, strides in elements.
// Constants: CUBIC: which f; INSIDE_ONLY: elements outside do not count; NORMALIZED: the weights of an output are divided by
// their sum.
// Parameters: those of resample_positions.glsl for one dimension; sizes, what divides by them, and strides of y; reach, how
// many elements on either side of a position have weights.
// Grid: x folded into y, over `count` elements of y. Chosen always.

#include "resample_positions.glsl"
#include "tensor.glsl"

layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { T y[]; };

float weight_of(float d) {
    if (CUBIC == 0u) return max(1.0 - d, 0.0);
    const float a = p.coefficient;
    if (d <= 1.0) return ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0;
    return d < 2.0 ? ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a : 0.0;
}

void main() {
    if (beyond(p.count)) return;
    uint place[2];
#define VISIT(dimension, coordinate) place[dimension] = (coordinate);
    FOR_EACH_COORDINATE_FAST(linear_invocation(), 2, p.sizes, p.divisors, VISIT)
    const Position at = position_of(0, place[0]);
    const float fraction = float(at.part) * p.weight_of_part[0];
    float own = 0.0, all = 0.0;
    for (int k = 1 - p.reach; k <= p.reach; ++k) {
        const uint element = clamp_input(0, at.whole + k);
        const bool inside = int(element) == at.whole + k;
        const float weight = INSIDE_ONLY != 0u && !inside ? 0.0 : weight_of(abs(float(k) - fraction) * p.filter_scale);
        all += weight;
        if (element == place[1]) own += weight;
    }
    y[BYTE_OFFSET_Y / T_BYTES + place[0] * p.y_strides[0] + place[1] * p.y_strides[1]] = T(NORMALIZED != 0u ? own / all : own);
}
