// The gradient of pooling, one invocation an element of dx.
//
//   dx[i] = sum of dy[o] / divisor(o), or of a maximum of dy[o] where index(o) = i, over the windows o that hold element i
//
// Windows, divisors and indices are the forward operator's: see include/pooling_positions.glsl and spec/ops/pooling.py. Whoever
// wants an element's gradient comes to fetch it, in the order of the windows: nothing is added by atomics, and so the same
// bits come out every time. An element in no window gets 0.
//
// Bindings: INPUT_GRADIENT dy; INDICES, of a maximum the packed positions that the forward kernel found, UINT32 (any bytes
// of an average); OUTPUT_GRADIENT dx.
// Constants: FUNCTION (REDUCE_FUNCTION_AVERAGE or _MAX), those of include/pooling_positions.glsl, whose walk is over dx.
// Parameters: those of the forward kernel, with dx as its input and dy as its output; window_counts, of dy's D, H and W.
// Grid: x folded into y, over all elements of dx. Takes any window.

#include "pooling_positions.glsl"

layout(set = 0, binding = BINDING_INPUT_GRADIENT, std430) readonly buffer InputGradient { T dy[]; };
layout(set = 0, binding = BINDING_INDICES, std430) readonly buffer Indices { uint index[]; };
layout(set = 0, binding = BINDING_OUTPUT_GRADIENT, std430) writeonly buffer OutputGradient { T dx[]; };

#define IS_MAX (FUNCTION == REDUCE_FUNCTION_MAX)

// Windows along a dimension that reach position `at`, gaps between taps aside: the first, and the one after the last.
uvec2 windows_around(uint d, uint at) {
    const uint padded = at + p.start_padding[d], reach = (p.window[d] - 1) * p.dilations[d];
    const uint first = padded > reach ? (padded - reach + p.steps[d] - 1) / p.steps[d] : 0;
    return uvec2(first, min(padded / p.steps[d] + 1, p.window_counts[d]));
}

// Whether one of a window's taps, and not a gap between them, is at the position.
bool is_tap(uint d, uint at, uint o) {
    return DILATED == 0 || (at + p.start_padding[d] - o * p.steps[d]) % p.dilations[d] == 0;
}

void main() {
    if (beyond(p.outputs)) return;
    const Position at = position_of(linear_invocation());
    uvec2 windows[3];
    [[unroll]] for (uint d = 0; d < 3; ++d) windows[d] = d < 1 - VOLUMES ? uvec2(0, 1) : windows_around(d, at.at[d]);
    const uint own = logical_index(at.n, at.c, at.at);

    float total = 0.0;
    for (uint d = windows[0].x; d < windows[0].y; ++d) {
        if (VOLUMES == 1 && !is_tap(0, at.at.x, d)) continue;
        for (uint h = windows[1].x; h < windows[1].y; ++h) {
            if (!is_tap(1, at.at.y, h)) continue;
            float line = 0.0; // a line alone: fewer roundings in a row
            for (uint w = windows[2].x; w < windows[2].y; ++w) {
                if (!is_tap(2, at.at.z, w)) continue;
                const Position o = Position(at.n, at.c, uvec3(d, h, w));
                const float value = float(dy[BYTE_OFFSET_INPUT_GRADIENT / T_BYTES + element_of(o, p.output_strides)]);
                // Of an average the element itself counts, so that the divisor is at least 1.
                if (!IS_MAX) line += value / window_of(o.at).divisor;
                else if (index[BYTE_OFFSET_INDICES / 4 + element_of(o, p.index_strides)] == own) line += value;
            }
            total += line;
        }
    }
    dx[BYTE_OFFSET_OUTPUT_GRADIENT / T_BYTES + element_of(at, p.input_strides)] = T(total);
}
