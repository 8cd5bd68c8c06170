// Adds the partial sums of a convolution whose depth was split, in the order of the parts, and finishes them.
//
//   y[n, k, o] = activation(bias[k] + sum over splits of partials[split, k, pixel])
//
// Bindings: X, the partial sums in float32, rows of p.partial_pitch (a multiple of 4) numbers; W, unused; BIAS, Y: see
// include/convolution.glsl. Constants: LOCAL_SIZE_X (128); Y_QUADS (1): planes hold pixels in whole aligned quads; HAS_BIAS (1),
// the activation's id.
// Grid: linear over quads of sums, pixels fastest (batch included, W fastest), then channels.
//
// A fixed order, so the same bits every time. Follows convolution_tiled where that splits.

#include "tensor.glsl"
#include "quads.glsl"
#include "convolution.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer Partials { vec4 partials[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YQuads { QUAD y_quads[]; };

// Partial sums that are under way at a time.

void main() {
    const uint quads = p.partial_pitch / 4;
    const uint count = quads * p.output_sizes[1];
    if (beyond(count)) return;
    const uint place = BYTE_OFFSET_X / 16 + linear_invocation();
    vec4 sum = vec4(0);
    for (uint split = 0; split < p.splits; split += LOADED) {
        vec4 parts[LOADED];
        [[unroll]] for (uint i = 0; i < LOADED; ++i) parts[i] = partials[min(split + i, p.splits - 1) * count + place];
        [[unroll]] for (uint i = 0; i < LOADED; ++i)
            if (split + i < p.splits) sum += parts[i];
    }
    const uint channel = linear_invocation() / quads;
    const uint pixel = (linear_invocation() - channel * quads) * 4;
    uint batch;
    uvec3 o;
    if (Y_QUADS != 0) {
        split_pixel(pixel, batch, o);
        const uint element = output_element(batch, channel, o);
        y_quads[(BYTE_OFFSET_Y / T_BYTES + element) / 4] =
            pack_quad(finished(sum, vec4(load_bias(channel)), unpack_quad(load_addend_quad(element))));
        return;
    }
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        if (pixel + i >= p.pixels) return;
        split_pixel(pixel + i, batch, o);
        store(batch, channel, o, sum[i]);
    }
}
