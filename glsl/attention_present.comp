// Queries, keys or values as attention reads them: the valid rows of the past, then the new rows with their bias, or turned by
// rotary embedding, then zeros.
//
//   y[entry, head, row] = row < length ? past[entry, head, row] : row < length + new ? x[entry, row - length, head] + bias : 0
//
// Bindings: X the new rows, PAST, BIAS, LENGTHS, COSINES, SINES, POSITIONS read, Y written. Strides are in elements: of X (batch entry, row, head,
// element), of PAST and Y (batch entry, head, row, element).
// Constants: HAS_PAST, HAS_BIAS; TURN, as in include/attention_turn.glsl; LENGTHS as in include/attention.glsl; APPEND: Y holds the past already, and new rows alone
// are written; QUADS: rows consist of aligned groups of four elements in all tensors, and Y is written by them; EACH of these an invocation, which
// all ask for memory before the first is written.
// Grid: folded into x and y, `count` times EACH groups of four elements, or what is left of a row, of the rows to write.

#include "attention_lengths.glsl"
#include "strided_quads.glsl"
#include "tensor.glsl"
#include "attention_turn.glsl"

STRIDED_QUADS(X, x)
STRIDED_QUADS(PAST, past)
STRIDED_QUADS(BIAS, bias)
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { T y[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YQuads { QUAD y_quads[]; };

uint start_of(uint strides[4], uint entry, uint second, uint third) {
    return entry * strides[0] + second * strides[1] + third * strides[2];
}

void main() {
    if (beyond(p.count)) return;
    const uint width = (p.size + 4 * EACH - 1) / (4 * EACH);
    const uint rows = APPEND != 0 ? p.new_rows : p.rows;
    uint rest = linear_invocation();
    const uint first = (rest % width) * 4 * EACH;
    rest /= width;
    uint row = rest % rows;
    rest /= rows;
    const uint head = rest % p.heads;
    const uint entry = rest / p.heads;
    const uint valid = LENGTHS != LENGTHS_NONE ? past_length(entry, p.most_past) : p.most_past;
    if (APPEND != 0) row += valid;
    if (row >= p.rows) return;
    vec4 values[EACH];
    [[unroll]] for (uint e = 0; e < EACH; ++e) values[e] = vec4(0.0);
    if (row < valid) {
        const uint start = start_of(p.past_strides, entry, head, row);
        if (HAS_PAST != 0)
            [[unroll]] for (uint e = 0; e < EACH; ++e) values[e] = past_at(start, first + 4 * e, p.size, p.past_strides[3], QUADS);
    } else if (row < valid + p.new_rows) {
        const uint start = p.x_start + start_of(p.x_strides, entry, row - valid, head);
        [[unroll]] for (uint e = 0; e < EACH; ++e) values[e] = x_at(start, first + 4 * e, p.size, p.x_strides[3], QUADS);
        const uint bias_start = (p.bias_start + head * p.size) * p.bias_stride;
        if (HAS_BIAS != 0)
            [[unroll]] for (uint e = 0; e < EACH; ++e)
                values[e] += bias_at(bias_start, first + 4 * e, p.size, p.bias_stride, QUADS);
        [[unroll]] for (uint e = 0; e < EACH; ++e) {
            const uint d = first + 4 * e;
            if (!is_turned(d)) continue;
            const uint table = table_row(entry, row - valid, past_length(entry, p.places) + row - valid);
            [[unroll]] for (int i = 0; i < 4; ++i) {
                const float partner = float(x[BYTE_OFFSET_X / T_BYTES + start + partner_of(d + i, p.size) * p.x_strides[3]]);
                values[e][i] = turned(table, d + i, values[e][i], partner);
            }
        }
    }
    const uint start = BYTE_OFFSET_Y / T_BYTES + start_of(p.y_strides, entry, head, row);
    [[unroll]] for (uint e = 0; e < EACH; ++e) {
        const uint d = first + 4 * e;
        if (QUADS != 0) {
            y_quads[(start + d) / 4] = pack_quad(values[e]);
        } else {
            [[unroll]] for (int i = 0; i < 4; ++i)
                if (d + i < p.size) y[start + (d + i) * p.y_strides[3]] = T(values[e][i]);
        }
    }
}
