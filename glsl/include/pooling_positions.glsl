// Positions of outputs and their windows, for the pooling kernels that take an output at a time.
//
// Constants: DILATED (1 unless every dilation is 1), VOLUMES (1 where there is a D), CHANNELS_FASTEST (1 where neighbouring
// invocations take neighbouring channels instead of neighbours in a row), RANK (dimensions that outputs are counted over: 5,
// less D where it is absent, less N where it continues C and counts as part of it).
//
// Sizes and strides are those of {N, C, D, H, W}; without D it has size 1, window 1 and step 1.

#ifndef DMLVK_POOLING_POSITIONS_GLSL
#define DMLVK_POOLING_POSITIONS_GLSL

#include "tensor.glsl"

struct Position {
    uint n, c;
    uvec3 at;
};

// The output of a linear index, which counts p.walk_sizes[RANK], the last fastest.
Position position_of(uint linear) {
    uint c[5] = uint[5](0, 0, 0, 0, 0);
#define SET_COORDINATE(dim, coordinate) c[dim + 5 - int(RANK)] = coordinate;
    FOR_EACH_COORDINATE_FAST(linear, RANK, p.walk_sizes, p.walk_divisors, SET_COORDINATE)
    if (VOLUMES == 1) {
        return CHANNELS_FASTEST == 1
            ? Position(c[0], c[4], uvec3(c[1], c[2], c[3]))
            : Position(c[0], c[1], uvec3(c[2], c[3], c[4]));
    }
    return CHANNELS_FASTEST == 1
        ? Position(c[1], c[4], uvec3(0, c[2], c[3]))
        : Position(c[1], c[2], uvec3(0, c[3], c[4]));
}

// A window clipped to the input: its first element in it, the number of its elements in it, and how many it counts as.
struct Window {
    uvec3 first;
    uvec3 count;
    float divisor;
};

uint element_of(Position at, uint strides[5]) {
    return at.n * strides[0] + at.c * strides[1] + at.at.x * strides[2] + at.at.y * strides[3] + at.at.z * strides[4];
}

// Taps t of a window for which start + t * dilation lies in [0, end): the first, and the one after the last.
uvec2 taps_inside(int start, uint dilation, uint window, int end) {
    uvec2 taps = uvec2(max(ivec2(-start, end - start), ivec2(0)));
    if (DILATED == 1) taps = (taps + dilation - 1) / dilation;
    return min(taps, uvec2(window));
}

Window window_of(uvec3 o) {
    Window w = Window(uvec3(0), uvec3(1), 1.0);
    [[unroll]] for (uint d = 1 - VOLUMES; d < 3; ++d) {
        const int start = int(o[d] * p.steps[d]) - int(p.start_padding[d]);
        const int size = int(p.input_sizes[d + 2]);
        const uvec2 taps = taps_inside(start, p.dilations[d], p.window[d], size);
        w.count[d] = max(taps.y, taps.x) - taps.x;
        w.first[d] = w.count[d] > 0 ? uint(start + int(taps.x * p.dilations[d])) : 0;
        // No element lies before the start padding, so that only those past the end padding are left out.
        w.divisor *= float(p.include_padding == 1
            ? taps_inside(start, p.dilations[d], p.window[d], size + int(p.end_padding[d])).y
            : w.count[d]);
    }
    return w;
}

// The position of an element in the whole input, counted over its logical sizes.
uint logical_index(uint n, uint c, uvec3 at) {
    return (((n * p.input_sizes[1] + c) * p.input_sizes[2] + at.x) * p.input_sizes[3] + at.y) * p.input_sizes[4] + at.z;
}

#endif
