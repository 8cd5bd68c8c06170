// Winograd's transform of the input: B^T d B of the 6x6 inputs that each block of 4x4 outputs reads.
//
// Bindings: X; W, BIAS unused; Y the transformed input, see include/winograd.glsl.
// Constants: CHANNELS (0): 1 where neighbouring invocations have neighbouring channels, not blocks.
// Grid: linear over channels (of all groups) and blocks.

#include "tensor.glsl"
#include "convolution.glsl"
#include "winograd.glsl"

void main() {
    if (beyond(p.count)) return;
    uint channel, block, image;
    uvec2 position;
    split_place(linear_invocation(), p.groups * p.group_channels, channel, block);
    split_block(block, image, position);
    const uint start = image * p.input_strides[0] + channel * p.input_strides[1];
    const uvec2 first = position + uvec2(p.position_start[1], p.position_start[2]);

    // Beyond the input its edge is read, so that no load is behind a branch, and replaced by 0.
    uint columns[6];
    bool inside[6];
    [[unroll]] for (uint j = 0; j < 6; ++j) {
        const uint column = first.y + j;
        inside[j] = column < p.input_sizes[2];
        columns[j] = (inside[j] ? column : 0) * p.input_strides[4];
    }
    float d[6][6];
    [[unroll]] for (uint i = 0; i < 6; ++i) {
        const uint row = first.x + i;
        const bool row_inside = row < p.input_sizes[1];
        const uint row_start = start + (row_inside ? row : 0) * p.input_strides[3];
        [[unroll]] for (uint j = 0; j < 6; ++j) {
            const float value = load_x(row_start + columns[j]);
            d[i][j] = row_inside && inside[j] ? value : 0.0;
        }
    }
    [[unroll]] for (uint j = 0; j < 6; ++j) {
        float line[6];
        [[unroll]] for (uint i = 0; i < 6; ++i) line[i] = d[i][j];
        window_line(line);
        [[unroll]] for (uint i = 0; i < 6; ++i) d[i][j] = line[i];
    }
    const uint group = channel / p.group_channels;
    const uint target = BYTE_OFFSET_Y / 4 + transformed(group, channel - group * p.group_channels, block);
    [[unroll]] for (uint i = 0; i < 6; ++i) {
        window_line(d[i]);
        [[unroll]] for (uint j = 0; j < 6; ++j) y[target + (6 * i + j) * p.matrix] = d[i][j];
    }
}
