// The gradients of batch normalization with the whole row in registers: one read and one write of each element.
//
// LANES neighbouring invocations share a row; a workgroup has LOCAL_SIZE_X / LANES rows. Lane i holds units i,
// i + LANES, i + 2 LANES... of x and dy, so that neighbours read neighbours.
// Formula, units, bindings and constants: include/batch_gradient.glsl.
//
// Constants of its own: LANES (a power of two), UNITS (units that each lane holds: LANES * UNITS >= units of a row).
// Chosen for rows that fit into the registers of one workgroup.

#include "batch_gradient.glsl"
#include "workgroup.glsl"

void main() {
    const uint invocation = workgroup_invocation();
    const uint lane = invocation % LANES;
    const uint row = linear_workgroup() * (LOCAL_SIZE_X / LANES) + invocation / LANES;
    // Past the last row everything but the writing happens to the last one, so that every invocation reaches the sums.
    const uint own = min(row, p.rows - 1);
    const uvec3 start = row_start(own);

    UNIT x[UNITS], dy[UNITS];
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uvec3 at = unit_at(start, min(i * LANES + lane, p.row_units - 1));
        x[i] = UNIT(x_units[at.x]);
        dy[i] = UNIT(dy_units[at.y]);
    }

    const Given given[1] = Given[1](given_of(own, 0));
    vec2 sums[1] = vec2[1](vec2(0));
    [[unroll]] for (uint i = 0; i < UNITS; ++i)
        if (i * LANES + lane < p.row_units) add_unit(x[i], dy[i], given, sums);
    const vec2 total = sum_over_lanes(sums[0], 0);
    if (row >= p.rows) return;

    const Line lines[1] = Line[1](line_of(given[0], total));
    if (lane == 0) store_sums(row, 0, given[0], total);
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uint unit = i * LANES + lane;
        if (unit < p.row_units) store_gradient(unit_at(start, unit).z, x[i], dy[i], lines);
    }
}
