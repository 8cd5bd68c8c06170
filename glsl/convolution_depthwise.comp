// Depthwise convolution (one input channel a group), FORWARD: a run of output pixels in each invocation's registers.
//
//   y[n, k, o] = activation(bias[k] + sum over taps t of x[n, group of k, o * stride + t * dilation - start] * w[k, 0, t])
//
// Bindings: X, W, BIAS, Y; see include/convolution.glsl for their layout and the position arithmetic.
// Constants: PIXELS (4) outputs an invocation along W; WINDOW_W (3), STRIDE_W (1), DILATION_W (1) as in the desc;
// HAS_BIAS (1), the activation's id. HAS_DIVISOR stays 0.
// Grid: x folded into y, over runs of PIXELS (batch included); z over output channels.
//
// Runs of neighbouring outputs overlap in what they read: a row of (PIXELS - 1) * STRIDE_W + (WINDOW_W - 1) *
// DILATION_W + 1 inputs is read once into registers for PIXELS * WINDOW_W products. The weights are the same for the
// whole workgroup. Bound by memory, not arithmetic: chosen wherever it is possible.

#include "tensor.glsl"
#include "convolution.glsl"

const uint SEGMENT = (PIXELS - 1) * STRIDE_W + (WINDOW_W - 1) * DILATION_W + 1;

void main() {
    const uint run = linear_invocation();
    if (run >= p.runs) return;
    const uint row = run / p.row_runs;
    const uint first = (run - row * p.row_runs) * PIXELS;
    uint batch;
    uvec3 o;
    split_pixel(row * p.output_sizes[4], batch, o);
    const uint channel = gl_WorkGroupID.z;
    const uint group = channel / p.group_outputs;
    const uint filter_start = group * p.filter_group_stride + (channel - group * p.group_outputs) * p.filter_strides[0];
    const uint input_start = batch * p.input_strides[0] + group * p.input_strides[1];
    const uint column = first * STRIDE_W + p.position_start[2];

    float sums[PIXELS];
    [[unroll]] for (uint j = 0; j < PIXELS; ++j) sums[j] = 0.0;
    for (uint t0 = 0; t0 < p.window[0]; ++t0) {
        for (uint t1 = 0; t1 < p.window[1]; ++t1) {
            uvec3 i;
            const bool inside = source_position(0, o.x, t0, i.x) && source_position(1, o.y, t1, i.y);
            if (!inside) continue;
            const uint source = input_start + i.x * p.input_strides[2] + i.y * p.input_strides[3];
            float segment[SEGMENT];
            [[unroll]] for (uint s = 0; s < SEGMENT; ++s) {
                const uint position = column + s;
                segment[s] = 0.0;
                if (position < p.input_sizes[2]) segment[s] = load_x(source + position * p.input_strides[4]);
            }
            const uint tap = filter_start + t0 * p.filter_strides[2] + t1 * p.filter_strides[3];
            [[unroll]] for (uint t2 = 0; t2 < WINDOW_W; ++t2) {
                const float weight = load_w(tap + t2 * p.filter_strides[4]);
                [[unroll]] for (uint j = 0; j < PIXELS; ++j)
                    sums[j] = fma(segment[j * STRIDE_W + t2 * DILATION_W], weight, sums[j]);
            }
        }
    }
    [[unroll]] for (uint j = 0; j < PIXELS; ++j) {
        o.z = first + j;
        if (o.z < p.output_sizes[4]) store(batch, channel, o, sums[j]);
    }
}
