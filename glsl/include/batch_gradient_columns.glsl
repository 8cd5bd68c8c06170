// Chunks of rows that lie side by side, of batch_gradient_column_split.comp: `tiles` tiles of lanes * UNITS elements of each
// row, held in registers, one after the other. A workgroup has a block of COLUMNS neighbouring units and LOCAL_SIZE_X / COLUMNS
// lanes each, columns fastest, as in batch_gradient_column.comp.
//
// Before including: ACROSS, batch_gradient.glsl. Constants: COLUMNS, UNITS, COMPENSATED (whether the sums of a lane's tiles are
// added with what rounding loses: where they are many). LOCAL_SIZE_X is at least the block's rows. Parameters: tiles, chunks.

#ifndef DMLVK_BATCH_GRADIENT_COLUMNS_GLSL
#define DMLVK_BATCH_GRADIENT_COLUMNS_GLSL

#include "accumulate.glsl"

#define ROW_LANES (LOCAL_SIZE_X / COLUMNS)
#define BLOCK_ROWS (COLUMNS * UNIT_ROWS)

shared vec2 lane_sums[UNIT_ROWS][COLUMN_INVOCATIONS];

uvec3 start; // of the column
Given given[UNIT_ROWS];
Line lines[UNIT_ROWS];
UNIT x[UNITS], dy[UNITS];

uint lane() { return gl_LocalInvocationIndex / COLUMNS; }
uint column_of(uint block) { return block * COLUMNS + gl_LocalInvocationIndex % COLUMNS; }

// Where sums are added up, an invocation has a row of the block, numbered with the columns fastest.
uint own_row() { return gl_LocalInvocationIndex % BLOCK_ROWS; }
uint row_number(uint block) { return (block * COLUMNS + own_row() % COLUMNS) * UNIT_ROWS + own_row() / COLUMNS; }

uint first_element_of(uint tile) { return tile * ROW_LANES * UNITS; }
uint held_element(uint tile, uint i) { return first_element_of(tile) + i * ROW_LANES + lane(); }

void load_tile(uint tile) {
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uvec3 at = unit_at(start, min(held_element(tile, i), p.row_units - 1));
        x[i] = UNIT(x_units[at.x]);
        dy[i] = UNIT(dy_units[at.y]);
    }
}

void store_tile(uint tile) {
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uint element = held_element(tile, i);
        if (element < p.row_units) store_gradient(unit_at(start, element).z, x[i], dy[i], lines);
    }
}

// Starts with a chunk: its first tile's loads, and then those of what is given of the rows, so that none waits for the other.
void begin_chunk(uint column, uint chunk) {
    start = row_start(column);
    load_tile(chunk * p.tiles);
    given = given_of_unit(column);
    [[unroll]] for (uint j = 0; j < UNIT_ROWS; ++j) lines[j] = line_of(given[j], vec2(0));
}

// The sums of own_row() of a chunk whose first tile is held already; `stores` says whether dx is written on the way.
vec2 chunk_sums(uint chunk, bool stores) {
    vec2 sums[UNIT_ROWS], lost[UNIT_ROWS];
    [[unroll]] for (uint j = 0; j < UNIT_ROWS; ++j) sums[j] = lost[j] = vec2(0);
    for (uint i = 0; i < p.tiles; ++i) {
        const uint tile = chunk * p.tiles + i;
        if (first_element_of(tile) >= p.row_units) break;
        if (i > 0) load_tile(tile);
        vec2 own[UNIT_ROWS];
        [[unroll]] for (uint j = 0; j < UNIT_ROWS; ++j) own[j] = COMPENSATED != 0 ? vec2(0) : sums[j];
        [[unroll]] for (uint k = 0; k < UNITS; ++k)
            if (held_element(tile, k) < p.row_units) add_unit(x[k], dy[k], given, own);
        [[unroll]] for (uint j = 0; j < UNIT_ROWS; ++j) {
            if (COMPENSATED != 0) {
                add_compensated(sums[j].x, lost[j].x, own[j].x);
                add_compensated(sums[j].y, lost[j].y, own[j].y);
            } else {
                sums[j] = own[j];
            }
        }
        if (stores) store_tile(tile);
    }
    barrier(); // the last sums have been read
    [[unroll]] for (uint j = 0; j < UNIT_ROWS; ++j) lane_sums[j][gl_LocalInvocationIndex] = sums[j] + lost[j];
    barrier();
    vec2 total = vec2(0);
    for (uint i = 0; i < ROW_LANES; ++i) total += lane_sums[own_row() / COLUMNS][i * COLUMNS + own_row() % COLUMNS];
    return total;
}

// Writes dx of a chunk whose first tile is held already.
void store_chunk(uint chunk) {
    for (uint i = 0; i < p.tiles; ++i) {
        const uint tile = chunk * p.tiles + i;
        if (first_element_of(tile) >= p.row_units) break;
        if (i > 0) load_tile(tile);
        store_tile(tile);
    }
}

#endif
