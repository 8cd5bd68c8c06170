// Mean-variance normalization of long rows, each cut into chunks of one workgroup.
//
// Two dispatches, the variants of this file:
//   APPLY 0  gathers: reads a chunk and leaves its statistics in `partials`
//   APPLY 1  merges the statistics of its row's chunks, reads its chunk again, normalizes and writes it
// Every workgroup of a row merges the same partials in the same order and so gets the same bits.
//
// A chunk is `tiles` tiles of LOCAL_SIZE_X * UNITS units; invocations hold a tile in registers, as in
// mean_variance_row.comp. Formula, units, bindings and constants: include/mean_variance.glsl.
//
// Bindings of its own: partials read and written, (count, mean, remainder, squares) of chunk c of row r at r * chunks + c.
// Constants of its own: UNITS. Parameters: tiles, chunks (of a row).
// Chosen for rows that do not fit into the registers of one workgroup.

#include "mean_variance.glsl"

#define LANES LOCAL_SIZE_X
#include "workgroup.glsl"

layout(set = 0, binding = BINDING_PARTIALS, std430) buffer Partials { vec4 partials[]; };

Statistics load_partial(uint index) {
    const vec4 partial = partials[BYTE_OFFSET_PARTIALS / 16 + index];
    return Statistics(partial.x, partial.y, partial.z, partial.w);
}

UNIT held[UNITS];

uint held_unit(uint first_unit, uint i) { return first_unit + i * LANES + workgroup_invocation(); }

void load_tile(Row start, uint first_unit) {
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uint unit = held_unit(first_unit, i);
        held[i] = unit < p.row_units ? load_unit(start, unit) : ZERO_UNIT;
    }
}

#if !APPLY
// The statistics of the invocation's own elements of a tile, in two passes over its registers.
Statistics own_statistics(uint first_unit) {
    float values[UNIT_ELEMENTS];
    float sum = 0.0;
    float count = 0.0;
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        unpack_unit(held[i], values);
        [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j) sum += values[j];
        count += held_unit(first_unit, i) < p.row_units ? float(UNIT_ELEMENTS) : 0.0;
    }
    if (count == 0.0) return Statistics(0, 0, 0, 0);
    const float mean = USE_MEAN != 0 ? sum / count : 0.0;
    vec2 deviations = vec2(0);
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        if (held_unit(first_unit, i) < p.row_units) {
            unpack_unit(held[i], values);
            [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j) {
                const float deviation = values[j] - mean;
                deviations += vec2(deviation, deviation * deviation);
            }
        }
    }
    return statistics_of(count, mean, deviations);
}

// The statistics of all invocations together: the mean of the means, then the deviations from it.
Statistics over_lanes(Statistics own) {
    if (USE_MEAN == 0) {
        const vec2 sums = sum_over_lanes(vec2(own.count, own.squares), 0);
        return Statistics(sums.x, 0, 0, sums.y);
    }
    const float count = sum_over_lanes(own.count, 0);
    Statistics all = Statistics(count, finite_or_zero(sum_over_lanes(own.mean * (own.count / count), 1)), 0, 0);
    barrier(); // before the next sums use the same shared memory
    const float difference = own.count == 0.0 ? 0.0 : (own.mean - all.mean) + own.remainder;
    const vec2 sums = sum_over_lanes(vec2(difference * (own.count / count), own.squares + own.count * difference * difference), 0);
    all.squares = not_negative(sums.y - count * sums.x * sums.x);
    shift_mean(all, sums.x);
    return all;
}

void gather(uint row, uint chunk) {
    const Row start = row_start(row);
    Statistics statistics = Statistics(0, 0, 0, 0);
    for (uint tile = 0; tile < p.tiles; ++tile) {
        const uint first_unit = (chunk * p.tiles + tile) * LANES * UNITS;
        if (first_unit >= p.row_units) break;
        load_tile(start, first_unit);
        statistics = merged(statistics, own_statistics(first_unit));
    }
    statistics = over_lanes(statistics);
    if (workgroup_invocation() == 0)
        partials[BYTE_OFFSET_PARTIALS / 16 + row * p.chunks + chunk] =
            vec4(statistics.count, statistics.mean, statistics.remainder, statistics.squares);
}

#else
// In two passes over the chunks, as for elements: the mean of the means, then the deviations from it.
Statistics row_statistics(uint row) {
    const float count = float(p.row_units * UNIT_ELEMENTS);
    const uint first = row * p.chunks;
    Statistics statistics = load_partial(first);
    statistics.count = count;
    statistics.mean = finite_or_zero(statistics.mean); // differences from infinity would be NaN
    vec2 sums = vec2(0);
    for (uint chunk = workgroup_invocation(); chunk < p.chunks; chunk += LANES) {
        const Statistics other = load_partial(first + chunk);
        const float difference = (other.mean - statistics.mean) + (other.remainder - statistics.remainder);
        sums += vec2(difference * (other.count / count), other.squares);
    }
    sums = sum_over_lanes(sums, 0);
    shift_mean(statistics, sums.x);
    float between = 0.0;
    for (uint chunk = workgroup_invocation(); chunk < p.chunks; chunk += LANES) {
        const Statistics other = load_partial(first + chunk);
        const float difference = (other.mean - statistics.mean) + (other.remainder - statistics.remainder);
        between += other.count * difference * difference;
    }
    statistics.squares = sums.y + sum_over_lanes(between, 1);
    return statistics;
}

void apply(uint row, uint chunk) {
    const Row start = row_start(row);
    Factors factors;
    load_side(start, factors);
    const uint first_tile = chunk * p.tiles;
    load_tile(start, first_tile * LANES * UNITS); // on its way while the partials are merged
    const Statistics statistics = row_statistics(row);
    factors.reciprocal[0] = reciprocal_deviation(statistics);
    if (chunk == 0 && workgroup_invocation() == 0) store_statistics(row, statistics);
    for (uint tile = 0; tile < p.tiles; ++tile) {
        const uint first_unit = (first_tile + tile) * LANES * UNITS;
        if (first_unit >= p.row_units) break;
        if (tile > 0) load_tile(start, first_unit);
        [[unroll]] for (uint i = 0; i < UNITS; ++i) {
            const uint unit = held_unit(first_unit, i);
            if (unit < p.row_units) store_normalized(start, unit, held[i], Statistics[1](statistics), factors);
        }
    }
}
#endif

void main() {
    const uint task = linear_workgroup();
    if (task >= p.rows * p.chunks) return;
#if APPLY
    // Backwards, because what was gathered last is still in the cache.
    const uint chunk = p.rows * p.chunks - 1 - task;
    apply(chunk / p.chunks, chunk % p.chunks);
#else
    gather(task / p.chunks, task % p.chunks);
#endif
}
