// Resampling of rows enlarged by a whole number FACTOR, other dimensions by any factors; see ops/resample.py (Resample3).
//
// Bindings: X, Y. Constants and parameters: see include/resample.glsl; also
//   CORNERS   elements averaged around a position, the columns not counted: 2 for each mapped dimension but the last
//   FACTOR, STEP, START, LEFT   output FACTOR * i + j of a row lies at i - LEFT + (START + j * STEP) / (FACTOR * STEP); LEFT is
//             0 or 1, and no output reads further than column i + 1
// Variants: T; LANES, the elements of a 16-byte word.
// Grid: x folded into y, over `count` invocations of the index space `sizes`, the innermost in input groups.
//
// An invocation takes the LANES columns of an input group and one on each side, of all rows around its outputs, combines the
// rows first (once a column and not once an output), and then makes the FACTOR groups of outputs from these columns: which and
// by which weights are constants, so that nothing along the row is computed but the averages.
//
// Rule: "whole". Positions are cheap here, and rows are read in words: bilinear enlargement by 2 is bound by memory.

#include "resample.glsl"

const int ROW = int(RANK) - 1;

uint innermost;

#define VISIT(d, coordinate)                                            \
    if (int(d) == ROW) innermost = (coordinate);                        \
    else if (is_mapped(d)) surround(d, coordinate);                     \
    else x_base += (coordinate) * p.x_strides[d];                       \
    y_base += (coordinate) * p.y_strides[d];

float column_at(uint row, uint column) { return float(T_MATH(ELEMENT(T, X, x, row + column * p.x_step))); }

float columns[LANES + 2]; // column first - 1 + i, of all rows together

// Takes a row, whose own columns are `values`.
void add_row(Corner row, T_MATH values[LANES], uint left, uint right) {
    const float outer[2] = float[2](column_at(row.at, left), column_at(row.at, right));
    [[unroll]] for (int i = 0; i < LANES + 2; ++i) {
        const float value = i == 0 ? outer[0] : i == LANES + 1 ? outer[1] : float(values[clamp(i - 1, 0, LANES - 1)]);
        if (CORNERS == 1u) columns[i] = value;
        else columns[i] += row.weight * value;
    }
}

void main() {
    if (beyond(p.count)) return;
    x_base = 0u;
    y_base = 0u;
    FOR_EACH_COORDINATE_FAST(linear_invocation(), RANK, p.sizes, p.divisors, VISIT)

    const uint first = innermost * LANES, last = last_input(ROW);
    const uint left = min(max(first, 1u) - 1u, last), right = min(first + LANES, last);
    [[unroll]] for (int i = 0; i < LANES + 2; ++i) columns[i] = 0.0;
    T_MATH values[LANES];
    if (first + LANES <= p.input_sizes[ROW]) { // asked once, so that all rows' loads overlap
        FOR_EACH_CORNER(c) {
            const Corner row = corner(c, ROW);
            LOAD_LANES(T, values, X, x, X_MODE, row.at + first * p.x_step, p.x_step)
            add_row(row, values, left, right);
        }
    } else {
        FOR_EACH_CORNER(c) {
            const Corner row = corner(c, ROW);
            [[unroll]] for (uint l = 0; l < LANES; ++l)
                values[l] = T_MATH(ELEMENT(T, X, x, row.at + min(first + l, last) * p.x_step));
            add_row(row, values, left, right);
        }
    }

    const uint parts = FACTOR * STEP;
    [[unroll]] for (uint g = 0; g < FACTOR; ++g) {
        T_MATH results[LANES];
        [[unroll]] for (uint l = 0; l < LANES; ++l) {
            const uint j = g * LANES + l;
            const uint place = START + j % FACTOR * STEP;
            const uint low = j / FACTOR + 1u - LEFT + place / parts;
            const float high_weight = float(place % parts) / float(parts);
            const float low_weight = float(parts - place % parts) / float(parts);
            float average = columns[low];
            if (LINEAR == 1u && place % parts != 0u)
                average = low_weight * average + high_weight * columns[min(low + 1u, LANES + 1)];
            results[l] = result_of(average);
        }
        const uint at = first * FACTOR + g * LANES;
        if (at >= p.inner_size) return;
        const uint lanes = min(p.inner_size - at, LANES);
        STORE_Y(y_base + g * LANES * p.y_step, lanes, results)
    }
}
