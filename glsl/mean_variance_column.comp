// Mean-variance normalization of rows that lie side by side: the last kept dimension is contiguous, the reduced ones
// are not (axes {1} of {N, C, H, W}).
//
// A workgroup has COLUMNS neighbouring rows and LOCAL_SIZE_X / COLUMNS lanes a row, rows fastest, so that neighbouring
// invocations read neighbouring addresses. A lane holds UNITS elements in registers at a time. Rows of more elements
// than lanes * UNITS are read three times, tile by tile; others once (WHOLE).
// Formula, units and constants: include/mean_variance.glsl.
//
// Bindings: x, scale, bias read, y written.
// Constants of its own: COLUMNS, UNITS, WHOLE (whether one tile holds a row).
// Chosen where neighbours in memory belong to different rows.

#include "mean_variance.glsl"

#define ROW_LANES (LOCAL_SIZE_X / COLUMNS)
#define MOST_INVOCATIONS 256

shared vec2 lane_sums[2][MOST_INVOCATIONS];

// Sums over the lanes of a row, in the order of the lanes. `slot` as in workgroup.glsl.
vec2 sum_over_column(vec2 value, uint slot) {
    lane_sums[slot][gl_LocalInvocationIndex] = value;
    barrier();
    vec2 total = vec2(0);
    for (uint i = gl_LocalInvocationIndex % COLUMNS; i < LOCAL_SIZE_X; i += COLUMNS) total += lane_sums[slot][i];
    return total;
}

float held[UNITS];

uint held_element(uint first, uint i) { return first + i * ROW_LANES + gl_LocalInvocationIndex / COLUMNS; }

void load_tile(Row start, uint first) {
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uint element = held_element(first, i);
        held[i] = element < p.row_units ? load_unit(start, element) : 0.0;
    }
}

void main() {
    const uint row = linear_workgroup() * COLUMNS + gl_LocalInvocationIndex % COLUMNS;
    // Past the last row everything but the writing happens to the last one, so that every invocation reaches the sums.
    const Row start = row_start(min(row, p.rows - 1));
    const vec2 row_values = row_side_values(start);
    const uint tile = ROW_LANES * UNITS;
    const uint end = WHOLE != 0 ? tile : p.row_units;

    if (WHOLE != 0) load_tile(start, 0);
    vec2 sum = vec2(0); // of the elements, and what rounding has kept out of it
    for (uint first = 0; first < end; first += tile) {
        if (WHOLE == 0) load_tile(start, first);
        float part = 0.0;
        [[unroll]] for (uint i = 0; i < UNITS; ++i) part += held[i];
        add_compensated(sum.x, sum.y, part);
    }
    sum = sum_over_column(sum, 0);
    const float count = float(p.row_units);
    const float mean = (sum.x + sum.y) / count;

    vec2 deviations = vec2(0);
    vec2 lost = vec2(0);
    for (uint first = 0; first < end; first += tile) {
        if (WHOLE == 0) load_tile(start, first);
        vec2 part = vec2(0);
        [[unroll]] for (uint i = 0; i < UNITS; ++i) {
            const float deviation = held_element(first, i) < p.row_units ? held[i] - mean : 0.0;
            part += vec2(deviation, deviation * deviation);
        }
        add_compensated(deviations.x, lost.x, part.x);
        add_compensated(deviations.y, lost.y, part.y);
    }
    const Statistics statistics = centred(count, mean, sum_over_column(deviations + lost, 1));
    const float factor = reciprocal_deviation(statistics);

    if (row >= p.rows) return;
    for (uint first = 0; first < end; first += tile) {
        if (WHOLE == 0) load_tile(start, first);
        [[unroll]] for (uint i = 0; i < UNITS; ++i) {
            const uint element = held_element(first, i);
            if (element < p.row_units) store_normalized(start, element, held[i], statistics, factor, row_values);
        }
    }
}
