// One step of a recurrent network for one unit: what becomes of the sums, the state and the outputs.
//
// Needs the constants, parameters and bindings that the recurrent rows of the manifest share (`_CELL` there), and declares
// their buffers: BIAS, PEEPHOLE, LENGTHS, STATE, SEQUENCE, SINGLE and CELL_SINGLE; an absent one is never touched, because
// its HAS_ constant is 0. STATE is float32 whatever T is: rows of p.row elements, a row for each sequence of each direction,
// several sets of them, which start at p.previous, p.next, ... . A kernel gives `advance` the two sums of each gate (the
// input's product and the state's) and stores what it returns.
//
// Constant CELL:
//   RNN                      h' = f(x + s)
//   LSTM                     gates i, o, f, c
//   GRU                      gates z, r, h with LinearBeforeReset: one product a step
//   GRU_RESET, GRU_STATE     the two halves of a step without it. The first has gates z and r, puts z where an LSTM has its
//                            cell and returns r h, of which the second one's product, of gate h, is made.

#ifndef DMLVK_RECURRENT_GLSL
#define DMLVK_RECURRENT_GLSL

#include "activation.glsl"

// Gates of the cell, and those that one of its products makes. An array of gates has MOST_GATES, and a gate has the same index
// in all of them.
const uint ALL_GATES = CELL == CELL_RNN ? 1 : CELL == CELL_LSTM ? 4 : 3;
const uint FIRST_GATE = CELL == CELL_GRU_STATE ? 2 : 0;
const uint GATES = CELL == CELL_GRU_RESET ? 2 : CELL == CELL_GRU_STATE ? 1 : ALL_GATES;

layout(set = 0, binding = BINDING_BIAS, std430) readonly buffer Bias { T bias[]; };
layout(set = 0, binding = BINDING_PEEPHOLE, std430) readonly buffer Peephole { T peephole[]; };
layout(set = 0, binding = BINDING_LENGTHS, std430) readonly buffer Lengths { uint lengths[]; };
layout(set = 0, binding = BINDING_STATE, std430) buffer State { float state[]; };
layout(set = 0, binding = BINDING_SEQUENCE, std430) writeonly buffer Sequence { T sequence[]; };
layout(set = 0, binding = BINDING_SINGLE, std430) writeonly buffer Single { T single[]; };
layout(set = 0, binding = BINDING_CELL_SINGLE, std430) writeonly buffer CellSingle { T cell_single[]; };

// Which number of the state: its direction, its sequence of the batch, its place in the hidden layer.
struct Unit {
    uint direction;
    uint entry;
    uint index;
};

// A step of a unit: its number, the steps of its sequence, and the element of the sequence that it reads and writes.
struct Step {
    uint step;
    uint count;
    uint position;
};

Step step_of(Unit unit, uint step) {
    uint count = p.steps;
    if (HAS_LENGTHS != 0) count = min(lengths[BYTE_OFFSET_LENGTHS / 4 + unit.entry * p.lengths_stride], p.steps);
    const bool turned = unit.direction >= p.first_reversed && step < count;
    return Step(step, count, turned ? count - 1 - step : step);
}

// The unit's element of a set of the state's rows.
uint state_at(uint start, Unit unit) {
    return BYTE_OFFSET_STATE / 4 + start + (unit.direction * p.batch + unit.entry) * p.row + unit.index;
}

float load_bias(Unit unit, uint block) {
    const uint element = unit.direction * p.bias_strides[0] + (block * p.hidden + unit.index) * p.bias_strides[1];
    return float(bias[BYTE_OFFSET_BIAS / T_BYTES + element]);
}

float load_peephole(Unit unit, uint block) {
    const uint element = unit.direction * p.peephole_strides[0] + (block * p.hidden + unit.index) * p.peephole_strides[1];
    return float(peephole[BYTE_OFFSET_PEEPHOLE / T_BYTES + element]);
}

float activated_f(Unit unit, float x) {
    return unit.direction == 0 ? activate(ACTIVATION_F, x, p.activation_params[0], p.activation_params[1])
                               : activate(ACTIVATION_F1, x, p.activation_params[6], p.activation_params[7]);
}

float activated_g(Unit unit, float x) {
    return unit.direction == 0 ? activate(ACTIVATION_G, x, p.activation_params[2], p.activation_params[3])
                               : activate(ACTIVATION_G1, x, p.activation_params[8], p.activation_params[9]);
}

float activated_h(Unit unit, float x) {
    return unit.direction == 0 ? activate(ACTIVATION_H, x, p.activation_params[4], p.activation_params[5])
                               : activate(ACTIVATION_H1, x, p.activation_params[10], p.activation_params[11]);
}

// Comparisons keep NaN, which clamp need not.
float clipped(float x) { return CLIPPED == 0 ? x : x > p.clip ? p.clip : x < -p.clip ? -p.clip : x; }

// Adds a gate's biases to the input's part of it; that of a GRU's gate h which the reset gate multiplies stays out.
float biased(Unit unit, uint gate, float value) {
    if (HAS_BIAS == 0) return value;
    value += load_bias(unit, gate);
    return CELL == CELL_GRU && gate == 2 ? value : value + load_bias(unit, ALL_GATES + gate);
}

// The bias that stays out.
float reset_bias(Unit unit) { return HAS_BIAS != 0 && CELL == CELL_GRU ? load_bias(unit, 5) : 0.0; }

void store_outputs(Unit unit, Step at, float h, float cell) {
    const bool running = at.step < at.count;
    if (HAS_SEQUENCE != 0) {
        const uint element = at.position * p.sequence_strides[0] + unit.direction * p.sequence_strides[1] +
                             unit.entry * p.sequence_strides[2] + unit.index * p.sequence_strides[3];
        sequence[BYTE_OFFSET_SEQUENCE / T_BYTES + element] = T(running ? h : 0.0);
    }
    if (at.step + 1 != p.steps) return;
    if (HAS_SINGLE != 0) {
        const uint element =
            unit.direction * p.single_strides[0] + unit.entry * p.single_strides[1] + unit.index * p.single_strides[2];
        single[BYTE_OFFSET_SINGLE / T_BYTES + element] = T(at.count != 0 ? h : 0.0);
    }
    if (HAS_CELL_SINGLE != 0) {
        const uint element = unit.direction * p.cell_single_strides[0] + unit.entry * p.cell_single_strides[1] +
                             unit.index * p.cell_single_strides[2];
        cell_single[BYTE_OFFSET_CELL_SINGLE / T_BYTES + element] = T(at.count != 0 ? cell : 0.0);
    }
}

// The unit's next state, written to the outputs as well; of CELL_GRU_RESET what the second half multiplies. `kind` is CELL,
// or a half of it. `h` is the state before, `cell` the cell before and after; `inputs` and `sums` are each gate's two
// products, the first with its biases.
float advance(
    const uint kind, Unit unit, Step at, float h, inout float cell, float inputs[MOST_GATES], float inner_bias,
    float sums[MOST_GATES]
) {
    const bool running = at.step < at.count;
    float next;
    if (kind == CELL_RNN) {
        next = activated_f(unit, inputs[0] + sums[0]);
    } else if (kind == CELL_LSTM) {
        float gates[4];
        [[unroll]] for (uint g = 0; g < 4; ++g) gates[g] = inputs[g] + sums[g];
        if (HAS_PEEPHOLE != 0) {
            gates[0] = fma(load_peephole(unit, 0), cell, gates[0]);
            gates[2] = fma(load_peephole(unit, 2), cell, gates[2]);
        }
        const float i = activated_f(unit, clipped(gates[0]));
        const float forget = COUPLED != 0 ? 1.0 - i : activated_f(unit, clipped(gates[2]));
        const float next_cell = fma(forget, cell, i * activated_g(unit, clipped(gates[3])));
        if (HAS_PEEPHOLE != 0) gates[1] = fma(load_peephole(unit, 1), next_cell, gates[1]);
        next = activated_f(unit, clipped(gates[1])) * activated_h(unit, next_cell);
        cell = running ? next_cell : cell;
    } else if (kind == CELL_GRU_RESET) {
        cell = activated_f(unit, inputs[0] + sums[0]);
        return activated_f(unit, inputs[1] + sums[1]) * h;
    } else {
        float z = cell, inner = sums[2];
        if (kind == CELL_GRU) {
            z = activated_f(unit, inputs[0] + sums[0]);
            inner = activated_f(unit, inputs[1] + sums[1]) * (inner + inner_bias);
        }
        next = fma(1.0 - z, activated_g(unit, inputs[2] + inner), z * h);
    }
    h = running ? next : h;
    store_outputs(unit, at, h, cell);
    return h;
}

#endif
