// The gradient of enlargements of rows and columns by 1, 2 or 4: the same weights everywhere but at edges.
//
//   dx[i, j] = sum over k of row_weights[k] * (sum over l of column_weights[l] * dy[F i - L + k, G j - M + l])
//
//   with F, L and ROW_TAPS of the rows and G, M and COLUMN_TAPS of the columns; see spec/ops/resample_gradient.py
//
// Bindings: X (dy), Y (dx). The last dimensions are rows, columns and, where COLUMNS is 0, elements that lie side by side at one
//   position (the channels of NHWC).
// Constants: RANK; COLUMNS, whether columns are what memory runs along; ROWS, of dx, that an invocation makes; ROW_FACTOR,
//   ROW_LEFT, ROW_TAPS and COLUMN_FACTOR, COLUMN_LEFT, COLUMN_TAPS: F, L and so on.
// Parameters: sizes, with rows in blocks of ROWS and the innermost in groups of LANES; rows and columns, of dx; row_step and
//   y_row_step, column_step and y_column_step, of an element; x_start, dy's first element; x_strides and y_strides of the other
//   dimensions, the innermost of a group; and the weights, in sets of MOST_TAPS: those of the first element, those in between,
//   those of the last. A tap before the first or after the last of dy is that one again, whose weight is shared out: nothing is
//   added that does not count, and no load has a condition.
// Variants: T; LANES, the elements of a 16-byte word.
// Grid: x folded into y, over `count` invocations of the index space `sizes`.
//
// An invocation makes a group of LANES elements of ROWS rows of dx. It combines the columns of each row of dy as it is loaded,
// which then counts for the rows around it, in registers: nothing is worked out but addresses.
//
// Rule: "whole".

#include "lanes.glsl"
#include "tensor.glsl"

LANES_BUFFER(readonly, T, X, x)
LANES_BUFFER(, T, Y, y)

const int COLUMN = int(RANK) - 2 + int(COLUMNS), ROW = COLUMN - 1;
const int ROWS_READ = int(ROW_FACTOR) * (int(ROWS) - 1) + int(ROW_TAPS);
const int WORDS = int(COLUMN_FACTOR) + 2; // with one on each side

#define MOST_WORDS (MOST_FACTOR + 2)

uint x_base, y_base, row_block, column;

#define VISIT(d, coordinate)                               \
    if (int(d) == ROW) row_block = (coordinate);           \
    else if (int(d) == COLUMN) column = (coordinate);      \
    else {                                                 \
        x_base += (coordinate) * p.x_strides[d];           \
        y_base += (coordinate) * p.y_strides[d];           \
    }

// Which of the three sets of weights an element has.
uint set_of(uint i, uint size) { return i == 0u ? 0u : i + 1u >= size ? 2u : 1u; }

void main() {
    if (beyond(p.count)) return;
    x_base = p.x_start;
    y_base = 0u;
    FOR_EACH_COORDINATE_FAST(linear_invocation(), RANK, p.sizes, p.divisors, VISIT)
    const uint first_row = row_block * ROWS;
    const int row_begin = int(first_row * ROW_FACTOR) - int(ROW_LEFT);

    // The first and the last lane may have weights of their own, or all of them where they are at one column.
    float first_weights[MOST_TAPS], last_weights[MOST_TAPS];
    uint places[MOST_WORDS > MOST_TAPS ? MOST_WORDS : MOST_TAPS]; // in a row of dy: of words, or of the taps' groups
    bool at_start = false, at_end = false;
    if (COLUMNS == 1u) {
        const uint groups = p.columns / LANES;
        at_start = column == 0u;
        at_end = column + 1u == groups;
        const uint first = column * COLUMN_FACTOR;
        [[unroll]] for (int w = 0; w < WORDS; ++w)
            places[w] = uint(clamp(int(first) + w - 1, 0, int(groups * COLUMN_FACTOR) - 1)) * LANES;
        [[unroll]] for (int k = 0; k < int(COLUMN_TAPS); ++k) {
            first_weights[k] = p.column_weights[(at_start ? 0u : MOST_TAPS) + k];
            last_weights[k] = p.column_weights[(at_end ? 2u * MOST_TAPS : MOST_TAPS) + k];
        }
        y_base += column * LANES;
    } else {
        const uint set = set_of(column, p.columns) * MOST_TAPS;
        const int first = int(column * COLUMN_FACTOR) - int(COLUMN_LEFT);
        [[unroll]] for (int k = 0; k < int(COLUMN_TAPS); ++k) {
            places[k] = uint(clamp(first + k, 0, int(p.columns * COLUMN_FACTOR) - 1)) * p.column_step;
            first_weights[k] = p.column_weights[set + k];
        }
        y_base += column * p.y_column_step;
    }

    float sums[MOST_ROWS][LANES];
    [[unroll]] for (int r = 0; r < int(ROWS); ++r) {
        [[unroll]] for (int l = 0; l < LANES; ++l) sums[r][l] = 0.0;
    }
    [[unroll]] for (int t = 0; t < ROWS_READ; ++t) {
        const uint row = uint(clamp(row_begin + t, 0, int(p.rows * ROW_FACTOR) - 1));
        const uint at = x_base + row * p.row_step;
        float combined[LANES];
        [[unroll]] for (int l = 0; l < LANES; ++l) combined[l] = 0.0;
        if (COLUMNS == 1u) {
            float line[MOST_WORDS * LANES];
            [[unroll]] for (int w = 0; w < WORDS; ++w) {
                T_MATH word[LANES];
                LOAD_LANES(T, word, X, x, MODE_GROUPS, at + places[w], 1u)
                [[unroll]] for (int l = 0; l < LANES; ++l) line[w * LANES + l] = word[l];
            }
            const float start = line[LANES], end = line[(WORDS - 1) * LANES - 1];
            [[unroll]] for (int l = 0; l < LANES; ++l) {
                line[l] = at_start ? start : line[l];
                line[(WORDS - 1) * LANES + l] = at_end ? end : line[(WORDS - 1) * LANES + l];
            }
            [[unroll]] for (int l = 0; l < LANES; ++l) {
                [[unroll]] for (int k = 0; k < int(COLUMN_TAPS); ++k) {
                    const float value = line[LANES + l * int(COLUMN_FACTOR) - int(COLUMN_LEFT) + k];
                    float weight = p.column_weights[MOST_TAPS + k];
                    if (l == 0) weight = first_weights[k];
                    if (l == LANES - 1) weight = last_weights[k];
                    combined[l] += weight * value;
                }
            }
        } else {
            T_MATH taps[MOST_TAPS][LANES];
            [[unroll]] for (int k = 0; k < int(COLUMN_TAPS); ++k) {
                LOAD_LANES(T, taps[k], X, x, MODE_GROUPS, at + places[k], 1u)
            }
            [[unroll]] for (int k = 0; k < int(COLUMN_TAPS); ++k) {
                [[unroll]] for (int l = 0; l < LANES; ++l) combined[l] += first_weights[k] * float(taps[k][l]);
            }
        }
        [[unroll]] for (int r = 0; r < int(ROWS); ++r) {
            const int k = t - r * int(ROW_FACTOR);
            if (k >= 0 && k < int(ROW_TAPS)) {
                const float weight = p.row_weights[set_of(first_row + r, p.rows) * MOST_TAPS + k];
                [[unroll]] for (int l = 0; l < LANES; ++l) sums[r][l] += weight * combined[l];
            }
        }
    }
    [[unroll]] for (int r = 0; r < int(ROWS); ++r) {
        if (first_row + r < p.rows) {
            STORE_LANES(T, Y, y, MODE_GROUPS, y_base + (first_row + r) * p.y_row_step, 1u, sums[r])
        }
    }
}
