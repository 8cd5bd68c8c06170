// The gradient of resampling where rows are dense: one or two mapped dimensions, whatever the scales.
//
//   dx[i, j] = sum over columns v of w(v, j) * (sum over rows u of w(u, i) * dy[u, v]), for all outputs that read the element
//   see spec/ops/resample_gradient.py
//
// Bindings: X (dy), Y (dx). Dimensions: up to 3 outer ones, whose product are planes; rows; columns; and `inner`, elements
//   that lie side by side at one position (the channels of NHWC; 1 where columns are the densest). A line is a row's columns
//   and their inner elements, contiguous in dy and in dx.
// Constants: LINEAR; TAPS, the most columns of dy that a column of dx gathers; TILE, PLANE_TABLE, ROW_TABLE, COLUMN_TABLE and
//   WEIGHT_TABLE, what shared memory has room for; FLAT, whether tiles have all of the inner elements; X_MODE, Y_MODE (lanes.glsl).
// Parameters: those of include/resample_gradient.glsl for dimension 0 (rows) and 1 (columns). A workgroup makes tiles of
//   `rows` x `columns` elements by `chunk` of the inner ones, of `together` planes at once, in `rounds` rounds; row_tiles,
//   column_tiles and chunks are how many there are. `width` is the stride of a row in shared memory, `words` the accesses of
//   it, word_divisor, chunk_divisor and line_divisor those of tensor.glsl for words, chunk, and
//   the stores of a line of dx.
// Variants: T; LANES, the elements of a 16-byte word.
// Grid: x folded into y, over `count` tiles: chunks the fastest, then columns, rows, planes.
//
// The sum is separable. First each invocation takes a word of a line of dy down the rows, from which it is read once, several
// rows in flight: a row counts for the one or two rows of dx around its position, the sums of which move on as positions
// do, and go to shared memory when they are done. Then invocations gather the columns of these sums. Which rows and columns
// count, and their weights, are worked out once into tables, for all planes of a workgroup. What two tiles read stays in the
// cache.
//
// Rule: "tiles".

#include "resample_gradient.glsl"

const int ROW = 0, COLUMN = 1;
const uint OUTPUTS = Y_MODE == MODE_GROUPS ? LANES : 1u; // elements of dx that are stored at once

shared float tile[TILE]; // sums of the rows, [plane][row of dx][slot of an element of the line of dy]
shared uvec2 plane_table[PLANE_TABLE]; // where the workgroup's planes start in dy and dx
shared uvec4 row_table[ROW_TABLE]; // of a row of dy: the first row of dx that it counts for, the weights' bits there and after
shared uvec2 column_table[COLUMN_TABLE]; // of a column of dx: its first column of dy in the tile, and how many
shared float column_weights[WEIGHT_TABLE];

uint first_row, rows_here, first_column, columns_here, first_inner, inner_here;
uint row_begin, row_count, line_begin, line_count; // of dy; the line in elements
uint before; // elements of its first word that are not the tile's

void fill_row_table() {
    for (uint t = gl_LocalInvocationID.x; t < row_count; t += gl_WorkGroupSize.x) {
        const Position at = position_of(ROW, row_begin + t);
        uint low = clamp_input(ROW, at.whole);
        vec2 weights = vec2(1.0, 0.0);
        if (LINEAR == 1u) {
            const Pair pair = pair_of(ROW, at);
            low = pair.low;
            if (pair.high != pair.low) weights = vec2(pair.low_weight, pair.high_weight);
        }
        row_table[t] = uvec4(low - first_row, floatBitsToUint(weights), 0u);
    }
}

// Taps that a column lacks are its last once more: each has half of what the one before had left, so that the sum is the same,
// and no other element turns it into NaN.
void fill_column_table(uint column_begin) {
    for (uint j = gl_LocalInvocationID.x; j < columns_here; j += gl_WorkGroupSize.x) {
        const uint column = first_column + j;
        const uint begin = begin_of(COLUMN, column), count = end_of(COLUMN, column) - begin;
        column_table[j] = count == 0u ? uvec2(0u) : uvec2(begin - column_begin, count);
        Position at = position_of(COLUMN, begin);
        float rest = 0.0;
        for (uint k = 0u; k < TAPS; ++k) {
            if (k < count) {
                rest = weight_at(COLUMN, at, column);
                advance(COLUMN, at);
            }
            if (k + 1u >= count && k + 1u < TAPS) rest *= 0.5;
            column_weights[j * TAPS + k] = rest;
        }
    }
}

#define VISIT(d, coordinate) starts += (coordinate) * uvec2(p.outer_x[d], p.outer_y[d]);
void fill_plane_table(uint first_plane, uint planes) {
    for (uint i = gl_LocalInvocationID.x; i < planes; i += gl_WorkGroupSize.x) {
        uvec2 starts = uvec2(p.x_start, 0u);
        FOR_EACH_COORDINATE_FAST(first_plane + i, 3, p.outer_sizes, p.outer_divisors, VISIT)
        plane_table[i] = starts;
    }
}

// Where in a row of dy element `place` of the tile's line lies. Lanes of a word are neighbours where it is loaded as one, and
// otherwise `words` apart, so that neighbouring invocations read neighbouring elements.
uint lane_place(uint word, uint lane) { return X_MODE == MODE_GROUPS ? word * LANES + lane : word + lane * p.words; }
uint x_place(uint place) {
    if (FLAT == 1u) return line_begin + place;
    const uint column = quotient(place, uvec2(p.chunk_divisor[0], p.chunk_divisor[1]));
    return line_begin + column * p.column_step + min(place - column * p.chunk, inner_here - 1u);
}

// Where in a row of the tile element `place` of the line lies: lanes of a word are `words` apart, so that neighbouring invocations
// write to neighbouring banks.
uint slot_of(uint place) { return X_MODE == MODE_GROUPS ? place % LANES * p.words + place / LANES : place; }

void put_row(uint base, uint word, uint row, float sums[LANES]) {
    [[unroll]] for (uint l = 0u; l < LANES; ++l) tile[base + row * p.width + l * p.words + word] = sums[l];
}

void gather_rows(uint plane_start, uint base, uint word) {
    uint at[LANES];
    const uint start = plane_start + row_begin * p.row_step;
    [[unroll]] for (uint l = 0u; l < LANES; ++l) at[l] = start + x_place(min(lane_place(word, l), line_count - 1u));

    float low[LANES], high[LANES];
    [[unroll]] for (uint l = 0u; l < LANES; ++l) low[l] = high[l] = 0.0;
    int current = -1; // the row of dx that `low` is the sum of; the one before the first is another tile's
    for (uint t = 0u; t < row_count; t += BATCH) {
        T_MATH values[BATCH][LANES];
        [[unroll]] for (uint b = 0u; b < BATCH; ++b) {
            const uint step = min(t + b, row_count - 1u) * p.row_step;
            if (X_MODE == MODE_GROUPS) {
                LOAD_LANES(T, values[b], X, x, MODE_GROUPS, at[0] + step, 1u)
            } else {
                [[unroll]] for (uint l = 0u; l < LANES; ++l) values[b][l] = T_MATH(ELEMENT(T, X, x, at[l] + step));
            }
        }
        [[unroll]] for (uint b = 0u; b < BATCH; ++b) {
            if (t + b < row_count) {
                const uvec4 entry = row_table[t + b];
                const vec2 weights = uintBitsToFloat(entry.yz);
                while (current < int(entry.x)) {
                    if (current >= 0) put_row(base, word, uint(current), low);
                    [[unroll]] for (uint l = 0u; l < LANES; ++l) {
                        low[l] = high[l];
                        high[l] = 0.0;
                    }
                    ++current;
                }
                [[unroll]] for (uint l = 0u; l < LANES; ++l) low[l] += weights.x * float(values[b][l]);
                if (weights.y != 0.0) {
                    [[unroll]] for (uint l = 0u; l < LANES; ++l) high[l] += weights.y * float(values[b][l]);
                }
            }
        }
    }
    while (current < int(rows_here)) {
        if (current >= 0) put_row(base, word, uint(current), low);
        [[unroll]] for (uint l = 0u; l < LANES; ++l) {
            low[l] = high[l];
            high[l] = 0.0;
        }
        ++current;
    }
}

// The elements of dx at a place of the tile's line, of each row, where its taps are too many for registers.
void gather_many_columns(uint plane_start, uint base, uint place) {
    const uint j = quotient(place, uvec2(p.chunk_divisor[0], p.chunk_divisor[1])), inner = place - j * p.chunk;
    if (j >= columns_here || inner >= inner_here) return;
    const uvec2 entry = column_table[j];
    uint at = plane_start + first_row * p.y_row_step + (first_column + j) * p.y_column_step + first_inner + inner;
    for (uint row = 0u; row < rows_here; ++row) {
        float sum = 0.0;
        for (uint k = 0u; k < TAPS; ++k) {
            const uint slot = slot_of(before + (entry.x + min(k, max(entry.y, 1u) - 1u)) * p.chunk + inner);
            sum += column_weights[j * TAPS + k] * tile[base + row * p.width + slot];
        }
        ELEMENT(T, Y, y, at) = T(entry.y == 0u ? 0.0 : sum);
        at += p.y_row_step;
    }
}

// The elements of dx at OUTPUTS places of the tile's line, of each row. Those that are stored as a word are all there or none is.
void gather_columns(uint plane_start, uint base, uint item) {
    uint from[LANES][HELD_TAPS]; // (Of what is unrolled only what is used is kept.)
    float weights[LANES][HELD_TAPS];
    bool any[LANES];
    uint j, inner;
    [[unroll]] for (uint l = OUTPUTS; l-- > 0u;) {
        const uint place = item * OUTPUTS + l;
        j = quotient(place, uvec2(p.chunk_divisor[0], p.chunk_divisor[1]));
        inner = place - j * p.chunk;
        if (j >= columns_here || inner >= inner_here) return;
        const uvec2 entry = column_table[j];
        any[l] = entry.y != 0u;
        [[unroll]] for (uint k = 0u; k < TAPS; ++k) {
            from[l][k] = base + slot_of(before + (entry.x + min(k, max(entry.y, 1u) - 1u)) * p.chunk + inner);
            weights[l][k] = column_weights[j * TAPS + k];
        }
    }
    uint at = plane_start + first_row * p.y_row_step + (first_column + j) * p.y_column_step + first_inner + inner;
    for (uint row = 0u; row < rows_here; ++row) {
        float sums[LANES];
        [[unroll]] for (uint l = 0u; l < OUTPUTS; ++l) {
            sums[l] = 0.0;
            [[unroll]] for (uint k = 0u; k < TAPS; ++k) {
                sums[l] += weights[l][k] * tile[from[l][k] + row * p.width];
            }
            if (!any[l]) sums[l] = 0.0;
        }
        if (OUTPUTS == LANES) {
            STORE_LANES(T, Y, y, MODE_GROUPS, at, 1u, sums)
        } else {
            ELEMENT(T, Y, y, at) = T(sums[0]);
        }
        at += p.y_row_step;
    }
}

void main() {
    if (linear_workgroup() >= p.count) return;
    uint rest = linear_workgroup();
    first_inner = rest % p.chunks * p.chunk;
    rest /= p.chunks;
    first_column = rest % p.column_tiles * p.columns;
    rest /= p.column_tiles;
    first_row = rest % p.row_tiles * p.rows;
    const uint first_plane = rest / p.row_tiles * p.together * p.rounds;
    rows_here = min(p.rows, p.input_sizes[ROW] - first_row);
    columns_here = min(p.columns, p.input_sizes[COLUMN] - first_column);
    inner_here = min(p.chunk, p.inner_size - first_inner);

    row_begin = begin_of(ROW, first_row);
    row_count = end_of(ROW, first_row + rows_here - 1u) - row_begin;
    const uint column_begin = begin_of(COLUMN, first_column);
    const uint column_count = end_of(COLUMN, first_column + columns_here - 1u) - column_begin;
    line_begin = column_begin * p.column_step + first_inner;
    // Words that are loaded as one start on words: up to LANES - 1 elements before the tile's first.
    before = FLAT == 1u && X_MODE == MODE_GROUPS ? line_begin % LANES : 0u;
    line_begin -= before;
    line_count = column_count == 0u ? 0u : before + column_count * p.chunk;
    const uint planes = min(p.planes - first_plane, p.together * p.rounds);
    fill_plane_table(first_plane, planes);
    fill_row_table();
    fill_column_table(column_begin);
    barrier();

    for (uint round = 0u; round < planes; round += p.together) {
        const uint together = min(planes - round, p.together);
        for (uint item = gl_LocalInvocationID.x; item < together * p.words; item += gl_WorkGroupSize.x) {
            const uint of = quotient(item, uvec2(p.word_divisor[0], p.word_divisor[1])), word = item - of * p.words;
            if (lane_place(word, 0u) < line_count)
                gather_rows(plane_table[round + of].x, of * p.rows * p.width, word);
        }
        barrier();
        const uint line = (p.columns * p.chunk + OUTPUTS - 1u) / OUTPUTS;
        for (uint item = gl_LocalInvocationID.x; item < together * line; item += gl_WorkGroupSize.x) {
            const uint of = quotient(item, uvec2(p.line_divisor[0], p.line_divisor[1]));
            const uint start = plane_table[round + of].y, base = of * p.rows * p.width;
            if (TAPS > HELD_TAPS) gather_many_columns(start, base, item - of * line);
            else gather_columns(start, base, item - of * line);
        }
        barrier();
    }
}
