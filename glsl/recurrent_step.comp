// One step of a recurrent network in one dispatch: the state's product with R, the gates, the next state.
//
//   h' = cell(xw[t] + b, h R^T); see include/recurrent.glsl
//
// Bindings: XW (the input's product of all steps, float32: [direction, step, sequence, gate, unit]), R (float32, rows of whole
// 16 bytes) and those of include/recurrent.glsl. Parameters: vector (the rows of STATE that R multiplies), quads (16-byte words
// of a row of R), r_strides (those between directions and between rows).
// Constants: LOCAL_SIZE_X (128) invocations, LANES (32) of which share a unit and split its rows of R; each has IN_FLIGHT (4)
// words of each gate's row at a time. Every value of R serves ENTRIES (1) sequences. Powers of two; ENTRIES is at most 16 and
// LANES, and LANES at most 32 and the subgroup size.
// Grid: x over blocks of LOCAL_SIZE_X / LANES units, y over blocks of ENTRIES sequences, z over directions.
//
// R goes to registers, the sequences' states to shared memory, where all units of the workgroup read them. Everything that a
// step needs is on its way before anything is waited for: R, the states, what the gates need besides.
// Bound by reading R from the cache. Chosen where R is too large for one workgroup.

#include "recurrent.glsl"

layout(set = 0, binding = BINDING_XW, std430) readonly buffer Xw { float xw[]; };
layout(set = 0, binding = BINDING_R, std430) readonly buffer R { vec4 r[]; };
layout(set = 0, binding = BINDING_STATE, std430) buffer StateQuads { vec4 state_quads[]; };

// Words of a state that are multiplied at a time.
const uint CHUNK = LANES * IN_FLIGHT;
const uint STAGED = (ENTRIES * CHUNK + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;

shared vec4 vectors[ENTRIES * CHUNK];

void multiply_add(vec4 a, vec4 b, inout float sum) {
    sum = fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

// One lane's share of two sequences' sums for the two halves of the lanes: each half keeps one sequence.
vec4 exchanged(vec4 low, vec4 high, uint distance) {
    const bool upper = (gl_LocalInvocationID.x & distance) != 0;
    return (upper ? high : low) + subgroupShuffleXor(upper ? low : high, distance);
}

#define EXCHANGE(E, KEPT) sums[E] = exchanged(sums[E], sums[E + KEPT], LANES / ENTRIES * KEPT);

// The sums of every gate of a unit, for the sequence `lane / (LANES / ENTRIES)` of the block. Every place of an array is
// named by a literal or a loop of constant length: one that a compiler cannot tell would move the sums out of registers.
void product(Unit unit, out float totals[MOST_GATES]) {
    const uint lane = gl_LocalInvocationID.x % LANES;
    vec4 sums[MOST_ENTRIES]; // a component a gate
    [[unroll]] for (uint e = 0; e < MOST_ENTRIES; ++e) sums[e] = vec4(0.0);
    const uint start =
        BYTE_OFFSET_R / 16 + unit.direction * p.r_strides[0] + (FIRST_GATE * p.hidden + unit.index) * p.r_strides[1];
    const uint gate_step = p.hidden * p.r_strides[1];

    // Past the end of a row its last word is loaded, and 0 takes its place.
    for (uint first = 0; first < p.quads; first += CHUNK) {
        vec4 weights[IN_FLIGHT][MOST_GATES], staged[STAGED];
        [[unroll]] for (uint i = 0; i < IN_FLIGHT; ++i)
            [[unroll]] for (uint g = 0; g < MOST_GATES; ++g)
                if (g < GATES) weights[i][g] = r[start + g * gate_step + min(first + lane + i * LANES, p.quads - 1)];
        [[unroll]] for (uint i = 0; i < STAGED; ++i) {
            const uint place = gl_LocalInvocationID.x + i * LOCAL_SIZE_X;
            const uint entry = min(gl_WorkGroupID.y * ENTRIES + place / CHUNK, p.batch - 1);
            const uint quad = min(first + place % CHUNK, p.quads - 1);
            staged[i] = state_quads[state_at(p.vector, Unit(unit.direction, entry, 0)) / 4 + quad];
        }
        if (first > 0) barrier();
        [[unroll]] for (uint i = 0; i < STAGED; ++i) {
            const uint place = gl_LocalInvocationID.x + i * LOCAL_SIZE_X;
            if (place < ENTRIES * CHUNK) vectors[place] = first + place % CHUNK < p.quads ? staged[i] : vec4(0.0);
        }
        barrier();
        [[unroll]] for (uint i = 0; i < IN_FLIGHT; ++i) {
            const bool inside = first + lane + i * LANES < p.quads;
            [[unroll]] for (uint g = 0; g < MOST_GATES; ++g)
                if (g < GATES) weights[i][g] = inside ? weights[i][g] : vec4(0.0);
            [[unroll]] for (uint e = 0; e < MOST_ENTRIES; ++e) {
                if (e < ENTRIES) {
                    const vec4 values = vectors[e * CHUNK + i * LANES + lane];
                    multiply_add(weights[i][0], values, sums[e].x);
                    if (GATES > 1) multiply_add(weights[i][1], values, sums[e].y);
                    if (GATES > 2) multiply_add(weights[i][2], values, sums[e].z);
                    if (GATES > 3) multiply_add(weights[i][3], values, sums[e].w);
                }
            }
        }
    }

    // While there are several sequences, each half of the lanes gives the other half of its sums away, so that an exchange
    // halves them; then all lanes of a sequence add theirs up.
    if (ENTRIES > 8) {
        EXCHANGE(0, 8) EXCHANGE(1, 8) EXCHANGE(2, 8) EXCHANGE(3, 8)
        EXCHANGE(4, 8) EXCHANGE(5, 8) EXCHANGE(6, 8) EXCHANGE(7, 8)
    }
    if (ENTRIES > 4) { EXCHANGE(0, 4) EXCHANGE(1, 4) EXCHANGE(2, 4) EXCHANGE(3, 4) }
    if (ENTRIES > 2) { EXCHANGE(0, 2) EXCHANGE(1, 2) }
    if (ENTRIES > 1) { EXCHANGE(0, 1) }
    vec4 sum = sums[0];
    if (LANES / ENTRIES > 16) sum += subgroupShuffleXor(sum, 16);
    if (LANES / ENTRIES > 8) sum += subgroupShuffleXor(sum, 8);
    if (LANES / ENTRIES > 4) sum += subgroupShuffleXor(sum, 4);
    if (LANES / ENTRIES > 2) sum += subgroupShuffleXor(sum, 2);
    if (LANES / ENTRIES > 1) sum += subgroupShuffleXor(sum, 1);
    totals[FIRST_GATE] = sum.x;
    if (GATES > 1) totals[1] = sum.y;
    if (GATES > 2) totals[2] = sum.z;
    if (GATES > 3) totals[3] = sum.w;
}

void main() {
    const uint lane = gl_LocalInvocationID.x % LANES;
    const uint index = gl_WorkGroupID.x * (LOCAL_SIZE_X / LANES) + gl_LocalInvocationID.x / LANES;
    const uint entry = gl_WorkGroupID.y * ENTRIES + lane / (LANES / ENTRIES);
    // Past the last unit or sequence everything but the writing happens to the last one, because workgroups must stay whole.
    const Unit unit = Unit(gl_WorkGroupID.z, min(entry, p.batch - 1), min(index, p.hidden - 1));
    const Step at = step_of(unit, p.step);
    const uint row = ((unit.direction * p.steps + at.position) * p.batch + unit.entry) * ALL_GATES;
    float inputs[MOST_GATES], sums[MOST_GATES];
    [[unroll]] for (uint g = 0; g < MOST_GATES; ++g)
        if (g >= FIRST_GATE && g < FIRST_GATE + GATES)
            inputs[g] = biased(unit, g, xw[BYTE_OFFSET_XW / 4 + (row + g) * p.hidden + unit.index]);
    const float inner_bias = reset_bias(unit);
    const uint cell_at = state_at(p.cell, unit);
    float cell = HAS_CELL != 0 ? state[cell_at] : 0.0;
    const float h = state[state_at(p.previous, unit)];
    product(unit, sums);
    if (lane % (LANES / ENTRIES) != 0 || index >= p.hidden || entry >= p.batch) return;
    state[state_at(p.next, unit)] = advance(CELL, unit, at, h, cell, inputs, inner_bias, sums);
    if (HAS_CELL != 0) state[cell_at] = cell;
}
