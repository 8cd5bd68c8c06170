// Convolution as a matrix product of the filter with windows of the input, tile by tile through shared memory.
//
//   y[n, k, o] = activation(bias[k] + sum over taps t and channels c of k's group of x[n, c, source(o, t)] * w[k, c, t])
//
// Bindings: X, W, BIAS, Y; see include/convolution.glsl for their layout and the position arithmetic.
// Constants: the tile's (include/product_tile.glsl): its rows are output channels of a group, its columns pixels (batch
// included, W fastest); of LOCAL_SIZE_X and TILE_N one is a multiple of the other.
//   X_MODE   how windows are read (below)
//   ONE_TAP  1: there is one tap, which every pixel meets inside the input; of X_PLANES always
//   W_QUADS  1: the filter is repacked, {group, tap, input channel, output channel} with output channels in aligned quads
//   Y_MODE   how outputs are written: Y_ELEMENTS, number by number; Y_PLANES, in quads of pixels; Y_CHANNELS, in quads of
//            channels. Planes, or rows of channels, then consist of whole aligned quads
//   TABLE    places of the table of X_TABLE, 1 else
//   PARTIAL (0), HAS_BIAS (1), HAS_ADDEND (0), HAS_DIVISOR (1), the activation's id
// Grid: linear over groups, splits and tiles, a group's tiles neighbours.
//
// No window is ever written out: a round takes TILE_K input channels under one tap,
//   X_PIXELS    number by number, neighbours along the pixels: any layout
//   X_PLANES    quads of pixels: one tap of step 1 without padding, whose planes are whole aligned quads
//   X_CHANNELS  quads of channels: input channels contiguous, in whole aligned quads
// or, where channels are too few to fill a round,
//   X_TABLE     TILE_K channels of any taps, {tap, channel} in line, number by number; a table in shared memory says where
//               each is read.
// With PARTIAL the rounds are split into parts of p.split_rounds, and Y is temporary memory, which gets the parts' sums as
// they are, in float32: [split, channel, pixel], rows of p.partial_pitch (a multiple of 4) numbers.
// convolution_merge adds them.
// FLOAT16 is placed as float32. Chosen where groups have channels enough to fill tiles; split where tiles are few.

#include "tensor.glsl"
#include "quads.glsl"
#include "convolution.glsl"

void begin_sums();
#define SUMS_BEGIN if (PARTIAL == 0 && HAS_ADDEND != 0) begin_sums();
#include "product_tile.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer XQuads { QUAD x_quads[]; };
layout(set = 0, binding = BINDING_W, std430) readonly buffer WQuads { QUAD w_quads[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YQuads { QUAD y_quads[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Partials { vec4 partials[]; };

// Elements counted from the filter's start, so that none has a number below 0, whichever way its taps go.
QUAD load_w_quad(uint element) { return w_quads[(BYTE_OFFSET_W / T_BYTES + element) / 4]; }
float load_w_element(uint element) { return float(w[BYTE_OFFSET_W / T_BYTES + element]); }

#define OPERAND(name) name##_a
#define OPERAND_TILE TILE_M
#define OPERAND_ALONG_K (1 - W_QUADS)
#define OPERAND_VECTOR W_QUADS
#define OPERAND_QUAD load_w_quad
#define OPERAND_ELEMENT load_w_element
#define OPERAND_PUT put_a
#define OPERAND_PUT_QUAD put_a_quad
#include "product_operand.glsl"

// The accesses by which an invocation loads its share of the windows each round, and the pixels that these have.
const uint X_WIDTH = X_MODE == X_PLANES || X_MODE == X_CHANNELS ? 4 : 1;
const uint X_COUNT = TILE_N * TILE_K / X_WIDTH;
const uint X_SHARE = (X_COUNT + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;
const uint X_OWN_PIXELS = X_MODE == X_CHANNELS ? X_SHARE : X_MODE == X_PLANES ? 1 : (TILE_N + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;

QUAD x_share_quads[X_WIDTH == 4 ? X_SHARE : 1];
float x_share[X_WIDTH == 4 ? 1 : X_SHARE];
// Of each pixel: where its image and group start, with ONE_TAP and X_TABLE its window; its position before the taps, and
// whether the tap is inside.
uint pixel_start[X_OWN_PIXELS];
uvec3 position_start[X_OWN_PIXELS];
bool inside[X_OWN_PIXELS];

// Of each depth of X_TABLE: the three steps of its tap, and the step of its channel and tap in memory.
shared uvec4 table[TABLE];

uint group, group_start, first_m, first_n;
uint left; // of the depth, from the round that is fetched on to the end of its line

// (depth, pixel) in the tile where access i begins.
uvec2 place_of_x(uint i) {
    const uint e = min(i * LOCAL_SIZE_X + gl_LocalInvocationID.x, X_COUNT - 1);
    if (X_MODE == X_CHANNELS) return uvec2(e % (TILE_K / 4) * 4, e / (TILE_K / 4));
    if (X_MODE == X_PLANES) return uvec2(e / (TILE_N / 4), e % (TILE_N / 4) * 4);
    return uvec2(e / TILE_N, e % TILE_N);
}

uint start_of(uvec3 position) {
    return position.x * p.input_strides[2] + position.y * p.input_strides[3] + position.z * p.input_strides[4];
}

// Takes no more than the last of everything, so that no load lies outside and none is behind a branch: what is read in
// vain is replaced by zeros where it is placed.
void fetch_round(uint round) {
    if (X_MODE == X_TABLE) {
        left = p.depth - round * TILE_K;
        [[unroll]] for (uint i = 0; i < X_SHARE; ++i) {
            const uvec4 entry = table[round * TILE_K + place_of_x(i).x];
            const uvec3 position = position_start[i % X_OWN_PIXELS] + entry.xyz;
            const bool here = position.x < p.input_sizes[0] && position.y < p.input_sizes[1] && position.z < p.input_sizes[2];
            const float value = load_x(here ? pixel_start[i % X_OWN_PIXELS] + entry.w : 0);
            x_share[i] = here ? value : 0.0;
        }
        fetch_a(group_start, p.group_outputs - 1, p.filter_strides[0], p.filter_strides[1], round * TILE_K, p.depth - 1);
        return;
    }
    uint tap = 0;
    uvec3 t = uvec3(0);
    if (ONE_TAP == 0) {
        tap = quotient(round, uvec2(p.depth_divisor[0], p.depth_divisor[1]));
        const uint line = quotient(tap, uvec2(p.window_divisors[2], p.window_divisors[3]));
        const uint plane = quotient(line, uvec2(p.window_divisors[0], p.window_divisors[1]));
        t = uvec3(plane, line - plane * p.window[1], tap - line * p.window[2]);
    }
    const uint first_c = (round - tap * p.depth_blocks) * TILE_K;
    const uint last_c = p.group_channels - 1;
    left = p.group_channels - first_c;
    fetch_a(group_start + t.x * p.filter_strides[2] + t.y * p.filter_strides[3] + t.z * p.filter_strides[4],
        p.group_outputs - 1, p.filter_strides[0], p.filter_strides[1], first_c, last_c);

    uint starts[X_OWN_PIXELS];
    [[unroll]] for (uint i = 0; i < X_OWN_PIXELS; ++i) {
        starts[i] = pixel_start[i];
        if (ONE_TAP == 0) {
            uvec3 position = position_start[i];
            inside[i] = source_at(0, position.x, t.x, position.x) && source_at(1, position.y, t.y, position.y) &&
                source_at(2, position.z, t.z, position.z);
            starts[i] += inside[i] ? start_of(position) : 0;
        }
    }
    [[unroll]] for (uint i = 0; i < X_SHARE; ++i) {
        const uint c = first_c + place_of_x(i).x;
        const uint inside_c = WHOLE_ROUNDS != 0 ? c : min(c, last_c);
        if (X_MODE == X_CHANNELS) {
            x_share_quads[i] = x_quads[(BYTE_OFFSET_X / T_BYTES + starts[i] + (WHOLE_ROUNDS != 0 ? c : min(c, last_c & ~3u))) / 4];
        } else if (X_MODE == X_PLANES) {
            x_share_quads[i] = x_quads[(BYTE_OFFSET_X / T_BYTES + starts[0] + inside_c * p.input_strides[1]) / 4];
        } else {
            x_share[i] = load_x(starts[i % X_OWN_PIXELS] + inside_c * p.input_strides[1]);
        }
    }
}

void place_round(uint round, uint buffer_) {
    place_a(buffer_, left);
    [[unroll]] for (uint i = 0; i < X_SHARE; ++i) {
        const uvec2 at = place_of_x(i);
        if (X_COUNT % LOCAL_SIZE_X != 0 && i * LOCAL_SIZE_X + gl_LocalInvocationID.x >= X_COUNT) continue;
        const bool there = (WHOLE_ROUNDS != 0 || at.x < left) && (ONE_TAP != 0 || inside[X_MODE == X_CHANNELS ? i : i % X_OWN_PIXELS]);
        if (X_MODE == X_CHANNELS) {
            const vec4 quad = there ? unpack_quad(x_share_quads[i]) : vec4(0);
            [[unroll]] for (uint c = 0; c < 4; ++c) put_b(buffer_, at.x + c, at.y, quad[c]);
        } else if (X_MODE == X_PLANES) {
            put_b_quad(buffer_, at.x, at.y, there ? unpack_quad(x_share_quads[i]) : vec4(0));
        } else {
            put_b(buffer_, at.x, at.y, X_MODE == X_TABLE || there ? x_share[i] : 0.0);
        }
    }
}

// Sums of which the addend is the first term: read at the end it would wait for memory by itself.
void begin_sums() {
    uint batch;
    uvec3 o;
    [[unroll]] for (uint j = 0; j < BLOCK_N / 4; ++j) {
        const uint n = first_n + tile_column(j);
        if (Y_MODE == Y_PLANES) {
            split_pixel(min(n, p.pixels - 4), batch, o);
            [[unroll]] for (uint i = 0; i < BLOCK_M; ++i) {
                const uint channel = group * p.group_outputs + min(first_m + tile_row(i), p.group_outputs - 1);
                sums[i][j] = unpack_quad(load_addend_quad(output_element(batch, channel, o)));
            }
        } else {
            [[unroll]] for (uint c = 0; c < 4; ++c) {
                split_pixel(min(n + c, p.pixels - 1), batch, o);
                [[unroll]] for (uint i = 0; i < BLOCK_M; ++i) {
                    const uint channel = group * p.group_outputs + min(first_m + tile_row(i), p.group_outputs - 1);
                    sums[i][j][c] = load_addend(output_element(batch, channel, o));
                }
            }
        }
    }
}

void fill_table() {
    for (uint k = gl_LocalInvocationID.x; k < TABLE; k += LOCAL_SIZE_X) {
        const uint tap = k / p.group_channels;
        const uint c = k - tap * p.group_channels;
        const uint line = tap / p.window[2];
        const uint plane = line / p.window[1];
        const uvec3 t = uvec3(plane, line - plane * p.window[1], tap - line * p.window[2]);
        const uvec3 steps = t * uvec3(p.tap_step[0], p.tap_step[1], p.tap_step[2]);
        // Past the last one nothing is inside.
        table[k] = k < p.depth ? uvec4(steps, c * p.input_strides[1] + start_of(steps)) : uvec4(0x80000000u);
    }
    barrier();
}

void main() {
    const uint tiles_m = (p.group_outputs + TILE_M - 1) / TILE_M;
    const uint tiles_n = (p.pixels + TILE_N - 1) / TILE_N;
    const uint part = linear_workgroup() / (tiles_m * tiles_n);
    group = part / p.splits;
    const uint split = part - group * p.splits;
    if (group >= p.groups) return;
    const uvec2 tile = tile_in_bands(linear_workgroup() - part * tiles_m * tiles_n, tiles_m, tiles_n);
    first_m = tile.x * TILE_M;
    first_n = tile.y * TILE_N;
    group_start = p.filter_offset + group * p.filter_group_stride;

    uint batch;
    uvec3 o;
    [[unroll]] for (uint i = 0; i < X_OWN_PIXELS; ++i) {
        split_pixel(min(first_n + place_of_x(i).y, p.pixels - (X_MODE == X_PLANES ? 4 : 1)), batch, o);
        position_start[i] = o * uvec3(p.position_step[0], p.position_step[1], p.position_step[2]) +
            uvec3(p.position_start[0], p.position_start[1], p.position_start[2]);
        pixel_start[i] = batch * p.input_strides[0] + group * p.group_channels * p.input_strides[1];
        if (ONE_TAP != 0 || X_MODE == X_TABLE) pixel_start[i] += start_of(position_start[i]);
        inside[i] = true;
    }
    if (X_MODE == X_TABLE) fill_table();

    begin_a(first_m, p.group_outputs - 1, p.filter_strides[0], p.filter_strides[1]);
    const uint first_round = split * p.split_rounds;
    multiply_rounds(first_round, min(first_round + p.split_rounds, p.rounds));

    if (PARTIAL != 0) {
        [[unroll]] for (uint i = 0; i < BLOCK_M; ++i) {
            const uint m = first_m + tile_row(i);
            [[unroll]] for (uint j = 0; j < BLOCK_N / 4; ++j) {
                const uint n = first_n + tile_column(j);
                const uint row = (split * p.groups + group) * p.group_outputs + m;
                if (m < p.group_outputs && n < p.pixels)
                    partials[BYTE_OFFSET_Y / 16 + row * (p.partial_pitch / 4) + n / 4] = sums[i][j];
            }
        }
        return;
    }
    [[unroll]] for (uint j = 0; j < BLOCK_N / 4; ++j) {
        const uint n = first_n + tile_column(j);
        if (Y_MODE == Y_PLANES) {
            split_pixel(min(n, p.pixels - 4), batch, o);
            [[unroll]] for (uint i = 0; i < BLOCK_M; ++i) {
                const uint m = first_m + tile_row(i);
                const uint channel = group * p.group_outputs + m;
                if (m < p.group_outputs && n < p.pixels)
                    y_quads[(BYTE_OFFSET_Y / T_BYTES + output_element(batch, channel, o)) / 4] =
                        pack_quad(finished(sums[i][j], vec4(load_bias(channel)), vec4(0)));
            }
        } else {
            [[unroll]] for (uint c = 0; c < 4; ++c) {
                split_pixel(min(n + c, p.pixels - 1), batch, o);
                if (Y_MODE == Y_CHANNELS) {
                    [[unroll]] for (uint i = 0; i < BLOCK_M; i += 4) {
                        const uint m = first_m + tile_row(i);
                        const uint channel = group * p.group_outputs + m;
                        if (m < p.group_outputs && n + c < p.pixels) {
                            const vec4 biases =
                                vec4(load_bias(channel), load_bias(channel + 1), load_bias(channel + 2), load_bias(channel + 3));
                            const vec4 sum = vec4(sums[i][j][c], sums[i + 1][j][c], sums[i + 2][j][c], sums[i + 3][j][c]);
                            y_quads[(BYTE_OFFSET_Y / T_BYTES + output_element(batch, channel, o)) / 4] =
                                pack_quad(finished(sum, biases, vec4(0)));
                        }
                    }
                } else {
                    [[unroll]] for (uint i = 0; i < BLOCK_M; ++i) {
                        const uint m = first_m + tile_row(i);
                        if (m < p.group_outputs && n + c < p.pixels)
                            store_sum(batch, group * p.group_outputs + m, o, sums[i][j][c], 0.0);
                    }
                }
            }
        }
    }
}
