// The gradients of batch normalization of long rows that lie side by side (channels that are last): the summed dimensions
// are cut into chunks, too, so that few columns still occupy the whole device.
//
// Dispatches, the variants of this file:
//   STAGE 0  a workgroup reads a chunk of some columns and leaves each row's sums in `partials`; where dx does not depend on
//            the sums (TRAINING 0) it is written
//   STAGE 1  adds the sums of a row's chunks, always in the same order, into those of the row, in place of chunk 0's, and
//            writes the gradients of scale and bias. Here COLUMNS counts rows
//   STAGE 2  (TRAINING 1) reads its chunk again and writes dx
// Formula, units, bindings and constants: include/batch_gradient.glsl; chunks: include/batch_gradient_columns.glsl.
//
// Bindings of its own: partials read and written, the sums of chunk c of row r at c * rows * UNIT_ROWS + r.
// Constants of its own: COLUMNS, UNITS. Parameters: tiles, chunks, blocks (workgroups that the columns of a chunk take).
// Chosen where neighbours in memory belong to different rows, which do not fit the registers of their lanes.

#define ACROSS
#include "batch_gradient.glsl"

layout(set = 0, binding = BINDING_PARTIALS, std430) buffer Partials { vec2 partials[]; };

#if STAGE == 1
#include "accumulate.glsl"

#define SUMMED_ROWS 1
#include "column_sums.glsl"

void main() {
    const uint rows = p.rows * UNIT_ROWS, lanes = LOCAL_SIZE_X / COLUMNS, lane = gl_LocalInvocationIndex / COLUMNS;
    const uint row = linear_workgroup() * COLUMNS + gl_LocalInvocationIndex % COLUMNS;
    const uint first = BYTE_OFFSET_PARTIALS / 8 + min(row, rows - 1);
    vec2 sums[1] = vec2[1](vec2(0)), lost = vec2(0);
    for (uint chunk = lane; chunk < p.chunks; chunk += lanes) {
        const vec2 partial = partials[first + chunk * rows];
        add_compensated(sums[0].x, lost.x, partial.x);
        add_compensated(sums[0].y, lost.y, partial.y);
    }
    sums[0] += lost;
    sum_over_columns(sums);
    if (lane > 0 || row >= rows) return;
    partials[first] = sums[0];
    store_sums(row / UNIT_ROWS, row % UNIT_ROWS, given_of(row / UNIT_ROWS, row % UNIT_ROWS), sums[0]);
}

#else
#include "batch_gradient_columns.glsl"

void main() {
    const uint tasks = p.blocks * p.chunks;
    uint task = linear_workgroup();
    if (task >= tasks) return;
    if (STAGE == 2) task = tasks - 1 - task; // backwards, because what was gathered last is still in the cache
    const uint chunk = task / p.blocks, block = task - chunk * p.blocks;
    // Past the last column, an invocation sums as the last one does, and writes nothing.
    const uint column = min(column_of(block), p.rows - 1);
    const bool present = column_of(block) < p.rows;
    begin_chunk(column, chunk);
#if STAGE == 0
    const vec2 sums = chunk_sums(chunk, TRAINING == 0 && present);
    const uint rows = p.rows * UNIT_ROWS;
    if (gl_LocalInvocationIndex < BLOCK_ROWS && row_number(block) < rows)
        partials[BYTE_OFFSET_PARTIALS / 8 + chunk * rows + row_number(block)] = sums;
#else
    if (!present) return;
    [[unroll]] for (uint j = 0; j < UNIT_ROWS; ++j)
        lines[j] = line_of(given[j], partials[BYTE_OFFSET_PARTIALS / 8 + column * UNIT_ROWS + j]);
    store_chunk(chunk);
#endif
}
#endif
