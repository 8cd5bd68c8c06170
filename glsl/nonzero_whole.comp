// The coordinates of the elements that are not zero, of a small input: one workgroup walks it tile by tile.
//
// Masks: include/nonzero_masks.glsl; rows: include/nonzero_rows.glsl. Bindings: X read; COUNT, the number of rows, and
// COORDINATES written. One dispatch, one read of each byte.

#include "nonzero_masks.glsl"
#include "nonzero_rows.glsl"

void main() {
    const uint units = p.units + min(p.tail, 1u);
    uint row = 0u, slot = 0u;
    for (uint first = 0u; first < units; first += TILE_UNITS) {
        find_masks(first);
        const uint mask = workgroup_invocation() < TILE_MASKS ? tile_masks[workgroup_invocation()] : 0u;
        row += write_rows(mask, first * UNIT_ELEMENTS + workgroup_invocation() * 32u, row, slot);
        slot ^= 1u;
    }
    write_count(row);
}
