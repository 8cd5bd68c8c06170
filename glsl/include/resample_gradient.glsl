// What the gradients of resampling share: which outputs of the forward operator read an input element, and by which weights.
// See spec/ops/resample_gradient.py.
//
// Bindings: X, the gradient dy of the forward outputs, whose first element is x_start; Y, the gradient dx of its inputs. Strides
//   of X may be negative, modulo 2^32: positions never decrease along a dimension.
// Constants: RANK, LINEAR. Parameters of a dimension d: those of resample_positions.glsl; output_sizes, the forward output's
//   size; enlargement and enlargement_start: element i is at about i * enlargement + enlargement_start of the outputs.

#ifndef DMLVK_RESAMPLE_GRADIENT_GLSL
#define DMLVK_RESAMPLE_GRADIENT_GLSL

#include "lanes.glsl"
#include "resample_positions.glsl"
#include "tensor.glsl"

LANES_BUFFER(readonly, T, X, x)
LANES_BUFFER(, T, Y, y)

// Whether output o lies at `bound` or after; for `open` only after.
bool lies_from(int d, uint o, int bound, bool open) {
    const Position at = position_of(d, o);
    return at.whole > bound || (at.whole == bound && (!open || at.part != 0u));
}

// The first output that lies there; their number where none does. The estimate is a float, what decides is exact.
uint first_output(int d, int bound, bool open) {
    const uint outputs = p.output_sizes[d];
    uint o = uint(clamp(float(bound) * p.enlargement[d] + p.enlargement_start[d], 0.0, float(outputs)));
    o = min(o, outputs);
    while (o > 0u && lies_from(d, o - 1u, bound, open)) --o;
    while (o < outputs && !lies_from(d, o, bound, open)) ++o;
    return o;
}

// The outputs that read element i: from begin_of on, before end_of. LINEAR reads an element from less than 1 away,
// NEAREST_NEIGHBOR where its position, rounded, is the element; the first and the last element also stand for those outside.
uint begin_of(int d, uint i) {
    return i == 0u ? 0u : first_output(d, int(i) - int(LINEAR), LINEAR == 1u);
}
uint end_of(int d, uint i) {
    return i == last_input(d) ? p.output_sizes[d] : first_output(d, int(i) + 1, false);
}

// The weight of element i at a position of one of those.
float weight_at(int d, Position at, uint i) {
    if (LINEAR == 0u) return 1.0;
    const Pair pair = pair_of(d, at);
    return (pair.low == i ? pair.low_weight : 0.0) + (pair.high == i ? pair.high_weight : 0.0);
}

#endif
