// Winograd's transform of a 3x3 filter: G w G^T for each pair of output and input channels.
//
// Bindings: X, BIAS unused; W the filter; Y the transformed filter, {group, place, input channel, output channel} with
// p.channel_step between input channels; see include/winograd.glsl. Constants: those of convolution.glsl, unused.
// Grid: linear over {group, input channel, output channel}.
//
// Once, at initialisation, for a filter that is OWNED_BY_DML; else before each execution.

#include "tensor.glsl"
#include "convolution.glsl"
#include "winograd.glsl"

void main() {
    if (beyond(p.count)) return;
    const uint row = linear_invocation() / p.group_outputs;
    const uint output_channel = linear_invocation() - row * p.group_outputs;
    const uint group = row / p.group_channels;
    const uint channel = row - group * p.group_channels;
    const uint start =
        group * p.filter_group_stride + output_channel * p.filter_strides[0] + channel * p.filter_strides[1];
    float lines[6][3];
    [[unroll]] for (uint j = 0; j < 3; ++j) {
        float taps[3];
        [[unroll]] for (uint i = 0; i < 3; ++i)
            taps[i] = load_w(start + i * p.filter_strides[3] + j * p.filter_strides[4]);
        const float line[6] = filter_line(taps);
        [[unroll]] for (uint i = 0; i < 6; ++i) lines[i][j] = line[i];
    }
    const uint target = BYTE_OFFSET_Y / 4 + transformed(group, channel, output_channel);
    [[unroll]] for (uint i = 0; i < 6; ++i) {
        const float line[6] = filter_line(lines[i]);
        [[unroll]] for (uint j = 0; j < 6; ++j) y[target + (6 * i + j) * p.matrix] = line[j];
    }
}
