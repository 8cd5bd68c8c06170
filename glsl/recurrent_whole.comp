// Many steps of a recurrent network in one dispatch: a workgroup has one sequence of one direction, and the whole recurrence
// matrix in its registers.
//
//   h' = cell(xw[t] + b, h R^T) for each step; see include/recurrent.glsl
//
// Bindings: as those of recurrent_step.comp, but XW has the steps of include/recurrent_block.glsl. STATE holds the state before
// the first of them at p.previous, and the cells; both are left there for a next dispatch.
// Constants: LOCAL_SIZE_X (256) invocations, LANES (4) of which share a unit, so that each has SHARE (4) quads of each row of
// R; CAPACITY (64) quads of a state in shared memory, at least p.quads and LANES * SHARE. LOCAL_SIZE_X is at least
// LANES * p.hidden, and LANES, a power of two, is at most the subgroup size.
// Grid: x over sequences, y over directions.
//
// The sums meet in shared memory, where as many invocations as there are units take them: whole subgroups of them, so that
// the others do not go through the activations' arithmetic for a lane or two. They keep the state and the cell of their unit
// in registers. Of CELL_GRU_RESET the second product follows with its own sums.
// Chosen where the matrix fits: a step then takes less time than a dispatch.

#include "recurrent_block.glsl"

layout(set = 0, binding = BINDING_R, std430) readonly buffer R { vec4 r[]; };

// The state that the matrix is multiplied with, and each gate's sums.
shared vec4 vector[CAPACITY];
shared float gate_sums[MOST_GATES][4 * CAPACITY];

vec4 weights[MOST_GATES][SHARE];

// One gate's sums, `gate` being a literal: weights whose place a compiler cannot tell would not stay in registers.
void multiply(uint gate) {
    const uint lane = gl_LocalInvocationID.x % LANES, index = gl_LocalInvocationID.x / LANES;
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < SHARE; ++i) {
        const vec4 values = vector[lane + i * LANES], w = weights[gate][i];
        sum = fma(w.w, values.w, fma(w.z, values.z, fma(w.y, values.y, fma(w.x, values.x, sum))));
    }
    if (LANES > 16) sum += subgroupShuffleXor(sum, 16);
    if (LANES > 8) sum += subgroupShuffleXor(sum, 8);
    if (LANES > 4) sum += subgroupShuffleXor(sum, 4);
    if (LANES > 2) sum += subgroupShuffleXor(sum, 2);
    if (LANES > 1) sum += subgroupShuffleXor(sum, 1);
    if (lane == 0 && index < p.hidden) gate_sums[gate][index] = sum;
}

void main() {
    const uint lane = gl_LocalInvocationID.x % LANES;
    const uint own_row = min(gl_LocalInvocationID.x / LANES, p.hidden - 1);
    [[unroll]] for (uint i = 0; i < SHARE; ++i)
        [[unroll]] for (uint g = 0; g < MOST_GATES; ++g) {
            if (g < ALL_GATES) {
                const uint row = gl_WorkGroupID.y * p.r_strides[0] + (g * p.hidden + own_row) * p.r_strides[1];
                const uint quad = lane + i * LANES;
                const vec4 given = r[BYTE_OFFSET_R / 16 + row + min(quad, p.quads - 1)];
                weights[g][i] = quad < p.quads ? given : vec4(0.0);
            }
        }
    for (uint quad = gl_LocalInvocationID.x; quad < CAPACITY; quad += LOCAL_SIZE_X) vector[quad] = vec4(0.0);
    barrier();

    const uint index = gl_LocalInvocationID.x;
    const bool finishes = index < p.hidden;
    const Unit unit = Unit(gl_WorkGroupID.y, gl_WorkGroupID.x, min(index, p.hidden - 1));
    float h = state[state_at(p.previous, unit)];
    float cell = HAS_CELL != 0 ? state[state_at(p.cell, unit)] : 0.0;
    const float inner_bias = reset_bias(unit);
    if (finishes) vector[index / 4][index % 4] = h;
    barrier();

    float biases[MOST_GATES], inputs[MOST_GATES], sums[MOST_GATES];
    [[unroll]] for (uint g = 0; g < MOST_GATES; ++g)
        if (g < ALL_GATES) biases[g] = biased(unit, g, 0.0);
    Step at = step_of(unit, p.first);
    load_inputs(unit, at, inputs);
    for (uint step = p.first; step < p.last; ++step) {
        multiply(0);
        if (GATES > 1) multiply(1);
        if (GATES > 2) multiply(2);
        if (GATES > 3) multiply(3);
        barrier();
        if (finishes) {
            [[unroll]] for (uint g = 0; g < MOST_GATES; ++g) {
                if (g < GATES) sums[g] = gate_sums[g][index];
                if (g < ALL_GATES) inputs[g] += biases[g];
            }
            const float result = advance(CELL, unit, at, h, cell, inputs, inner_bias, sums);
            vector[index / 4][index % 4] = result;
            if (CELL != CELL_GRU_RESET) h = result;
        }
        barrier();
        if (CELL == CELL_GRU_RESET) {
            multiply(2);
            barrier();
            if (finishes) {
                sums[2] = gate_sums[2][index];
                h = advance(CELL_GRU_STATE, unit, at, h, cell, inputs, inner_bias, sums);
                vector[index / 4][index % 4] = h;
            }
            barrier();
        }
        // On their way while the next product is made.
        at = step_of(unit, min(step + 1, p.last - 1));
        if (finishes) load_inputs(unit, at, inputs);
    }
    if (p.last == p.steps || !finishes) return;
    state[state_at(p.previous, unit)] = h;
    if (HAS_CELL != 0) state[state_at(p.cell, unit)] = cell;
}
