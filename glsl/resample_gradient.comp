// The gradient of resampling, whatever the sizes, scales and strides: dx[i] = sum of w(o, i) dy[o].
//
//   over all outputs o that read element i; w(o, i) is the product over the mapped dimensions of the weights that the forward
//   operator uses; see spec/ops/resample_gradient.py
//
// Bindings: X (dy), Y (dx). Constants and parameters: see include/resample_gradient.glsl; also MAPPED, a bit a dimension: where
//   it is not set, element i is read by output i alone; x_step and y_step, of an element along the innermost dimension.
// Variants: T; LANES, the neighbours along the innermost dimension that are an item: 1 where that dimension is mapped.
// Grid: x folded into y, over `count` invocations of the index space `sizes`, the innermost in items.
//
// An invocation finds its window of outputs along each dimension, and adds them up one after another. Windows of far
// enlargements are long, and an edge's may be all of a dimension: the sums are compensated.
//
// Rules: "elements", and "shared" where the innermost dimension is not mapped.

#include "accumulate.glsl"
#include "resample_gradient.glsl"


// Of a mapped dimension d: the outputs from first on, before end, that read element i.
struct Window {
    int d;
    uint i, first, end, stride;
};

Window windows[MOST_MAPPED]; // the last for the last mapped dimension
uint innermost, x_base, y_base;

#define VISIT(dimension, coordinate)                                                                   \
    if ((MAPPED >> (dimension) & 1u) != 0u)                                                            \
        windows[MOST_MAPPED - bitCount(MAPPED >> (dimension))] =                                       \
            Window(dimension, coordinate, begin_of(dimension, coordinate), end_of(dimension, coordinate), \
                   p.x_strides[dimension]);                                                            \
    else                                                                                               \
        x_base += (coordinate) * p.x_strides[dimension];                                               \
    y_base += (coordinate) * p.y_strides[dimension];                                                   \
    if (int(dimension) == int(RANK) - 1) innermost = (coordinate);

float weight_of(int m, uint o) {
    const Window w = windows[m];
    return w.d < 0 ? 1.0 : weight_at(w.d, position_of(w.d, o), w.i);
}

// Outputs of window m in a loop around what follows; at and weight are those of the loops around.
#define FOR_EACH_OUTPUT(m, outer_at, outer_weight, at, weight)            \
    for (uint o##m = windows[m].first; o##m < windows[m].end; ++o##m) {   \
        const uint at = outer_at + o##m * windows[m].stride;              \
        const float weight = outer_weight * weight_of(m, o##m);

void main() {
    if (beyond(p.count)) return;
    x_base = p.x_start;
    y_base = 0u;
    // A dimension that is not there has one output of weight 1.
    [[unroll]] for (int m = 0; m < MOST_MAPPED; ++m) windows[m] = Window(-1, 0u, 0u, 1u, 0u);
    FOR_EACH_COORDINATE_FAST(linear_invocation(), RANK, p.sizes, p.divisors, VISIT)

    const uint lanes = min(p.inner_size - innermost * LANES, LANES);
    float sums[LANES], lost[LANES];
    [[unroll]] for (int l = 0; l < LANES; ++l) {
        sums[l] = 0.0;
        lost[l] = 0.0;
    }
    const float all = 1.0;
    FOR_EACH_OUTPUT(0, x_base, all, at0, weight0)
    FOR_EACH_OUTPUT(1, at0, weight0, at1, weight1)
    FOR_EACH_OUTPUT(2, at1, weight1, at2, weight2)
    FOR_EACH_OUTPUT(3, at2, weight2, at, weight)
        T_MATH values[LANES];
        if (LANES == 1 || lanes == LANES) {
            LOAD_LANES(T, values, X, x, X_MODE, at, p.x_step)
        } else {
            [[unroll]] for (uint l = 0; l < LANES; ++l)
                values[l] = T_MATH(ELEMENT(T, X, x, at + min(l, lanes - 1u) * p.x_step));
        }
        [[unroll]] for (int l = 0; l < LANES; ++l) add_compensated(sums[l], lost[l], weight * float(values[l]));
    }}}}

    T_MATH results[LANES];
    [[unroll]] for (int l = 0; l < LANES; ++l) results[l] = sums[l] + lost[l];
    if (LANES == 1 || lanes == LANES) {
        STORE_LANES(T, Y, y, Y_MODE, y_base, p.y_step, results)
    } else {
        [[unroll]] for (uint l = 0; l < LANES; ++l)
            if (l < lanes) ELEMENT(T, Y, y, y_base + l * p.y_step) = T(results[l]);
    }
}
