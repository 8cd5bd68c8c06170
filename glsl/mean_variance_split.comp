// Mean-variance normalization of long rows, each cut into chunks of one workgroup.
//
// Two tasks, any mix of which makes up a dispatch:
//   gather  reads a chunk and leaves its statistics in `partials`
//   apply   merges the statistics of its row's chunks, reads its chunk again, normalizes and writes it
// A dispatch that applies group i of rows while it gathers group i + 1 reads group i from the cache, because the
// dispatch before gathered it: memory sees one read and one write. The tasks alternate, so that reads from memory and
// writes to it overlap. Every apply of a row merges the same partials in the same order and so gets the same bits.
//
// A chunk is TILES tiles of LOCAL_SIZE_X * UNITS units; invocations hold a tile in registers, as in
// mean_variance_row.comp. Formula, units and constants: include/mean_variance.glsl.
//
// Bindings: x, scale, bias read, y written, partials read and written: (count, mean, remainder, squares) of chunk c of
// row r at r * chunks + c.
// Constants of its own: UNITS. Parameters: tiles, chunks (of a row), and the rows that the dispatch gathers and applies.
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

uint tile_count(uint first_unit) { return min(LANES * UNITS, p.row_units - first_unit) * UNIT_ELEMENTS; }

Statistics tile_statistics(uint first_unit) {
    float values[UNIT_ELEMENTS];
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        unpack_unit(held[i], values);
        [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j) sum += values[j];
    }
    const float count = float(tile_count(first_unit));
    const float mean = sum_over_lanes(sum, 0) / count;
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
    return centred(count, mean, sum_over_lanes(deviations, 1));
}

void gather(uint row, uint chunk) {
    const Row start = row_start(row);
    Statistics statistics = Statistics(0, 0, 0, 0);
    for (uint tile = 0; tile < p.tiles; ++tile) {
        const uint first_unit = (chunk * p.tiles + tile) * LANES * UNITS;
        if (first_unit >= p.row_units) break;
        load_tile(start, first_unit);
        statistics = merged(statistics, tile_statistics(first_unit));
        barrier(); // before the sums of the next tile use the same shared memory
    }
    if (workgroup_invocation() == 0)
        partials[BYTE_OFFSET_PARTIALS / 16 + row * p.chunks + chunk] =
            vec4(statistics.count, statistics.mean, statistics.remainder, statistics.squares);
}

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
    const vec2 row_values = row_side_values(start);
    const uint first_tile = chunk * p.tiles;
    load_tile(start, first_tile * LANES * UNITS); // on its way while the partials are merged
    const Statistics statistics = row_statistics(row);
    const float factor = reciprocal_deviation(statistics);
    for (uint tile = 0; tile < p.tiles; ++tile) {
        const uint first_unit = (first_tile + tile) * LANES * UNITS;
        if (first_unit >= p.row_units) break;
        if (tile > 0) load_tile(start, first_unit);
        [[unroll]] for (uint i = 0; i < UNITS; ++i) {
            const uint unit = held_unit(first_unit, i);
            if (unit < p.row_units) store_normalized(start, unit, held[i], statistics, factor, row_values);
        }
    }
}

void main() {
    const uint gathers = p.gather_rows * p.chunks;
    const uint applies = p.apply_rows * p.chunks;
    const uint pairs = min(gathers, applies);
    const uint workgroup = linear_workgroup();
    if (workgroup >= gathers + applies) return;
    const bool paired = workgroup < 2 * pairs;
    const uint task = paired ? workgroup / 2 : workgroup - pairs;
    const bool is_gather = paired ? workgroup % 2 == 0 : gathers > applies;
    if (is_gather)
        gather(p.gather_first + task / p.chunks, task % p.chunks);
    else
        apply(p.apply_first + task / p.chunks, task % p.chunks);
}
