// The gradient of ROI align with respect to the boxes: a workgroup for each region and block of channels.
//
//   d(x1, x2)[r] = scale_x * sum over channels, outputs (oy, ox) and their samples:
//                            (1 - t, t) * slope_x * dy[r, c, oy, ox] / samples
//
// and likewise (y1, y2), where slope_x is how the sample changes along x, and t, which is 0 at x1 and 1 at x2, says where in
// the box it lies; see spec/ops/roi_gradient.py. For MAXIMUM only the largest sample of each output counts, undivided.
//
// Bindings: INPUT (x), INPUT_GRADIENT (dy), ROI (4 coordinates a region), BATCH (indices as 32-bit words), PARTIALS (4 floats
// for each region and block, for roi_align_box_gradient_merge), OUTPUT (4 values a region); any strides.
// Constants: NEAREST, CORNERS, MAXIMUM (0 or 1), BATCH_WORDS (1), FIXED (whether all outputs have SAMPLES samples along
// each axis, which is few, or the box decides), SAMPLES, ROUND (samples that a round of a loop takes), PARTIAL (whether
// results go to PARTIALS, or, where one block has all channels, to OUTPUT).
// Grid: x folded into y, over regions and, fastest, blocks of p.block_channels channels.
//
// An invocation has one output at a time, whose samples it places once, and goes through channels, as many apart as there are
// invocations for the output. Their sums are then added in pairs.

layout(set = 0, binding = BINDING_INPUT, std430) readonly buffer Input { T x[]; };
layout(set = 0, binding = BINDING_INPUT_GRADIENT, std430) readonly buffer InputGradient { T dy[]; };
layout(set = 0, binding = BINDING_ROI, std430) readonly buffer Roi { T boxes[]; };
layout(set = 0, binding = BINDING_BATCH, std430) readonly buffer Batch { uint batch_words[]; };
layout(set = 0, binding = BINDING_PARTIALS, std430) writeonly buffer Partials { float partials[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer Output { T boxes_gradient[]; };

float roi_input(uint element) { return float(x[BYTE_OFFSET_INPUT / T_BYTES + element]); }
float roi_coordinate(uint element) { return float(boxes[BYTE_OFFSET_ROI / T_BYTES + element]); }
uint roi_batch_word(uint word) { return batch_words[BYTE_OFFSET_BATCH / 4 + word]; }

#include "tensor.glsl"
#include "roi.glsl"
#include "roi_batch.glsl"
#define ROI_ROUND ROUND
#include "roi_values.glsl"

shared vec4 sums[LOCAL_SIZE_X];

// How a sample changes along x and along y. Where it lies on a whole pixel, outside the images or at their edge it does not:
// its second pixel has no weight then, as with nearest neighbours. All four pixels are loaded, so that loads overlap; one that
// has no weight does not count.
vec2 slopes(uint image, RoiSample sy, RoiSample sx) {
    const uvec2 rows = image + sy.pixel * p.input_strides[2];
    const uvec2 columns = sx.pixel * p.input_strides[3];
    const vec2 above = vec2(roi_input(rows.x + columns.x), roi_input(rows.x + columns.y));
    const vec2 below = vec2(roi_input(rows.y + columns.x), roi_input(rows.y + columns.y));
    const float along_x = weighted(sy.weight.x, above.y - above.x) + weighted(sy.weight.y, below.y - below.x);
    const float along_y = weighted(sx.weight.x, below.x - above.x) + weighted(sx.weight.y, below.y - above.y);
    return vec2(sx.weight.y != 0.0 ? along_x : 0.0, sy.weight.y != 0.0 ? along_y : 0.0);
}

// Where in the box sample `index` of output o lies along an axis.
float roi_fraction(RoiAxis axis, uint o, uint index) {
    return (float(o) * float(axis.samples) + float(index) + axis.first) / axis.steps;
}

// The gradient of a sample for (x1, y1, x2, y2), from its slopes.
vec4 shares(vec2 slope, vec2 fraction) { return vec4(slope * (1.0 - fraction), slope * fraction); }

// The gradient of the average of placed samples for a dy of 1, without the scales.
vec4 placed_gradient(uint image, RoiSample sy[SAMPLES], RoiSample sx[SAMPLES], vec2 first, vec2 step) {
    vec4 sum = vec4(0.0);
    [[unroll]] for (uint iy = 0; iy < SAMPLES; ++iy)
        [[unroll]] for (uint ix = 0; ix < SAMPLES; ++ix)
            sum += shares(slopes(image, sy[iy], sx[ix]), first + vec2(ix, iy) * step);
    return sum / float(SAMPLES * SAMPLES);
}

// The gradient of any output.
vec4 output_gradient(uint image, RoiAxis y, RoiAxis x, uint oy, uint ox) {
    if (MAXIMUM == 1) {
        RoiSample sy, sx;
        uvec2 index;
        // Outside the border the samples are 0: see roi_align_image_gradient.
        roi_largest(image, y, x, oy, ox, 0.0, sy, sx, index);
        return shares(slopes(image, sy, sx), vec2(roi_fraction(x, ox, index.x), roi_fraction(y, oy, index.y)));
    }
    const uvec2 range_y = roi_inside_range(y, oy, p.input_height);
    const uvec2 range_x = roi_inside_range(x, ox, p.input_width);
    vec4 sum = vec4(0.0);
    for (uint iy = range_y.x; iy < range_y.y; ++iy) {
        const RoiSample sy = roi_sample(y, oy, iy, p.input_height);
        vec4 row = vec4(0.0); // summed by itself: fewer roundings in a row
        for (uint first = range_x.x; first < range_x.y; first += ROUND) {
            [[unroll]] for (uint i = 0; i < ROUND; ++i) {
                if (first + i >= range_x.y) continue;
                const RoiSample sx = roi_sample(x, ox, first + i, p.input_width);
                row += shares(slopes(image, sy, sx), vec2(roi_fraction(x, ox, first + i), roi_fraction(y, oy, iy)));
            }
        }
        sum += row;
    }
    return sum / (float(y.samples) * float(x.samples));
}

void main() {
    const uint lane = gl_LocalInvocationID.x;
    const uint blocks = (p.channels + p.block_channels - 1) / p.block_channels;
    const uint roi = linear_workgroup() / blocks;
    const uint block = linear_workgroup() - roi * blocks;
    if (roi >= p.roi_count) return;
    const uint first_channel = block * p.block_channels;
    const uint channels = min(p.channels, first_channel + p.block_channels);
    const uint plane = p.output_height * p.output_width;
    const uint width = min(plane, LOCAL_SIZE_X); // outputs at a time
    const uint groups = LOCAL_SIZE_X / width;

    uint batch;
    vec4 sum = vec4(0.0);
    if (NEAREST == 0 && roi_batch(roi, batch) && lane < groups * width) {
        const RoiAxis ry = roi_axis_y(roi), rx = roi_axis_x(roi);
        for (uint i = lane % width; i < plane; i += width) {
            const uint oy = i / p.output_width;
            const uint ox = i - oy * p.output_width;
            RoiSample sy[SAMPLES], sx[SAMPLES];
            [[unroll]] for (uint s = 0; s < SAMPLES; ++s) { // for nothing where they are not FIXED
                sy[s] = roi_sample(ry, oy, s, p.input_height);
                sx[s] = roi_sample(rx, ox, s, p.input_width);
            }
            const vec2 first = vec2(roi_fraction(rx, ox, 0), roi_fraction(ry, oy, 0));
            const vec2 step = 1.0 / vec2(rx.steps, ry.steps);
            const uint start = BYTE_OFFSET_INPUT_GRADIENT / T_BYTES + roi * p.gradient_strides[0] +
                oy * p.gradient_strides[2] + ox * p.gradient_strides[3];
            for (uint channel = first_channel + lane / width; channel < channels; channel += groups) {
                const uint image = batch * p.input_strides[0] + channel * p.input_strides[1];
                const float gradient = float(dy[start + channel * p.gradient_strides[1]]);
                const vec4 share = FIXED == 1 ? placed_gradient(image, sy, sx, first, step)
                                              : output_gradient(image, ry, rx, oy, ox);
                // An infinite dy of an output that does not change is no gradient.
                [[unroll]] for (uint j = 0; j < 4; ++j) sum[j] += weighted(share[j], gradient);
            }
        }
    }
    sums[lane] = sum;
    for (uint count = LOCAL_SIZE_X / 2; count > 0; count /= 2) {
        barrier();
        if (lane < count) sums[lane] += sums[lane + count];
    }
    if (lane != 0) return;
    const vec4 result = sums[0] * vec4(p.scale_x, p.scale_y, p.scale_x, p.scale_y);
    [[unroll]] for (uint j = 0; j < 4; ++j) {
        if (PARTIAL == 1)
            partials[BYTE_OFFSET_PARTIALS / 4 + 4 * (roi * blocks + block) + j] = result[j];
        else
            boxes_gradient[BYTE_OFFSET_OUTPUT / T_BYTES + roi * p.box_strides[0] + j * p.box_strides[1]] = T(result[j]);
    }
}
