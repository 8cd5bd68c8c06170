// What the pooling kernels share that take an output at a time: how elements of a window become one.
//
// Bindings: INPUT, OUTPUT, INDICES (as 32-bit words; bound to the output and left alone where INDEX_WORDS is 0).
// Constants: FUNCTION (REDUCE_FUNCTION_AVERAGE, _MAX or _L2, a norm), NORM_ORDER (of a norm: 1, 2, or 0 for that of the
// parameter norm_order), INDEX_WORDS (0 none, 1 UINT32, 2 UINT64), and those of pooling_positions.glsl.

#ifndef DMLVK_POOLING_GLSL
#define DMLVK_POOLING_GLSL

#include "math.glsl"
#include "order.glsl"
#include "pooling_positions.glsl"
#if T_IS_FLOAT
#include "power.glsl"
#endif

layout(set = 0, binding = BINDING_INPUT, std430) readonly buffer Input { T x[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer Output { T y[]; };
layout(set = 0, binding = BINDING_INDICES, std430) writeonly buffer Indices { uint index_words[]; };

#define IS_MAX (FUNCTION == REDUCE_FUNCTION_MAX)

T_MATH load(uint element) { return T_MATH(x[BYTE_OFFSET_INPUT / T_BYTES + element]); }

// The order by which maxima are compared: zeros are equal, and NaN is above everything.
ORDER order(T_MATH value) { return order_of_zeros(order_up(value)); }

T_MATH least() {
#if T_IS_FLOAT
    return -INFINITY;
#else
    return LEAST_ORDER;
#endif
}

void store(Position at, T_MATH value, uint index) {
    y[BYTE_OFFSET_OUTPUT / T_BYTES + element_of(at, p.output_strides)] = T(value);
    if (INDEX_WORDS != 0) {
        const uint word = BYTE_OFFSET_INDICES / 4 + element_of(at, p.index_strides) * INDEX_WORDS;
        index_words[word] = index;
        if (INDEX_WORDS == 2) index_words[word + 1] = 0;
    }
}

// The numbers that are known of a norm's window before its elements are summed: its largest element, and the factor that makes
// elements at most 1, or below 4 for squares, which then need no division.
struct Norm {
    float largest;
    float scale;
    float unscale;
};

#if T_IS_FLOAT
#define IS_NORM (FUNCTION == REDUCE_FUNCTION_L2)
// A window is read once; for a norm whose powers may leave float32 a second time, when its largest element is known.
uint passes() {
    if (!IS_NORM || NORM_ORDER == 1) return 1;
    return NORM_ORDER == 2 && T_BYTES == 2 ? 1 : 2;
}

bool is_ordinary(float largest) { return largest > 0.0 && is_finite(largest); }

Norm norm_of(float largest) {
    if (passes() == 1 || !is_ordinary(largest)) return Norm(largest, 1.0, 1.0);
    const int exponent = clamp(int(floatBitsToUint(largest) >> 23) - 127, -126, 126);
    const float factor = power_of_two(-exponent);
    if (NORM_ORDER == 2) return Norm(largest, factor, power_of_two(exponent));
    return Norm(largest, factor * (1.0 / (largest * factor)), largest);
}

// The sum of two sums; or the larger of two magnitudes, NaN above everything.
float merged(float a, float b, bool finds_largest) {
    return finds_largest ? uintBitsToFloat(max(floatBitsToUint(a), floatBitsToUint(b))) : a + b;
}

// A sum, or the largest magnitude so far, with one more element.
float added(float sum, float value, bool finds_largest, Norm norm) {
    if (!IS_NORM) return sum + value;
    const float magnitude = uintBitsToFloat(floatBitsToUint(value) & 0x7FFFFFFFu);
    if (finds_largest) return merged(sum, magnitude, true);
    const float scaled = magnitude * norm.scale;
    if (NORM_ORDER == 1) return sum + scaled;
    return sum + (NORM_ORDER == 2 ? scaled * scaled : power(scaled, p.norm_order));
}

// Of a sum the mean, 0 where nothing counts, or the norm.
float finished(float sum, float divisor, Norm norm) {
    if (!IS_NORM) return divisor == 0.0 ? 0.0 : sum / divisor;
    if (passes() == 2 && !is_ordinary(norm.largest)) return norm.largest;
    if (NORM_ORDER == 1) return sum;
    return norm.unscale * (NORM_ORDER == 2 ? sqrt(sum) : power(sum, 1.0 / p.norm_order));
}
#else
// Integers have only maxima.
#define IS_NORM false
uint passes() { return 1; }
Norm norm_of(T_MATH largest) { return Norm(0.0, 1.0, 1.0); }
T_MATH merged(T_MATH a, T_MATH b, bool finds_largest) { return a; }
T_MATH added(T_MATH sum, T_MATH value, bool finds_largest, Norm norm) { return sum; }
T_MATH finished(T_MATH sum, float divisor, Norm norm) { return sum; }
#endif

#endif
