// The second of two dispatches that find what is not zero: the rows of coordinates.
//
// Rows: include/nonzero_rows.glsl. Parameters of its own: masks, how many; chunks; chunk_masks, of a chunk.
// Bindings: MASKS and COUNTS, left by nonzero_masks.comp, read; COUNT, the number of rows, and COORDINATES written.
// A workgroup has a chunk; its first row follows the counts of all chunks before it, which it adds up itself.
// Grid: folded into x and y.

#include "nonzero_rows.glsl"

layout(set = 0, binding = BINDING_MASKS, std430) readonly buffer Masks { uint masks[]; };
layout(set = 0, binding = BINDING_COUNTS, std430) readonly buffer Counts { uint counts[]; };

uint load_mask(uint index) { return index < p.masks ? masks[BYTE_OFFSET_MASKS / 4 + index] : 0u; }

void main() {
    const uint chunk = linear_workgroup();
    if (chunk >= p.chunks) return;
    uint before = 0u, row;
    for (uint i = workgroup_invocation(); i < chunk; i += LOCAL_SIZE_X) before += counts[BYTE_OFFSET_COUNTS / 4 + i];
    prefix_sum(before, 0u, row);
    const uint rows = counts[BYTE_OFFSET_COUNTS / 4 + chunk];
    if (chunk == p.chunks - 1u) write_count(row + rows);
    if (rows == 0u) return;

    const uint end = min((chunk + 1u) * p.chunk_masks, p.masks);
    const uint first = chunk * p.chunk_masks;
    uint slot = 1u;
    uint mask = load_mask(first + workgroup_invocation());
    for (uint at = first; at < end; at += LOCAL_SIZE_X) {
        const uint next = load_mask(at + LOCAL_SIZE_X + workgroup_invocation()); // on its way meanwhile
        row += write_rows(mask, (at + workgroup_invocation()) * 32u, row, slot);
        slot ^= 1u;
        mask = next;
    }
}
