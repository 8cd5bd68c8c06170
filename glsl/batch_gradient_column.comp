// The gradients of batch normalization of rows that lie side by side, held in registers: the last kept dimension is
// contiguous, the summed ones are not ({N, C} with statistics a channel). One read and one write of each element.
//
// A workgroup has COLUMNS neighbouring units and LOCAL_SIZE_X / COLUMNS lanes each, columns fastest, so that neighbouring
// invocations read neighbouring addresses. A unit holds one element of each of UNIT_ROWS rows, and a lane holds UNITS
// units of x and dy, those of its rows' elements lane, lane + lanes, lane + 2 lanes...
// Formula, units, bindings and constants: include/batch_gradient.glsl.
//
// Constants of its own: COLUMNS, UNITS.
// Chosen where neighbours in memory belong to different rows, and a row fits the registers of its lanes.

#define ACROSS
#include "batch_gradient.glsl"

#define ROW_LANES (LOCAL_SIZE_X / COLUMNS)
#define SUMMED_ROWS UNIT_ROWS
#include "column_sums.glsl"

void main() {
    const uint column = linear_workgroup() * COLUMNS + gl_LocalInvocationIndex % COLUMNS;
    const uint lane = gl_LocalInvocationIndex / COLUMNS;
    // Past the last row everything but the writing happens to the last one, so that every invocation reaches the sums.
    const uint own = min(column, p.rows - 1);
    const uvec3 start = row_start(own);

    UNIT x[UNITS], dy[UNITS];
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uvec3 at = unit_at(start, min(i * ROW_LANES + lane, p.row_units - 1));
        x[i] = UNIT(x_units[at.x]);
        dy[i] = UNIT(dy_units[at.y]);
    }

    const Given given[UNIT_ROWS] = given_of_unit(own);
    Line lines[UNIT_ROWS];
    vec2 sums[UNIT_ROWS];
    [[unroll]] for (uint j = 0; j < UNIT_ROWS; ++j) sums[j] = vec2(0);
    [[unroll]] for (uint i = 0; i < UNITS; ++i)
        if (i * ROW_LANES + lane < p.row_units) add_unit(x[i], dy[i], given, sums);
    sum_over_columns(sums);
    if (column >= p.rows) return;

    [[unroll]] for (uint j = 0; j < UNIT_ROWS; ++j) {
        lines[j] = line_of(given[j], sums[j]);
        if (lane == 0) store_sums(column, j, given[j], sums[j]);
    }
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uint element = i * ROW_LANES + lane;
        if (element < p.row_units) store_gradient(unit_at(start, element).z, x[i], dy[i], lines);
    }
}
