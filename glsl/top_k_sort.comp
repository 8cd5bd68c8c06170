// The K largest or smallest elements of short rows: several rows a workgroup, each sorted whole in shared memory.
//
// Keys, order, bindings and parameters: include/top_k.glsl. Constants of its own: SEGMENT, a power of two of at least
// p.row_size elements, for each of the CAPACITY / SEGMENT rows of a workgroup; SIDE_BY_SIDE 1: neighbours in memory are
// different rows, so neighbouring invocations load and store neighbouring rows.
// Grid: folded into x and y.
// Chosen for rows that fit: one read of each byte, and no memory besides.

#include "top_k.glsl"

const uint ROWS = CAPACITY / SEGMENT;

// Item i of ROWS * size as (row of the workgroup, place in it).
uvec2 item(uint i, uint size) { return p.side_by_side != 0u ? uvec2(i % ROWS, i / ROWS) : uvec2(i / size, i % size); }

void main() {
    const uint first = linear_workgroup() * ROWS;
    if (first >= p.rows) return;
    const uint rows = min(ROWS, p.rows - first);
    for (uint i = gl_LocalInvocationID.x; i < ROWS * p.row_size; i += LOCAL_SIZE_X) {
        const uvec2 at = item(i, p.row_size);
        if (at.x < rows) {
            keys[at.x * SEGMENT + at.y] = key_of(bits_at(find_row(first + at.x).x + at.y * p.x_step));
            positions[at.x * SEGMENT + at.y] = at.y;
        }
    }
    barrier();
    sort_segments(SEGMENT, p.row_size, rows * SEGMENT / 2);
    for (uint i = gl_LocalInvocationID.x; i < ROWS * p.k; i += LOCAL_SIZE_X) {
        const uvec2 at = item(i, p.k);
        if (at.x < rows) store(find_row(first + at.x), at.y, positions[at.x * SEGMENT + at.y]);
    }
}
