// The first of two dispatches that find what is not zero: a bit for each element, and how many there are in each chunk.
//
// Masks: include/nonzero_masks.glsl. Parameters of its own: chunks; chunk_units, whole tiles of units.
// Bindings: X read; MASKS, a word for 32 elements, and COUNTS, of each chunk, written. A workgroup has a chunk.
// Grid: folded into x and y. With the bits in memory the input is read once.

#include "nonzero_masks.glsl"
#include "prefix.glsl"

layout(set = 0, binding = BINDING_MASKS, std430) writeonly buffer Masks { uint masks[]; };
layout(set = 0, binding = BINDING_COUNTS, std430) writeonly buffer Counts { uint counts[]; };

void main() {
    const uint chunk = linear_workgroup();
    if (chunk >= p.chunks) return;
    const uint units = p.units + min(p.tail, 1u);
    const uint end = min((chunk + 1u) * p.chunk_units, units);
    const uint last_mask = (units - 1u) / MASK_UNITS;
    uint count = 0u;
    for (uint first = chunk * p.chunk_units; first < end; first += TILE_UNITS) {
        count += find_masks(first);
        const uint mask = first / MASK_UNITS + workgroup_invocation();
        if (workgroup_invocation() < TILE_MASKS && mask <= last_mask)
            masks[BYTE_OFFSET_MASKS / 4 + mask] = tile_masks[workgroup_invocation()];
        barrier();
    }
    uint total;
    prefix_sum(count, 0u, total);
    if (workgroup_invocation() == 0u) counts[BYTE_OFFSET_COUNTS / 4 + chunk] = total;
}
