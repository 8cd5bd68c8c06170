// Pooling with small windows: an invocation makes LANES neighbouring outputs of ROWS neighbouring rows.
//
//   y[n, c, o] = mean or maximum of x[n, c, o * stride + t - start padding] over the taps t of the window that lie inside
//   the input; see spec/ops/pooling.py
//
// Every row of the input that its windows touch is read once, in whole 16-byte groups where those line up, and reduced to
// one value a lane, which all windows share that hold the row. All reads of a plane are under way before the first is used.
// Chosen for windows without dilation whose rows fit the registers.
//
// Variants: T and LANES.
// Bindings: INPUT, OUTPUT, INDICES (as 32-bit words; bound to the output and left alone where INDEX_WORDS is 0).
// Constants:
//   FUNCTION          REDUCE_FUNCTION_AVERAGE or REDUCE_FUNCTION_MAX
//   CHANNELS          0: lanes are neighbours in a row; 1: neighbouring channels
//   ROWS              rows of the output an invocation makes
//   WINDOW_H, WINDOW_W, STRIDE_H, STRIDE_W   the window and its steps in a plane
//   INPUT_MODE, OUTPUT_MODE, INDEX_MODE      how lanes lie in memory (lanes.glsl)
//   SHIFT             of rows read in groups: where the first element read lies in its group
//   INSIDE            bit g: group g of a row is inside the input wherever the window is
//   ROWS_REPEAT       1: each window reaches into the input, so that a maximum may take the input's edge row for one beyond
//   INDEX_WORDS       0 no indices, 1 UINT32, 2 UINT64
//   VOLUMES (1 where there is a D), RANK (of the walk)
// Parameters: sizes and divisors of the walk over {N, C, D, groups of rows, groups of lanes} or, where lanes are channels,
// {N, D, groups of rows, W, groups of lanes}, less D where it is absent, less N where it continues C; sizes and strides are
// those of {N, C, D, H, W}; without D it has size 1, window 1 and step 1. lanes is the size that lanes count.

#include "lanes.glsl"
#include "math.glsl"
#include "order.glsl"
#include "pooling_counted.glsl"
#include "tensor.glsl"

LANES_BUFFER(readonly, T, INPUT, input)
LANES_BUFFER(writeonly, T, OUTPUT, output)
layout(set = 0, binding = BINDING_INPUT, std430) readonly buffer InputWords { uint input_words[]; };
layout(set = 0, binding = BINDING_INDICES, std430) writeonly buffer IndexWords { uint index_words[]; };
layout(set = 0, binding = BINDING_INDICES, std430) writeonly buffer IndexGroups { uvec4 index_groups[]; };

#define IS_MAX (FUNCTION == REDUCE_FUNCTION_MAX)
#define WORDS (LANES * T_BYTES / 4)

const uint ROWS_READ = (ROWS - 1) * STRIDE_H + WINDOW_H;
// Elements of an input row that neighbours in a row read, and the groups of LANES elements they lie in.
const uint SPAN = (LANES - 1) * STRIDE_W + WINDOW_W;
const uint GROUPS = CHANNELS == 1 ? WINDOW_W : (SHIFT + SPAN + LANES - 1) / LANES;
// Where tap t of lane l stands among the elements of a row: l * LANE_STEP + t * TAP_STEP + SHIFT.
const uint LANE_STEP = CHANNELS == 1 ? 1 : STRIDE_W;
const uint TAP_STEP = CHANNELS == 1 ? LANES : 1;

// VALUE is what is held of an element: an integer as it is; of a float its float32 bits, to be summed, or its order.
#if T_IS_FLOAT
#define VALUE uint

// An order of floats, kept in their upper bits: those of a 16-bit float are above 16 bits that do not count. Like
// order_up, but each NaN keeps its bits, and so this takes three instructions: negative numbers have theirs flipped, which
// leaves negative NaN at the bottom, and adding this constant moves -infinity to 0 and those around to the top.
#if T_BYTES == 2
#define FROM_NEGATIVE_INFINITY 0x7C010000u
#define HELD_BITS 0xFFFF0000u
#define HELD_NAN 0x7E000000u
#define HELD_INFINITY 0x7C000000u
#else
#define FROM_NEGATIVE_INFINITY 0x7F800001u
#define HELD_BITS 0xFFFFFFFFu
#define HELD_NAN 0x7FC00000u
#define HELD_INFINITY 0x7F800000u
#endif
uint flip_negative(uint bits) { return bits ^ (uint(int(bits) >> 31) & 0x7FFFFFFFu); }

uint order_of_float(uint bits) {
    if (INDEX_WORDS != 0) { // equals must be equal: the zeros, and every NaN
        bits &= HELD_BITS;
        if (bits == 0x80000000u) bits = 0u;
        if ((bits & 0x7FFFFFFFu) > HELD_INFINITY) bits = HELD_NAN;
    }
    return flip_negative(bits) + FROM_NEGATIVE_INFINITY;
}
uint float_of_order(uint key) { return flip_negative(key - FROM_NEGATIVE_INFINITY); }

void unpack(uint words[WORDS], out VALUE values[LANES]) {
    [[unroll]] for (int i = 0; i < LANES; ++i) {
#if T_BYTES == 2
        const uint word = words[i / 2];
        values[i] = IS_MAX ? order_of_float(i % 2 == 0 ? word << 16 : word) : floatBitsToUint(unpackHalf2x16(word)[i % 2]);
#else
        values[i] = IS_MAX ? order_of_float(words[i]) : words[i];
#endif
    }
}

VALUE value_of(float x) {
#if T_BYTES == 2
    if (IS_MAX) return order_of_float(packHalf2x16(vec2(0.0, x)));
#endif
    return IS_MAX ? order_of_float(floatBitsToUint(x)) : floatBitsToUint(x);
}

VALUE combined(VALUE a, VALUE b) {
    return IS_MAX ? max(a, b) : floatBitsToUint(uintBitsToFloat(a) + uintBitsToFloat(b));
}

VALUE identity() { return IS_MAX ? order_of_float(HELD_INFINITY | 0x80000000u) : 0u; }
uint identity_word(uint i) { return IS_MAX ? (T_BYTES == 2 ? 0xFC00FC00u : 0xFF800000u) : 0u; }

float number(VALUE value) {
#if T_BYTES == 2
    if (IS_MAX) return unpackHalf2x16(float_of_order(value)).y;
#endif
    return uintBitsToFloat(IS_MAX ? float_of_order(value) : value);
}

uint[WORDS] pack(VALUE values[LANES]) {
    if (IS_MAX) {
        uint words[WORDS];
#if T_BYTES == 2
        [[unroll]] for (int i = 0; i < WORDS; ++i)
            words[i] = float_of_order(values[2 * i]) >> 16 | (float_of_order(values[2 * i + 1]) & HELD_BITS);
#else
        [[unroll]] for (int i = 0; i < WORDS; ++i) words[i] = float_of_order(values[i]);
#endif
        return words;
    }
    float numbers[LANES];
    [[unroll]] for (int i = 0; i < LANES; ++i) numbers[i] = uintBitsToFloat(values[i]);
    return pack_T(numbers);
}
#else
#define VALUE T_MATH
void unpack(uint words[WORDS], out VALUE values[LANES]) { unpack_T(words, values); }
VALUE value_of(T_MATH x) { return x; }
VALUE combined(VALUE a, VALUE b) { return max(a, b); }
VALUE identity() { return LEAST_ORDER; }
uint identity_word(uint i) {
#if !T_IS_SIGNED
    return 0u;
#elif T_BYTES == 8
    return i % 2 << 31;
#else
    return T_BYTES == 4 ? 0x80000000u : T_BYTES == 2 ? 0x80008000u : 0x80808080u;
#endif
}
T_MATH number(VALUE value) { return value; }
uint[WORDS] pack(VALUE values[LANES]) { return pack_T(values); }
#endif

// The first of equals stays.
void take(inout VALUE best, inout uint where, VALUE value, uint at) {
    if (INDEX_WORDS == 0) {
        best = combined(best, value);
    } else if (value > best) {
        best = value;
        where = at;
    }
}

float reciprocal(uint count) { return IS_MAX || count == 0 ? 0.0 : 1.0 / float(count); }

// sum / count, 0 where nothing counts. A division an output would take longer than the output's bytes: the product with the
// reciprocal, which is off by up to 2 ULP, is corrected by what is left of the sum. (Of float16 the product is enough.)
float mean(float sum, uint count, float factor) {
    if (count == 0) return 0.0;
    const float product = sum * factor;
#if T_BYTES == 2
    return product;
#else
    return is_finite(product) ? fma(fma(-product, float(count), sum), factor, product) : product;
#endif
}

const uint NOWHERE = 0xFFFFFFFFu;

void main() {
    if (beyond(p.count)) return;
    uint walk[5] = uint[5](0, 0, 0, 0, 0);
#define SET_COORDINATE(dim, coordinate) walk[dim + 5 - int(RANK)] = coordinate;
    FOR_EACH_COORDINATE_FAST(linear_invocation(), RANK, p.sizes, p.divisors, SET_COORDINATE)
    const uint group_row = walk[CHANNELS == 1 ? 2 : 3], lane = walk[4] * LANES;
    // Without D the coordinates before the plane's stand one place later.
    const uint n = walk[1 - VOLUMES], channel = CHANNELS == 1 ? lane : walk[2 - VOLUMES];
    const uint depth = VOLUMES == 0 ? 0 : walk[CHANNELS == 1 ? 1 : 2];
    const uint width = p.input_sizes[4], height = p.input_sizes[3];

    const int row0 = int(group_row * (ROWS * STRIDE_H)) - int(p.start_padding[1]);
    const int column0 = int((CHANNELS == 1 ? walk[3] : lane) * STRIDE_W) - int(p.start_padding[2] + SHIFT);

    uint offsets[GROUPS];
    bool inside[GROUPS];
    [[unroll]] for (uint g = 0; g < GROUPS; ++g) {
        const int column = column0 + int(CHANNELS == 1 ? g : g * LANES);
        inside[g] = (INSIDE >> g & 1u) == 1u || uint(column) < width;
        offsets[g] = uint(clamp(column, 0, int(width - (CHANNELS == 1 ? 1 : LANES)))) * p.input_strides[4];
    }

    VALUE best[ROWS * LANES];
    uint where[ROWS * LANES];
    [[unroll]] for (uint i = 0; i < ROWS * LANES; ++i) {
        best[i] = identity();
        where[i] = NOWHERE;
    }
    uint depths = 0;
    for (uint d = 0; d < (VOLUMES == 1 ? p.window_depth : 1); ++d) {
        uint plane = n * p.input_strides[0] + channel * p.input_strides[1], plane_index = 0;
        if (VOLUMES == 1) {
            const int z = int(depth * p.depth_stride + d * p.depth_dilation) - int(p.start_padding[0]);
            const uint size = p.input_sizes[2];
            if (p.include_padding == 1 && z < int(size + p.end_padding[0])) depths += 1;
            if (uint(z) >= size) continue;
            if (p.include_padding == 0) depths += 1;
            plane += uint(z) * p.input_strides[2];
            plane_index = uint(z) * height * width;
        }

        uint words[ROWS_READ * GROUPS * WORDS];
        T_MATH elements[ROWS_READ * GROUPS * LANES];
        [[unroll]] for (uint i = 0; i < ROWS_READ; ++i) {
            const uint row = plane + uint(clamp(row0 + int(i), 0, int(height) - 1)) * p.input_strides[3];
            [[unroll]] for (uint g = 0; g < GROUPS; ++g) {
                // The first and the last group of a row may have few elements that are read.
                const uint first = CHANNELS == 0 && g == 0 ? SHIFT : 0;
                const uint last = CHANNELS == 0 && g == GROUPS - 1 ? SHIFT + SPAN - 1 - g * LANES : LANES - 1;
                if (INPUT_MODE == MODE_GROUPS) {
                    const uint first_word = first * T_BYTES / 4, last_word = (last * T_BYTES + T_BYTES - 1) / 4;
                    const uint at = BYTE_OFFSET_INPUT / T_BYTES + row + offsets[g];
                    const uint to = (i * GROUPS + g) * WORDS;
                    if (first_word == last_word) {
                        words[to + first_word] = input_words[at * T_BYTES / 4 + first_word];
                    } else {
                        uint group[WORDS];
                        put_group_T(group, 0, input_groups[at / LANES]);
                        [[unroll]] for (int w = 0; w < WORDS; ++w) words[to + w] = group[w];
                    }
                } else {
                    [[unroll]] for (uint l = 0; l < LANES; ++l) {
                        uint at = row;
                        if (CHANNELS == 1) at += offsets[g] + min(l, p.lanes - lane - 1) * p.input_strides[1];
                        else at += uint(clamp(column0 + int(g * LANES + l), 0, int(width) - 1)) * p.input_strides[4];
                        if (l >= first && l <= last)
                            elements[(i * GROUPS + g) * LANES + l] = T_MATH(ELEMENT(T, INPUT, input, at));
                    }
                }
            }
        }

        [[unroll]] for (uint i = 0; i < ROWS_READ; ++i) {
            const int row = row0 + int(i);
            const bool row_inside = (IS_MAX && ROWS_REPEAT == 1) || uint(row) < height;
            VALUE values[GROUPS * LANES];
            [[unroll]] for (uint g = 0; g < GROUPS; ++g) {
                if (INPUT_MODE == MODE_GROUPS) {
                    uint group[WORDS];
                    [[unroll]] for (uint w = 0; w < WORDS; ++w)
                        group[w] = row_inside && inside[g] ? words[(i * GROUPS + g) * WORDS + w] : identity_word(w);
                    VALUE unpacked[LANES];
                    unpack(group, unpacked);
                    [[unroll]] for (int l = 0; l < LANES; ++l) values[g * LANES + l] = unpacked[l];
                } else {
                    [[unroll]] for (uint l = 0; l < LANES; ++l) {
                        const uint e = g * LANES + l;
                        const bool here = CHANNELS == 1 ? inside[g] : uint(column0 + int(e)) < width;
                        values[e] = row_inside && here ? value_of(elements[i * GROUPS * LANES + e]) : identity();
                    }
                }
            }
            const uint row_index = plane_index + uint(clamp(row, 0, int(height) - 1)) * width;
            [[unroll]] for (uint l = 0; l < LANES; ++l) {
                const uint first = SHIFT + l * LANE_STEP;
                VALUE value = values[first];
                uint at = 0;
                [[unroll]] for (uint t = 1; t < WINDOW_W; ++t) take(value, at, values[first + t * TAP_STEP], t);
                const uint start = uint(column0) + (CHANNELS == 1 ? 0 : first);
                [[unroll]] for (uint r = 0; r < ROWS; ++r) {
                    if (i >= r * STRIDE_H && i - r * STRIDE_H < WINDOW_H) {
                        const uint to = r * LANES + l;
                        if (INDEX_WORDS != 0 && where[to] == NOWHERE && row_inside) {
                            // Of what equals the least value the first element counts: none before it is larger.
                            where[to] = plane_index + uint(max(row0 + int(r * STRIDE_H), 0)) * width + uint(max(int(start), 0));
                        }
                        take(best[to], where[to], value, row_index + start + at);
                    }
                }
            }
        }
    }

    uint columns[LANES];
    float column_factors[LANES]; // 1 / columns, or 0
    [[unroll]] for (uint l = 0; l < LANES; ++l) {
        columns[l] = CHANNELS == 1 && l > 0 ? columns[0]
            : counted(column0 + int(CHANNELS == 1 ? 0 : SHIFT + l * STRIDE_W), WINDOW_W, width, p.end_padding[2]);
        column_factors[l] = CHANNELS == 1 && l > 0 ? column_factors[0] : reciprocal(columns[l]);
    }
    const uint column_out = CHANNELS == 1 ? walk[3] : lane;
    const uint plane_out = n * p.output_strides[0] + channel * p.output_strides[1] + depth * p.output_strides[2] +
                           column_out * p.output_strides[4];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        const uint row_out = group_row * ROWS + r;
        if (row_out >= p.output_rows) break;
        const uint rows = counted(row0 + int(r * STRIDE_H), WINDOW_H, height, p.end_padding[1]);
        const uint of_rows = rows * (VOLUMES == 1 ? depths : 1);
        const float row_factor = reciprocal(of_rows);
        VALUE results[LANES];
        [[unroll]] for (uint l = 0; l < LANES; ++l) {
            results[l] = best[r * LANES + l];
#if T_IS_FLOAT
            if (!IS_MAX)
                results[l] = floatBitsToUint(mean(uintBitsToFloat(results[l]), of_rows * columns[l], row_factor * column_factors[l]));
#endif
        }
        const uint at = plane_out + row_out * p.output_strides[3];
        if (OUTPUT_MODE == MODE_GROUPS) {
            output_groups[BYTE_OFFSET_OUTPUT / (T_BYTES * LANES) + at / LANES] = get_group_T(pack(results), 0);
        } else {
            [[unroll]] for (uint l = 0; l < LANES; ++l) {
                if (lane + l < p.lanes)
                    ELEMENT(T, OUTPUT, output, at + l * p.output_strides[CHANNELS == 1 ? 1 : 4]) = T(number(results[l]));
            }
        }
        if (INDEX_WORDS != 0) {
            const uint volume = p.input_sizes[2] * height * width;
            uint indices[LANES];
            [[unroll]] for (uint l = 0; l < LANES; ++l) {
                const uint source = where[r * LANES + l];
                const uint of_channel = n * p.input_sizes[1] + channel + (CHANNELS == 1 ? l : 0);
                const bool empty = source == NOWHERE || rows == 0 || columns[l] == 0;
                indices[l] = empty ? 0 : of_channel * volume + source;
            }
            const uint index_at = n * p.index_strides[0] + channel * p.index_strides[1] + depth * p.index_strides[2] +
                                  row_out * p.index_strides[3] + column_out * p.index_strides[4];
            const uint word = BYTE_OFFSET_INDICES / 4 + index_at * INDEX_WORDS;
            if (INDEX_MODE == MODE_GROUPS) {
                [[unroll]] for (uint g = 0; g < LANES * INDEX_WORDS / 4; ++g) {
                    index_groups[word / 4 + g] = INDEX_WORDS == 1
                        ? uvec4(indices[4 * g], indices[4 * g + 1], indices[4 * g + 2], indices[4 * g + 3])
                        : uvec4(indices[2 * g], 0, indices[2 * g + 1], 0);
                }
            } else {
                [[unroll]] for (uint l = 0; l < LANES; ++l) {
                    if (lane + l < p.lanes) {
                        const uint to = word + l * p.index_strides[CHANNELS == 1 ? 1 : 4] * INDEX_WORDS;
                        index_words[to] = indices[l];
                        if (INDEX_WORDS == 2) index_words[to + 1] = 0;
                    }
                }
            }
        }
    }
}
