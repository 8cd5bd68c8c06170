// Where the samples of a region of interest lie, and the pixels that each one reads.
//
// Before including, the kernel declares the uniform block with POSITION_PARAMS (see kernels/roi/manifest.py) and the
// constants NEAREST and CORNERS (0 or 1), and defines float roi_coordinate(uint element), which reads ROITensor.
// roi_batch.glsl says in which image a region lies, roi_values.glsl what its samples are.
//
// Coordinates are `precise` float32 with correctly rounded quotients: how many samples there are, which side of the
// border one falls on and where halves go are questions that an error in the last place would answer differently on
// every device.

#ifndef DMLVK_ROI_GLSL
#define DMLVK_ROI_GLSL

#include "math.glsl"

// Pixels that a sample reads along one axis.
#define TAPS (NEAREST == 1 ? 1u : 2u)

// Along one axis of one region: sample s lies at (s + first) * step + start - InputPixelOffset.
struct RoiAxis {
    float start;
    float step;
    float first;
    float steps;  // that the region's size is divided into
    uint samples; // of one output
};

// One sample along one axis: two pixels and their weights (nearest: the first alone). Outside the border both are 0.
struct RoiSample {
    uvec2 pixel;
    vec2 weight;
};

// a / b rounded correctly, whatever the device's division does: its quotient is corrected by the exact remainder, which
// splitting both factors into halves of 12 bits gives (Veltkamp, Dekker).
float exact_quotient(float a, float b) {
    precise float q = a / b;
    precise float product = q * b;
    precise float q_high = upper_half(q);
    precise float q_low = q - q_high;
    precise float b_high = upper_half(b);
    precise float b_low = b - b_high;
    precise float error = ((q_high * b_high - product) + q_high * b_low + q_low * b_high) + q_low * b_low;
    precise float result = q + ((a - product) - error) / b;
    return result;
}

// The smallest n with n * outputs >= size, between the limits.
uint samples_of_output(float size, float outputs) {
    const float most = 4294967040.0; // the largest float32 below 2^32
    uint count = 0;
    if (size > 0.0) {
        const float estimate = min(floor(size / outputs), most);
        count = uint(estimate);
        // Beyond 2^20 samples the estimate will do. Below, products are exact wherever it matters.
        if (estimate < 1048576.0) {
            count = max(count, 1) - 1;
            while (float(count) * outputs < size) ++count;
        }
    }
    return clamp(count, max(p.minimum_samples, 1), p.maximum_samples);
}

RoiAxis roi_axis(float low, float high, float scale, uint outputs) {
    precise float start = low * scale;
    precise float end = high * scale;
    precise float size = end - start;
    RoiAxis axis;
    axis.start = start;
    axis.samples = samples_of_output(size, float(outputs));
    axis.first = -p.output_pixel_offset;
    axis.steps = float(outputs) * float(axis.samples);
    if (CORNERS == 1) {
        if (axis.steps == 1.0) axis.first = 0.5; // a single sample: the region's middle
        else axis.steps -= 1.0;
    }
    axis.step = exact_quotient(size, axis.steps);
    return axis;
}

// The axes of a region.
RoiAxis roi_axis_x(uint roi) {
    const uint box = roi * p.roi_stride;
    return roi_axis(roi_coordinate(box), roi_coordinate(box + 2 * p.coordinate_stride), p.scale_x, p.output_width);
}

RoiAxis roi_axis_y(uint roi) {
    const uint box = roi * p.roi_stride + p.coordinate_stride;
    return roi_axis(roi_coordinate(box), roi_coordinate(box + 2 * p.coordinate_stride), p.scale_y, p.output_height);
}

// Where sample `index` of output `o` lies along an axis.
float roi_position(RoiAxis axis, uint o, uint index) {
    precise float s = float(o) * float(axis.samples) + float(index);
    precise float position = ((s + axis.first) * axis.step + axis.start) - p.input_pixel_offset;
    return position;
}

// Sample `index` of output `o` along an axis of `pixels` pixels.
RoiSample roi_sample(RoiAxis axis, uint o, uint index, uint pixels) {
    const float position = roi_position(axis, o, index);
    RoiSample result = RoiSample(uvec2(0), vec2(0));
    if (position >= -1.0 && position <= float(pixels)) { // false for NaN
        const float inside = clamp(position, 0.0, float(pixels - 1));
        if (NEAREST == 1) {
            result.pixel.x = min(uint(ceil(max(inside - 0.5, 0.0))), pixels - 1);
            result.weight.x = 1.0;
        } else {
            const float low = floor(inside);
            result.pixel = min(uvec2(low, low + 1.0), uvec2(pixels - 1));
            result.weight = vec2(1.0 - (inside - low), inside - low);
        }
    }
    return result;
}

bool is_inside(RoiSample s) { return s.weight.x + s.weight.y != 0.0; }

// Samples along an axis that may lie from position `low` to `high`: fractions of their numbers, counted from output 0. Found
// by arithmetic instead of one by one, so that a huge box costs no more than the image has room for; `slack` covers the
// roundings of a sample's number and of its position.
vec2 roi_span(RoiAxis axis, float low, float high) {
    if (axis.step == 0.0) return vec2(-INFINITY, INFINITY);
    const float offset = p.input_pixel_offset - axis.start;
    const float a = (offset + low) / axis.step - axis.first;
    const float b = (offset + high) / axis.step - axis.first;
    const float slack = 0.01 + 1e-6 * (abs(offset / axis.step) + abs(axis.first) + abs(a) + abs(b));
    const vec2 span = vec2(min(a, b) - slack, max(a, b) + slack);
    return span.x <= span.y ? span : vec2(INFINITY, -INFINITY); // none of a box that is NaN or infinite
}

// Of output `o`, the samples in such a span: from .x to before .y.
uvec2 roi_range(RoiAxis axis, vec2 span, uint o) {
    const float most = min(float(axis.samples), 4294967040.0);
    const float origin = float(o) * float(axis.samples);
    const float first = clamp(ceil(span.x - origin), 0.0, most);
    const float end = clamp(floor(span.y - origin) + 1.0, 0.0, most);
    return first < end ? min(uvec2(first, end), uvec2(axis.samples)) : uvec2(0);
}

// Of output `o`, the samples that may lie inside the border. A few are not worth the arithmetic.
uvec2 roi_inside_range(RoiAxis axis, uint o, uint pixels) {
    if (axis.samples <= 64) return uvec2(0, axis.samples);
    return roi_range(axis, roi_span(axis, -1.0, float(pixels)), o);
}

#endif
