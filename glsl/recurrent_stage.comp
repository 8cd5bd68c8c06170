// A tensor as rows of float32, packed: what the steps of a recurrent network read many times, and their initial states.
//
//   y[row, column] = x[row, column], or 0 past the given rows and columns
//
// Bindings: X, Y. Parameters: count (elements of Y), given (rows that X has; 0: X is never read), columns (of X), row (elements
// of a row of Y, at least columns), rows (sizes of the two inner dimensions that rows are counted by), strides of X
// (three dimensions of rows, then columns).
// Grid: linear over the elements of Y.

#include "tensor.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer X { T x[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { float y[]; };

void main() {
    if (beyond(p.count)) return;
    const uint row = linear_invocation() / p.row;
    const uint column = linear_invocation() - row * p.row;
    float value = 0.0;
    if (row < p.given && column < p.columns) {
        const uint outer = row / p.rows[1];
        const uint plane = outer / p.rows[0];
        const uint element = plane * p.strides[0] + (outer - plane * p.rows[0]) * p.strides[1] +
                             (row - outer * p.rows[1]) * p.strides[2] + column * p.strides[3];
        value = float(x[BYTE_OFFSET_X / T_BYTES + element]);
    }
    y[BYTE_OFFSET_Y / 4 + linear_invocation()] = value;
}
