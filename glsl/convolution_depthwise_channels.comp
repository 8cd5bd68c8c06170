// Depthwise convolution (one channel in and out a group), FORWARD, over planes whose channels are contiguous: an invocation
// makes COLUMNS neighbouring outputs of a row in LANES neighbouring channels.
//
//   y[n, c, o] = activation(bias[c] + sum over taps t of x[n, c, o * stride + t - start] * w[c, 0, t])
//
// A workgroup makes a block of rows and columns in a few neighbouring channels, so that what its windows share comes from
// the nearest cache; and what the windows of an invocation share is read once. Reads beyond the input go to its first
// element, and what they bring is replaced by 0.
// Chosen for windows without dilation where channels are contiguous in whole groups of LANES: bound by memory.
//
// Variants: T and LANES.
// Bindings: X, W repacked, {tap, channel}; BIAS, Y; see include/convolution.glsl.
// Constants:
//   COLUMNS (4)                              neighbouring outputs of a row
//   GROUP_LANES (8), GROUP_COLUMNS (4)       invocations of a workgroup along channels and a row; the rest are along columns
//   WINDOW_H, WINDOW_W, STRIDE_H, STRIDE_W   the window and its steps
//   HAS_BIAS (1), the activation's id; HAS_DIVISOR stays 0
// Parameters: walk_sizes and walk_divisors over workgroups {N, rows, columns, channels}.

#include "lanes.glsl"
#include "tensor.glsl"
#include "convolution.glsl"

LANES_BUFFER(readonly, T, X, x)
LANES_BUFFER(readonly, T, W, w)
LANES_BUFFER(writeonly, T, Y, y)

#define WORDS (LANES * T_BYTES / 4)

const uint COLUMNS_READ = (COLUMNS - 1) * STRIDE_W + WINDOW_W;

void main() {
    if (linear_workgroup() >= p.count) return;
    uint walk[4];
#define SET_COORDINATE(dim, coordinate) walk[dim] = coordinate;
    FOR_EACH_COORDINATE_FAST(linear_workgroup(), 4, p.walk_sizes, p.walk_divisors, SET_COORDINATE)
    const uint lane = gl_LocalInvocationID.x % GROUP_LANES;
    const uint rest = gl_LocalInvocationID.x / GROUP_LANES;
    const uint channel = (walk[3] * GROUP_LANES + lane) * LANES;
    const uint first = (walk[2] * GROUP_COLUMNS + rest % GROUP_COLUMNS) * COLUMNS;
    const uint row = walk[1] * (LOCAL_SIZE_X / (GROUP_LANES * GROUP_COLUMNS)) + rest / GROUP_COLUMNS;
    if (channel >= p.output_sizes[1] || first >= p.output_sizes[4] || row >= p.output_sizes[3]) return;

    const uint plane = walk[0] * p.input_strides[0] + channel;
    const uint row0 = row * STRIDE_H + p.position_start[1];
    const uint column0 = first * STRIDE_W + p.position_start[2];
    uint offsets[COLUMNS_READ];
    bool inside[COLUMNS_READ];
    [[unroll]] for (uint s = 0; s < COLUMNS_READ; ++s) {
        inside[s] = column0 + s < p.input_sizes[2];
        offsets[s] = inside[s] ? (column0 + s) * p.input_strides[4] : 0;
    }
    float sums[COLUMNS * LANES];
    [[unroll]] for (uint i = 0; i < COLUMNS * LANES; ++i) sums[i] = 0.0;
    for (uint t_row = 0; t_row < WINDOW_H; ++t_row) {
        const bool row_inside = row0 + t_row < p.input_sizes[1];
        const uint start = plane + (row_inside ? row0 + t_row : 0) * p.input_strides[3];
        uint words[COLUMNS_READ * WORDS];
        [[unroll]] for (uint s = 0; s < COLUMNS_READ; ++s) {
            uint group[WORDS];
            put_group_T(group, 0, x_groups[(BYTE_OFFSET_X / T_BYTES + start + offsets[s]) / LANES]);
            [[unroll]] for (uint k = 0; k < WORDS; ++k) words[s * WORDS + k] = group[k];
        }
        float weights[WINDOW_W * LANES];
        [[unroll]] for (uint t = 0; t < WINDOW_W; ++t) {
            T_MATH of_lanes[LANES];
            LOAD_LANES(T, of_lanes, W, w, MODE_GROUPS, channel + t_row * p.filter_strides[3] + t * p.filter_strides[4], 1)
            [[unroll]] for (uint l = 0; l < LANES; ++l) weights[t * LANES + l] = of_lanes[l];
        }
        [[unroll]] for (uint s = 0; s < COLUMNS_READ; ++s) {
            uint group[WORDS];
            [[unroll]] for (uint k = 0; k < WORDS; ++k) group[k] = row_inside && inside[s] ? words[s * WORDS + k] : 0u;
            T_MATH values[LANES];
            unpack_T(group, values);
            [[unroll]] for (uint j = 0; j < COLUMNS; ++j) {
                if (s >= j * STRIDE_W && s - j * STRIDE_W < WINDOW_W) {
                    [[unroll]] for (uint l = 0; l < LANES; ++l)
                        sums[j * LANES + l] = fma(values[l], weights[(s - j * STRIDE_W) * LANES + l], sums[j * LANES + l]);
                }
            }
        }
    }

    float biases[LANES];
    [[unroll]] for (uint l = 0; l < LANES; ++l) biases[l] = load_bias(channel + l);
    [[unroll]] for (uint j = 0; j < COLUMNS; ++j) {
        if (first + j >= p.output_sizes[4]) return;
        T_MATH results[LANES];
        [[unroll]] for (uint l = 0; l < LANES; ++l)
            results[l] = activated(sums[j * LANES + l] + biases[l]);
        const uint at = output_element(walk[0], channel, uvec3(0, row, first + j));
        y_groups[(BYTE_OFFSET_Y / T_BYTES + at) / LANES] = get_group_T(pack_T(results), 0);
    }
}
