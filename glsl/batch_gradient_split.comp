// The gradients of batch normalization of long rows, each cut into chunks of one workgroup.
//
// Two dispatches, the variants of this file:
//   STAGE 0  reads a chunk and leaves its sums in `partials`; where dx does not depend on the sums (TRAINING 0) it is written
//   STAGE 1  adds the sums of a row's chunks and writes the gradients of scale and bias; where dx depends on them (TRAINING 1)
//            a workgroup a chunk reads its own again and writes dx
// Every workgroup of a row adds the same partials in the same order and so gets the same bits.
// Formula, units, bindings and constants: include/batch_gradient.glsl; chunks: include/batch_gradient_chunks.glsl.
//
// Bindings of its own: partials read and written, the sums of chunk c of row r at r * chunks + c.
// Chosen for rows that do not fit into the registers of one workgroup.

#include "batch_gradient.glsl"
#include "batch_gradient_chunks.glsl"

layout(set = 0, binding = BINDING_PARTIALS, std430) buffer Partials { vec2 partials[]; };

void finish(uint row, uint chunk) {
    vec2 sums = vec2(0);
    for (uint i = workgroup_invocation(); i < p.chunks; i += LANES)
        sums += partials[BYTE_OFFSET_PARTIALS / 8 + row * p.chunks + i];
    sums = sum_over_lanes(sums, 0);
    if (chunk == 0 && workgroup_invocation() == 0) store_sums(row, 0, given[0], sums);
    if (TRAINING == 0) return;
    lines[0] = line_of(given[0], sums);
    store_chunk(chunk);
}

void main() {
    const uint chunks = STAGE == 0 || TRAINING != 0 ? p.chunks : 1;
    uint task = linear_workgroup();
    if (task >= p.rows * chunks) return;
    if (STAGE == 1) task = p.rows * chunks - 1 - task; // backwards, because what was gathered last is still in the cache
    const uint row = task / chunks, chunk = task % chunks;
    begin_chunk(row, chunk);
#if STAGE == 0
    const vec2 sums = chunk_sums(chunk, TRAINING == 0);
    if (workgroup_invocation() == 0) partials[BYTE_OFFSET_PARTIALS / 8 + task] = sums;
#else
    finish(row, chunk);
#endif
}
