// Pooling, one invocation an output.
//
//   y[n, c, o] = mean, maximum or norm of x[n, c, o * stride + t * dilation - start padding] over the taps t of the window
//   that lie inside the input; see spec/ops/pooling.py
//
// Bindings and constants: see include/pooling.glsl; also LINES and TAPS, how many lines of a window and elements of a line
// are read together. Where LINES is above 1, lines have at most TAPS elements: else equals would not meet in order.
// Grid: x folded into y, over all outputs.
//
// A window is clipped once to the part inside the input, whose elements are read several at a time, because a read takes
// far longer than what is done with it. Neighbours' windows overlap or lie side by side, and the cache serves what they
// share. Takes any window.

#include "pooling.glsl"

void main() {
    if (beyond(p.outputs)) return;
    const Position at = position_of(linear_invocation());
    const Window w = window_of(at.at);
    const uint plane = element_of(Position(at.n, at.c, w.first), p.input_strides);
    const uvec3 tap_strides = uvec3(p.input_strides[2] * p.dilations[0], p.input_strides[3] * p.dilations[1],
                                    p.input_strides[4] * p.dilations[2]);

    T_MATH total = least();
    ORDER most = order(total);
    uvec3 where = uvec3(0); // of what equals the least value, the first element
    Norm norm = norm_of(T_MATH(0));
    for (uint pass = 0; pass < passes(); ++pass) {
        const bool finds_largest = pass + 1 < passes();
        if (!IS_MAX) total = T_MATH(0);
        for (uint d = 0; d < w.count.x; ++d) {
            for (uint h = 0; h < w.count.y; h += LINES) {
                uint line_starts[LINES];
                [[unroll]] for (uint l = 0; l < LINES; ++l)
                    line_starts[l] = plane + d * tap_strides.x + min(h + l, w.count.y - 1) * tap_strides.y;
                T_MATH lines = T_MATH(0); // these alone: fewer roundings in a row
                for (uint v = 0; v < w.count.z; v += TAPS) {
                    // Past the window's end, its last line or element again: no larger and no earlier than itself.
                    T_MATH values[LINES * TAPS];
                    [[unroll]] for (uint t = 0; t < TAPS; ++t) {
                        const uint offset = min(v + t, w.count.z - 1) * tap_strides.z;
                        [[unroll]] for (uint l = 0; l < LINES; ++l) values[l * TAPS + t] = load(line_starts[l] + offset);
                    }
                    [[unroll]] for (uint l = 0; l < LINES; ++l) {
                        [[unroll]] for (uint t = 0; t < TAPS; ++t) {
                            const T_MATH value = values[l * TAPS + t];
                            if (IS_MAX) {
                                if (order(value) > most) {
                                    total = value;
                                    most = order(value);
                                    where = uvec3(d, h + l, v + t);
                                }
                            } else if (h + l < w.count.y && v + t < w.count.z) {
                                lines = added(lines, value, finds_largest, norm);
                            }
                        }
                    }
                }
                if (!IS_MAX) total = merged(total, lines, finds_largest);
            }
        }
        if (finds_largest) norm = norm_of(total);
    }
    const bool empty = min(min(w.count.x, w.count.y), w.count.z) == 0;
    const uvec3 source = w.first + where * uvec3(p.dilations[0], p.dilations[1], p.dilations[2]);
    store(at, IS_MAX ? total : finished(total, w.divisor, norm), empty ? 0 : logical_index(at.n, at.c, source));
}
