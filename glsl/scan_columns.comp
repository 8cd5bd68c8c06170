// Running sums and products of rows that lie side by side in memory: neighbouring invocations have neighbouring rows.
//
//   y[i] = x[0] + ... + x[i]      exclusive: y[i] = x[0] + ... + x[i - 1]; PRODUCT: products; reverse: from the end
//
// Formulas, bindings and phases: include/scan.glsl. Constants of its own: COLUMNS, rows of a workgroup, which divides
// LOCAL_SIZE_X; UNITS (at most 16), elements that an invocation loads before it uses the first.
// LOCAL_SIZE_X / COLUMNS lanes walk a row together: each has UNITS neighbours along the axis of a tile, adds them in turn,
// and learns from shared memory what the lanes before it have.
// Grid: folded into x and y; a workgroup has COLUMNS rows of one chunk, chunks fastest.
// Chosen where neighbours in memory are different rows. One read and one write of each byte; chunks read twice.

#include "scan.glsl"

const uint LANES = LOCAL_SIZE_X / COLUMNS;

shared Part lane_parts[2][LOCAL_SIZE_X];

void main() {
    const uint column = gl_LocalInvocationID.x % COLUMNS;
    const uint lane = gl_LocalInvocationID.x / COLUMNS;
    const uint workgroup = linear_workgroup();
    const uint chunk = PHASE == PHASE_WHOLE ? 0 : workgroup % p.chunks;
    const uint wanted = (PHASE == PHASE_WHOLE ? workgroup : workgroup / p.chunks) * COLUMNS + column;
    // Past the last row everything but the writing happens to the last one, so that every invocation reaches the barriers.
    const uint row = min(wanted, p.rows - 1);
    find_row(row);
    Running running = before_chunk(row, chunk);
    const uint first = chunk * p.chunk_units;
    const uint end = min(first + p.chunk_units, p.units);
    uint slot = 0;
    for (uint at = first; at < end; at += LANES * UNITS) {
        const uint own = at + lane * UNITS;
        T_MATH values[UNITS];
        [[unroll]] for (uint u = 0; u < UNITS; ++u)
            if (own + u < end) values[u] = load_unit(own + u);

        Part held[UNITS]; // each with all before it in the lane
        Part total = identity();
        [[unroll]] for (uint u = 0; u < UNITS; ++u) {
            if (own + u < end) total = u == 0 ? part_of(values[u]) : join(total, part_of(values[u]));
            held[u] = total;
        }
        total = normalized(total);
        Part before = identity();
        if (LANES > 1) {
            lane_parts[slot][gl_LocalInvocationID.x] = total;
            barrier();
            total = identity();
            for (uint i = 0; i < LANES; ++i) {
                if (i == lane) before = total;
                total = combine(total, lane_parts[slot][i * COLUMNS + column]);
            }
            slot ^= 1;
        }
        if (PHASE != PHASE_TOTALS && wanted < p.rows) {
            [[unroll]] for (uint u = 0; u < UNITS; ++u) {
                if (own + u < end) {
                    Part prefix = join(before, held[u]);
                    if (p.exclusive != 0u) prefix = u == 0 ? before : join(before, held[max(int(u) - 1, 0)]);
                    store_unit(own + u, T_MATH[1](finished(running, prefix)));
                }
            }
        }
        append(running, total);
    }
    if (PHASE == PHASE_TOTALS && lane == 0 && wanted < p.rows) leave_total(row, chunk, running);
}
