// One step of a recurrent network, both products included, one invocation a unit: any strides and sizes.
//
//   h' = cell(x[t] W^T + b, h R^T); see include/recurrent.glsl
//
// Bindings: X, W, R and those of the include. Parameters of its own: inputs (size of x[t]), vector (the rows of STATE that R
// multiplies), and the strides of X (step, entry, element), W and R (direction, row, element).
// Grid: linear over directions, sequences and units, units fastest.
//
// Sums in float32, in the order of the elements. A dispatch a step, two for CELL_GRU_RESET and CELL_GRU_STATE.
// The other schedules are checked against it. Chosen when no other fits.

#include "tensor.glsl"
#include "recurrent.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer X { T x[]; };
layout(set = 0, binding = BINDING_W, std430) readonly buffer W { T w[]; };
layout(set = 0, binding = BINDING_R, std430) readonly buffer R { T r[]; };

void main() {
    if (beyond(p.count)) return;
    const uint row = linear_invocation() / p.hidden;
    const uint direction = row / p.batch;
    const Unit unit = Unit(direction, row - direction * p.batch, linear_invocation() - row * p.hidden);
    const Step at = step_of(unit, p.step);

    const uint x_start =
        BYTE_OFFSET_X / T_BYTES + at.position * p.x_strides[0] + unit.entry * p.x_strides[1];
    const uint w_start = BYTE_OFFSET_W / T_BYTES + direction * p.w_strides[0] + unit.index * p.w_strides[1];
    const uint r_start = BYTE_OFFSET_R / T_BYTES + direction * p.r_strides[0] + unit.index * p.r_strides[1];
    const uint vector = state_at(p.vector, Unit(direction, unit.entry, 0));
    float inputs[MOST_GATES], sums[MOST_GATES];
    [[unroll]] for (uint g = FIRST_GATE; g < FIRST_GATE + GATES; ++g) {
        const uint w_row = w_start + g * p.hidden * p.w_strides[1], r_row = r_start + g * p.hidden * p.r_strides[1];
        inputs[g] = sums[g] = 0.0;
        for (uint k = 0; k < p.inputs; ++k)
            inputs[g] = fma(float(x[x_start + k * p.x_strides[2]]), float(w[w_row + k * p.w_strides[2]]), inputs[g]);
        for (uint k = 0; k < p.hidden; ++k)
            sums[g] = fma(state[vector + k], float(r[r_row + k * p.r_strides[2]]), sums[g]);
        inputs[g] = biased(unit, g, inputs[g]);
    }
    const uint cell_at = state_at(p.cell, unit);
    float cell = HAS_CELL != 0 ? state[cell_at] : 0.0;
    const float h = state[state_at(p.previous, unit)];
    state[state_at(p.next, unit)] = advance(CELL, unit, at, h, cell, inputs, reset_bias(unit), sums);
    if (HAS_CELL != 0) state[cell_at] = cell;
}
