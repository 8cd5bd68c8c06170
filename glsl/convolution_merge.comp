// Adds the partial sums of a convolution whose depth was split, in the order of the parts, and finishes them.
//
//   y[n, k, o] = activation(bias[k] + sum over splits of partials[split, k, pixel])
//
// Bindings: X, the partial sums in float32, rows of p.partial_pitch (a multiple of 4) numbers; W, unused; BIAS, Y: see
// include/convolution.glsl. Constants: LOCAL_SIZE_X (128); BY_PIXEL (0): a row has the channels of a pixel, else the pixels of
// a channel; Y_QUADS (1): what rows count lies in whole aligned quads in Y, too; HAS_BIAS (1), the activation's id.
// Grid: linear over quads of sums, row by row; pixels are counted W fastest, batch included.
//
// A fixed order, so the same bits every time. Follows convolution_tiled and convolution_cooperative where they split.

#include "tensor.glsl"
#include "quads.glsl"
#include "convolution.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer Partials { vec4 partials[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YQuads { QUAD y_quads[]; };

void main() {
    const uint quads = p.partial_pitch / 4;
    const uint count = quads * (BY_PIXEL != 0 ? p.pixels : p.output_sizes[1]);
    if (beyond(count)) return;
    const uint place = BYTE_OFFSET_X / 16 + linear_invocation();
    vec4 sum = vec4(0);
    for (uint split = 0; split < p.splits; split += LOADED) {
        vec4 parts[LOADED];
        [[unroll]] for (uint i = 0; i < LOADED; ++i) parts[i] = partials[min(split + i, p.splits - 1) * count + place];
        [[unroll]] for (uint i = 0; i < LOADED; ++i)
            if (split + i < p.splits) sum += parts[i];
    }
    const uint row = linear_invocation() / quads;
    const uint column = (linear_invocation() - row * quads) * 4;
    const uint channel = BY_PIXEL != 0 ? column : row, pixel = BY_PIXEL != 0 ? row : column;
    uint batch;
    uvec3 o;
    if (Y_QUADS != 0) {
        split_pixel(pixel, batch, o);
        const uint element = output_element(batch, channel, o);
        vec4 biases;
        [[unroll]] for (uint i = 0; i < 4; ++i) biases[i] = load_bias(BY_PIXEL != 0 ? channel + i : channel);
        y_quads[(BYTE_OFFSET_Y / T_BYTES + element) / 4] =
            pack_quad(finished(sum, biases, unpack_quad(load_addend_quad(element))));
        return;
    }
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        if (pixel + i >= p.pixels) return;
        split_pixel(pixel + i, batch, o);
        store(batch, channel, o, sum[i]);
    }
}
