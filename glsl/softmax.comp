// Softmax and its relatives over rows, the sets of elements that are normalized together, each by one workgroup or less.
//
//   SOFTMAX1, LOG_SOFTMAX1    e^x / (the sum of e^x), and its logarithm
//   LP_NORMALIZATION          x / (the norm of x)
//   HARDMAX1                  1 at the first of the largest elements, else 0
//
// include/normalizer.glsl has the arithmetic, include/row_tiles.glsl the layouts, constants and parameters.
//
// WHOLE 1: a tile holds the whole row in registers: its peak, the sums relative to it, the results; one read and one write
// of each byte. WHOLE 0: lanes walk the row in tiles, bringing what they know to each new peak, and once more, backwards,
// because what was read last is the likeliest to be in the cache: two reads and one write.
// Bindings: X read, Y written; both may be the same bytes. Grid: folded into x and y, LOCAL_SIZE_X / LANES groups of rows
// a workgroup.

#include "row_tiles.glsl"

void main() {
    const uint group = group_from(linear_workgroup() * GROUPS_OF_WORKGROUP);
    // Past the last group everything but the writing happens to the last one, so that every invocation reaches the merging.
    find_group(min(group, p.groups - 1));
    const uint end = WHOLE != 0 ? TILE : p.row_units;

    Summary rows[ROWS];
    [[unroll]] for (int r = 0; r < ROWS; ++r) rows[r] = no_elements();
    for (uint first = 0; first < end; first += TILE) {
        load_tile(first);
        raise_peaks(first, rows);
        if (WHOLE != 0) peaks_over_lanes(rows);
        add_tile(first, rows);
    }
    if (WHOLE == 0) peaks_over_lanes(rows);
    shares_over_lanes(rows);
    Result results[ROWS];
    [[unroll]] for (int r = 0; r < ROWS; ++r) results[r] = result_of(rows[r]);

    if (group >= p.groups) return;
    for (uint tiles = (end - 1) / TILE + 1; tiles > 0; --tiles) {
        const uint first = (tiles - 1) * TILE;
        if (WHOLE == 0) {
            load_tile(first);
            measure_tile(first, results);
        }
        store_tile(first, results);
    }
}
