// Resampling with antialiasing: y[o] = sum of w(i) x[i] / sum of w(i), of all elements i whose weight is positive.
//
//   w(i) = product over the mapped dimensions of 1 - |i - x(o)| s, where s = min(|scale|, 1)
//   x(o) = (o - output offset) / scale - input offset; elements outside count as the edge's; see spec/ops/resample.py (Resample3)
//
// Bindings: X, Y. Constants and parameters: see include/resample.glsl; also filter_scales, s, and filter_reaches, 1 / s.
// Variants: T; LANES, the neighbours along the innermost dimension that are an item: 1 where that dimension is mapped.
// Grid: x folded into y, over `count` invocations of the index space `sizes`, the innermost in items.
//
// An invocation sums over the elements of its window; neighbours' windows overlap or lie side by side, and the cache serves
// what they share. Elements outside are not visited: their weights' sum is that of a piece of the triangle.
//
// Rules: "shared" where the innermost dimension is not mapped, else "elements" with LANES 1, where a dimension antialiases.

#include "resample.glsl"


// The window of one mapped dimension: elements first to last, element i at distance i - whole - fraction from the position;
// what the first and the last element of the tensor take over from those outside.
struct Window {
    int first, last, whole;
    float fraction, scale;
    float before, after;
    uint stride, end;
};

Window windows[MOST_MAPPED]; // the last for the last mapped dimension
uint innermost;

// The sum of first to last, whole numbers.
float sum_of_range(float first, float last) { return (first + last) * (last - first + 1.0) * 0.5; }

// The sum of 1 - |j - fraction| * scale over j = first ... last, of which none is negative; 0 where there are none.
float triangle(float first, float last, float fraction, float scale) {
    float sum = 0.0;
    const float rising = min(last, 0.0), falling = max(first, 1.0);
    if (first <= rising)
        sum += (rising - first + 1.0) * (1.0 - fraction * scale) + scale * sum_of_range(first, rising);
    if (falling <= last)
        sum += (last - falling + 1.0) * (1.0 + fraction * scale) - scale * sum_of_range(falling, last);
    return sum;
}

Window window_of(int d, uint coordinate) {
    const Position at = position_of(d, coordinate);
    const float fraction = float(at.part) * p.weight_of_part[d], reach = p.filter_reaches[d];
    const int first = at.whole + int(floor(fraction - reach)) + 1, last = at.whole + int(ceil(fraction + reach)) - 1;
    const int end = int(last_input(d));
    Window w;
    w.first = int(clamp_input(d, first));
    w.last = int(clamp_input(d, last));
    w.whole = at.whole;
    w.fraction = fraction;
    w.scale = p.filter_scales[d];
    w.before = triangle(float(first - at.whole), float(min(last, -1) - at.whole), fraction, w.scale);
    w.after = triangle(float(max(first, end + 1) - at.whole), float(last - at.whole), fraction, w.scale);
    w.stride = p.x_strides[d];
    w.end = uint(end);
    return w;
}

// The weight of element i, those outside that count as it included.
float weight_of(int m, int i) {
    const Window w = windows[m];
    float weight = max(1.0 - abs(float(i - w.whole) - w.fraction) * w.scale, 0.0);
    if (i == 0) weight += w.before;
    if (uint(i) == w.end) weight += w.after;
    return weight;
}

#define VISIT(d, coordinate)                                            \
    if (is_mapped(d)) windows[MOST_MAPPED - bitCount(MAPPED >> d)] = window_of(d, coordinate); \
    else x_base += (coordinate) * p.x_strides[d];                                              \
    y_base += (coordinate) * p.y_strides[d];                                                   \
    if (int(d) == int(RANK) - 1) innermost = (coordinate);

// Elements of window m in a loop around `body`; at and weight are those of the loops around.
#define FOR_EACH_TAP(m, outer_at, outer_weight, at, weight)                              \
    for (int i##m = windows[m].first; i##m <= windows[m].last; ++i##m) {                 \
        const uint at = outer_at + uint(i##m) * windows[m].stride;                       \
        const float weight = outer_weight * weight_of(m, i##m);

// LANES neighbours of x from `at` on, of which `lanes` are there.
#define LOAD_X(values, at, lanes)                                                            \
    if (LANES == 1 || (lanes) == LANES) {                                                    \
        LOAD_LANES(T, values, X, x, X_MODE, at, p.x_step)                                    \
    } else {                                                                                 \
        [[unroll]] for (uint l_ = 0; l_ < LANES; ++l_)                                       \
            values[l_] = T_MATH(ELEMENT(T, X, x, (at) + min(l_, (lanes) - 1u) * p.x_step));  \
    }

void main() {
    if (beyond(p.count)) return;
    x_base = 0u;
    y_base = 0u;
    // A dimension that is not there has one element of weight 1.
    [[unroll]] for (int m = 0; m < MOST_MAPPED; ++m) windows[m] = Window(0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0u, 1u);
    FOR_EACH_COORDINATE_FAST(linear_invocation(), RANK, p.sizes, p.divisors, VISIT)

    const uint lanes = min(p.inner_size - innermost * LANES, LANES);
    float sums[LANES], total = 0.0;
    [[unroll]] for (int l = 0; l < LANES; ++l) sums[l] = 0.0;
    const float all = 1.0;
    FOR_EACH_TAP(0, x_base, all, at0, weight0)
    FOR_EACH_TAP(1, at0, weight0, at1, weight1)
    FOR_EACH_TAP(2, at1, weight1, at2, weight2)
    FOR_EACH_TAP(3, at2, weight2, at, weight)
        if (weight > 0.0) {
            T_MATH values[LANES];
            LOAD_X(values, at, lanes)
            [[unroll]] for (int l = 0; l < LANES; ++l) sums[l] += weight * float(values[l]);
            total += weight;
        }
    }}}}

    T_MATH results[LANES];
    [[unroll]] for (int l = 0; l < LANES; ++l) results[l] = result_of(sums[l] / total);
    STORE_Y(y_base, lanes, results)
}
