// The gradient of ROI align with respect to the boxes, last step: adds what the blocks of channels gave.
//
//   boxes_gradient[r, j] = sum over blocks of partials[r, block, j]
//
// Bindings: PARTIALS (temporary, 4 floats for each region and block), OUTPUT (4 values a region, any strides).
// Grid: x folded into y, over all coordinates.

#include "tensor.glsl"

layout(set = 0, binding = BINDING_PARTIALS, std430) readonly buffer Partials { float partials[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer Output { T boxes_gradient[]; };

void main() {
    if (beyond(4 * p.roi_count)) return;
    const uint roi = linear_invocation() / 4;
    const uint j = linear_invocation() % 4;
    float sum = 0.0;
    for (uint block = 0; block < p.blocks; ++block)
        sum += partials[BYTE_OFFSET_PARTIALS / 4 + 4 * (roi * p.blocks + block) + j];
    boxes_gradient[BYTE_OFFSET_OUTPUT / T_BYTES + roi * p.box_strides[0] + j * p.box_strides[1]] = T(sum);
}
