// Softmax and its relatives over rows that are too few to fill the device: each is cut into chunks of one workgroup.
//
// Two dispatches, the variants of this file:
//   APPLY 0  reads a chunk and leaves what it knows of it in `partials`
//   APPLY 1  merges what is known of the chunks of its row, reads its chunk again and writes the results
// Every workgroup of a row merges the same partials in the same order and so gets the same bits.
//
// include/normalizer.glsl has the arithmetic, include/row_tiles.glsl the layouts, constants and parameters. A workgroup has
// COLUMNS groups of rows, LOCAL_SIZE_X = LANES * COLUMNS, and a chunk of them that is p.tiles tiles.
//
// Bindings: X read, Y written, PARTIALS read and written: the summary of row r of group g in chunk c, as 16 bytes, at
// (g * p.chunks + c) * ROWS + r.

#include "row_tiles.glsl"

layout(set = 0, binding = BINDING_PARTIALS, std430) buffer Partials { uvec4 partials[]; };

uint partial_at(uint group, uint chunk) { return BYTE_OFFSET_PARTIALS / 16 + (group * p.chunks + chunk) * ROWS; }

void gather(uint group, uint chunk) {
    Summary rows[ROWS];
    [[unroll]] for (int r = 0; r < ROWS; ++r) rows[r] = no_elements();
    for (uint tile = chunk * p.tiles; tile < (chunk + 1) * p.tiles; ++tile) {
        const uint first = tile * TILE;
        if (first >= p.row_units) break;
        load_tile(first);
        raise_peaks(first, rows);
        add_tile(first, rows);
    }
    peaks_over_lanes(rows);
    shares_over_lanes(rows);
    if (lane() > 0 || group >= p.groups) return;
    [[unroll]] for (int r = 0; r < ROWS; ++r)
        partials[partial_at(group, chunk) + r] =
            uvec4(uint(rows[r].peak), uint(rows[r].first), floatBitsToUint(rows[r].sums));
}

Summary merged(Summary a, Summary b) {
    const int peak = max(a.peak, b.peak);
    const Summary own = rescaled(a, peak), other = rescaled(b, peak);
    return Summary(peak, max(own.first, other.first), own.sums + other.sums);
}

void apply(uint group, uint chunk) {
    Summary rows[ROWS];
    [[unroll]] for (int r = 0; r < ROWS; ++r) rows[r] = no_elements();
    for (uint other = lane(); other < p.chunks; other += LANES) {
        [[unroll]] for (int r = 0; r < ROWS; ++r) {
            const uvec4 partial = partials[partial_at(min(group, p.groups - 1), other) + r];
            rows[r] = merged(rows[r], Summary(int(partial.x), int(partial.y), uintBitsToFloat(partial.zw)));
        }
    }
    peaks_over_lanes(rows);
    shares_over_lanes(rows);
    Result results[ROWS];
    [[unroll]] for (int r = 0; r < ROWS; ++r) results[r] = result_of(rows[r]);
    if (group >= p.groups) return;
    for (uint tile = (chunk + 1) * p.tiles; tile > chunk * p.tiles; --tile) {
        const uint first = (tile - 1) * TILE;
        if (first >= p.row_units) continue;
        load_tile(first);
        measure_tile(first, results);
        store_tile(first, results);
    }
}

void main() {
    const uint blocks = (p.groups - 1) / COLUMNS + 1;
    const uint task = linear_workgroup();
    if (task >= blocks * p.chunks) return;
    // The second time backwards, because what was read last is still in the cache.
    const uint own = APPLY != 0 ? blocks * p.chunks - 1 - task : task;
    const uint group = group_from(own / p.chunks * COLUMNS);
    find_group(min(group, p.groups - 1));
#if APPLY
    apply(group, own % p.chunks);
#else
    gather(group, own % p.chunks);
#endif
}
