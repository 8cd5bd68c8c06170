// Pooling, one invocation an output.
//
//   y[n, c, o] = mean or maximum of x[n, c, o * stride + t * dilation - start padding] over the taps t of the window
//   that lie inside the input; see ops/pooling.py
//
// Bindings and constants: see include/pooling.glsl.
// Grid: x folded into y, over all outputs.
//
// A window is clipped once, so that its loops test nothing. Neighbours' windows overlap or lie side by side, and the
// cache serves what they share. Chosen unless windows are large and far apart.

#include "pooling.glsl"

void main() {
    const uint linear = linear_invocation();
    if (linear >= p.outputs) return;
    const Position at = position_of(linear);
    const Window w = window_of(at.at);
    const uint plane = element_of(Position(at.n, at.c, w.first), p.input_strides);
    const uvec3 tap_strides = uvec3(p.input_strides[2] * p.dilations[0], p.input_strides[3] * p.dilations[1],
                                    p.input_strides[4] * p.dilations[2]);

    T_MATH total = IS_MAX ? least() : T_MATH(0);
    ORDER most = order(total);
    uvec3 where = uvec3(0);
    bool found = false;
    for (uint d = 0; d < w.count.x; ++d) {
        for (uint h = 0; h < w.count.y; ++h) {
            const uint row = plane + d * tap_strides.x + h * tap_strides.y;
            T_MATH row_sum = T_MATH(0); // summed by itself: fewer roundings in a row
            for (uint v = 0; v < w.count.z; ++v) {
                const T_MATH value = load(row + v * tap_strides.z);
                if (!IS_MAX) row_sum += value;
                else if (!found || order(value) > most) {
                    total = value;
                    most = order(value);
                    where = uvec3(d, h, v);
                    found = true;
                }
            }
            if (!IS_MAX) total += row_sum;
        }
    }
    uint index = 0;
    if (found) {
        const uvec3 dilations = uvec3(p.dilations[0], p.dilations[1], p.dilations[2]);
        index = logical_index(at.n, at.c, w.first + where * dilations);
    }
    store(at, IS_MAX ? total : mean(total, w.divisor), index);
}
