// Convolution, one invocation an output element: any direction, group count, window and strides.
//
//   y[n, k, o] = activation(bias[k] + sum over taps t and channels c of k's group of x[n, c, source(o, t)] * w[k, c, t])
//
// Bindings: X, W, BIAS, Y; see include/convolution.glsl for their layout and the position arithmetic.
// Constants: HAS_BIAS (1), HAS_DIVISOR (1: positions are divided, as in a strided BACKWARD), the activation's id.
// Grid: linear over the output elements, W fastest.
//
// Sums in float32, taps outermost and channels innermost, in that order: the other schedules are checked against it.
// Chosen when no faster schedule fits.

#include "tensor.glsl"
#include "convolution.glsl"

void main() {
    const uint element = linear_invocation();
    if (element >= p.count) return;

    // Channels vary slower than pixels, the batch slowest.
    const uint image = p.output_sizes[2] * p.output_sizes[3] * p.output_sizes[4];
    const uint plane = element / image;
    uint unused;
    uvec3 o;
    split_pixel(element - plane * image, unused, o);
    const uint batch = plane / p.output_sizes[1];
    const uint channel = plane - batch * p.output_sizes[1];
    const uint group = channel / p.group_outputs;
    const uint filter_start =
        group * p.filter_group_stride + (channel - group * p.group_outputs) * p.filter_strides[0];
    const uint input_start = batch * p.input_strides[0] + group * p.group_channels * p.input_strides[1];

    float sum = 0.0;
    for (uint t0 = 0; t0 < p.window[0]; ++t0) {
        uvec3 i;
        if (!source_position(0, o.x, t0, i.x)) continue;
        for (uint t1 = 0; t1 < p.window[1]; ++t1) {
            if (!source_position(1, o.y, t1, i.y)) continue;
            for (uint t2 = 0; t2 < p.window[2]; ++t2) {
                if (!source_position(2, o.z, t2, i.z)) continue;
                uint source = input_start + i.x * p.input_strides[2] + i.y * p.input_strides[3] + i.z * p.input_strides[4];
                uint tap = filter_start + t0 * p.filter_strides[2] + t1 * p.filter_strides[3] + t2 * p.filter_strides[4];
                for (uint c = 0; c < p.group_channels; ++c) {
                    sum = fma(load_x(source), load_w(tap), sum);
                    source += p.input_strides[1];
                    tap += p.filter_strides[1];
                }
            }
        }
    }
    store(batch, channel, o, sum);
}
