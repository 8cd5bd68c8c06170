// The second step of a split reduction: merges the chunks' accumulators of each row and writes its result.
//
// Bindings: partials read; output written (include/reduction.glsl).
// Variants: T, the data type. Constants: those of reduction.glsl and team.glsl.
// Parameters: rows, chunks; of the kept dimensions sizes, divisors, strides of output.
// A workgroup has LOCAL_SIZE_X / TEAM rows; invocation i of a team takes chunks i, i + TEAM, i + 2 TEAM...

#define TOGETHER 1
#include "reduction.glsl"
#include "team.glsl"

void main() {
    const uint invocation = workgroup_invocation();
    const uint member = invocation % TEAM;
    const uint row = linear_workgroup() * (LOCAL_SIZE_X / TEAM) + invocation / TEAM;
    const uint first = min(row, p.rows - 1u) * p.chunks;
    Accumulator all = empty();
    for (uint chunk = member; chunk < p.chunks; chunk += TEAM) all = merged(all, load_partial(first + chunk));
    all = over_team(all);
    if (member != 0u || row >= p.rows) return;
    uint output_index = 0;
#define ADD_KEPT(dimension, coordinate) output_index += (coordinate) * p.kept_output[dimension];
    FOR_EACH_COORDINATE_FAST(row, p.kept_rank, p.kept_sizes, p.kept_divisors, ADD_KEPT)
    store_result(output_index, all);
}
