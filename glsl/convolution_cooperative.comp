// Convolution by cooperative matrices: float16 factors, float32 sums.
//
//   y[n, k, o] = activation(bias[k] + sum over taps t and channels c of k's group of x[n, c, source(o, t)] * w[k, c, t])
//
// Bindings: X with contiguous channels, in whole aligned words of 8; W repacked, {group, tap, input channel, output channel} with
// output channels in words of 8; BIAS, Y; see include/convolution.glsl for the position arithmetic. No HAS_DIVISOR.
// Constants: those of include/cooperative_tile.glsl, which multiplies: the tile's rows are pixels (batch included, W fastest),
// its columns output channels of a group, its depth {tap, channel} in line;
//   PLANAR (1)  output positions and taps have no depth: the input may have some, of which they read one plane
//   WHOLE_TAPS (1)  a round's depth has one tap; else each word of 8 channels has its own
//   Y_MODE  how outputs are written: Y_ELEMENTS, number by number; Y_PLANES, in quads of pixels, of which planes consist;
//           Y_CHANNELS, in quads of channels
//   ONE_STEP (1)  Y_CHANNELS finds all pixels p.pixel_step apart; else each by its position
//   HAS_BIAS (1), the activation's id
// Grid: linear over groups and tiles, a group's tiles neighbours.
//
// No window is ever written out: each word of a tile is read from where its pixel and tap meet, and is zeros outside the
// input. Pixels or channels past the end read the last ones, whose sums nobody stores.
// Chosen for float16 where the device multiplies such matrices.

#pragma use_vulkan_memory_model

#include "tensor.glsl"
#include "quads.glsl"
#include "convolution.glsl"
#include "bands.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer XWords { uvec4 x_words[]; };
layout(set = 0, binding = BINDING_W, std430) readonly buffer WWords { uvec4 w_words[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YQuads { QUAD y_quads[]; };

// Where a pixel's window starts: in memory (modulo 2^32, it may lie outside), its row and column, 16 bits of each, and its plane,
// which PLANAR does not read: all pixels have the same.
struct Window {
    uint start;
    uint corner;
    uint plane;
};

struct Raw {
    uvec4 word;
    bool inside;
};

#define FACTOR float16_t
#define FACTORS (WORD_BYTES / 2)
#define SUM_TYPE float
#define PLACE_A Window

uint group, first_m, first_n;

uvec4 packed_a(Raw raw) { return raw.inside ? raw.word : uvec4(0); }
uvec4 packed_b(Raw raw) { return raw.word; }

Window place_a(uint line, uint word) {
    uint batch;
    uvec3 o;
    split_pixel(min(first_m + line, p.pixels - 1), batch, o);
    const uint plane = PLANAR != 0 ? p.position_start[0] : o.x * p.position_step[0] + p.position_start[0];
    const uint row = o.y * p.position_step[1] + p.position_start[1];
    const uint column = o.z * p.position_step[2] + p.position_start[2];
    const uint start = BYTE_OFFSET_X / T_BYTES + batch * p.input_strides[0] + group * p.group_channels +
        plane * p.input_strides[2] + row * p.input_strides[3] + column * p.input_strides[4];
    return Window(start, row << 16 | column & 0xFFFFu, plane);
}

// The loads of words outside go to the input's first: none is behind a branch.
Raw word_under_tap(Window window, uint word, uint k, bool there) {
    const uint place = WHOLE_TAPS != 0 ? k : k + 8 * word;
    const uint tap = quotient(place, uvec2(p.channel_divisor[0], p.channel_divisor[1]));
    const uint channel = k + 8 * word - tap * p.group_channels;
    const uint line = quotient(tap, uvec2(p.window_divisor[0], p.window_divisor[1]));
    const uint front = PLANAR != 0 ? 0 : quotient(line, uvec2(p.front_divisor[0], p.front_divisor[1]));
    // For PLANAR a register and an addition a word less.
    const uint plane = PLANAR != 0 ? p.position_start[0] : window.plane + front * p.tap_step[0];
    const uint down = (line - front * p.window[1]) * p.tap_step[1], right = (tap - line * p.window[2]) * p.tap_step[2];
    const uint row = uint(int(window.corner) >> 16) + down;
    const uint column = uint(int(window.corner << 16) >> 16) + right;
    const bool inside = there && plane < p.input_sizes[0] && row < p.input_sizes[1] && column < p.input_sizes[2];
    const uint element = window.start + front * p.tap_step[0] * p.input_strides[2] + down * p.input_strides[3] + right * p.input_strides[4] + channel;
    return Raw(x_words[(inside ? element : BYTE_OFFSET_X / T_BYTES) / 8], inside);
}

Raw fetch_a(Window window, uint line, uint word, uint k) { return word_under_tap(window, word, k, true); }
Raw head_a(Window window, uint line, uint word, uint k, uint count) { return word_under_tap(window, word, k, 8 * word < count); }

// A word of 8 output channels, at a depth of p.filter_strides[1] a step; past the last word the last one.
uint place_b(uint line, uint word) {
    const uint n = min(first_n + 8 * word, (p.group_outputs - 1) & ~7u);
    return BYTE_OFFSET_W / T_BYTES + group * p.filter_group_stride + line * p.filter_strides[1] + n;
}

Raw fetch_b(uint place, uint line, uint word, uint k) { return Raw(w_words[(place + k * p.filter_strides[1]) / 8], true); }
Raw head_b(uint place, uint line, uint word, uint k, uint count) {
    return Raw(line < count ? w_words[(place + k * p.filter_strides[1]) / 8] : uvec4(0), true);
}

void begin_sums();
#define SUMS_BEGIN if (HAS_ADDEND != 0) begin_sums();
#include "cooperative_tile.glsl"

float sum_at(uint m, uint n) { return sums_at(m, n / 4)[n % 4]; }

// Quads of outputs that an invocation stores of MAT_M rows of a subgroup's block.
const uint QUADS = MAT_M * SUB_N / 4;
const uint QUAD_SHARE = (QUADS * SUBGROUPS + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;

// The pixel and the channel in the block where a quad begins. Neighbours have neighbouring quads of channels of a pixel, or
// of pixels of a channel.
uvec2 place_of_quad(uint e) {
    return Y_MODE == Y_CHANNELS ? uvec2(e / (SUB_N / 4), e % (SUB_N / 4) * 4) : uvec2(e % (MAT_M / 4) * 4, e / (MAT_M / 4));
}

// Where the output's quad of this pixel and channel begins. Not for Y_ELEMENTS.
uint quad_element(uint pixel, uint channel) {
    if (Y_MODE == Y_CHANNELS) {
        // Chosen by a constant, not by the parameter: the code of the other way costs registers even where it never runs.
        if (ONE_STEP != 0) return p.output_start + pixel * p.pixel_step + channel;
        uint batch;
        uvec3 o;
        split_pixel(pixel, batch, o);
        return output_element(batch, channel, o);
    }
    const uint batch = quotient(pixel, uvec2(p.plane_divisor[0], p.plane_divisor[1]));
    return p.output_start + batch * p.output_strides[0] + channel * p.output_strides[1] + pixel - batch * p.plane;
}

// The addends of MAT_M rows of a subgroup's block.
void load_addends(out QUAD more[QUAD_SHARE], uint block_m, uint block_n) {
    [[unroll]] for (uint s = 0; s < QUAD_SHARE; ++s) {
        const uvec2 at = place_of_quad(s * gl_SubgroupSize + gl_SubgroupInvocationID);
        // Past the last pixel or channel this reads the last one: a whole quad of it, but for Y_ELEMENTS.
        const uint pixel = min(block_m + at.x, p.pixels - (Y_MODE == Y_PLANES ? 4 : 1));
        const uint channel = group * p.group_outputs + min(block_n + at.y, p.group_outputs - (Y_MODE == Y_CHANNELS ? 4 : 1));
        if (Y_MODE != Y_ELEMENTS) {
            more[s] = load_addend_quad(quad_element(pixel, channel));
        } else {
            vec4 four;
            [[unroll]] for (uint j = 0; j < 4; ++j) {
                uint batch;
                uvec3 o;
                split_pixel(min(pixel + j, p.pixels - 1), batch, o);
                four[j] = load_addend(output_element(batch, channel, o));
            }
            more[s] = pack_quad(four);
        }
    }
}

// Sums of which the addend is the first term: all loads wait for memory once, and nothing is kept for the end.
void begin_sums() {
    const uint block_m = first_m + gl_SubgroupID / SUBGROUPS_N * SUB_M;
    const uint block_n = first_n + gl_SubgroupID % SUBGROUPS_N * SUB_N;
    const uint start = gl_SubgroupID * SIZE_SUMS;
    QUAD more[BLOCKS_M][QUAD_SHARE];
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) load_addends(more[i], block_m + i * MAT_M, block_n);
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) {
        [[unroll]] for (uint s = 0; s < QUAD_SHARE; ++s) {
            const uint e = s * gl_SubgroupSize + gl_SubgroupInvocationID;
            const uvec2 at = place_of_quad(e);
            const uvec4 bits = floatBitsToUint(unpack_quad(more[i][s]));
            if (e >= QUADS) continue;
            if (Y_MODE == Y_CHANNELS) {
                tiles[start + at.x * PITCH_SUMS + at.y / 4] = bits;
            } else {
                [[unroll]] for (uint j = 0; j < 4; ++j) tiles[start + (at.x + j) * PITCH_SUMS + at.y / 4][at.y % 4] = bits[j];
            }
        }
        subgroupMemoryBarrierShared();
        subgroupBarrier();
        take_sums(i);
        subgroupMemoryBarrierShared();
        subgroupBarrier();
    }
    barrier();
}

void main() {
    const uint tiles_m = (p.pixels + TILE_M - 1) / TILE_M;
    const uint tiles_n = (p.group_outputs + TILE_N - 1) / TILE_N;
    group = linear_workgroup() / (tiles_m * tiles_n);
    if (group >= p.groups) return;
    const uvec2 tile = tile_in_bands(linear_workgroup() - group * tiles_m * tiles_n, tiles_m, tiles_n);
    first_m = tile.x * TILE_M;
    first_n = tile.y * TILE_N;

    multiply(0, p.depth);

    const uint block_m = first_m + gl_SubgroupID / SUBGROUPS_N * SUB_M;
    const uint block_n = first_n + gl_SubgroupID % SUBGROUPS_N * SUB_N;
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) {
        share_sums(i);
        subgroupMemoryBarrierShared();
        subgroupBarrier();
        [[unroll]] for (uint s = 0; s < QUAD_SHARE; ++s) {
            const uint e = s * gl_SubgroupSize + gl_SubgroupInvocationID;
            const uvec2 at = place_of_quad(e);
            const uint pixel = block_m + i * MAT_M + at.x;
            const uint of_group = block_n + at.y;
            const uint channel = group * p.group_outputs + of_group;
            if (e >= QUADS || pixel >= p.pixels || of_group >= p.group_outputs) continue;
            if (Y_MODE == Y_CHANNELS) {
                const vec4 biases =
                    vec4(load_bias(channel), load_bias(channel + 1), load_bias(channel + 2), load_bias(channel + 3));
                y_quads[(BYTE_OFFSET_Y / T_BYTES + quad_element(pixel, channel)) / 4] =
                    pack_quad(finished(sums_at(at.x, at.y / 4), biases, vec4(0)));
                continue;
            }
            const vec4 sum = vec4(sum_at(at.x, at.y), sum_at(at.x + 1, at.y), sum_at(at.x + 2, at.y), sum_at(at.x + 3, at.y));
            if (Y_MODE == Y_PLANES) {
                y_quads[(BYTE_OFFSET_Y / T_BYTES + quad_element(pixel, channel)) / 4] =
                    pack_quad(finished(sum, vec4(load_bias(channel)), vec4(0)));
            } else {
                [[unroll]] for (uint j = 0; j < 4; ++j) {
                    if (pixel + j >= p.pixels) break;
                    uint batch;
                    uvec3 o;
                    split_pixel(pixel + j, batch, o);
                    store_sum(batch, channel, o, sum[j], 0.0);
                }
            }
        }
        subgroupBarrier();
    }
}
