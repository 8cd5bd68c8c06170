// Depthwise convolution (one channel in and out a group), FORWARD, over planes: an invocation makes LANES neighbouring
// outputs of ROWS neighbouring rows.
//
//   y[n, c, o] = activation(bias[c] + sum over taps t of x[n, c, o * stride + t - start] * w[c, 0, t])
//
// Every row of the input that its windows touch is read once, in whole groups of up to 16 bytes where those line up, and
// serves all windows that share it. All reads are under way before the first is used; those beyond the input go to its edge,
// and what they bring is replaced by 0.
// Chosen for windows without dilation whose rows fit the registers: bound by memory.
//
// Variants: T and LANES.
// Bindings: X, W, BIAS, Y; see include/convolution.glsl.
// Constants:
//   CHANNELS          0: lanes are neighbours in a row; 1: neighbouring channels
//   ROWS              rows of the output an invocation makes
//   WINDOW_H, WINDOW_W, STRIDE_H, STRIDE_W   the window and its steps
//   X_MODE, Y_MODE    how lanes lie in memory (lanes.glsl)
//   SHIFT             of rows read in groups: where the first element read lies in its group
//   INSIDE            bit g: group g of a row is inside the input wherever the window is
//   HAS_BIAS (1), the activation's id; HAS_DIVISOR stays 0
// Parameters: walk_sizes and walk_divisors over {N, C, groups of rows, groups of lanes}, or where lanes are channels
// {N, groups of rows, W, groups of lanes}.

#include "lanes.glsl"
#include "tensor.glsl"
#include "convolution.glsl"

LANES_BUFFER(readonly, T, X, x)
LANES_BUFFER(readonly, T, W, w)
LANES_BUFFER(writeonly, T, Y, y)
layout(set = 0, binding = BINDING_X, std430) readonly buffer XWords { uint x_words[]; };

#define WORDS (LANES * T_BYTES / 4)

const uint ROWS_READ = (ROWS - 1) * STRIDE_H + WINDOW_H;
// Elements of an input row that neighbours in a row read, and the groups of LANES elements they lie in.
const uint SPAN = (LANES - 1) * STRIDE_W + WINDOW_W;
const uint GROUPS = CHANNELS == 1 ? WINDOW_W : (SHIFT + SPAN + LANES - 1) / LANES;
// Where tap t of lane l stands among the elements of a row: l * LANE_STEP + t * TAP_STEP + SHIFT.
const uint LANE_STEP = CHANNELS == 1 ? 1 : STRIDE_W;
const uint TAP_STEP = CHANNELS == 1 ? LANES : 1;
const uint TAPS = WINDOW_H * WINDOW_W;

void main() {
    if (beyond(p.count)) return;
    uint walk[4];
#define SET_COORDINATE(dim, coordinate) walk[dim] = coordinate;
    FOR_EACH_COORDINATE_FAST(linear_invocation(), 4, p.walk_sizes, p.walk_divisors, SET_COORDINATE)
    const uint lane = walk[3] * LANES;
    const uint channel = CHANNELS == 1 ? lane : walk[1];
    const uint first_row = walk[CHANNELS == 1 ? 1 : 2] * ROWS;
    const uint first_column = CHANNELS == 1 ? walk[2] : lane;
    const uint lanes = min(uint(LANES), (CHANNELS == 1 ? p.output_sizes[1] : p.output_sizes[4]) - lane);
    const uint width = p.input_sizes[2], height = p.input_sizes[1];
    const int row0 = int(first_row * STRIDE_H + p.position_start[1]);
    const int column0 = int(first_column * STRIDE_W + p.position_start[2] - SHIFT);
    const uint plane = walk[0] * p.input_strides[0] + channel * p.input_strides[1];

    uint offsets[GROUPS];
    bool inside[GROUPS];
    [[unroll]] for (uint g = 0; g < GROUPS; ++g) {
        const int column = column0 + int(CHANNELS == 1 ? g : g * LANES);
        inside[g] = (INSIDE >> g & 1u) == 1u || uint(column) < width;
        offsets[g] = uint(clamp(column, 0, int(width - (CHANNELS == 1 ? 1 : LANES)))) * p.input_strides[4];
    }

    float weights[TAPS * LANES]; // where lanes share them, those of lane 0
    [[unroll]] for (uint t = 0; t < TAPS; ++t) {
        const uint tap = p.filter_offset + channel * p.filter_strides[0] + t / WINDOW_W * p.filter_strides[3] +
            t % WINDOW_W * p.filter_strides[4];
        if (CHANNELS == 0) {
            weights[t * LANES] = float(ELEMENT(T, W, w, tap));
        } else {
            [[unroll]] for (uint l = 0; l < LANES; ++l)
                weights[t * LANES + l] = float(ELEMENT(T, W, w, tap + min(l, lanes - 1) * p.filter_strides[0]));
        }
    }

    uint words[ROWS_READ * GROUPS * WORDS];
    float elements[ROWS_READ * GROUPS * LANES];
    [[unroll]] for (uint i = 0; i < ROWS_READ; ++i) {
        const uint row = plane + uint(clamp(row0 + int(i), 0, int(height) - 1)) * p.input_strides[3];
        [[unroll]] for (uint g = 0; g < GROUPS; ++g) {
            // The first and the last group of a row may have few elements that are read.
            const uint first = CHANNELS == 0 && g == 0 ? SHIFT : 0;
            const uint last = CHANNELS == 0 && g == GROUPS - 1 ? SHIFT + SPAN - 1 - g * LANES : LANES - 1;
            if (X_MODE == MODE_GROUPS) {
                const uint first_word = first * T_BYTES / 4, last_word = (last * T_BYTES + T_BYTES - 1) / 4;
                const uint at = BYTE_OFFSET_X / T_BYTES + row + offsets[g];
                const uint to = (i * GROUPS + g) * WORDS;
                if (first_word == last_word) {
                    words[to + first_word] = x_words[at * T_BYTES / 4 + first_word];
                } else {
                    uint group[WORDS];
                    put_group_T(group, 0, x_groups[at / LANES]);
                    [[unroll]] for (uint k = 0; k < WORDS; ++k) words[to + k] = group[k];
                }
            } else {
                [[unroll]] for (uint l = 0; l < LANES; ++l) {
                    uint at = row;
                    if (CHANNELS == 1) at += offsets[g] + min(l, lanes - 1) * p.input_strides[1];
                    else at += uint(clamp(column0 + int(g * LANES + l), 0, int(width) - 1)) * p.input_strides[4];
                    if (l >= first && l <= last) elements[(i * GROUPS + g) * LANES + l] = float(ELEMENT(T, X, x, at));
                }
            }
        }
    }

    float sums[ROWS * LANES];
    [[unroll]] for (uint i = 0; i < ROWS * LANES; ++i) sums[i] = 0.0;
    [[unroll]] for (uint i = 0; i < ROWS_READ; ++i) {
        const bool row_inside = uint(row0 + int(i)) < height;
        float values[GROUPS * LANES];
        [[unroll]] for (uint g = 0; g < GROUPS; ++g) {
            if (X_MODE == MODE_GROUPS) {
                uint group[WORDS];
                [[unroll]] for (uint k = 0; k < WORDS; ++k)
                    group[k] = row_inside && inside[g] ? words[(i * GROUPS + g) * WORDS + k] : 0u;
                T_MATH unpacked[LANES];
                unpack_T(group, unpacked);
                [[unroll]] for (uint l = 0; l < LANES; ++l) values[g * LANES + l] = unpacked[l];
            } else {
                [[unroll]] for (uint l = 0; l < LANES; ++l) {
                    const uint e = g * LANES + l;
                    const bool here = CHANNELS == 1 ? inside[g] : uint(column0 + int(e)) < width;
                    values[e] = row_inside && here ? elements[i * GROUPS * LANES + e] : 0.0;
                }
            }
        }
        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
            if (i >= r * STRIDE_H && i - r * STRIDE_H < WINDOW_H) {
                const uint t_row = (i - r * STRIDE_H) * WINDOW_W;
                [[unroll]] for (uint t = 0; t < WINDOW_W; ++t)
                    [[unroll]] for (uint l = 0; l < LANES; ++l)
                        sums[r * LANES + l] = fma(values[SHIFT + l * LANE_STEP + t * TAP_STEP],
                            weights[(t_row + t) * LANES + (CHANNELS == 1 ? l : 0)], sums[r * LANES + l]);
            }
        }
    }

    float biases[LANES];
    [[unroll]] for (uint l = 0; l < LANES; ++l) biases[l] = load_bias(channel + (CHANNELS == 1 ? min(l, lanes - 1) : 0));
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        if (first_row + r >= p.output_sizes[3]) break;
        T_MATH results[LANES];
        [[unroll]] for (uint l = 0; l < LANES; ++l)
            results[l] = activated(sums[r * LANES + l] + biases[l]);
        const uint at = output_element(walk[0], channel, uvec3(0, first_row + r, first_column));
        if (Y_MODE == MODE_GROUPS) {
            y_groups[(BYTE_OFFSET_Y / T_BYTES + at) / LANES] = get_group_T(pack_T(results), 0);
        } else {
            [[unroll]] for (uint l = 0; l < LANES; ++l) {
                if (l < lanes) ELEMENT(T, Y, y, at + l * p.output_strides[CHANNELS == 1 ? 1 : 4]) = T(results[l]);
            }
        }
    }
}
