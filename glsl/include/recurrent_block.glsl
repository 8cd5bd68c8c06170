// What kernels share that take a block of steps of a recurrent network in one dispatch.
//
// Binding: XW, float32: the input's product of the steps of a block, and perhaps of others: [direction, step, sequence, gate, unit].
// Parameters: first and last, the block's first step and the one after its last; xw_steps, the steps of a direction in XW;
// xw_first[2], the position in the sequence of the first of them, for each direction.

#ifndef DMLVK_RECURRENT_BLOCK_GLSL
#define DMLVK_RECURRENT_BLOCK_GLSL

#include "recurrent.glsl"

layout(set = 0, binding = BINDING_XW, std430) readonly buffer Xw { float xw[]; };

void load_inputs(Unit unit, Step at, out float inputs[MOST_GATES]) {
    const uint step = at.position - p.xw_first[unit.direction];
    const uint row = ((unit.direction * p.xw_steps + step) * p.batch + unit.entry) * ALL_GATES;
    [[unroll]] for (uint g = 0; g < MOST_GATES; ++g)
        if (g < ALL_GATES) inputs[g] = xw[BYTE_OFFSET_XW / 4 + (row + g) * p.hidden + unit.index];
}

#endif
