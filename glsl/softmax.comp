// Softmax and its logarithm over rows: the sets of elements that are normalized together.
//
//   LOG 0   y = exp(x - m) / s      m = the row's largest x, so that nothing overflows
//   LOG 1   y = (x - m) - ln(s)     s = the row's sum of exp(x - m)
//
// The exponential takes what rounding keeps out of x - m as well, so its error does not grow with the row's range. The
// largest elements, whose power is 1, are counted apart from the others' sum: ln(s) = ln(count) + ln(1 + others / count)
// stays accurate where all others together are smaller than the last place of 1.
//
// Bindings: X read, Y written; both may be the same bytes.
// A row is one index into the kept dimensions and all of the reduced ones. Its elements, the last reduced dimension
// fastest, move in units: a 16-byte word of consecutive elements where WORDS is 1, else one element anywhere. Steps are
// in units. p.kept_rank, p.row_rank: dimensions after merging; SINGLE_RANK is 1 where the latter is.
// LANES (a power of two) neighbouring invocations share a row; lane i has units i, i + LANES, i + 2 LANES... With one
// lane, neighbouring invocations have neighbouring rows, for rows that lie side by side in memory.
// WHOLE 1: UNITS units a lane are the whole row and stay in registers: one read and one write of each byte. WHOLE 0:
// the row is read three times, UNITS units a lane at a time.
// Grid: folded into x and y, LOCAL_SIZE_X / LANES rows a workgroup.

#include "accumulate.glsl"
#include "dtype.glsl"
#include "math.glsl"
#include "tensor.glsl"
#include "workgroup.glsl"

#if WORDS
#define UNIT uvec4
#define UNIT_ELEMENTS T_PER_WORD
#define UNIT_BYTES 16
layout(set = 0, binding = BINDING_X, std430) readonly buffer X { uvec4 x_units[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { uvec4 y_units[]; };
#else
#define UNIT float
#define UNIT_ELEMENTS 1
#define UNIT_BYTES T_BYTES
layout(set = 0, binding = BINDING_X, std430) readonly buffer X { T x_units[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { T y_units[]; };
#endif

uint lane;
uint x_start;
uint y_start;

void find_row(uint row) {
    x_start = BYTE_OFFSET_X / UNIT_BYTES;
    y_start = BYTE_OFFSET_Y / UNIT_BYTES;
#define ADD_KEPT(dimension, coordinate)                 \
    x_start += (coordinate) * p.kept_x[dimension];      \
    y_start += (coordinate) * p.kept_y[dimension];
    FOR_EACH_COORDINATE(row, p.kept_rank, p.kept_sizes, ADD_KEPT)
}

void load_unit(uint unit, out float values[UNIT_ELEMENTS]) {
    uint at = x_start;
#define ADD_X(dimension, coordinate) at += (coordinate) * p.row_x[dimension];
    FOR_EACH_COORDINATE(unit, SINGLE_RANK != 0 ? 1 : p.row_rank, p.row_sizes, ADD_X)
#if WORDS
    unpack_word(x_units[at], values);
#else
    values[0] = float(x_units[at]);
#endif
}

void store_unit(uint unit, float values[UNIT_ELEMENTS]) {
    uint at = y_start;
#define ADD_Y(dimension, coordinate) at += (coordinate) * p.row_y[dimension];
    FOR_EACH_COORDINATE(unit, SINGLE_RANK != 0 ? 1 : p.row_rank, p.row_sizes, ADD_Y)
#if WORDS
    y_units[at] = pack_word(values);
#else
    y_units[at] = T(values[0]);
#endif
}

// A tile: UNITS units of each lane, -infinity past the row's end.
float held[UNITS][UNIT_ELEMENTS];

void load_tile(uint first) {
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uint unit = first + i * LANES + lane;
        [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j) held[i][j] = -INFINITY;
        if (unit < p.row_units) load_unit(unit, held[i]);
    }
}

// exp(x - largest). A float16 result keeps nothing of what a driver's own exponential is off by.
float power(float x, float largest) {
#if T_IS_FLOAT16
    return exp(x - largest);
#else
    precise float difference = x - largest;
    precise float shift = difference - x;
    precise float lost = (x - (difference - shift)) - (largest + shift);
    return exp_sum(difference, lost);
#endif
}

void main() {
    const uint invocation = workgroup_invocation();
    lane = invocation % LANES;
    const uint row = linear_workgroup() * (LOCAL_SIZE_X / LANES) + invocation / LANES;
    // Past the last row everything but the writing happens to the last one, so that every invocation reaches the sums.
    find_row(min(row, p.rows - 1));
    const uint tile = LANES * UNITS;
    const uint end = WHOLE != 0 ? tile : p.row_units;

    if (WHOLE != 0) load_tile(0);
    float largest = -INFINITY;
    for (uint first = 0; first < end; first += tile) {
        if (WHOLE == 0) load_tile(first);
        [[unroll]] for (uint i = 0; i < UNITS; ++i)
            [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j) largest = max(largest, held[i][j]);
    }
    largest = max_over_lanes(largest, 0);

    // Without LOG, the sum of all powers and 0; with it, the sum of those below the largest and the count of the largest.
    // Past the row's end the powers are 0.
    vec2 sums = vec2(0);
    float lost = 0.0;
    for (uint first = 0; first < end; first += tile) {
        if (WHOLE == 0) load_tile(first);
        vec2 part = vec2(0);
        [[unroll]] for (uint i = 0; i < UNITS; ++i) {
            [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j) {
                const float value = power(held[i][j], largest);
                const bool is_largest = held[i][j] == largest && value == 1.0; // infinity - infinity is NaN
                part += LOG != 0 && is_largest ? vec2(0, 1) : vec2(value, 0);
                held[i][j] = LOG != 0 ? held[i][j] - largest : value;
            }
        }
        add_compensated(sums.x, lost, part.x);
        sums.y += part.y;
    }
    sums.x += lost;
    sums = sum_over_lanes(sums, 1);
    const float factor = 1.0 / (sums.x + sums.y);
    const float logarithm = LOG != 0 ? log_accurate(sums.y) + log1p_positive(sums.x / sums.y) : 0.0;

    if (row >= p.rows) return;
    for (uint first = 0; first < end; first += tile) {
        if (WHOLE == 0) load_tile(first);
        [[unroll]] for (uint i = 0; i < UNITS; ++i) {
            const uint unit = first + i * LANES + lane;
            [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j) {
                if (WHOLE == 0) held[i][j] = LOG != 0 ? held[i][j] - largest : power(held[i][j], largest);
                held[i][j] = LOG != 0 ? held[i][j] - logarithm : held[i][j] * factor;
            }
            if (unit < p.row_units) store_unit(unit, held[i]);
        }
    }
}
