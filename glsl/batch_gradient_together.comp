// The gradients of batch normalization in training, of rows that the registers of several workgroups hold together: each element
// is read once.
//
// Two dispatches, the variants of this file:
//   STAGE 0  marks every partial as missing
//   STAGE 1  a workgroup a chunk, which is one tile: it leaves its chunk's sums in `partials`, waits for those of the row's other
//            chunks, adds them and writes dx of what it holds
// A row's workgroups start one after the other on every GPU that we know, and there is room for all of them, so nobody waits
// long. Vulkan promises neither, nor that a workgroup gets on while another waits: one that has asked `patience` times makes
// its row's partials itself. These have the same bits, as the order of all additions is the same.
// A partial is its own flag, of each component alone, so that nothing depends on the order in which writes are seen.
// Formula, units, bindings and constants: include/batch_gradient.glsl; chunks: include/batch_gradient_chunks.glsl.
//
// Bindings of its own: partials read and written, the sums of chunk c of row r at r * chunks + c, as bits.
// Parameters: tiles (1), patience.
// Chosen for rows of few chunks that do not fit into the registers of one workgroup.

#include "batch_gradient.glsl"
#include "batch_gradient_chunks.glsl"

layout(set = 0, binding = BINDING_PARTIALS, std430) coherent volatile buffer Partials { uvec2 partials[]; };

const uint MISSING = 0xFFFFFFFFu; // a NaN
const uint OTHER_NAN = 0x7FC00000u;

shared bool waited_in_vain;

uint as_bits(float value) {
    const uint bits = floatBitsToUint(value);
    return bits == MISSING ? OTHER_NAN : bits;
}

// The sums of the row, from those of the own chunk.
vec2 row_sums(uint row, uint chunk, vec2 own) {
    const uint first = BYTE_OFFSET_PARTIALS / 8 + row * p.chunks;
    if (workgroup_invocation() == 0) {
        partials[first + chunk] = uvec2(as_bits(own.x), as_bits(own.y));
        waited_in_vain = false;
    }
    barrier();
    vec2 sums = vec2(0);
    uint asked = 0;
    for (uint i = workgroup_invocation(); i < p.chunks; i += LANES) {
        uvec2 partial = uvec2(MISSING);
        while (any(equal(partial, uvec2(MISSING))) && asked < p.patience) {
            partial = partials[first + i];
            ++asked;
        }
        if (any(equal(partial, uvec2(MISSING)))) waited_in_vain = true;
        sums += uintBitsToFloat(partial);
    }
    const vec2 total = sum_over_lanes(sums, 1);
    barrier(); // all have said whether they waited in vain
    if (!waited_in_vain) return total;

    sums = vec2(0);
    for (uint i = 0; i < p.chunks; ++i) {
        load_tile(i);
        const vec2 partial = chunk_sums(i, false);
        if (i % LANES == workgroup_invocation()) sums += partial;
        barrier(); // before the next sums use the same shared memory
    }
    load_tile(chunk);
    return sum_over_lanes(sums, 1);
}

void main() {
#if STAGE == 0
    if (!beyond(p.rows * p.chunks)) partials[BYTE_OFFSET_PARTIALS / 8 + linear_invocation()] = uvec2(MISSING);
#else
    const uint task = linear_workgroup();
    if (task >= p.rows * p.chunks) return;
    const uint row = task / p.chunks, chunk = task % p.chunks;
    begin_chunk(row, chunk);
    const vec2 sums = row_sums(row, chunk, chunk_sums(chunk, false));
    if (chunk == 0 && workgroup_invocation() == 0) store_sums(row, 0, given[0], sums);
    lines[0] = line_of(given[0], sums);
    store_tile(chunk);
#endif
}
