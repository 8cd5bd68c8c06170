// Depthwise convolution (one input channel a group), FORWARD: a run of output pixels in each invocation's registers.
//
//   y[n, k, o] = activation(bias[k] + sum over taps t of x[n, group of k, o * stride + t * dilation - start] * w[k, 0, t])
//
// Bindings: X, W, BIAS, Y; see include/convolution.glsl for their layout and the position arithmetic.
// Variants: T; PAIR, a type of two numbers of 32 bits where invocations share what they read (see below), else 0.
// Constants: PIXELS (4) outputs an invocation along W; WINDOW_W (3), STRIDE_W (1), DILATION_W (1) as in the desc;
// SHARERS (1) neighbouring invocations that read the weights of a row of the window together; PAIRS (0): whether inputs are read two at a
// time, the first of them SHIFT (0) before a run's first; HAS_BIAS (1), the activation's id. HAS_DIVISOR stays 0.
// CHANNELS_INSIDE (0): neighbouring invocations have neighbouring channels, not runs; not where they share weights.
// Grid: x folded into y, over runs of PIXELS (batch included), or over them and, fastest, channels; z over output channels, else.
//
// Runs of neighbouring outputs overlap in what they read: a row of (PIXELS - 1) * STRIDE_W + (WINDOW_W - 1) *
// DILATION_W + 1 inputs is read once into registers for PIXELS * WINDOW_W products. The weights are the same for the
// whole workgroup, but for CHANNELS_INSIDE. Bound by memory, not arithmetic: chosen wherever it is possible.
//
// A CPU's read is a loop over the lanes, of one number or of 64 bits, even where all lanes read the same. So there each invocation reads
// one weight, which the subgroup passes round, and inputs in pairs where rows of them begin on 8 bytes.

// The bias of an invocation's outputs.
float own_bias;
#define BIAS_OF(channel) own_bias

#include "tensor.glsl"
#include "convolution.glsl"

#if defined(PAIR_IS_BITS64) || defined(PAIR_IS_UINT64)
layout(set = 0, binding = BINDING_X, std430) readonly buffer XPairs { PAIR x_pairs[]; };
#ifdef PAIR_IS_UINT64
#define PAIR_AT(element) unpackUint2x32(x_pairs[(BYTE_OFFSET_X / T_BYTES + (element)) / 2])
#else
#define PAIR_AT(element) x_pairs[(BYTE_OFFSET_X / T_BYTES + (element)) / 2]
#endif
#define SHARED_WEIGHT(own, tap) subgroupShuffle(own[(tap) / SHARERS], (tap) % SHARERS)
#else
#define PAIR_AT(element) uvec2(0)
#define SHARED_WEIGHT(own, tap) own[tap]
#endif

const uint SEGMENT = SHIFT + (PIXELS - 1) * STRIDE_W + (WINDOW_W - 1) * DILATION_W + 1;
const uint READ = PAIRS != 0 ? (SEGMENT + 1) / 2 * 2 : SEGMENT;
const uint OWN_WEIGHTS = (WINDOW_W + SHARERS - 1) / SHARERS;

// The inputs at `position` and the next one of the row that starts at `source`: 0 past its end, before which positions wrap around.
vec2 pair_of_row(uint source, uint position) {
    uvec2 pair = uvec2(0);
    if (position < p.input_sizes[2]) pair = PAIR_AT(source + position);
    return vec2(uintBitsToFloat(pair.x), position + 1 < p.input_sizes[2] ? uintBitsToFloat(pair.y) : 0.0);
}

void main() {
    // Past the last run everything but the writing happens to the last one, because subgroups must stay whole.
    const uint count = CHANNELS_INSIDE != 0 ? p.runs * p.output_sizes[1] : p.runs;
    const uint own = min(linear_invocation(), count - 1);
    const uint run = CHANNELS_INSIDE != 0 ? own / p.output_sizes[1] : own;
    const uint row = run / p.row_runs;
    const uint first = (run - row * p.row_runs) * PIXELS;
    uint batch;
    uvec3 o;
    split_pixel(row * p.output_sizes[4], batch, o);
    const uint channel = CHANNELS_INSIDE != 0 ? own - run * p.output_sizes[1] : gl_WorkGroupID.z;
    const uint group = channel / p.group_outputs;
    const uint filter_start = group * p.filter_group_stride + (channel - group * p.group_outputs) * p.filter_strides[0];
    const uint input_start = batch * p.input_strides[0] + group * p.input_strides[1];
    const uint column = first * STRIDE_W + p.position_start[2] - SHIFT;
    own_bias = load_bias(channel);

    float sums[PIXELS];
    [[unroll]] for (uint j = 0; j < PIXELS; ++j) sums[j] = 0.0;
    for (uint t0 = 0; t0 < p.window[0]; ++t0) {
        for (uint t1 = 0; t1 < p.window[1]; ++t1) {
            const uint tap = filter_start + t0 * p.filter_strides[2] + t1 * p.filter_strides[3];
            float own_weights[OWN_WEIGHTS];
            [[unroll]] for (uint r = 0; r < OWN_WEIGHTS; ++r) {
                const uint t2 = r * SHARERS + (SHARERS > 1 ? gl_SubgroupInvocationID % SHARERS : 0);
                own_weights[r] = load_w(tap + min(t2, WINDOW_W - 1) * p.filter_strides[4]);
            }
            float weights[WINDOW_W];
            [[unroll]] for (uint t2 = 0; t2 < WINDOW_W; ++t2) weights[t2] = SHARED_WEIGHT(own_weights, t2);
            uvec3 i;
            const bool inside = source_position(0, o.x, t0, i.x) && source_position(1, o.y, t1, i.y);
            if (!inside) continue;
            const uint source = input_start + i.x * p.input_strides[2] + i.y * p.input_strides[3];
            float segment[READ];
            if (PAIRS != 0) {
                [[unroll]] for (uint s = 0; s < READ; s += 2) {
                    const vec2 pair = pair_of_row(source, column + s);
                    segment[s] = pair.x;
                    segment[s + 1] = pair.y;
                }
            } else {
                [[unroll]] for (uint s = 0; s < READ; ++s) {
                    const uint position = column + s;
                    segment[s] = 0.0;
                    if (position < p.input_sizes[2]) segment[s] = load_x(source + position * p.input_strides[4]);
                }
            }
            [[unroll]] for (uint t2 = 0; t2 < WINDOW_W; ++t2) {
                [[unroll]] for (uint j = 0; j < PIXELS; ++j)
                    sums[j] = fma(segment[SHIFT + j * STRIDE_W + t2 * DILATION_W], weights[t2], sums[j]);
            }
        }
    }
    if (linear_invocation() >= count) return;
    [[unroll]] for (uint j = 0; j < PIXELS; ++j) {
        o.z = first + j;
        if (o.z < p.output_sizes[4]) store(batch, channel, o, sums[j]);
    }
}
