// Mean-variance normalization of long rows that lie side by side (a batch normalization of channels that are last): the
// reduced dimensions are cut into chunks, too, so that few columns still occupy the whole device.
//
// Three dispatches, the variants of this file:
//   STAGE 0  gathers: a workgroup reads a chunk of some columns and leaves each row's statistics in `partials`
//   STAGE 1  merges the statistics of a row's chunks, always in the same order, into those of the row, in place of chunk
//            0's, and writes mean and variance where they are outputs
//   STAGE 2  reads its chunk again, normalizes and writes it
// A workgroup has COLUMNS neighbouring units (in stage 1: rows) and LOCAL_SIZE_X / COLUMNS lanes each, columns fastest, as
// in mean_variance_column.comp. A chunk is `tiles` tiles of lanes * UNITS elements of each row; a lane holds a tile in
// registers. Formula, units, bindings and constants: include/mean_variance.glsl.
//
// Bindings of its own: partials read and written, (count, mean, remainder, squares) of chunk c of row r at
// c * rows * UNIT_ROWS + r.
// Constants of its own: COLUMNS, UNITS. Parameters: tiles, chunks, blocks (workgroups that the columns of a chunk take).
// Chosen where neighbours in memory belong to different rows, which do not fit the registers of their lanes.

#define ACROSS
#include "mean_variance.glsl"

#define ROW_LANES (LOCAL_SIZE_X / COLUMNS)

layout(set = 0, binding = BINDING_PARTIALS, std430) buffer Partials { vec4 partials[]; };

Statistics load_partial(uint index) {
    const vec4 partial = partials[BYTE_OFFSET_PARTIALS / 16 + index];
    return Statistics(partial.x, partial.y, partial.z, partial.w);
}

void store_partial(uint index, Statistics s) {
    partials[BYTE_OFFSET_PARTIALS / 16 + index] = vec4(s.count, s.mean, s.remainder, s.squares);
}

uint lane() { return gl_LocalInvocationIndex / COLUMNS; }

#if STAGE != 2
// The statistics of half of the lanes. Every stage keeps to its own width, so that 16 KiB hold them.
#if STAGE == 0
#define MERGED_ROWS UNIT_ROWS
#else
#define MERGED_ROWS 1
#endif
shared vec4 lane_statistics[MERGED_ROWS][COLUMN_INVOCATIONS / 2];

// Merges the statistics of all lanes of a row into lane 0's, by halves.
void merge_lanes(inout Statistics statistics[MERGED_ROWS]) {
    for (uint half_ = ROW_LANES / 2; half_ > 0; half_ /= 2) {
        barrier(); // the last ones have been read
        if (lane() >= half_ && lane() < 2 * half_) {
            [[unroll]] for (int j = 0; j < MERGED_ROWS; ++j) {
                const Statistics s = statistics[j];
                lane_statistics[j][gl_LocalInvocationIndex - half_ * COLUMNS] = vec4(s.count, s.mean, s.remainder, s.squares);
            }
        }
        barrier();
        if (lane() < half_) {
            [[unroll]] for (int j = 0; j < MERGED_ROWS; ++j) {
                const vec4 other = lane_statistics[j][gl_LocalInvocationIndex];
                statistics[j] = merged(statistics[j], Statistics(other.x, other.y, other.z, other.w));
            }
        }
    }
}
#endif

#if STAGE != 1
UNIT held[UNITS];

uint held_element(uint first, uint i) { return first + i * ROW_LANES + lane(); }

void load_tile(Row start, uint first) {
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uint element = held_element(first, i);
        held[i] = element < p.row_units ? load_unit(start, element) : ZERO_UNIT;
    }
}
#endif

#if STAGE == 0
// The statistics of the invocation's own elements of a tile, in two passes over its registers.
Statistics[WIDTH] own_statistics(uint first) {
    float values[WIDTH], means[WIDTH];
    vec2 sums[WIDTH];
    Statistics own[WIDTH];
    float count = 0.0;
    [[unroll]] for (int j = 0; j < WIDTH; ++j) sums[j] = vec2(0);
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        unpack_unit(held[i], values);
        [[unroll]] for (int j = 0; j < WIDTH; ++j) sums[j].x += values[j];
        count += held_element(first, i) < p.row_units ? 1.0 : 0.0;
    }
    [[unroll]] for (int j = 0; j < WIDTH; ++j) {
        means[j] = USE_MEAN != 0 ? sums[j].x / max(count, 1.0) : 0.0;
        sums[j] = vec2(0);
    }
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        if (held_element(first, i) < p.row_units) {
            unpack_unit(held[i], values);
            [[unroll]] for (int j = 0; j < WIDTH; ++j) {
                const float deviation = values[j] - means[j];
                sums[j] += vec2(deviation, deviation * deviation);
            }
        }
    }
    [[unroll]] for (int j = 0; j < WIDTH; ++j) {
        own[j] = statistics_of(max(count, 1.0), means[j], sums[j]);
        own[j].count = count;
    }
    return own;
}

void gather(uint column, uint chunk) {
    const Row start = row_start(min(column, p.rows - 1));
    Statistics statistics[WIDTH];
    [[unroll]] for (int j = 0; j < WIDTH; ++j) statistics[j] = Statistics(0, 0, 0, 0);
    for (uint tile = 0; tile < p.tiles; ++tile) {
        const uint first = (chunk * p.tiles + tile) * ROW_LANES * UNITS;
        if (first >= p.row_units) break;
        load_tile(start, first);
        const Statistics own[WIDTH] = own_statistics(first);
        [[unroll]] for (int j = 0; j < WIDTH; ++j) statistics[j] = merged(statistics[j], own[j]);
    }
    merge_lanes(statistics);
    if (lane() == 0 && column < p.rows)
        [[unroll]] for (int j = 0; j < WIDTH; ++j) store_partial((chunk * p.rows + column) * UNIT_ROWS + j, statistics[j]);
}

#elif STAGE == 1
void merge_chunks() {
    const uint rows = p.rows * UNIT_ROWS;
    const uint row = linear_workgroup() * COLUMNS + gl_LocalInvocationIndex % COLUMNS;
    Statistics statistics[1] = Statistics[1](Statistics(0, 0, 0, 0));
    for (uint chunk = lane(); chunk < p.chunks; chunk += ROW_LANES)
        statistics[0] = merged(statistics[0], load_partial(chunk * rows + min(row, rows - 1)));
    merge_lanes(statistics);
    if (lane() > 0 || row >= rows) return;
    store_partial(row, statistics[0]);
    store_statistics(row, statistics[0]);
}

#else
void apply(uint column, uint chunk) {
    if (column >= p.rows) return;
    const Row start = row_start(column);
    Factors factors;
    load_side(start, factors);
    Statistics statistics[WIDTH];
    [[unroll]] for (int j = 0; j < WIDTH; ++j) {
        statistics[j] = load_partial(column * UNIT_ROWS + j);
        factors.reciprocal[j] = reciprocal_deviation(statistics[j]);
    }
    for (uint tile = 0; tile < p.tiles; ++tile) {
        const uint first = (chunk * p.tiles + tile) * ROW_LANES * UNITS;
        if (first >= p.row_units) break;
        load_tile(start, first);
        [[unroll]] for (uint i = 0; i < UNITS; ++i) {
            const uint element = held_element(first, i);
            if (element < p.row_units) store_normalized(start, element, held[i], statistics, factors);
        }
    }
}
#endif

void main() {
#if STAGE == 1
    merge_chunks();
#else
    const uint tasks = p.blocks * p.chunks;
    uint task = linear_workgroup();
    if (task >= tasks) return;
#if STAGE == 2
    task = tasks - 1 - task; // backwards, because what was gathered last is still in the cache
#endif
    const uint chunk = task / p.blocks;
    const uint column = (task - chunk * p.blocks) * COLUMNS + gl_LocalInvocationIndex % COLUMNS;
#if STAGE == 0
    gather(column, chunk);
#else
    apply(column, chunk);
#endif
#endif
}
