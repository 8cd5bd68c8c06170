// The last step of attention whose keys were shared out in parts: their sums, brought to the highest of their peaks.
//
//   y = sum over parts of exp(peak[part] - highest) * sums[part]  /  sum over parts of exp(peak[part] - highest) * weights[part]
//
// With LENGTHS parts are of as many keys as there are, and only the first of them hold any: see include/attention_parts.glsl.
// Bindings: PARTIALS and LENGTHS read, as attention_tiles leaves them: sums by part, (batch entry, head of keys), row and column, and
// from `summaries` on a peak and a sum of weights for each row; Y written. Strides of Y are those of
// include/attention.glsl.
// The loads of TOGETHER parts are on their way together.
// Grid: folded into x and y, `count` elements of y. Parts are added in order, so the same bits come out every time.

#include "attention_parts.glsl"
#include "tensor.glsl"

layout(set = 0, binding = BINDING_PARTIALS, std430) readonly buffer Partials { float partials[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { T y[]; };

float partial(uint place) { return partials[BYTE_OFFSET_PARTIALS / 4 + place]; }

void main() {
    if (beyond(p.count)) return;
    const uint column = linear_invocation() % p.value_size;
    const uint row = linear_invocation() / p.value_size;
    const uint rows = p.count / p.value_size;
    const uint head_row = row / GROUP;
    const uint s = head_row % p.queries;
    const uint key_head = head_row / p.queries % p.key_heads;
    const uint entry = head_row / p.queries / p.key_heads;
    // What was summed up is brought to a higher peak where the next parts have one: each part is read once. The first loads do not wait for the
    // length: what they bring of parts that there are not counts for nothing.
    uint parts = p.parts;
    float highest = -INFINITY;
    float sum = 0.0;
    float weights = 0.0;
    for (uint first = 0; first < parts; first += TOGETHER) {
        float peaks[TOGETHER], own_weights[TOGETHER], sums[TOGETHER];
        [[unroll]] for (uint i = 0; i < TOGETHER; ++i) {
            const uint place = min(first + i, p.parts - 1) * rows + row;
            peaks[i] = partial(p.summaries + 2 * place);
            own_weights[i] = partial(p.summaries + 2 * place + 1);
            sums[i] = partial(place * p.value_size + column);
        }
        if (LENGTHS != LENGTHS_NONE) {
            const uvec2 seen = keys_of_parts(past_length(entry, p.keys));
            const uint keys = seen.y - seen.x;
            parts = (keys - 1) / keys_of_part(keys, p.parts) + 1;
        }
        const float before = highest;
        [[unroll]] for (uint i = 0; i < TOGETHER; ++i) highest = first + i < parts ? max(highest, peaks[i]) : highest;
        const float base = is_infinite(highest) && highest < 0.0 ? 0.0 : highest;
        const float kept = is_infinite(before) && before < 0.0 ? 0.0 : exp_of_negative(before - base);
        sum *= kept;
        weights *= kept;
        [[unroll]] for (uint i = 0; i < TOGETHER; ++i) {
            const bool there = first + i < parts;
            const float factor = there ? exp_of_negative(peaks[i] - base) : 0.0;
            weights = fma(factor, there ? own_weights[i] : 0.0, weights);
            sum = fma(factor, there ? sums[i] : 0.0, sum);
        }
    }
    const uint head = key_head * GROUP + row % GROUP;
    const uint element = entry * p.y_strides[0] + s * p.y_strides[1] + head * p.y_strides[2] + column * p.y_strides[3];
    y[BYTE_OFFSET_Y / T_BYTES + element] = T(weights == 0.0 ? 0.0 : sum / weights);
}
