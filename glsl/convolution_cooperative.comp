// Convolution by cooperative matrices: float16 factors, float32 sums.
//
//   y[n, k, o] = activation(bias[k] + sum over taps t and channels c of k's group of x[n, c, source(o, t)] * w[k, c, t])
//
// Bindings: X with contiguous channels, in whole aligned words of 8; W repacked, {group, tap, input channel, output channel}
// with output channels in words of 8, or for B_ALONG_K {group, output channel, tap, input channel}; BIAS; Y, or float32 sums
// for PARTIAL; see include/convolution.glsl for the position arithmetic. No HAS_DIVISOR.
// Constants: those of include/cooperative_tile.glsl, which multiplies: the tile's rows are pixels (batch included, W fastest),
// its columns output channels of a group, its depth {tap, channel} in line;
//   PLANAR (1)  output positions and taps have no depth: the input may have some, of which they read one plane
//   ONE_TAP (0)  the window has one tap, which every pixel meets inside the input
//   WHOLE_TAPS (1)  a round's depth has one tap; else each word of 8 channels has its own
//   Y_MODE  how outputs are written: Y_ELEMENTS, number by number; Y_PLANES, in quads of pixels, of which planes consist;
//           Y_CHANNELS, in quads of channels
//   ONE_STEP (1)  Y_CHANNELS finds all pixels p.pixel_step apart; else each by its position
//   PARTIAL (0)  p.splits parts of the depth have workgroups of their own, whose sums go to rows of p.partial_pitch numbers,
//           one a pixel for Y_CHANNELS, else one a channel; convolution_merge adds them
//   HAS_BIAS (1), the activation's id
// Grid: linear over groups, parts and tiles, a group's tiles neighbours.
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
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Partials { vec4 partials[]; };

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
    if (ONE_TAP != 0) return Raw(x_words[(there ? window.start + k + 8 * word : BYTE_OFFSET_X / T_BYTES) / 8], there);
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

// A word of 8 output channels at a depth, or of 8 of the depth for B_ALONG_K; past the last channel those of the last.
uint place_b(uint line, uint word) {
    const uint n = B_ALONG_K != 0 ? min(first_n + line, p.group_outputs - 1) : min(first_n + 8 * word, (p.group_outputs - 1) & ~7u);
    const uint k = B_ALONG_K != 0 ? 8 * word : line;
    return BYTE_OFFSET_W / T_BYTES + group * p.filter_group_stride + k * p.filter_strides[1] + n * p.filter_strides[0];
}

Raw fetch_b(uint place, uint line, uint word, uint k) { return Raw(w_words[(place + k * p.filter_strides[1]) / 8], true); }
Raw head_b(uint place, uint line, uint word, uint k, uint count) {
    const bool there = B_ALONG_K != 0 ? 8 * word < count : line < count;
    return Raw(there ? w_words[(place + k * p.filter_strides[1]) / 8] : uvec4(0), true);
}

// For quads of pixels a subgroup hands its sums over the other way round: lines of MAT_M pixels and a word of padding.
const uint PITCH_TURNED = MAT_M / 4 + 1;
#define SIZE_STORED (Y_MODE == Y_CHANNELS ? SIZE_SUMS : SUB_N * PITCH_TURNED)

void begin_sums();
#define SUMS_BEGIN if (HAS_ADDEND != 0 && PARTIAL == 0) begin_sums();
#include "cooperative_tile.glsl"

// A word of the sums of MAT_M rows of a subgroup's block: the one of this pixel and channel, of which it has four.
uint turned_word(uint m, uint n) {
    return gl_SubgroupID * SIZE_STORED + (Y_MODE == Y_CHANNELS ? m * PITCH_SUMS + n / 4 : n * PITCH_TURNED + m / 4);
}

void share_block(uint i) {
    if (Y_MODE == Y_CHANNELS) {
        [[unroll]] for (uint j = 0; j < BLOCKS_N; ++j)
            coopMatStore(sums[i][j], tiles, turned_word(0, j * MAT_N), PITCH_SUMS, gl_CooperativeMatrixLayoutRowMajor);
    } else {
        [[unroll]] for (uint j = 0; j < BLOCKS_N; ++j)
            coopMatStore(sums[i][j], tiles, turned_word(0, j * MAT_N), PITCH_TURNED, gl_CooperativeMatrixLayoutColumnMajor);
    }
}

// The other way: sums begin with what lies there.
void take_block(uint i) {
    if (Y_MODE == Y_CHANNELS) {
        [[unroll]] for (uint j = 0; j < BLOCKS_N; ++j)
            coopMatLoad(sums[i][j], tiles, turned_word(0, j * MAT_N), PITCH_SUMS, gl_CooperativeMatrixLayoutRowMajor);
    } else {
        [[unroll]] for (uint j = 0; j < BLOCKS_N; ++j)
            coopMatLoad(sums[i][j], tiles, turned_word(0, j * MAT_N), PITCH_TURNED, gl_CooperativeMatrixLayoutColumnMajor);
    }
}

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
    QUAD more[BLOCKS_M][QUAD_SHARE];
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) load_addends(more[i], block_m + i * MAT_M, block_n);
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) {
        [[unroll]] for (uint s = 0; s < QUAD_SHARE; ++s) {
            const uint e = s * gl_SubgroupSize + gl_SubgroupInvocationID;
            const uvec2 at = place_of_quad(e);
            const uvec4 bits = floatBitsToUint(unpack_quad(more[i][s]));
            if (e < QUADS) tiles[turned_word(at.x, at.y)] = bits;
        }
        subgroupMemoryBarrierShared();
        subgroupBarrier();
        take_block(i);
        subgroupMemoryBarrierShared();
        subgroupBarrier();
    }
    barrier();
}

// The biases of an invocation's quads, the same for each MAT_M rows; those of one quad where all have the same channels.
const uint LANES = LOCAL_SIZE_X / SUBGROUPS;
const uint BIASES = Y_MODE != Y_CHANNELS ? QUAD_SHARE : LANES * 4 % SUB_N != 0 ? QUAD_SHARE : 1;
vec4 biases[BIASES];

void load_biases(uint block_n) {
    [[unroll]] for (uint s = 0; s < BIASES; ++s) {
        const uint of_group = block_n + place_of_quad(s * gl_SubgroupSize + gl_SubgroupInvocationID).y;
        const uint last = p.group_outputs - (Y_MODE == Y_CHANNELS ? 4 : 1);
        const uint channel = group * p.group_outputs + min(of_group, last);
        biases[s] = vec4(load_bias(channel));
        if (Y_MODE == Y_CHANNELS) [[unroll]] for (uint i = 1; i < 4; ++i) biases[s][i] = load_bias(channel + i);
    }
}

void main() {
    const uint tiles_m = (p.pixels + TILE_M - 1) / TILE_M;
    const uint tiles_n = (p.group_outputs + TILE_N - 1) / TILE_N;
    const uint part = linear_workgroup() / (tiles_m * tiles_n);
    group = PARTIAL != 0 ? part / p.splits : part;
    const uint split = part - group * p.splits;
    if (group >= p.groups) return;
    const uvec2 tile = tile_in_bands(linear_workgroup() - part * tiles_m * tiles_n, tiles_m, tiles_n);
    first_m = tile.x * TILE_M;
    first_n = tile.y * TILE_N;

    const uint block_m = first_m + gl_SubgroupID / SUBGROUPS_N * SUB_M;
    const uint block_n = first_n + gl_SubgroupID % SUBGROUPS_N * SUB_N;

    // Before the stores: a load waits for those before it, which may be to the same memory. Few are under way all the time.
    if (PARTIAL == 0 && BIASES == 1) load_biases(block_n);
    const uint first = PARTIAL != 0 ? split * p.split_rounds * TILE_K : 0;
    multiply(first, PARTIAL != 0 ? min(first + p.split_rounds * TILE_K, p.depth) : p.depth);
    if (PARTIAL == 0 && BIASES != 1) load_biases(block_n);

    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) {
        share_block(i);
        subgroupMemoryBarrierShared();
        subgroupBarrier();
        [[unroll]] for (uint s = 0; s < QUAD_SHARE; ++s) {
            const uint e = s * gl_SubgroupSize + gl_SubgroupInvocationID;
            const uvec2 at = place_of_quad(e);
            const uint pixel = block_m + i * MAT_M + at.x;
            const uint of_group = block_n + at.y;
            const uint channel = group * p.group_outputs + of_group;
            if (e >= QUADS || pixel >= p.pixels || of_group >= p.group_outputs) continue;
            const vec4 sum = uintBitsToFloat(tiles[turned_word(at.x, at.y)]);
            if (PARTIAL != 0) {
                const uint row = Y_MODE == Y_CHANNELS ? split * p.pixels + pixel : split * p.output_sizes[1] + channel;
                partials[BYTE_OFFSET_Y / 16 + (row * p.partial_pitch + (Y_MODE == Y_CHANNELS ? channel : pixel)) / 4] = sum;
            } else if (Y_MODE != Y_ELEMENTS) {
                y_quads[(BYTE_OFFSET_Y / T_BYTES + quad_element(pixel, channel)) / 4] =
                    pack_quad(finished(sum, biases[s % BIASES], vec4(0)));
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
