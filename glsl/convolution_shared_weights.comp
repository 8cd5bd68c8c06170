// Convolution, CHANNELS output channels of PIXELS pixels in each invocation's registers, weights in shared memory.
//
//   y[n, k, o] = activation(bias[k] + sum over taps t and channels c of k's group of x[n, c, source(o, t)] * w[k, c, t])
//
// Bindings: X, W, BIAS, ADDEND, Y; see include/convolution.glsl for their layout and the position arithmetic.
// Constants:
//   CHANNELS (8)   output channels an invocation, a multiple of 4
//   PIXELS (2)     pixels an invocation, LOCAL_SIZE_X apart
//   TOGETHER (1)   channels of a tap whose inputs are read before the first is multiplied; divides group_channels
//   TERMS (64)     terms whose weights are in shared memory at a time, a multiple of TOGETHER
//   ALL (0)        1: these are all
//   WINDOW_W (3)   taps along W
//   X_QUADS (0)    1: the channels read together are an aligned quad in memory
//   Y_QUADS (0)    1: output channels are, too, and there is no output padding
//   HAS_BIAS (1), HAS_ADDEND (0), HAS_DIVISOR (1), the activation's id
// Parameters: walk_sizes and walk_divisors over the terms {groups of TOGETHER channels, taps along D, H, W, channels of such a group}.
// Grid: x folded into y, over runs of LOCAL_SIZE_X * PIXELS pixels (batch included, W fastest); z over blocks of CHANNELS within each
// group.
//
// Each value of x is read once for CHANNELS products, each quad of weights once for 4 * PIXELS, and neighbouring invocations read
// neighbouring pixels. All taps of a few channels come before those of others, so that what windows share is in the nearest cache.
// Chosen on GPUs where the channels of a group are too few to fill the tiles of convolution_tiled, or sums too short for their rounds.

// The bias of the output that is stored next.
float own_bias;
#define BIAS_OF(channel) own_bias

#include "tensor.glsl"
#include "quads.glsl"
#include "convolution.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer XQuads { QUAD x_quads[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YQuads { QUAD y_quads[]; };

const uint QUADS = CHANNELS / 4;

shared vec4 weights[TERMS * QUADS];

// Brings the weights of the terms from `first_term` on, as many as fit. Channels past the group's last repeat it.
void bring_weights(uint first_term, uint terms, uint group, uint first) {
    for (uint i = gl_LocalInvocationID.x; i < min(TERMS, terms - first_term) * CHANNELS; i += LOCAL_SIZE_X) {
        const uint channel = min(first + i % CHANNELS, p.group_outputs - 1);
        uint at = group * p.filter_group_stride + channel * p.filter_strides[0];
#define ADD_TERM(dim, coordinate) at += (coordinate) * (dim == 0 ? TOGETHER * p.filter_strides[1] : p.filter_strides[dim == 4 ? 1 : dim + 1]);
        FOR_EACH_COORDINATE_FAST(first_term + i / CHANNELS, 5, p.walk_sizes, p.walk_divisors, ADD_TERM)
        weights[i / 4][i % 4] = load_w(at);
    }
}

void main() {
    // Past the last pixel everything but the writing happens to the last one, because workgroups must stay whole.
    const uint first_pixel = linear_workgroup() * LOCAL_SIZE_X * PIXELS + gl_LocalInvocationID.x;
    const uint group = gl_WorkGroupID.z / p.group_blocks;
    const uint first = (gl_WorkGroupID.z - group * p.group_blocks) * CHANNELS;
    const uint terms = p.group_channels * p.window[0] * p.window[1] * WINDOW_W;
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

    if (ALL != 0) {
        bring_weights(0, terms, group, first);
        barrier();
    }
    uint brought = 0; // terms before the first whose weights have not been in shared memory
    uint term = ALL != 0 ? 0 : TERMS;
    for (uint c = 0; c < p.group_channels; c += TOGETHER) {
        for (uint t0 = 0; t0 < p.window[0]; ++t0) {
            for (uint t1 = 0; t1 < p.window[1]; ++t1) {
                bool inside_plane[PIXELS];
                uint rows[PIXELS];
                [[unroll]] for (uint i = 0; i < PIXELS; ++i) {
                    uvec2 at;
                    inside_plane[i] = source_at(0, positions[i].x, t0, at.x) && source_at(1, positions[i].y, t1, at.y);
                    rows[i] = starts[i] + at.x * p.input_strides[2] + at.y * p.input_strides[3];
                }
                for (uint t2 = 0; t2 < WINDOW_W; ++t2) {
                    if (ALL == 0 && term == TERMS) {
                        if (brought > 0) barrier();
                        bring_weights(brought, terms, group, first);
                        barrier();
                        brought += TERMS;
                        term = 0;
                    }
                    float values[TOGETHER][PIXELS];
                    [[unroll]] for (uint i = 0; i < PIXELS; ++i) {
                        uint at;
                        const bool inside = source_at(2, positions[i].z, t2, at) && inside_plane[i];
                        const uint source = inside ? rows[i] + at * p.input_strides[4] : starts[i]; // that a read is inside, too
                        if (X_QUADS != 0) {
                            const vec4 quad = unpack_quad(x_quads[(BYTE_OFFSET_X / T_BYTES + source) / 4]);
                            [[unroll]] for (uint g = 0; g < TOGETHER; ++g) values[g][i] = inside ? quad[g] : 0.0;
                        } else {
                            [[unroll]] for (uint g = 0; g < TOGETHER; ++g) {
                                const float value = load_x(source + g * p.input_strides[1]);
                                values[g][i] = inside ? value : 0.0;
                            }
                        }
                    }
                    [[unroll]] for (uint g = 0; g < TOGETHER; ++g) {
                        [[unroll]] for (uint q = 0; q < QUADS; ++q) {
                            const vec4 quad = weights[(term + g) * QUADS + q];
                            [[unroll]] for (uint r = 0; r < 4; ++r)
                                [[unroll]] for (uint i = 0; i < PIXELS; ++i)
                                    sums[i][q * 4 + r] = fma(values[g][i], quad[r], sums[i][q * 4 + r]);
                        }
                    }
                    term += TOGETHER;
                }
            }
        }
        [[unroll]] for (uint i = 0; i < PIXELS; ++i) starts[i] += TOGETHER * p.input_strides[1];
    }

    float biases[CHANNELS];
    [[unroll]] for (uint r = 0; r < CHANNELS; ++r)
        biases[r] = load_bias(group * p.group_outputs + min(first + r, p.group_outputs - 1));
    [[unroll]] for (uint i = 0; i < PIXELS; ++i) {
        const uint pixel = first_pixel + i * LOCAL_SIZE_X;
        if (pixel >= p.pixels) return;
        uint batch;
        uvec3 o;
        split_pixel(pixel, batch, o);
        const uint channel = group * p.group_outputs + first;
        if (Y_QUADS != 0) {
            const uint at = output_element(batch, channel, o);
            QUAD addends[QUADS];
            [[unroll]] for (uint q = 0; q < QUADS; ++q)
                if (first + q * 4 < p.group_outputs) addends[q] = load_addend_quad(at + q * 4);
            [[unroll]] for (uint q = 0; q < QUADS; ++q) {
                vec4 sum, own_biases;
                [[unroll]] for (uint r = 0; r < 4; ++r) {
                    sum[r] = sums[i][q * 4 + r];
                    own_biases[r] = biases[q * 4 + r];
                }
                if (first + q * 4 < p.group_outputs) {
                    y_quads[(BYTE_OFFSET_Y / T_BYTES + at) / 4 + q] =
                        pack_quad(finished(sum, own_biases, unpack_quad(addends[q])));
                }
            }
        } else {
            float addends[CHANNELS];
            [[unroll]] for (uint r = 0; r < CHANNELS; ++r)
                addends[r] = load_addend(output_element(batch, channel + min(r, p.group_outputs - 1 - first), o));
            [[unroll]] for (uint r = 0; r < CHANNELS; ++r) {
                own_bias = biases[r];
                if (first + r < p.group_outputs) store_sum(batch, channel + r, o, sums[i][r], addends[r]);
            }
        }
    }
}
