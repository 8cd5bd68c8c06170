// Means and sums of squared deviations that stay exact where float32 sums would cancel.
//
// A mean is kept as mean + remainder: the float32 mean, and what it lacks. x - mean is exact where x lies near the mean,
// so (x - mean) - remainder has the accuracy of the deviation and not of the mean, however far from 0 the data lies.
// E[x^2] - E[x]^2 appears nowhere.

#ifndef DMLVK_ACCUMULATE_GLSL
#define DMLVK_ACCUMULATE_GLSL

#include "math.glsl"

struct Statistics {
    float count;
    float mean;
    float remainder;
    float squares; // sum of squared deviations from mean + remainder
};

// From a first mean, and the sums of d and d * d over the data's deviations d = x - mean.
Statistics centred(float count, float mean, vec2 deviations) {
    const float remainder = finite_or_zero(deviations.x / count);
    const float squares = deviations.y - remainder * deviations.x;
    return Statistics(count, mean, remainder, not_negative(squares));
}

// mean + remainder + shift as a new pair whose first part is the rounded sum (Knuth's two-sum).
void shift_mean(inout Statistics statistics, float shift) {
    precise const float correction = statistics.remainder + shift;
    precise const float mean = statistics.mean + correction;
    precise const float back = mean - statistics.mean;
    precise const float lost = (statistics.mean - (mean - back)) + (correction - back);
    statistics.mean = mean;
    statistics.remainder = finite_or_zero(lost);
}

// The statistics of two sets together (Chan, Golub and LeVeque). A set of count 0 changes nothing.
Statistics merged(Statistics a, Statistics b) {
    if (a.count == 0.0) return b;
    if (b.count == 0.0) return a;
    const float count = a.count + b.count;
    const float difference = (b.mean - a.mean) + (b.remainder - a.remainder);
    Statistics both = a;
    both.count = count;
    both.squares = a.squares + b.squares + difference * difference * (a.count * (b.count / count));
    if (is_infinite(a.mean)) {
        both.mean = a.mean + b.mean;
        return both;
    }
    shift_mean(both, difference * (b.count / count));
    return both;
}

// total + lost is a running sum; `lost` is what rounding has kept out of `total` (Kahan). Start both at 0.
void add_compensated(inout float total, inout float lost, float value) {
    precise const float corrected = value + lost;
    precise const float next = total + corrected;
    precise const float added = next - total;
    precise const float rest = corrected - added;
    lost = finite_or_zero(rest);
    total = next;
}

#endif
