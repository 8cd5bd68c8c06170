// Resampling of rows enlarged by FACTOR, a divisor of LANES, other dimensions by any factors; see spec/ops/resample.py (Resample3).
//
// Bindings: X, Y. Constants and parameters: see include/resample.glsl; also
//   CORNERS   elements averaged around a position, the columns not counted: 2 for each mapped dimension but the last
//   FACTOR, STEP, START, LEFT   output FACTOR * i + j of a row lies at i - LEFT + (START + j * STEP) / (FACTOR * STEP);
//             LEFT is 0 or 1, and no output reads further than column i + 1
//   UNITS     groups of an invocation, 1 or 2, unit_size outputs apart along the row, with the same rows around them
// Variants: T; LANES, the elements of a 16-byte word.
// Grid: x folded into y, over `count` invocations of the index space `sizes`, the innermost in groups of outputs.
//
// An invocation makes a group of LANES outputs of a row. It takes the LANES / FACTOR columns under them and one on each side,
// of all rows around its outputs, combines the rows first (once a column and not once an output), and then makes the outputs
// from these columns: which and by which weights are constants, so that nothing along the row is computed but the averages.
//
// Rule: "whole". Neighbours write neighbouring words, and the columns come from the cache but for the first time.

#include "resample.glsl"

const int ROW = int(RANK) - 1;
const uint COLUMNS = LANES / FACTOR + 2u;

#define MOST_COLUMNS (LANES / 2 + 2)

uint innermost;

#define VISIT(d, coordinate)                                            \
    if (int(d) == ROW) innermost = (coordinate);                        \
    else if (is_mapped(d)) surround(d, coordinate);                     \
    else x_base += (coordinate) * p.x_strides[d];                       \
    y_base += (coordinate) * p.y_strides[d];

void main() {
    if (beyond(p.count)) return;
    x_base = 0u;
    y_base = 0u;
    FOR_EACH_COORDINATE_FAST(linear_invocation(), RANK, p.sizes, p.divisors, VISIT)

    uint offsets[MOST_UNITS * MOST_COLUMNS];
    float columns[MOST_UNITS * MOST_COLUMNS]; // of all rows together
    [[unroll]] for (uint u = 0; u < UNITS; ++u) {
        const int first = int((innermost + u * (p.unit_size / LANES)) * (LANES / FACTOR)) - 1;
        [[unroll]] for (uint i = 0; i < COLUMNS; ++i) {
            offsets[u * COLUMNS + i] = clamp_input(ROW, first + int(i)) * p.x_step;
            columns[u * COLUMNS + i] = 0.0;
        }
    }
    FOR_EACH_CORNER(c) {
        const Corner row = corner(c, ROW);
        [[unroll]] for (uint i = 0; i < UNITS * COLUMNS; ++i) {
            const float value = float(T_MATH(ELEMENT(T, X, x, row.at + offsets[i])));
            columns[i] = CORNERS == 1u ? value : columns[i] + row.weight * value;
        }
    }

    const uint parts = FACTOR * STEP;
    [[unroll]] for (uint u = 0; u < UNITS; ++u) {
        T_MATH results[LANES];
        [[unroll]] for (uint j = 0; j < LANES; ++j) {
            const uint place = START + j % FACTOR * STEP;
            const uint low = u * COLUMNS + j / FACTOR + 1u - LEFT + place / parts;
            const float high_weight = float(place % parts) / float(parts);
            const float low_weight = float(parts - place % parts) / float(parts);
            float average = columns[low];
            if (LINEAR == 1u && place % parts != 0u) average = low_weight * average + high_weight * columns[low + 1u];
            results[j] = result_of(average);
        }
        const uint lanes = min(p.inner_size - innermost * LANES, LANES); // fewer only where UNITS is 1
        STORE_Y(y_base + u * p.unit_size * p.y_step, lanes, results)
    }
}
