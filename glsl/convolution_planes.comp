// Convolution with a window of one tap over planes, by cooperative matrices: float16 factors, float32 sums.
//
//   y[n, k, o] = activation(bias[k] + sum over channels c of k's group of w[k, c] * x[n, c, o])
//
// Bindings: X and Y, whose planes hold their positions in line, in whole aligned quads; W with a channel's inputs in whole
// aligned words of 8; BIAS; see include/convolution.glsl.
// Constants: those of include/cooperative_tile.glsl, which multiplies: the tile's rows are output channels of a group, its
// columns pixels of all images in line, its depth input channels; WHOLE (1): planes consist of whole aligned words of 8, so
// that a word of pixels is one load; else it is two quads, which may be of two images; HAS_BIAS (1), the activation's id.
// Grid: linear over groups and tiles, a group's tiles neighbours.
//
// Tiles go on from image to image, so that only the last one has pixels to spare.
// Chosen for float16 where the device multiplies such matrices: nothing is copied, and outputs are written along planes.

#pragma use_vulkan_memory_model

#include "tensor.glsl"
#include "quads.glsl"
#include "convolution.glsl"
#include "bands.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer XWords { uvec4 x_words[]; };
layout(set = 0, binding = BINDING_X, std430) readonly buffer XQuads { uvec2 x_quads[]; };
layout(set = 0, binding = BINDING_W, std430) readonly buffer WWords { uvec4 w_words[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YQuads { QUAD y_quads[]; };

#define Raw uvec4

uint group, first_m, first_n;

uvec4 packed_a(Raw raw) { return raw; }
uvec4 packed_b(Raw raw) { return raw; }

// A word of input channels of an output channel; past the last one those of the last.
uint place_a(uint line, uint word) {
    return BYTE_OFFSET_W / T_BYTES + p.filter_offset + group * p.filter_group_stride +
        min(first_m + line, p.group_outputs - 1) * p.filter_strides[0] + 8 * word;
}

Raw fetch_a(uint place, uint line, uint word, uint k) { return w_words[(place + k) / 8]; }
Raw head_a(uint place, uint line, uint word, uint k, uint count) { return 8 * word < count ? w_words[(place + k) / 8] : uvec4(0); }

// Where the second quad of a word is, in the bits that the place of the first leaves free: behind it, in the next image, or
// nowhere because the first is the last of all, which is read twice then.
const uint NEXT_IMAGE = 1, NOWHERE = 2;

// A word of pixels of a channel; past the last one the last.
uint place_b(uint line, uint word) {
    const uint pixel = min(first_n + 8 * word, p.pixels - (WHOLE != 0 ? 8 : 4));
    const uint batch = quotient(pixel, uvec2(p.plane_divisor[0], p.plane_divisor[1]));
    const uint start = BYTE_OFFSET_X / T_BYTES + batch * p.input_strides[0] + pixel - batch * p.plane +
        (group * p.group_channels + line) * p.input_strides[1];
    if (WHOLE != 0) return start;
    return start | (pixel + 4 == p.pixels ? NOWHERE : pixel + 4 == (batch + 1) * p.plane ? NEXT_IMAGE : 0);
}

Raw fetch_b(uint place, uint line, uint word, uint k) {
    const uint first = (WHOLE != 0 ? place : place & ~3u) + k * p.input_strides[1];
    if (WHOLE != 0) return x_words[first / 8];
    const uint more = (place & NOWHERE) != 0 ? 0 : (place & NEXT_IMAGE) != 0 ? 4 + p.input_strides[0] - p.plane : 4;
    return uvec4(x_quads[first / 4], x_quads[(first + more) / 4]);
}

Raw head_b(uint place, uint line, uint word, uint k, uint count) {
    return line < count ? fetch_b(place, line, word, k) : uvec4(0);
}

void begin_sums();
#define SUMS_BEGIN if (HAS_ADDEND != 0) begin_sums();
#include "cooperative_tile.glsl"

// Quads of outputs that an invocation stores of MAT_M rows of a subgroup's block.
const uint QUADS = MAT_M * SUB_N / 4;
const uint QUAD_SHARE = (QUADS * SUBGROUPS + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;

// The row and the column of MAT_M rows of a block where an invocation's quad begins.
uvec2 place_of_quad(uint s) {
    const uint e = s * gl_SubgroupSize + gl_SubgroupInvocationID;
    return uvec2(e / (SUB_N / 4), e % (SUB_N / 4) * 4);
}

// Where the quad of this channel of the group and this pixel begins in Y.
uint quad_element(uint of_group, uint pixel) {
    const uint batch = quotient(pixel, uvec2(p.plane_divisor[0], p.plane_divisor[1]));
    return p.output_start + batch * p.output_strides[0] + (group * p.group_outputs + of_group) * p.output_strides[1] + pixel -
        batch * p.plane;
}

// Sums of which the addend is the first term: all loads wait for memory once, and nothing is kept for the end.
void begin_sums() {
    const uint block_m = first_m + gl_SubgroupID / SUBGROUPS_N * SUB_M;
    const uint block_n = first_n + gl_SubgroupID % SUBGROUPS_N * SUB_N;
    QUAD more[BLOCKS_M][QUAD_SHARE];
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) {
        [[unroll]] for (uint s = 0; s < QUAD_SHARE; ++s) {
            const uvec2 at = place_of_quad(s);
            const uint of_group = min(block_m + i * MAT_M + at.x, p.group_outputs - 1);
            more[i][s] = load_addend_quad(quad_element(of_group, min(block_n + at.y, p.pixels - 4)));
        }
    }
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) {
        [[unroll]] for (uint s = 0; s < QUAD_SHARE; ++s) {
            const uvec2 at = place_of_quad(s);
            const uint word = gl_SubgroupID * SIZE_SUMS + at.x * PITCH_SUMS + at.y / 4;
            if (at.x < MAT_M) tiles[word] = floatBitsToUint(unpack_quad(more[i][s]));
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
    const uint tiles_m = (p.group_outputs + TILE_M - 1) / TILE_M;
    const uint tiles_n = (p.pixels + TILE_N - 1) / TILE_N;
    group = linear_workgroup() / (tiles_m * tiles_n);
    if (group >= p.groups) return;
    const uvec2 tile = tile_in_bands(linear_workgroup() - group * tiles_m * tiles_n, tiles_m, tiles_n);
    first_m = tile.x * TILE_M;
    first_n = tile.y * TILE_N;

    multiply(0, p.group_channels);

    const uint block_m = first_m + gl_SubgroupID / SUBGROUPS_N * SUB_M;
    const uint block_n = first_n + gl_SubgroupID % SUBGROUPS_N * SUB_N;
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) {
        // Before the stores: a load waits for those before it, which may be to the same memory.
        float biases[QUAD_SHARE];
        [[unroll]] for (uint s = 0; s < QUAD_SHARE; ++s) {
            const uint of_group = min(block_m + i * MAT_M + place_of_quad(s).x, p.group_outputs - 1);
            biases[s] = load_bias(group * p.group_outputs + of_group);
        }
        share_sums(i);
        subgroupMemoryBarrierShared();
        subgroupBarrier();
        [[unroll]] for (uint s = 0; s < QUAD_SHARE; ++s) {
            const uvec2 at = place_of_quad(s);
            const uint of_group = block_m + i * MAT_M + at.x, pixel = block_n + at.y;
            if (at.x >= MAT_M || of_group >= p.group_outputs || pixel >= p.pixels) continue;
            y_quads[(BYTE_OFFSET_Y / T_BYTES + quad_element(of_group, pixel)) / 4] =
                pack_quad(finished(sums_at(at.x, at.y / 4), vec4(biases[s]), vec4(0)));
        }
        subgroupBarrier();
    }
}
