// Mean-variance normalization with the whole row in registers: one read and one write of each element.
//
// LANES neighbouring invocations share a row; a workgroup has LOCAL_SIZE_X / LANES rows. Lane i holds units i,
// i + LANES, i + 2 LANES... of its row, so that neighbours read neighbours. Three passes over registers: the mean, the
// deviations' sum and sum of squares, the result. Formula, units, bindings and constants: include/mean_variance.glsl.
//
// Constants of its own: LANES (a power of two), UNITS (units that each lane holds: LANES * UNITS >= units of a row).
// Chosen for rows that fit into the registers of one workgroup.

#include "mean_variance.glsl"
#include "workgroup.glsl"

void main() {
    const uint invocation = workgroup_invocation();
    const uint lane = invocation % LANES;
    const uint row = linear_workgroup() * (LOCAL_SIZE_X / LANES) + invocation / LANES;
    // Past the last row everything but the writing happens to the last one, so that every invocation reaches the sums.
    const Row start = row_start(min(row, p.rows - 1));
    Factors factors;
    load_side(start, factors);

    UNIT held[UNITS];
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uint unit = i * LANES + lane;
        held[i] = unit < p.row_units ? load_unit(start, unit) : ZERO_UNIT;
    }

    float values[UNIT_ELEMENTS];
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        unpack_unit(held[i], values);
        [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j) sum += values[j];
    }
    const float count = float(p.row_units * UNIT_ELEMENTS);
    const float mean = USE_MEAN != 0 ? sum_over_lanes(sum, 0) / count : 0.0;

    vec2 deviations = vec2(0);
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        if (i * LANES + lane < p.row_units) {
            unpack_unit(held[i], values);
            [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j) {
                const float deviation = values[j] - mean;
                deviations += vec2(deviation, deviation * deviation);
            }
        }
    }
    const Statistics statistics = statistics_of(count, mean, sum_over_lanes(deviations, 1));
    factors.reciprocal[0] = reciprocal_deviation(statistics);
    if (lane == 0 && row < p.rows) store_statistics(row, statistics);

    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uint unit = i * LANES + lane;
        if (unit < p.row_units && row < p.rows) store_normalized(start, unit, held[i], Statistics[1](statistics), factors);
    }
}
