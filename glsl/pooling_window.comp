// Pooling, LANES invocations an output.
//
//   y[n, c, o] = mean, maximum or norm of x[n, c, o * stride + t * dilation - start padding] over the taps t of the window
//   that lie inside the input; see spec/ops/pooling.py
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

// Moves on by what `step` are the coordinates of.
void advance(inout uvec3 tap, uvec3 step, uvec3 sizes) {
    tap += step;
    if (tap.z >= sizes.z) tap += uvec3(0, 1, -sizes.z);
    if (tap.y >= sizes.y) tap += uvec3(1, -sizes.y, 0);
}

const uint NOTHING = 0xFFFFFFFFu; // the position of no element, later than every one

Norm norm = norm_of(T_MATH(0));

void take(inout Best best, bool finds_largest, T_MATH value, Position source) {
    if (IS_MAX) {
        const Best candidate = Best(value, logical_index(source.n, source.c, source.at));
        if (beats(candidate, best)) best = candidate;
    } else {
        best.value = added(best.value, value, finds_largest, norm);
    }
}

// One pass over a window; the first of its invocations gets all of it.
Best over_window(Position at, Window w, uint lane, bool finds_largest) {
    const uint elements = w.count.x * w.count.y * w.count.z;
    const uvec3 dilations = uvec3(p.dilations[0], p.dilations[1], p.dilations[2]);
    Best best = Best(IS_MAX ? least() : T_MATH(0), NOTHING);
    const uvec3 step = coordinates(LANES, w.count);
    uvec3 tap = coordinates(lane, w.count);
    uint i = lane;
    for (; i + (READS - 1) * LANES < elements; i += READS * LANES) {
        Position sources[READS];
        T_MATH read[READS];
        [[unroll]] for (uint r = 0; r < READS; ++r) {
            sources[r] = Position(at.n, at.c, w.first + tap * dilations);
            read[r] = load(element_of(sources[r], p.input_strides));
            advance(tap, step, w.count);
        }
        [[unroll]] for (uint r = 0; r < READS; ++r) take(best, finds_largest, read[r], sources[r]);
    }
    for (; i < elements; i += LANES) {
        const Position source = Position(at.n, at.c, w.first + tap * dilations);
        take(best, finds_largest, load(element_of(source, p.input_strides)), source);
        advance(tap, step, w.count);
    }

    const uint own = gl_LocalInvocationID.x;
    values[own] = best.value;
    indices[own] = best.index;
    for (uint distance = LANES / 2; distance > 0; distance /= 2) {
        barrier();
        if (lane < distance) {
            const Best other = Best(values[own + distance], indices[own + distance]);
            if (!IS_MAX) best.value = merged(best.value, other.value, finds_largest);
            else if (beats(other, best)) best = other;
            values[own] = best.value;
            indices[own] = best.index;
        }
    }
    return best;
}

void main() {
    const uint lane = gl_LocalInvocationID.x % LANES;
    const uint linear = linear_workgroup() * (LOCAL_SIZE_X / LANES) + gl_LocalInvocationID.x / LANES;
    // Invocations past the last output repeat it, so that all meet at the barriers; they do not store.
    const Position at = position_of(min(linear, p.outputs - 1));
    const Window w = window_of(at.at);
    if (passes() == 2) {
        over_window(at, w, lane, true);
        barrier();
        norm = norm_of(values[gl_LocalInvocationID.x - lane]);
        barrier();
    }
    const Best best = over_window(at, w, lane, false);
    if (lane == 0 && linear < p.outputs)
        store(at, IS_MAX ? best.value : finished(best.value, w.divisor, norm), best.index == NOTHING ? 0 : best.index);
}
