// Convolution as a matrix product of the filter with windows of the input, tile by tile through shared memory.
//
//   y[n, k, o] = activation(bias[k] + sum over taps t and channels c of k's group of x[n, c, source(o, t)] * w[k, c, t])
//
// Bindings: X, W, BIAS, Y; see include/convolution.glsl for their layout and the position arithmetic.
// Constants: LOCAL_SIZE_X by LOCAL_SIZE_Y invocations (16 by 8), each with THREAD_K (4) output channels of THREAD_P (4)
// pixels in registers, so that a workgroup computes TILE_K = LOCAL_SIZE_Y * THREAD_K channels by
// TILE_P = LOCAL_SIZE_X * THREAD_P pixels; TILE_C (16) input channels are staged at a time. TILE_P and TILE_C divide
// the invocation count. HAS_BIAS (1), HAS_DIVISOR (1), the activation's id.
// Grid: x over tiles of pixels (batch included, W fastest), y over tiles of channels in a group, z over groups.
//
// No window is ever written out: for each tap, TILE_C channels of the shifted input go straight to shared memory. An
// invocation's pixels are LOCAL_SIZE_X apart, so neighbours read neighbouring words of shared memory and store
// neighbouring outputs. Chosen where groups have channels enough to fill the tiles.

#include "tensor.glsl"
#include "convolution.glsl"

const uint INVOCATIONS = LOCAL_SIZE_X * LOCAL_SIZE_Y;
const uint TILE_K = LOCAL_SIZE_Y * THREAD_K;
const uint TILE_P = LOCAL_SIZE_X * THREAD_P;
// Four words of padding keep rows aligned to 16 bytes and spread a column over the banks.
const uint ROW_K = TILE_K + 4;

shared float tile_x[TILE_C * TILE_P];
shared float tile_w[TILE_C * ROW_K];

void main() {
    const uint invocation = gl_LocalInvocationIndex;
    const uint group = gl_WorkGroupID.z;
    const uint first_k = gl_WorkGroupID.y * TILE_K;
    const uint first_pixel = gl_WorkGroupID.x * TILE_P;

    // The pixel and first channel that this invocation stages, and the first filter row and channel.
    const uint stage_p = invocation % TILE_P;
    const uint stage_xc = invocation / TILE_P;
    const uint stage_wc = invocation % TILE_C;
    const uint stage_k = invocation / TILE_C;
    const bool pixel_exists = first_pixel + stage_p < p.pixels;
    uint batch;
    uvec3 o;
    split_pixel(min(first_pixel + stage_p, p.pixels - 1), batch, o);
    const uint input_start = batch * p.input_strides[0] + group * p.group_channels * p.input_strides[1];
    const uint filter_start = group * p.filter_group_stride;

    float sums[THREAD_K][THREAD_P];
    [[unroll]] for (uint i = 0; i < THREAD_K; ++i)
        [[unroll]] for (uint j = 0; j < THREAD_P; ++j) sums[i][j] = 0.0;

    for (uint t0 = 0; t0 < p.window[0]; ++t0) {
        for (uint t1 = 0; t1 < p.window[1]; ++t1) {
            for (uint t2 = 0; t2 < p.window[2]; ++t2) {
                uvec3 i;
                const bool inside = source_position(0, o.x, t0, i.x) && source_position(1, o.y, t1, i.y) &&
                    source_position(2, o.z, t2, i.z) && pixel_exists;
                const uint source = input_start + i.x * p.input_strides[2] + i.y * p.input_strides[3] + i.z * p.input_strides[4];
                const uint tap = filter_start + t0 * p.filter_strides[2] + t1 * p.filter_strides[3] + t2 * p.filter_strides[4];
                for (uint first_c = 0; first_c < p.group_channels; first_c += TILE_C) {
                    barrier();
                    [[unroll]] for (uint c = stage_xc; c < TILE_C; c += INVOCATIONS / TILE_P) {
                        float value = 0.0;
                        if (inside && first_c + c < p.group_channels)
                            value = load_x(source + (first_c + c) * p.input_strides[1]);
                        tile_x[c * TILE_P + stage_p] = value;
                    }
                    [[unroll]] for (uint k = stage_k; k < TILE_K; k += INVOCATIONS / TILE_C) {
                        float value = 0.0;
                        if (first_k + k < p.group_outputs && first_c + stage_wc < p.group_channels)
                            value = load_w(tap + (first_k + k) * p.filter_strides[0] + (first_c + stage_wc) * p.filter_strides[1]);
                        tile_w[stage_wc * ROW_K + k] = value;
                    }
                    barrier();
                    [[unroll]] for (uint c = 0; c < TILE_C; ++c) {
                        float weights[THREAD_K];
                        [[unroll]] for (uint i = 0; i < THREAD_K; ++i)
                            weights[i] = tile_w[c * ROW_K + gl_LocalInvocationID.y * THREAD_K + i];
                        [[unroll]] for (uint j = 0; j < THREAD_P; ++j) {
                            const float value = tile_x[c * TILE_P + j * LOCAL_SIZE_X + gl_LocalInvocationID.x];
                            [[unroll]] for (uint i = 0; i < THREAD_K; ++i) sums[i][j] = fma(value, weights[i], sums[i][j]);
                        }
                    }
                }
            }
        }
    }

    [[unroll]] for (uint j = 0; j < THREAD_P; ++j) {
        const uint pixel = first_pixel + j * LOCAL_SIZE_X + gl_LocalInvocationID.x;
        if (pixel >= p.pixels) continue;
        split_pixel(pixel, batch, o);
        [[unroll]] for (uint i = 0; i < THREAD_K; ++i) {
            const uint k = first_k + gl_LocalInvocationID.y * THREAD_K + i;
            if (k < p.group_outputs) store(batch, group * p.group_outputs + k, o, sums[i][j]);
        }
    }
}
