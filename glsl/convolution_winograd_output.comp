// Winograd's transform back: A^T m A, 4x4 outputs of each block, with the bias and the activation.
//
// Bindings: X the products, see include/winograd.glsl; W unused; BIAS, Y: see include/convolution.glsl.
// Constants: CHANNELS (0): 1 where neighbouring invocations have neighbouring channels, not blocks; Y_QUADS (1): rows of the
// output are whole aligned quads; HAS_BIAS (1), the activation's id.
// Grid: linear over output channels (of all groups) and blocks.

#include "tensor.glsl"
#include "quads.glsl"
#include "convolution.glsl"
#include "winograd.glsl"

layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YQuads { QUAD y_quads[]; };

void main() {
    if (beyond(p.count)) return;
    uint channel, block, image;
    uvec2 position;
    split_place(linear_invocation(), p.output_sizes[1], channel, block);
    split_block(block, image, position);
    const uint group = channel / p.group_outputs;
    const uint source = transformed(group, channel - group * p.group_outputs, block);

    float m[6][6];
    [[unroll]] for (uint i = 0; i < 6; ++i)
        [[unroll]] for (uint j = 0; j < 6; ++j) m[i][j] = load_x(source + (6 * i + j) * p.matrix);
    float lines[4][6];
    [[unroll]] for (uint j = 0; j < 6; ++j) {
        float line[6];
        [[unroll]] for (uint i = 0; i < 6; ++i) line[i] = m[i][j];
        const float results[4] = output_line(line);
        [[unroll]] for (uint i = 0; i < 4; ++i) lines[i][j] = results[i];
    }
    const float of_channel = load_bias(channel);
    QUAD more[4];
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        const uint row = min(position.x + i, p.output_sizes[3] - 1);
        const uint element = output_element(image, channel, uvec3(0, row, position.y));
        if (Y_QUADS != 0) {
            more[i] = load_addend_quad(element);
        } else {
            const uint last = p.output_sizes[4] - 1 - position.y;
            [[unroll]] for (uint j = 0; j < 4; ++j) more[i][j] = load_addend(element + min(j, last) * p.output_strides[4]);
        }
    }
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        if (position.x + i >= p.output_sizes[3]) return;
        const float results[4] = output_line(lines[i]);
        uvec3 o = uvec3(0, position.x + i, position.y);
        if (Y_QUADS != 0) {
            const vec4 quad = vec4(results[0], results[1], results[2], results[3]);
            y_quads[(BYTE_OFFSET_Y / 4 + output_element(image, channel, o)) / 4] =
                pack_quad(finished(quad, vec4(of_channel), more[i]));
        } else {
            [[unroll]] for (uint j = 0; j < 4; ++j) {
                o.z = position.y + j;
                if (o.z < p.output_sizes[4]) store_sum(image, channel, o, results[j], more[i][j]);
            }
        }
    }
}
