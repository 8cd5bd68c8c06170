// What every convolution schedule shares: where a tap of the window reads, and how a finished sum is stored.
//
// Both directions gather. Along each of the three spatial dimensions (D, H, W; size 1 where the tensor has fewer), the
// output position o meets tap t at the input position
//   q / divisor   with   q = o * position_step + t * tap_step + position_start   (modulo 2^32: signed)
// if q is a multiple of the divisor and the result lies inside the input:
//   FORWARD    position_step = stride, tap_step = dilation,  position_start = -start padding, divisor = 1
//   BACKWARD   position_step = 1,      tap_step = -dilation, position_start = start padding,  divisor = stride
// A reversed filter is one with negative tap strides and an offset, so no shader knows about modes.
//
// Needs the parameter block and the bindings of the convolution rows of the manifest, and declares the buffers:
//   X    input   [N, C, D, H, W], p.input_strides
//   W    filter  element p.filter_offset + group * p.filter_group_stride
//                + output channel in the group * p.filter_strides[0] + input channel in the group * p.filter_strides[1]
//                + taps * p.filter_strides[2..4]
//   BIAS one value an output channel, p.bias_stride apart; unused where HAS_BIAS is 0
//   ADDEND  of kernels that have it: added to each output before the activation, laid out as Y; unused where HAS_ADDEND is 0
//   Y    output  [N, K, D, H, W], p.output_strides, from element p.output_start on

#ifndef DMLVK_CONVOLUTION_GLSL
#define DMLVK_CONVOLUTION_GLSL

#include "activation.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer X { T x[]; };
layout(set = 0, binding = BINDING_W, std430) readonly buffer W { T w[]; };
layout(set = 0, binding = BINDING_BIAS, std430) readonly buffer Bias { T bias[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { T y[]; };

#ifdef BINDING_ADDEND
layout(set = 0, binding = BINDING_ADDEND, std430) readonly buffer Addend { T addend[]; };
float load_addend(uint element) { return HAS_ADDEND != 0 ? float(addend[BYTE_OFFSET_ADDEND / T_BYTES + element]) : 0.0; }
#ifdef QUAD
layout(set = 0, binding = BINDING_ADDEND, std430) readonly buffer AddendQuads { QUAD addend_quads[]; };
QUAD load_addend_quad(uint element) {
    return HAS_ADDEND != 0 ? addend_quads[(BYTE_OFFSET_ADDEND / T_BYTES + element) / 4] : QUAD(0);
}
#endif
#else
float load_addend(uint element) { return 0.0; }
#endif

float load_x(uint element) { return float(x[BYTE_OFFSET_X / T_BYTES + element]); }
float load_w(uint element) { return float(w[BYTE_OFFSET_W / T_BYTES + p.filter_offset + element]); }
float load_bias(uint channel) { return HAS_BIAS != 0 ? float(bias[BYTE_OFFSET_BIAS / T_BYTES + channel * p.bias_stride]) : 0.0; }

// The input position, along spatial dimension `dim`, of an output position o under tap `t`, and whether there is one; `start`
// is what o alone gives, o * position_step + position_start.
bool source_at(int dim, uint start, uint t, out uint position) {
    const uint q = start + t * p.tap_step[dim];
    position = q;
    if (HAS_DIVISOR != 0) {
        position = q / p.divisor[dim];
        if (int(q) < 0 || position * p.divisor[dim] != q) return false;
    }
    return position < p.input_sizes[dim];
}

// source_at for the output position itself.
bool source_position(int dim, uint o, uint t, out uint position) {
    return source_at(dim, o * p.position_step[dim] + p.position_start[dim], t, position);
}

// Splits a linear pixel, W fastest, into the batch index and the output position.
void split_pixel(uint pixel, out uint batch, out uvec3 o) {
    uint rest = pixel / p.output_sizes[4];
    o.z = pixel - rest * p.output_sizes[4];
    uint next = rest / p.output_sizes[3];
    o.y = rest - next * p.output_sizes[3];
    batch = next / p.output_sizes[2];
    o.x = next - batch * p.output_sizes[2];
}

uint output_element(uint batch, uint channel, uvec3 o) {
    return p.output_start + batch * p.output_strides[0] + channel * p.output_strides[1] + o.x * p.output_strides[2] +
        o.y * p.output_strides[3] + o.z * p.output_strides[4];
}

// Whether the position lies in the output padding, which is zero whatever the bias and the activation.
bool is_padding(uvec3 o) { return o.x >= p.computed_sizes[0] || o.y >= p.computed_sizes[1] || o.z >= p.computed_sizes[2]; }

// The output for a sum with its bias.
float activated(float value) {
    return activate_scaled(ACTIVATION, value, p.param0, p.param1, p.clip_scale, p.clip_bias);
}

// Four finished sums outside the output padding.
vec4 finished(vec4 sum, vec4 biases, vec4 addends) {
    vec4 values;
    [[unroll]] for (uint i = 0; i < 4; ++i) values[i] = activated(sum[i] + biases[i] + addends[i]);
    return values;
}

// Kernels that have the bias already say so before they include this. A macro: with a function more that store_sum called,
// convolution_cooperative took ten times as long (H200, driver 580).
#ifndef BIAS_OF
#define BIAS_OF(channel) load_bias(channel)
#endif

// Adds the bias and the addend to a finished sum, applies the activation and stores it. A kernel with several sums loads all
// addends first: a load waits for the stores before it, which may be to the same memory.
void store_sum(uint batch, uint channel, uvec3 o, float sum, float more) {
    const float value = is_padding(o) ? 0.0 : activated(sum + BIAS_OF(channel) + more);
    y[BYTE_OFFSET_Y / T_BYTES + output_element(batch, channel, o)] = T(value);
}

void store(uint batch, uint channel, uvec3 o, float sum) {
    store_sum(batch, channel, o, sum, load_addend(output_element(batch, channel, o)));
}

#endif
