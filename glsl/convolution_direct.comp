// Convolution, CHANNELS output channels of PIXELS pixels in each invocation's registers, weights handed round the subgroup.
//
//   y[n, k, o] = activation(bias[k] + sum over taps t and channels c of k's group of x[n, c, source(o, t)] * w[k, c, t])
//
// Bindings: X, W, BIAS, Y; see include/convolution.glsl for their layout and the position arithmetic.
// Constants: CHANNELS (8) output channels and PIXELS (1) pixels an invocation; SHARERS (8) invocations that read them together, at most the
// subgroup size, of which CHANNELS is a multiple; HAS_BIAS (1), HAS_DIVISOR (1), the activation's id.
// Grid: x folded into y, over runs of LOCAL_SIZE_X * PIXELS pixels (batch included, W fastest); z over blocks of CHANNELS within each
// group.
//
// Each value of x is read once for CHANNELS products, each weight is handed round once for PIXELS, and neighbouring invocations read
// neighbouring pixels. All invocations of a workgroup need the same weights: each reads one of SHARERS of them and the subgroup passes them
// round, because a CPU's read is a loop over the lanes, even where all of them read the same (measured on lavapipe: 2 to 3 times faster).
// Chosen on CPUs; elsewhere convolution_shared_weights is faster.

// The bias of the output that is stored next.
float own_bias;
#define BIAS_OF(channel) own_bias

#include "tensor.glsl"
#include "convolution.glsl"

const uint LANE_CHANNELS = CHANNELS / SHARERS;

void main() {
    // Past the last pixel everything but the writing happens to the last one, because subgroups must stay whole.
    const uint first_pixel = linear_workgroup() * LOCAL_SIZE_X * PIXELS + gl_LocalInvocationID.x;
    const uint group = gl_WorkGroupID.z / p.group_blocks;
    const uint first = (gl_WorkGroupID.z - group * p.group_blocks) * CHANNELS;
    uint starts[PIXELS];
    uvec3 positions[PIXELS]; // of the windows' first taps
    float sums[PIXELS][CHANNELS];
    [[unroll]] for (uint i = 0; i < PIXELS; ++i) {
        uint batch;
        uvec3 o;
        split_pixel(min(first_pixel + i * LOCAL_SIZE_X, p.pixels - 1), batch, o);
        starts[i] = batch * p.input_strides[0] + group * p.group_channels * p.input_strides[1];
        [[unroll]] for (int d = 0; d < 3; ++d) positions[i][d] = o[d] * p.position_step[d] + p.position_start[d];
        [[unroll]] for (uint r = 0; r < CHANNELS; ++r) sums[i][r] = 0.0;
    }
    // Lane i reads the weights of output channels i % SHARERS and every SHARERS further. Channels past the group's last repeat it, so that
    // every read is inside.
    uint filters[LANE_CHANNELS];
    float biases[LANE_CHANNELS];
    [[unroll]] for (uint j = 0; j < LANE_CHANNELS; ++j) {
        const uint channel = min(first + j * SHARERS + gl_SubgroupInvocationID % SHARERS, p.group_outputs - 1);
        filters[j] = group * p.filter_group_stride + channel * p.filter_strides[0];
        biases[j] = load_bias(group * p.group_outputs + channel);
    }

    for (uint t0 = 0; t0 < p.window[0]; ++t0) {
        for (uint t1 = 0; t1 < p.window[1]; ++t1) {
            for (uint t2 = 0; t2 < p.window[2]; ++t2) {
                bool inside[PIXELS];
                uint sources[PIXELS];
                [[unroll]] for (uint i = 0; i < PIXELS; ++i) {
                    uvec3 at;
                    inside[i] = source_at(0, positions[i].x, t0, at.x) && source_at(1, positions[i].y, t1, at.y) &&
                        source_at(2, positions[i].z, t2, at.z);
                    sources[i] = starts[i] + at.x * p.input_strides[2] + at.y * p.input_strides[3] + at.z * p.input_strides[4];
                }
                uint tap = t0 * p.filter_strides[2] + t1 * p.filter_strides[3] + t2 * p.filter_strides[4];
                for (uint c = 0; c < p.group_channels; ++c) {
                    float weights[LANE_CHANNELS];
                    [[unroll]] for (uint j = 0; j < LANE_CHANNELS; ++j) weights[j] = load_w(filters[j] + tap);
                    float values[PIXELS];
                    [[unroll]] for (uint i = 0; i < PIXELS; ++i) values[i] = inside[i] ? load_x(sources[i]) : 0.0;
                    [[unroll]] for (uint r = 0; r < CHANNELS; ++r) {
                        const float own = subgroupShuffle(weights[r / SHARERS], r % SHARERS);
                        [[unroll]] for (uint i = 0; i < PIXELS; ++i) sums[i][r] = fma(values[i], own, sums[i][r]);
                    }
                    [[unroll]] for (uint i = 0; i < PIXELS; ++i) sources[i] += p.input_strides[1];
                    tap += p.filter_strides[1];
                }
            }
        }
    }
    float own_biases[CHANNELS];
    [[unroll]] for (uint r = 0; r < CHANNELS; ++r) own_biases[r] = subgroupShuffle(biases[r / SHARERS], r % SHARERS);
    [[unroll]] for (uint i = 0; i < PIXELS; ++i) {
        const uint pixel = first_pixel + i * LOCAL_SIZE_X;
        if (pixel >= p.pixels) return;
        uint batch;
        uvec3 o;
        split_pixel(pixel, batch, o);
        [[unroll]] for (uint r = 0; r < CHANNELS; ++r) {
            own_bias = own_biases[r];
            if (first + r < p.group_outputs) store(batch, group * p.group_outputs + first + r, o, sums[i][r]);
        }
    }
}
