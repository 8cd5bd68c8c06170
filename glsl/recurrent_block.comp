// A block of steps of a recurrent network in one dispatch: a workgroup has one sequence of one direction, and reads the recurrence
// matrix at each step.
//
//   h' = cell(xw[t] + b, h R^T) for each step; see include/recurrent.glsl
//
// Bindings: those of recurrent_step.comp, but XW has the steps of include/recurrent_block.glsl. STATE holds the state before the
// first of them at p.previous, and the cells; both are left there for a next dispatch.
// Constants: LOCAL_SIZE_X (128) invocations, LANES (8) of which share a unit and split its rows of R; CAPACITY (16) quads of a
// state in shared memory, at least p.quads. LANES, a power of two, is at most the subgroup size.
// Grid: x over sequences, y over directions.
//
// The workgroup walks the units, as many at a time as it has lanes for. A unit's lanes add what they have, and the first goes
// through the activations. The state before and the one after a step take turns in shared memory; of CELL_GRU_RESET a third set
// has what the second product is made of.
// Chosen for so many steps that the host had better not prepare a dispatch for each: one workgroup reads R slower than many do.

#include "recurrent_block.glsl"

layout(set = 0, binding = BINDING_R, std430) readonly buffer R { vec4 r[]; };

const uint SETS = CELL == CELL_GRU_RESET ? 3 : 2;

shared vec4 vectors[SETS][CAPACITY];

const uint UNITS = LOCAL_SIZE_X / LANES;

// One product of a step, for all units: of the gates of `kind`, with the vector in the set `source`, into the set `target`.
void take(const uint kind, const uint first_gate, const uint gates, uint step, uint before, uint source, uint target) {
    const uint lane = gl_LocalInvocationID.x % LANES;
    for (uint base = 0; base < p.hidden; base += UNITS) {
        const uint index = base + gl_LocalInvocationID.x / LANES;
        const Unit unit = Unit(gl_WorkGroupID.y, gl_WorkGroupID.x, min(index, p.hidden - 1));
        float sums[MOST_GATES];
        [[unroll]] for (uint g = 0; g < MOST_GATES; ++g) sums[g] = 0.0;
        for (uint quad = lane; quad < p.quads; quad += LANES) {
            const vec4 values = vectors[source][quad];
            [[unroll]] for (uint g = 0; g < MOST_GATES; ++g) {
                if (g < first_gate || g >= first_gate + gates) continue;
                const uint row = unit.direction * p.r_strides[0] + (g * p.hidden + unit.index) * p.r_strides[1];
                const vec4 w = r[BYTE_OFFSET_R / 16 + row + quad];
                sums[g] = fma(w.w, values.w, fma(w.z, values.z, fma(w.y, values.y, fma(w.x, values.x, sums[g]))));
            }
        }
        [[unroll]] for (uint g = 0; g < MOST_GATES; ++g) {
            if (g < first_gate || g >= first_gate + gates) continue;
            if (LANES > 16) sums[g] += subgroupShuffleXor(sums[g], 16);
            if (LANES > 8) sums[g] += subgroupShuffleXor(sums[g], 8);
            if (LANES > 4) sums[g] += subgroupShuffleXor(sums[g], 4);
            if (LANES > 2) sums[g] += subgroupShuffleXor(sums[g], 2);
            if (LANES > 1) sums[g] += subgroupShuffleXor(sums[g], 1);
        }
        if (lane != 0 || index >= p.hidden) continue;
        const Step at = step_of(unit, step);
        float inputs[MOST_GATES];
        load_inputs(unit, at, inputs);
        [[unroll]] for (uint g = 0; g < MOST_GATES; ++g)
            if (g < ALL_GATES) inputs[g] = biased(unit, g, inputs[g]);
        float cell = HAS_CELL != 0 ? state[state_at(p.cell, unit)] : 0.0;
        const float h = vectors[before][index / 4][index % 4];
        vectors[target][index / 4][index % 4] = advance(kind, unit, at, h, cell, inputs, reset_bias(unit), sums);
        if (HAS_CELL != 0) state[state_at(p.cell, unit)] = cell;
    }
    barrier();
}

void main() {
    const Unit first = Unit(gl_WorkGroupID.y, gl_WorkGroupID.x, 0);
    for (uint quad = gl_LocalInvocationID.x; quad < CAPACITY; quad += LOCAL_SIZE_X) {
        [[unroll]] for (uint set = 0; set < SETS; ++set) vectors[set][quad] = vec4(0.0);
        [[unroll]] for (uint i = 0; i < 4; ++i)
            if (4 * quad + i < p.hidden) vectors[0][quad][i] = state[state_at(p.previous, first) + 4 * quad + i];
    }
    barrier();
    uint now = 0;
    for (uint step = p.first; step < p.last; ++step) {
        if (CELL == CELL_GRU_RESET) {
            take(CELL_GRU_RESET, 0, 2, step, now, now, 2);
            take(CELL_GRU_STATE, 2, 1, step, now, 2, 1 - now);
        } else {
            take(CELL, 0, ALL_GATES, step, now, now, 1 - now);
        }
        now = 1 - now;
    }
    if (p.last == p.steps) return;
    for (uint index = gl_LocalInvocationID.x; index < p.hidden; index += LOCAL_SIZE_X)
        state[state_at(p.previous, first) + index] = vectors[now][index / 4][index % 4];
}
