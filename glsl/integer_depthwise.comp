// Integer convolution with one input channel a group, an invocation a run of neighbouring outputs along W.
//
//   sum(o, k) = sum over taps t of (x[source(o, t), k's channel] - x's zero point) * (w[k, t] - w's zero point)
//
// See include/integer.glsl for the bindings and what becomes of a sum: a row is an output position, a column one of a group's
// output channels. A position outside of the input adds nothing.
// Constants: its own, and ROWS_INNER (0): neighbouring invocations have neighbouring runs, not channels; PIXELS (4) of a run;
// WINDOW_H, WINDOW_W (3), STRIDE_W, DILATION_W (1), repeated here so that the inputs of a run stay in registers: overlapping
// windows read them once. LOCAL_SIZE_X.
// Parameters: row_runs along W; runs of all images; channels, those of all groups; count, runs times channels.
// Grid: linear over runs and channels.

#include "tensor.glsl"
#include "integer.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer X { U x[]; };
layout(set = 0, binding = BINDING_W, std430) readonly buffer W { U w[]; };

const uint SEGMENT = (PIXELS - 1) * STRIDE_W + (WINDOW_W - 1) * DILATION_W + 1;

void main() {
    if (beyond(p.count)) return;
    const uint inner_size = ROWS_INNER != 0 ? p.runs : p.channels_of_all;
    const uint outer = linear_invocation() / inner_size, inner = linear_invocation() - outer * inner_size;
    const uint run = ROWS_INNER != 0 ? inner : outer, channel = ROWS_INNER != 0 ? outer : inner;
    const uint group_number = channel / p.columns, column = channel - group_number * p.columns;
    const Group group = group_of(group_number);
    const uint line = run / p.row_runs, first = (run - line * p.row_runs) * PIXELS;
    const uint batch = line / p.output_sizes[0];
    const uvec3 pixel = uvec3(batch, line - batch * p.output_sizes[0], first);

    const int x_zero = number(x_zero_point(0), X_SIGNED), w_zero = number(w_zero_point(group, column), W_SIGNED);
    const uint x_start = BYTE_OFFSET_X + group.outer * p.x_strides[0] + group.inner * p.x_strides[1] + batch * p.x_strides[2];
    const uint w_start = BYTE_OFFSET_W + group.outer * p.w_strides[0] + group.inner * p.w_strides[1] + column * p.w_strides[2];
    int sums[PIXELS];
    [[unroll]] for (uint i = 0; i < PIXELS; ++i) sums[i] = 0;
    [[unroll]] for (uint h = 0; h < WINDOW_H; ++h) {
        uint bits[SEGMENT];
        bool inside[SEGMENT];
        [[unroll]] for (uint i = 0; i < SEGMENT; ++i) {
            const uvec2 at = uvec2(pixel.y * p.steps[0] + h * p.dilations[0] - p.starts[0], first * STRIDE_W + i - p.starts[1]);
            inside[i] = at.x < p.input_sizes[0] && at.y < p.input_sizes[1];
            bits[i] = uint(x[x_start + (inside[i] ? at.x * p.x_strides[4] + at.y * p.x_strides[5] : 0)]);
        }
        [[unroll]] for (uint t = 0; t < WINDOW_W; ++t) {
            const int weight = number(uint(w[w_start + h * p.w_strides[4] + t * p.w_strides[5]]), W_SIGNED) - w_zero;
            [[unroll]] for (uint i = 0; i < PIXELS; ++i) {
                const uint at = i * STRIDE_W + t * DILATION_W;
                sums[i] += inside[at] ? (number(bits[at], X_SIGNED) - x_zero) * weight : 0;
            }
        }
    }
    const uint row = line * p.output_sizes[1] + first;
    const Finish finish = finish_of(group, row, column); // a convolution's rows have the same
    [[unroll]] for (uint i = 0; i < PIXELS; ++i)
        if (first + i < p.output_sizes[1]) store(group, row + i, uvec3(pixel.xy, first + i), column, sums[i], finish);
}
