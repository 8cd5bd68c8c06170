// The last step of attention whose keys were shared out in parts: see include/attention_merged.glsl.
//
// Bindings: PARTIALS read, as attention_tiles leaves them, by part, (batch entry, head of keys), row and column; Y written. Strides of Y are those
// of include/attention.glsl.
// Grid: folded into x and y, `count` elements of y.

#include "tensor.glsl"

layout(set = 0, binding = BINDING_PARTIALS, std430) readonly buffer Partials { float partials[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { T y[]; };

#define SUMS float
SUMS sums_at(uint element) { return partials[BYTE_OFFSET_PARTIALS / 4 + element]; }
vec2 summary_at(uint place) {
    const uint at = BYTE_OFFSET_PARTIALS / 4 + p.summaries + 2 * place;
    return vec2(partials[at], partials[at + 1]);
}

#include "attention_merged.glsl"

void main() {
    if (beyond(p.count)) return;
    const uint column = linear_invocation() % p.value_size;
    const uint row = linear_invocation() / p.value_size;
    const uint head_row = row / GROUP;
    const uint s = head_row % p.queries;
    const uint key_head = head_row / p.queries % p.key_heads;
    const uint entry = head_row / p.queries / p.key_heads;
    const uint head = key_head * GROUP + row % GROUP;
    const uint element = entry * p.y_strides[0] + s * p.y_strides[1] + head * p.y_strides[2] + column * p.y_strides[3];
    y[BYTE_OFFSET_Y / T_BYTES + element] = T(merged(row, p.count / p.value_size, column, p.parts));
}
