// Pooling, LANES invocations an output.
//
//   y[n, c, o] = mean or maximum of x[n, c, o * stride + t * dilation - start padding] over the taps t of the window
//   that lie inside the input; see ops/pooling.py
//
// Bindings and constants: see include/pooling.glsl; also LANES (a power of two that divides LOCAL_SIZE_X).
// Grid: x folded into y, over groups of LOCAL_SIZE_X / LANES outputs.
//
// The invocations of an output read neighbouring elements of its window and combine theirs in shared memory, as a tree.
// Chosen for large windows that are far apart, such as a global pooling's: one invocation an output would leave most of
// the device idle, and neighbours would read far apart.

#include "pooling.glsl"

// The value so far, and the linear position of the input element that it came from.
struct Best {
    T_MATH value;
    uint index;
};

shared T_MATH values[LOCAL_SIZE_X];
shared uint indices[LOCAL_SIZE_X];

// Whether `a` is larger, or equal and earlier: the tree may meet equals in any order.
bool beats(Best a, Best b) {
    const ORDER first = order(a.value), second = order(b.value);
    return first > second || first == second && a.index < b.index;
}

// Coordinates of an element of a window of these sizes, counted row by row; of none where the window is empty.
uvec3 coordinates(uint element, uvec3 sizes) {
    const uvec3 some = max(sizes, uvec3(1));
    const uint line = element / some.z;
    return uvec3(line / some.y, line % some.y, element - line * some.z);
}

void main() {
    const uint lane = gl_LocalInvocationID.x % LANES;
    const uint linear = linear_workgroup() * (LOCAL_SIZE_X / LANES) + gl_LocalInvocationID.x / LANES;
    // Invocations past the last output repeat it, so that all meet at the barriers; they do not store.
    const Position at = position_of(min(linear, p.outputs - 1));
    const Window w = window_of(at.at);
    const uint elements = w.count.x * w.count.y * w.count.z;
    const uvec3 dilations = uvec3(p.dilations[0], p.dilations[1], p.dilations[2]);

    const uint nothing = 0xFFFFFFFFu; // later than every element
    Best best = Best(IS_MAX ? least() : T_MATH(0), nothing);
    // The window's coordinates of element `lane`, and what LANES elements further on adds to them.
    const uvec3 step = coordinates(LANES, w.count);
    uvec3 tap = coordinates(lane, w.count);
    for (uint i = lane; i < elements; i += LANES) {
        const uvec3 source = w.first + tap * dilations;
        const T_MATH value = load(element_of(Position(at.n, at.c, source), p.input_strides));
        if (!IS_MAX) {
            best.value += value;
        } else {
            const Best candidate = Best(value, logical_index(at.n, at.c, source));
            if (beats(candidate, best)) best = candidate;
        }
        tap += step;
        if (tap.z >= w.count.z) tap += uvec3(0, 1, -w.count.z);
        if (tap.y >= w.count.y) tap += uvec3(1, -w.count.y, 0);
    }

    const uint own = gl_LocalInvocationID.x;
    values[own] = best.value;
    indices[own] = best.index;
    for (uint distance = LANES / 2; distance > 0; distance /= 2) {
        barrier();
        if (lane < distance) {
            const Best other = Best(values[own + distance], indices[own + distance]);
            if (!IS_MAX) best.value += other.value;
            else if (beats(other, best)) best = other;
            values[own] = best.value;
            indices[own] = best.index;
        }
    }
    if (lane == 0 && linear < p.outputs)
        store(at, IS_MAX ? best.value : mean(best.value, w.divisor), best.index == nothing ? 0 : best.index);
}
