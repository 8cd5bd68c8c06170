// Convolution, CHANNELS output channels of one pixel in each invocation's registers, weights handed round the subgroup.
//
//   y[n, k, o] = activation(bias[k] + sum over taps t and channels c of k's group of x[n, c, source(o, t)] * w[k, c, t])
//
// Bindings: X, W, BIAS, Y; see include/convolution.glsl for their layout and the position arithmetic.
// Constants: CHANNELS (8) output channels an invocation; HAS_BIAS (1), HAS_DIVISOR (1), the activation's id.
// Grid: x folded into y, over pixels (batch included, W fastest); z over blocks of CHANNELS within each group.
//
// Each value of x is read once for CHANNELS products, and neighbouring invocations read neighbouring pixels. All
// invocations of a workgroup need the same weights: each reads one of them and the subgroup passes them round, because a
// CPU's read is a loop over the lanes, even where all of them read the same (measured on lavapipe: 2 to 3 times faster).
// CHANNELS is at most the subgroup size.
// Chosen on CPUs, and elsewhere where the channels of a group are too few to fill the tiles of convolution_tiled and sums are
// short.

#include "tensor.glsl"
#include "convolution.glsl"

void main() {
    // Past the last pixel everything but the writing happens to the last one, because subgroups must stay whole.
    const uint pixel = min(linear_invocation(), p.pixels - 1);
    uint batch;
    uvec3 o;
    split_pixel(pixel, batch, o);

    const uint group = gl_WorkGroupID.z / p.group_blocks;
    const uint first = (gl_WorkGroupID.z - group * p.group_blocks) * CHANNELS;
    float sums[CHANNELS];
    [[unroll]] for (uint r = 0; r < CHANNELS; ++r) sums[r] = 0.0;
    const uint input_start = batch * p.input_strides[0] + group * p.group_channels * p.input_strides[1];
    // Lane i reads the weight of output channel i % CHANNELS. Channels past the group's last repeat it, so that every
    // read is inside.
    const uint lane_k = min(first + gl_SubgroupInvocationID % CHANNELS, p.group_outputs - 1);
    const uint filter_start = group * p.filter_group_stride + lane_k * p.filter_strides[0];

    for (uint t0 = 0; t0 < p.window[0]; ++t0) {
        for (uint t1 = 0; t1 < p.window[1]; ++t1) {
            for (uint t2 = 0; t2 < p.window[2]; ++t2) {
                uvec3 i;
                const bool inside = source_position(0, o.x, t0, i.x) && source_position(1, o.y, t1, i.y) &&
                    source_position(2, o.z, t2, i.z);
                uint source = input_start + i.x * p.input_strides[2] + i.y * p.input_strides[3] + i.z * p.input_strides[4];
                uint tap = filter_start + t0 * p.filter_strides[2] + t1 * p.filter_strides[3] + t2 * p.filter_strides[4];
                for (uint c = 0; c < p.group_channels; ++c) {
                    const float weight = load_w(tap);
                    const float value = inside ? load_x(source) : 0.0;
                    [[unroll]] for (uint r = 0; r < CHANNELS; ++r)
                        sums[r] = fma(value, subgroupShuffle(weight, r), sums[r]);
                    source += p.input_strides[1];
                    tap += p.filter_strides[1];
                }
            }
        }
    }
    if (linear_invocation() >= p.pixels) return;
    [[unroll]] for (uint r = 0; r < CHANNELS; ++r) {
        if (first + r < p.group_outputs) store(batch, group * p.group_outputs + first + r, o, sums[r]);
    }
}
