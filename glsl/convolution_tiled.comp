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
// No window is ever written out: for each tap, TILE_C channels of the shifted input go to shared memory, through
// registers, so that the next tiles' loads are in flight while the current ones are multiplied. An
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

const uint STAGED_X = TILE_C * TILE_P / INVOCATIONS;
const uint STAGED_W = TILE_C * TILE_K / INVOCATIONS;

// The next tiles, on their way from memory while the current ones are multiplied.
float staged_x[STAGED_X];
float staged_w[STAGED_W];

void main() {
    const uint invocation = gl_LocalInvocationIndex;
    const uint group = gl_WorkGroupID.z;
    const uint first_k = gl_WorkGroupID.y * TILE_K;
    const uint first_pixel = gl_WorkGroupID.x * TILE_P;

    // The pixel that this invocation stages, for channels stage_xc, stage_xc + step_xc...; and the filter's input channel,
    // for output channels stage_k, stage_k + step_k...
    const uint stage_p = invocation % TILE_P;
    const uint stage_xc = invocation / TILE_P;
    const uint step_xc = INVOCATIONS / TILE_P;
    const uint stage_wc = invocation % TILE_C;
    const uint stage_k = invocation / TILE_C;
    const uint step_k = INVOCATIONS / TILE_C;
    const bool pixel_exists = first_pixel + stage_p < p.pixels;
    uint batch;
    uvec3 o;
    split_pixel(min(first_pixel + stage_p, p.pixels - 1), batch, o);
    const uint input_start = batch * p.input_strides[0] + group * p.group_channels * p.input_strides[1];

    float sums[THREAD_K][THREAD_P];
    [[unroll]] for (uint i = 0; i < THREAD_K; ++i)
        [[unroll]] for (uint j = 0; j < THREAD_P; ++j) sums[i][j] = 0.0;

    // Round r loads tile r, channels fastest, and multiplies tile r - 1: the first only loads, the last only multiplies.
    const uint rounds = p.window[0] * p.window[1] * p.window[2] * ((p.group_channels + TILE_C - 1) / TILE_C);
    uvec3 t = uvec3(0);
    uint first_c = 0;
    uint source = 0;
    uint tap = 0;
    bool inside = false;
    for (uint round = 0; round <= rounds; ++round) {
        if (round > 0) {
            barrier();
            [[unroll]] for (uint i = 0; i < STAGED_X; ++i)
                tile_x[(stage_xc + i * step_xc) * TILE_P + stage_p] = staged_x[i];
            [[unroll]] for (uint i = 0; i < STAGED_W; ++i)
                tile_w[stage_wc * ROW_K + stage_k + i * step_k] = staged_w[i];
            barrier();
        }
        if (round < rounds) {
            if (first_c == 0) {
                uvec3 position;
                inside = source_position(0, o.x, t.x, position.x) && source_position(1, o.y, t.y, position.y) &&
                    source_position(2, o.z, t.z, position.z) && pixel_exists;
                source = input_start + position.x * p.input_strides[2] + position.y * p.input_strides[3] +
                    position.z * p.input_strides[4];
                tap = group * p.filter_group_stride + t.x * p.filter_strides[2] + t.y * p.filter_strides[3] +
                    t.z * p.filter_strides[4];
            }
            [[unroll]] for (uint i = 0; i < STAGED_X; ++i) {
                const uint c = first_c + stage_xc + i * step_xc;
                staged_x[i] = 0.0;
                if (inside && c < p.group_channels) staged_x[i] = load_x(source + c * p.input_strides[1]);
            }
            [[unroll]] for (uint i = 0; i < STAGED_W; ++i) {
                const uint k = first_k + stage_k + i * step_k;
                const uint c = first_c + stage_wc;
                staged_w[i] = 0.0;
                if (k < p.group_outputs && c < p.group_channels)
                    staged_w[i] = load_w(tap + k * p.filter_strides[0] + c * p.filter_strides[1]);
            }
            first_c += TILE_C;
            if (first_c >= p.group_channels) {
                first_c = 0;
                t.z += 1;
                if (t.z == p.window[2]) t = uvec3(t.x, t.y + 1, 0);
                if (t.y == p.window[1]) t = uvec3(t.x + 1, 0, 0);
            }
        }
        if (round > 0) {
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

    [[unroll]] for (uint j = 0; j < THREAD_P; ++j) {
        const uint pixel = first_pixel + j * LOCAL_SIZE_X + gl_LocalInvocationID.x;
        split_pixel(min(pixel, p.pixels - 1), batch, o);
        [[unroll]] for (uint i = 0; i < THREAD_K; ++i) {
            const uint k = first_k + gl_LocalInvocationID.y * THREAD_K + i;
            if (k < p.group_outputs && pixel < p.pixels) store(batch, group * p.group_outputs + k, o, sums[i][j]);
        }
    }
}
