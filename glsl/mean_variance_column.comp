// Mean-variance normalization of rows that lie side by side, held in registers: the last kept dimension is contiguous,
// the reduced ones are not (axes {1} of {N, C, H, W}). One read and one write of each element.
//
// A workgroup has COLUMNS neighbouring units and LOCAL_SIZE_X / COLUMNS lanes each, columns fastest, so that neighbouring
// invocations read neighbouring addresses. A unit holds one element of each of UNIT_ROWS rows, and a lane holds UNITS
// units, those of its rows' elements lane, lane + lanes, lane + 2 lanes...
// Formula, units, bindings and constants: include/mean_variance.glsl.
//
// Constants of its own: COLUMNS, UNITS.
// Chosen where neighbours in memory belong to different rows, and a row fits the registers of its lanes.

#define ACROSS
#include "mean_variance.glsl"

#define ROW_LANES (LOCAL_SIZE_X / COLUMNS)
#define SUMMED_ROWS UNIT_ROWS
#include "column_sums.glsl"

void main() {
    const uint column = linear_workgroup() * COLUMNS + gl_LocalInvocationIndex % COLUMNS;
    const uint lane = gl_LocalInvocationIndex / COLUMNS;
    // Past the last row everything but the writing happens to the last one, so that every invocation reaches the sums.
    const Row start = row_start(min(column, p.rows - 1));
    Factors factors;
    load_side(start, factors);

    UNIT held[UNITS];
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uint element = i * ROW_LANES + lane;
        held[i] = element < p.row_units ? load_unit(start, element) : ZERO_UNIT;
    }

    float values[WIDTH], means[WIDTH];
    vec2 sums[WIDTH];
    const float count = float(p.row_units);
    [[unroll]] for (int j = 0; j < WIDTH; ++j) sums[j] = vec2(0);
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        unpack_unit(held[i], values);
        [[unroll]] for (int j = 0; j < WIDTH; ++j) sums[j].x += values[j];
    }
    if (USE_MEAN != 0) sum_over_columns(sums);
    [[unroll]] for (int j = 0; j < WIDTH; ++j) {
        means[j] = USE_MEAN != 0 ? sums[j].x / count : 0.0;
        sums[j] = vec2(0);
    }
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        if (i * ROW_LANES + lane < p.row_units) {
            unpack_unit(held[i], values);
            [[unroll]] for (int j = 0; j < WIDTH; ++j) {
                const float deviation = values[j] - means[j];
                sums[j] += vec2(deviation, deviation * deviation);
            }
        }
    }
    sum_over_columns(sums);
    if (column >= p.rows) return;

    Statistics statistics[WIDTH];
    [[unroll]] for (int j = 0; j < WIDTH; ++j) {
        statistics[j] = statistics_of(count, means[j], sums[j]);
        factors.reciprocal[j] = reciprocal_deviation(statistics[j]);
        if (lane == 0) store_statistics(column * UNIT_ROWS + j, statistics[j]);
    }
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uint element = i * ROW_LANES + lane;
        if (element < p.row_units) store_normalized(start, element, held[i], statistics, factors);
    }
}
