// The gradient of rows and columns made smaller by 1, 2 or 4, of which no two outputs read the same element.
//
//   dx[F i + r, G j + s] = row_weights[r] * column_weights[s] * dy[i, j], and 0 where a weight is; see spec/ops/resample_gradient.py
//
// Bindings: X (dy), Y (dx). The last dimensions are rows, columns and, where COLUMNS is 0, elements that lie side by side at one
//   position (the channels of NHWC).
// Constants: RANK; COLUMNS, whether columns are what memory runs along; ROW_FACTOR and COLUMN_FACTOR, F and G; X_MODE (lanes.glsl).
// Parameters: sizes, with rows in blocks of ROW_FACTOR and the innermost in groups of LANES, all of dx; rows, of dx; read_rows and
//   read_columns, of dy; row_step and y_row_step, column_step and y_column_step, of an element; x_start, dy's first element;
//   x_strides and y_strides of the other dimensions, the innermost of a group.
// Variants: T; LANES, the elements of a 16-byte word.
// Grid: x folded into y, over `count` invocations of the index space `sizes`.
//
// An invocation takes what a word of dx gets from a row of dy, and writes it to each of the rows of dx that get it.
//
// Rule: "spread".

#include "lanes.glsl"
#include "tensor.glsl"

LANES_BUFFER(readonly, T, X, x)
LANES_BUFFER(, T, Y, y)

const int COLUMN = int(RANK) - 2 + int(COLUMNS), ROW = COLUMN - 1;

uint x_base, y_base, row_block, column;

#define VISIT(d, coordinate)                               \
    if (int(d) == ROW) row_block = (coordinate);           \
    else if (int(d) == COLUMN) column = (coordinate);      \
    else {                                                 \
        x_base += (coordinate) * p.x_strides[d];           \
        y_base += (coordinate) * p.y_strides[d];           \
    }

void main() {
    if (beyond(p.count)) return;
    x_base = p.x_start;
    y_base = 0u;
    FOR_EACH_COORDINATE_FAST(linear_invocation(), RANK, p.sizes, p.divisors, VISIT)

    // (What is read beyond the last row or column of dy is the last one, and does not count.)
    x_base += min(row_block, p.read_rows - 1u) * p.row_step;
    T_MATH values[LANES];
    float weights[LANES];
    if (COLUMNS == 1u) {
        const uint first = column * (LANES / COLUMN_FACTOR);
        [[unroll]] for (uint l = 0u; l < LANES; l += COLUMN_FACTOR) {
            const uint read = first + l / COLUMN_FACTOR;
            const T_MATH value = T_MATH(ELEMENT(T, X, x, x_base + min(read, p.read_columns - 1u)));
            [[unroll]] for (uint s = 0u; s < COLUMN_FACTOR; ++s) {
                values[l + s] = value;
                weights[l + s] = read < p.read_columns ? p.column_weights[s] : 0.0;
            }
        }
        y_base += column * LANES;
    } else {
        const uint read = column / COLUMN_FACTOR;
        LOAD_LANES(T, values, X, x, X_MODE, x_base + min(read, p.read_columns - 1u) * p.column_step, 1u)
        const float weight = read < p.read_columns ? p.column_weights[column % COLUMN_FACTOR] : 0.0;
        [[unroll]] for (uint l = 0u; l < LANES; ++l) weights[l] = weight;
        y_base += column * p.y_column_step;
    }
    [[unroll]] for (uint r = 0u; r < ROW_FACTOR; ++r) {
        const uint row = row_block * ROW_FACTOR + r;
        const float own = row_block < p.read_rows ? p.row_weights[r] : 0.0;
        T_MATH results[LANES];
        [[unroll]] for (uint l = 0u; l < LANES; ++l) {
            const float weight = own * weights[l];
            results[l] = weight == 0.0 ? 0.0 : weight * values[l];
        }
        if (row < p.rows) {
            STORE_LANES(T, Y, y, MODE_GROUPS, y_base + row * p.y_row_step, 1u, results)
        }
    }
}
