// The gradient of pooling with small windows in a plane: an invocation makes a tile of ROWS x COLUMNS elements of dx.
//
//   dx[i] = sum of dy[o] / divisor(o), or of a maximum of dy[o] where x[i] is the first of the largest elements of window o,
//   over the windows o that hold element i; see spec/ops/pooling_gradient.py
//
// Tiles are whole multiples of the windows' step, so that all have the same windows around them, which the driver knows when
// it compiles. An invocation reads dy of those windows and, of a maximum, all elements of x in them, and finds each window's
// largest element anew (neighbouring tiles do so, too, for windows that they share: reading indices instead would take as
// many bytes as dy once more, and writing them as many again). Then every element of its tile sums what is its own, in the
// order of the windows. All reads are under way before the first is used.
//
// Bindings: INPUT x (any bytes of an average); INPUT_GRADIENT dy; OUTPUT_GRADIENT dx.
// Constants:
//   FUNCTION          REDUCE_FUNCTION_AVERAGE or REDUCE_FUNCTION_MAX
//   CHANNELS          0: lanes are neighbours in a row, so that COLUMNS are groups of LANES; 1: LANES neighbouring channels
//                     have a tile each
//   LANES, ROWS, COLUMNS     see above
//   WINDOW_H, WINDOW_W, STRIDE_H, STRIDE_W   the window and its steps
//   WINDOWS_H, WINDOWS_W     windows around a tile
//   FIRST_H, FIRST_W         the first of them, less the tile's start / step: two's complement, as are the next
//   LEAD_H, LEAD_W           elements from its start to the tile's
//   COLUMNS_WHOLE     1: tiles end where rows end
//   INPUT_MODE, GRADIENT_MODE, OUTPUT_MODE   MODE_GROUPS: x, dy and dx lie in whole groups: of LANES elements, those of dy
//                     along a row of LANES / STRIDE_W; MODE_ELEMENTS: anywhere
//   RANK              of the walk
// Parameters: sizes and divisors of the walk over {N, C, tiles of rows, tiles of columns} or, where CHANNELS is 1, {N, tiles
// of rows, tiles of columns, groups of channels}, less N where it continues C; strides of {N, C, H, W}.
// Grid: x folded into y, over all tiles.

#include "pooling_counted.glsl"
#include "tensor.glsl"

#if T_BYTES == 2
#define BITS uint16_t
#else
#define BITS uint
#endif
layout(set = 0, binding = BINDING_INPUT, std430) readonly buffer InputBits { BITS input_bits[]; };
layout(set = 0, binding = BINDING_INPUT, std430) readonly buffer InputWords { uint input_words[]; };
layout(set = 0, binding = BINDING_INPUT, std430) readonly buffer InputPairs { uvec2 input_pairs[]; };
layout(set = 0, binding = BINDING_INPUT, std430) readonly buffer InputQuads { uvec4 input_quads[]; };
layout(set = 0, binding = BINDING_INPUT_GRADIENT, std430) readonly buffer GradientBits { BITS gradient_bits[]; };
layout(set = 0, binding = BINDING_INPUT_GRADIENT, std430) readonly buffer GradientWords { uint gradient_words[]; };
layout(set = 0, binding = BINDING_INPUT_GRADIENT, std430) readonly buffer GradientPairs { uvec2 gradient_pairs[]; };
layout(set = 0, binding = BINDING_INPUT_GRADIENT, std430) readonly buffer GradientQuads { uvec4 gradient_quads[]; };
layout(set = 0, binding = BINDING_OUTPUT_GRADIENT, std430) writeonly buffer OutputElements { T output_elements[]; };
layout(set = 0, binding = BINDING_OUTPUT_GRADIENT, std430) writeonly buffer OutputWords { uint output_words[]; };
layout(set = 0, binding = BINDING_OUTPUT_GRADIENT, std430) writeonly buffer OutputPairs { uvec2 output_pairs[]; };
layout(set = 0, binding = BINDING_OUTPUT_GRADIENT, std430) writeonly buffer OutputQuads { uvec4 output_quads[]; };

#define IS_MAX (FUNCTION == REDUCE_FUNCTION_MAX)
#define PER_WORD (4 / T_BYTES)

// Elements of the forward input in the tile's windows.
const uint X_ROWS = (WINDOWS_H - 1) * STRIDE_H + WINDOW_H;
const uint X_COLUMNS = (WINDOWS_W - 1) * STRIDE_W + WINDOW_W;

// A row of x or dy is held as words: of groups the words they consist of, else one a single element.
//   UNIT, SHIFT    elements of a group, and those of the first group before the first element that is wanted
//   UNITS, SLOTS   groups and words of a row
const uint X_SHIFT = CHANNELS == 0 && INPUT_MODE == MODE_GROUPS ? uint(-int(LEAD_W)) % LANES : 0;
const uint X_UNITS = CHANNELS == 1 ? X_COLUMNS : (X_SHIFT + X_COLUMNS + LANES - 1) / LANES;
const uint X_SLOTS = INPUT_MODE == MODE_GROUPS ? X_UNITS * LANES / PER_WORD : CHANNELS == 1 ? X_COLUMNS * LANES : X_COLUMNS;
const uint G_UNIT = CHANNELS == 1 ? LANES : LANES / STRIDE_W;
const uint G_SHIFT = CHANNELS == 0 && GRADIENT_MODE == MODE_GROUPS ? FIRST_W % G_UNIT : 0;
const uint G_UNITS = CHANNELS == 1 ? WINDOWS_W : (G_SHIFT + WINDOWS_W + G_UNIT - 1) / G_UNIT;
const uint G_SLOTS =
    GRADIENT_MODE == MODE_GROUPS ? G_UNITS * G_UNIT / PER_WORD : CHANNELS == 1 ? WINDOWS_W * LANES : WINDOWS_W;

// Words `first` to `last` of a group that starts at word `at` of a tensor, by one access.
#define LOAD_WORDS(words, to, name, at, first, last) \
    if ((first) == (last)) { \
        words[(to) + (first)] = name##_words[(at) + (first)]; \
    } else if ((first) / 2 == (last) / 2) { \
        const uvec2 pair_ = name##_pairs[(at) / 2 + (first) / 2]; \
        words[(to) + (first)] = pair_.x; \
        words[(to) + (last)] = pair_.y; \
    } else { \
        const uvec4 quad_ = name##_quads[(at) / 4]; \
        [[unroll]] for (uint w_ = 0; w_ < 4; ++w_) \
            if (w_ >= (first) && w_ <= (last)) words[(to) + w_] = quad_[w_]; \
    }

// Elements from `column` on of a row of x or dy that starts at element `row`; those beyond the row are some others.
#define LOAD_ROW(words, to, name, NAME, mode, row, column, columns, size, stride, unit, shift, units) \
    [[unroll]] for (uint u_ = 0; u_ < (units); ++u_) { \
        if ((mode) == MODE_GROUPS) { \
            const int from_ = (column) + int(CHANNELS == 1 ? u_ : u_ * (unit)) - int(shift); \
            const uint at_ = (row) + uint(clamp(from_, 0, int((size) - (CHANNELS == 1 ? 1 : (unit))))) * (stride); \
            const uint first_ = CHANNELS == 0 && u_ == 0 ? (shift) / PER_WORD : 0; \
            const uint last_ = CHANNELS == 0 && u_ == (units) - 1 \
                ? ((shift) + (columns) - 1 - u_ * (unit)) / PER_WORD : (unit) / PER_WORD - 1; \
            LOAD_WORDS(words, (to) + u_ * (unit) / PER_WORD, name, (BYTE_OFFSET_##NAME + at_ * T_BYTES) / 4, first_, last_) \
        } else { \
            [[unroll]] for (uint l_ = 0; l_ < (CHANNELS == 1 ? LANES : (unit)); ++l_) { \
                const uint e_ = CHANNELS == 1 ? u_ : u_ * (unit) + l_; \
                uint at_ = (row) + uint(clamp((column) + int(e_), 0, int(size) - 1)) * (stride); \
                if (CHANNELS == 1) at_ += min(l_, lanes_left - 1) * p.name##_strides[1]; \
                if (e_ < (columns)) \
                    words[(to) + (CHANNELS == 1 ? u_ * LANES + l_ : e_)] = \
                        uint(name##_bits[BYTE_OFFSET_##NAME / T_BYTES + at_]); \
            } \
        } \
    }

// The bits of element `e` of a row, those of 16-bit types in the upper half and with others below them.
uint upper_bits(uint word, uint e, uint mode) {
    return T_BYTES == 4 || (mode == MODE_GROUPS && e % 2 == 1) ? word : word << 16;
}

// Orders: 0 is below every number's, -0 equals 0, and NaN, of either sign, is above all. Of 16-bit types an order also says,
// in its lower half, where the element is: the first of equals is the largest, and no two elements are equal.
#if T_BYTES == 2
#define HELD_BITS 0xFFFF0000u
#define INFINITE_BITS 0x7C000000u
#else
#define HELD_BITS 0xFFFFFFFFu
#define INFINITE_BITS 0x7F800000u
#endif
#define ONE_UP (~HELD_BITS + 1u)

uint order_of(uint bits) {
    const uint held = bits & HELD_BITS;
    const uint negative = uint(int(bits) >> 31);
    // Flipped where negative, then one up, so that -0 is 0; -infinity goes to 0 and the negative NaN below it to the top.
    const uint turned = (held ^ (negative & 0x7FFFFFFFu & HELD_BITS)) - (negative & HELD_BITS);
    return min(turned + INFINITE_BITS, 2u * INFINITE_BITS + ONE_UP);
}

// Takes what is larger than the best so far.
void take(inout uint best, inout uint where, uint value, uint at) {
#if T_BYTES == 2
    best = max(best, value);
#else
    if (value > best) {
        best = value;
        where = at;
    }
#endif
}

// 1 / count, 0 for 0, without a division: a window counts at most WINDOW positions.
float reciprocal(uint count, uint window) {
    float found = 0.0;
    [[unroll]] for (uint c = 1; c <= window; ++c) found = count == c ? 1.0 / float(c) : found;
    return found;
}

void main() {
    if (beyond(p.count)) return;
    uint walk[4] = uint[4](0, 0, 0, 0);
#define SET_COORDINATE(dim, coordinate) walk[dim + 4 - int(RANK)] = coordinate;
    FOR_EACH_COORDINATE_FAST(linear_invocation(), RANK, p.sizes, p.divisors, SET_COORDINATE)
    const uint n = walk[0], channel = CHANNELS == 1 ? walk[3] * LANES : walk[1];
    const uint row_tile = walk[CHANNELS == 1 ? 1 : 2], column_tile = walk[CHANNELS == 1 ? 2 : 3];
    const uint lanes_left = p.channels - channel;
    const uint row0 = row_tile * ROWS, column0 = column_tile * COLUMNS;
    // Of the first window: its number, and the position of its first element.
    const int window_row = int(row_tile * (ROWS / STRIDE_H) + FIRST_H);
    const int window_column = int(column_tile * (COLUMNS / STRIDE_W) + FIRST_W);
    const int x_row = int(row0 - LEAD_H), x_column = int(column0 - LEAD_W);

    uint x[X_ROWS * X_SLOTS];
    if (IS_MAX) {
        const uint plane = n * p.input_strides[0] + channel * p.input_strides[1];
        [[unroll]] for (uint i = 0; i < X_ROWS; ++i) {
            const uint row = plane + uint(clamp(x_row + int(i), 0, int(p.height) - 1)) * p.input_strides[2];
            LOAD_ROW(x, i * X_SLOTS, input, INPUT, INPUT_MODE, row, x_column, X_COLUMNS, p.width,
                     p.input_strides[3], LANES, X_SHIFT, X_UNITS)
        }
    }
    uint dy[WINDOWS_H * G_SLOTS];
    const uint gradient_plane = n * p.gradient_strides[0] + channel * p.gradient_strides[1];
    [[unroll]] for (uint a = 0; a < WINDOWS_H; ++a) {
        const uint row = gradient_plane + uint(clamp(window_row + int(a), 0, int(p.windows[0]) - 1)) * p.gradient_strides[2];
        LOAD_ROW(dy, a * G_SLOTS, gradient, INPUT_GRADIENT, GRADIENT_MODE, row, window_column, WINDOWS_W, p.windows[1],
                 p.gradient_strides[3], G_UNIT, G_SHIFT, G_UNITS)
    }

    float row_factors[WINDOWS_H], column_factors[WINDOWS_W]; // 1 / what counts of a window along a dimension
    [[unroll]] for (uint a = 0; a < WINDOWS_H; ++a)
        row_factors[a] = IS_MAX ? 1.0
            : reciprocal(counted(x_row + int(a * STRIDE_H), WINDOW_H, p.height, p.end_padding[0]), WINDOW_H);
    [[unroll]] for (uint b = 0; b < WINDOWS_W; ++b)
        column_factors[b] = IS_MAX ? 1.0
            : reciprocal(counted(x_column + int(b * STRIDE_W), WINDOW_W, p.width, p.end_padding[1]), WINDOW_W);

    const uint TILES = CHANNELS == 1 ? LANES : 1;
    float dx[ROWS * COLUMNS * TILES];
    [[unroll]] for (uint l = 0; l < TILES; ++l) {
        float gradients[WINDOWS_H * WINDOWS_W];
        [[unroll]] for (uint a = 0; a < WINDOWS_H; ++a) {
            const bool row_inside = uint(window_row + int(a)) < p.windows[0];
            [[unroll]] for (uint b = 0; b < WINDOWS_W; ++b) {
                const uint e = CHANNELS == 1 ? b * LANES + l : G_SHIFT + b;
                const uint slot = a * G_SLOTS + (GRADIENT_MODE == MODE_GROUPS ? e / PER_WORD : e);
                const uint bits = upper_bits(dy[slot], e, GRADIENT_MODE);
#if T_BYTES == 2
                const float value = unpackHalf2x16(bits).y;
#else
                const float value = uintBitsToFloat(bits);
#endif
                const bool inside = row_inside && uint(window_column + int(b)) < p.windows[1];
                gradients[a * WINDOWS_W + b] = inside ? value : 0.0;
            }
        }

        // Of each window the order of its largest element, and where in x that is.
        uint largest[WINDOWS_H * WINDOWS_W], where[WINDOWS_H * WINDOWS_W], own[ROWS * COLUMNS];
        if (IS_MAX) {
            [[unroll]] for (uint i = 0; i < X_ROWS; ++i) {
                uint orders[X_COLUMNS];
                [[unroll]] for (uint j = 0; j < X_COLUMNS; ++j) {
                    const uint e = CHANNELS == 1 ? j * LANES + l : X_SHIFT + j;
                    const uint slot = i * X_SLOTS + (INPUT_MODE == MODE_GROUPS ? e / PER_WORD : e);
                    const uint order = order_of(upper_bits(x[slot], e, INPUT_MODE));
#if T_BYTES == 2
                    orders[j] = order + (X_ROWS * X_COLUMNS - (i * X_COLUMNS + j));
#else
                    orders[j] = order + 1;
#endif
                    const int tile_row = int(i - LEAD_H), tile_column = int(j - LEAD_W);
                    if (COLUMNS_WHOLE == 0 || uint(tile_column) >= COLUMNS)
                        orders[j] = uint(x_column + int(j)) < p.width ? orders[j] : 0;
                    if (uint(tile_row) < ROWS && uint(tile_column) < COLUMNS)
                        own[tile_row * COLUMNS + tile_column] = orders[j];
                }
                const bool row_inside = uint(x_row + int(i)) < p.height;
                [[unroll]] for (uint b = 0; b < WINDOWS_W; ++b) {
                    uint best = orders[b * STRIDE_W], at = i * X_COLUMNS + b * STRIDE_W;
                    [[unroll]] for (uint t = 1; t < WINDOW_W; ++t)
                        take(best, at, orders[b * STRIDE_W + t], i * X_COLUMNS + b * STRIDE_W + t);
                    best = row_inside ? best : 0;
                    [[unroll]] for (uint a = 0; a < WINDOWS_H; ++a) {
                        const uint window = a * WINDOWS_W + b;
                        if (i == a * STRIDE_H) {
                            largest[window] = best;
                            where[window] = at;
                        } else if (i - a * STRIDE_H < WINDOW_H) {
                            take(largest[window], where[window], best, at);
                        }
                    }
                }
            }
        }

        [[unroll]] for (uint r = 0; r < ROWS; ++r) {
            [[unroll]] for (uint c = 0; c < COLUMNS; ++c) {
                const uint i = r + LEAD_H, j = c + LEAD_W; // beyond every window where the tile starts before the first
                float total = 0.0;
                [[unroll]] for (uint a = 0; a < WINDOWS_H; ++a) {
                    float line = 0.0;
                    [[unroll]] for (uint b = 0; b < WINDOWS_W; ++b) {
                        if (i - a * STRIDE_H < WINDOW_H && j - b * STRIDE_W < WINDOW_W) {
                            const uint window = a * WINDOWS_W + b;
                            if (!IS_MAX) {
                                line += gradients[window] * column_factors[b];
                            } else {
#if T_BYTES == 2
                                if (largest[window] == own[r * COLUMNS + c]) total += gradients[window];
#else
                                if (where[window] == i * X_COLUMNS + j) total += gradients[window];
#endif
                            }
                        }
                    }
                    if (!IS_MAX && i - a * STRIDE_H < WINDOW_H) total += line * row_factors[a];
                }
                dx[(r * COLUMNS + c) * TILES + l] = total;
            }
        }
    }

    const uint output_plane = n * p.output_strides[0] + channel * p.output_strides[1];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        if (row0 + r >= p.height) break;
        [[unroll]] for (uint c = 0; c < COLUMNS; c += CHANNELS == 1 ? 1 : LANES) {
            if (column0 + c >= p.width) break;
            const uint at = output_plane + (row0 + r) * p.output_strides[2] + (column0 + c) * p.output_strides[3];
            const uint from = (r * COLUMNS + c) * TILES;
            if (OUTPUT_MODE == MODE_GROUPS) {
                uint words[4];
                [[unroll]] for (uint w = 0; w < LANES / PER_WORD; ++w) {
#if T_BYTES == 2
                    words[w] = packHalf2x16(vec2(dx[from + 2 * w], dx[from + 2 * w + 1]));
#else
                    words[w] = floatBitsToUint(dx[from + w]);
#endif
                }
                const uint word = (BYTE_OFFSET_OUTPUT_GRADIENT + at * T_BYTES) / 4;
                if (LANES / PER_WORD == 1) output_words[word] = words[0];
                else if (LANES / PER_WORD == 2) output_pairs[word / 2] = uvec2(words[0], words[1]);
                else output_quads[word / 4] = uvec4(words[0], words[1], words[2], words[3]);
            } else {
                [[unroll]] for (uint l = 0; l < LANES; ++l) {
                    const uint element = at + l * p.output_strides[CHANNELS == 1 ? 1 : 3];
                    if (CHANNELS == 1 ? l < lanes_left : column0 + c + l < p.width)
                        output_elements[BYTE_OFFSET_OUTPUT_GRADIENT / T_BYTES + element] = T(dx[from + l]);
                }
            }
        }
    }
}
