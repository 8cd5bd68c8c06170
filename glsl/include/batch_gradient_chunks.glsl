// Chunks of a row of batch_gradient_split.comp and batch_gradient_together.comp: `tiles` tiles of LOCAL_SIZE_X * UNITS units,
// each held in registers, one after the other, by the invocations of a workgroup.
//
// Before including: batch_gradient.glsl. Sets LANES for workgroup.glsl, which it includes. Constant: UNITS. Parameters: tiles,
// chunks (of a row).

#ifndef DMLVK_BATCH_GRADIENT_CHUNKS_GLSL
#define DMLVK_BATCH_GRADIENT_CHUNKS_GLSL

#include "accumulate.glsl"

#define LANES LOCAL_SIZE_X
#include "workgroup.glsl"

uvec3 start; // of the row
Given given[1];
Line lines[1];
UNIT x[UNITS], dy[UNITS];

void load_given(uint row) {
    given[0] = given_of(row, 0);
    lines[0] = line_of(given[0], vec2(0));
}

uint first_unit_of(uint tile) { return tile * LANES * UNITS; }
uint held_unit(uint tile, uint i) { return first_unit_of(tile) + i * LANES + workgroup_invocation(); }

void load_tile(uint tile) {
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uvec3 at = unit_at(start, min(held_unit(tile, i), p.row_units - 1));
        x[i] = UNIT(x_units[at.x]);
        dy[i] = UNIT(dy_units[at.y]);
    }
}

void store_tile(uint tile) {
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uint unit = held_unit(tile, i);
        if (unit < p.row_units) store_gradient(unit_at(start, unit).z, x[i], dy[i], lines);
    }
}

// Starts with a chunk: its first tile's loads, and then those of what is given of the row, so that none waits for the other.
void begin_chunk(uint row, uint chunk) {
    start = row_start(row);
    load_tile(chunk * p.tiles);
    load_given(row);
}

// The sums of a chunk whose first tile is held already; every invocation gets them. `stores` says whether dx is written on the
// way.
vec2 chunk_sums(uint chunk, const bool stores) {
    vec2 sums = vec2(0), lost = vec2(0);
    for (uint i = 0; i < p.tiles; ++i) {
        const uint tile = chunk * p.tiles + i;
        if (first_unit_of(tile) >= p.row_units) break;
        if (i > 0) load_tile(tile);
        vec2 own[1] = vec2[1](vec2(0));
        [[unroll]] for (uint j = 0; j < UNITS; ++j)
            if (held_unit(tile, j) < p.row_units) add_unit(x[j], dy[j], given, own);
        add_compensated(sums.x, lost.x, own[0].x);
        add_compensated(sums.y, lost.y, own[0].y);
        if (stores) store_tile(tile);
    }
    return sum_over_lanes(sums + lost, 0);
}

// Writes dx of a chunk whose first tile is held already.
void store_chunk(uint chunk) {
    for (uint i = 0; i < p.tiles; ++i) {
        const uint tile = chunk * p.tiles + i;
        if (first_unit_of(tile) >= p.row_units) break;
        if (i > 0) load_tile(tile);
        store_tile(tile);
    }
}

#endif
