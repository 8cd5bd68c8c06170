// The last step of attention whose keys were shared out in parts: their sums are brought to the highest of their peaks.
//
//   y = sum over parts of exp(peak[part] - highest) * sums[part]  /  sum over parts of exp(peak[part] - highest) * weights[part]
//
// Bindings: PARTIALS read, as attention_tiles leaves them: sums by part, (batch entry, head of keys), row and column, and behind them a peak and a
// sum of weights for each part and row; Y written. Strides of Y are those of include/attention.glsl.
// Parts are added in order, so the same bits come out every time. What was summed up is brought to a higher peak where the next parts have one:
// each part is read once, PARTS_TOGETHER on their way together.
// Grid: folded into x and y, `count` elements of y.

#include "tensor.glsl"
#include "math.glsl"

layout(set = 0, binding = BINDING_PARTIALS, std430) readonly buffer Partials { float partials[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { T y[]; };

void main() {
    if (beyond(p.count)) return;
    const uint column = linear_invocation() % p.value_size;
    const uint row = linear_invocation() / p.value_size;
    const uint rows = p.count / p.value_size, parts = p.parts;
    float highest = -INFINITY, sum = 0.0, weights = 0.0;
    for (uint first = 0; first < parts; first += PARTS_TOGETHER) {
        vec2 ends[PARTS_TOGETHER];
        float sums[PARTS_TOGETHER];
        [[unroll]] for (uint i = 0; i < PARTS_TOGETHER; ++i) {
            const uint place = min(first + i, parts - 1) * rows + row;
            const uint end_at = BYTE_OFFSET_PARTIALS / 4 + p.summaries + 2 * place;
            ends[i] = vec2(partials[end_at], partials[end_at + 1]);
            sums[i] = partials[BYTE_OFFSET_PARTIALS / 4 + place * p.value_size + column];
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
            sum = fma(factor, there ? sums[i] : 0.0, sum);
        }
    }
    const uint head_row = row / GROUP;
    const uint s = head_row % p.queries;
    const uint key_head = head_row / p.queries % p.key_heads;
    const uint entry = head_row / p.queries / p.key_heads;
    const uint head = key_head * GROUP + row % GROUP;
    const uint element = entry * p.y_strides[0] + s * p.y_strides[1] + head * p.y_strides[2] + column * p.y_strides[3];
    y[BYTE_OFFSET_Y / T_BYTES + element] = T(weights == 0.0 ? 0.0 : sum / weights);
}
