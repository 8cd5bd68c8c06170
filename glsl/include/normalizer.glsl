// What softmax and its relatives know of a row, and what they make of its elements.
//
//   OPERATION           peak, the greatest of all elements     sums over all elements, relative to the peak m
//   SOFTMAX1            x                                      e^(x - m)
//   LOG_SOFTMAX1        x                                      e^(x - m) of those below the peak; the number of the rest
//   LP_NORMALIZATION    |x|                                    (|x| / scale)^POWER, scale the power of two in the peak
//   HARDMAX1            x                                      none, but `first`: ~ the first place of the peak
//
// A peak is an integer in the order of the numbers, so that NaN is the greatest of all and a subnormal number is itself.
//
//   no_elements()                  a summary of nothing
//   peak_of(x)                     an element's peak. SOFTMAX1 and LOG_SOFTMAX1 find that of many by comparing floats, which
//                                  may overlook NaN: their sums do not
//   scale_of(peak)                 what elements are measured by
//   measure(x, scale)              an element's share of the sums; x becomes what `finished` takes
//   rescaled(summary, peak)        the summary with its sums relative to another peak, which is not below its own
//   result_of(summary)             of the whole row
//   finished(x, place, result)     the element of the output
//
// Constants: OPERATION (OP_*), POWER (1 or 2), OR_ZERO (what of SOFTMAX1 becomes 0 instead of NaN). Parameter: epsilon.

#ifndef DMLVK_NORMALIZER_GLSL
#define DMLVK_NORMALIZER_GLSL

#include "math.glsl"
#include "order.glsl"
#include "powers.glsl"

#define IS_SOFTMAX (OPERATION == OP_ACTIVATION_SOFTMAX1)
#define IS_LOG_SOFTMAX (OPERATION == OP_ACTIVATION_LOG_SOFTMAX1)
#define IS_HARDMAX (OPERATION == OP_ACTIVATION_HARDMAX1)
#define IS_LP (OPERATION == OP_LP_NORMALIZATION)

struct Summary {
    int peak;
    int first; // of the places of the peak
    vec2 sums;
};

const int NO_PEAK = int(0x807FFFFFu); // that of -infinity
const int NOWHERE = int(0x80000000u);

Summary no_elements() { return Summary(NO_PEAK, NOWHERE, vec2(0)); }

// Stands for the elements past a row's end.
float nothing() { return IS_LP ? 0.0 : -INFINITY; }

int peak_of(float x) { return IS_LP ? floatBitsToInt(x) & 0x7FFFFFFF : order_of_zeros(order_up(x)); }

struct Scale {
    float largest;  // the peak as a number
    PowerBase base; // of SOFTMAX1 and LOG_SOFTMAX1
    float inverse;  // of LP_NORMALIZATION: 1 / scale
};

// The exponent of an Lp row's scale: that of a normal number whose inverse is one, too.
int lp_exponent(int peak) { return clamp(peak >> 23, 1, 253); }

Scale scale_of(int peak) {
    const float largest = from_order_up(peak);
    return Scale(largest, power_base(largest), uintBitsToFloat(uint(254 - lp_exponent(peak)) << 23));
}

// (The sums of powers are relative to the scale's base; corrected() makes them relative to the peak.)
vec2 measure(inout float x, Scale scale) {
    if (IS_LP) {
        x *= scale.inverse;
        return vec2(POWER == 1 ? abs(x) : x * x, 0);
    }
    const float share = power(x, scale.base);
    if (IS_LOG_SOFTMAX) return x == scale.largest ? vec2(0, 1) : vec2(share, 0);
    x = share;
    return vec2(share, 0);
}

vec2 corrected(vec2 sums, Scale scale) { return IS_LP ? sums : vec2(sums.x * scale.base.correction, sums.y); }

Summary rescaled(Summary own, int peak) {
    if (own.peak == peak) return own;
    float sum = own.sums.x + own.sums.y;
    if (IS_LP) {
        const int exponent = 127 + lp_exponent(own.peak) - lp_exponent(peak);
        const float ratio = uintBitsToFloat(uint(max(exponent, 0)) << 23);
        sum *= POWER == 1 ? ratio : ratio * ratio;
    } else if (sum != 0.0) {
        sum *= power_below(from_order_up(own.peak), from_order_up(peak));
    }
    return Summary(peak, NOWHERE, vec2(sum, 0));
}

struct Result {
    Scale scale;
    uint place;   // of HARDMAX1
    float factor; // what elements are multiplied by; of LOG_SOFTMAX1 what is taken from x - largest
};

Result result_of(Summary row) {
    const Scale scale = scale_of(row.peak);
    float factor;
    if (IS_LP) {
        const float norm = POWER == 1 ? row.sums.x : sqrt(row.sums.x);
        const float divisor = is_nan(norm) ? norm : max(norm, p.epsilon * scale.inverse);
        factor = divisor == 0.0 ? 0.0 : 1.0 / divisor;
    } else {
        factor = IS_LOG_SOFTMAX ? log1p_positive(row.sums.x + (row.sums.y - 1.0)) : scale.base.correction / row.sums.x;
        if (!is_finite(scale.largest)) factor = NOT_A_NUMBER;
    }
    return Result(scale, uint(~row.first), factor);
}

// x: what `measure` made of the element.
float finished(float x, uint place, Result result) {
    if (IS_HARDMAX) return place == result.place ? 1.0 : 0.0;
    if (IS_LOG_SOFTMAX) return (x - result.scale.largest) - result.factor;
    const float y = x * result.factor;
    if (OR_ZERO == OR_ZERO_NOTHING) return result.scale.largest == -INFINITY ? 0.0 : y;
    return OR_ZERO == OR_ZERO_NAN && is_nan(y) ? 0.0 : y;
}

#endif
