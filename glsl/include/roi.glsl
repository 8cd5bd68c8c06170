// Where the samples of a region of interest lie, and the pixels that each one reads.
//
// Before including, the kernel declares the uniform block with scale_x ... maximum_samples (see kernels/manifest/roi.py)
// and the constants NEAREST, CORNERS, MAXIMUM (0 or 1). It defines float roi_input(uint element) and
// float roi_coordinate(uint element), which read InputTensor and ROITensor, and uint roi_batch_word(uint word).
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
    float steps = float(outputs) * float(axis.samples);
    if (CORNERS == 1) {
        if (steps == 1.0) axis.first = 0.5; // a single sample: the region's middle
        else steps -= 1.0;
    }
    axis.step = exact_quotient(size, steps);
    return axis;
}

// The axes of a region.
void roi_axes(uint roi, out RoiAxis y, out RoiAxis x) {
    const uint box = roi * p.roi_stride;
    x = roi_axis(roi_coordinate(box), roi_coordinate(box + 2 * p.coordinate_stride), p.scale_x, p.output_width);
    y = roi_axis(roi_coordinate(box + p.coordinate_stride), roi_coordinate(box + 3 * p.coordinate_stride), p.scale_y,
                 p.output_height);
}

// Whether the region's batch index is one of the input's, and the index. The index has BATCH_WORDS 32-bit words.
bool roi_batch(uint roi, out uint batch) {
    const uint word = roi * p.batch_stride * BATCH_WORDS;
    batch = roi_batch_word(word);
    const bool small = BATCH_WORDS == 1 || roi_batch_word(word + BATCH_WORDS - 1) == 0;
    return small && batch < p.batch_count;
}

// Sample `index` of output `o` along an axis of `pixels` pixels.
RoiSample roi_sample(RoiAxis axis, uint o, uint index, uint pixels) {
    precise float s = float(o) * float(axis.samples) + float(index);
    precise float position = ((s + axis.first) * axis.step + axis.start) - p.input_pixel_offset;
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

// weight * value; 0 where the weight is 0, whatever the value.
float weighted(float weight, float value) { return weight == 0.0 ? 0.0 : weight * value; }

// The larger value, NaN being larger than any.
float roi_max(float a, float b) { return is_nan(a) || a >= b ? a : b; }

// Samples of output `o` that may lie inside the border: from .x to before .y. Where there are many samples the others
// are found by arithmetic instead of one by one, so that a huge box costs no more than the image has room for.
uvec2 roi_inside_range(RoiAxis axis, uint o, uint pixels) {
    const uvec2 all = uvec2(0, axis.samples);
    if (axis.samples <= 64 || axis.step == 0.0) return all;
    const float origin = float(o) * float(axis.samples) + axis.first;
    const float offset = p.input_pixel_offset - axis.start;
    const float a = (offset - 1.0) / axis.step - origin;
    const float b = (offset + float(pixels)) / axis.step - origin;
    const float slack = 2.0 + 1e-5 * (abs(offset / axis.step) + abs(origin) + float(pixels));
    const float first = floor(min(a, b) - slack);
    const float end = ceil(max(a, b) + slack);
    if (!(first < end) || is_infinite(first) || is_infinite(end)) return uvec2(0);
    const float most = min(float(axis.samples), 4294967040.0);
    return min(uvec2(clamp(vec2(first, end), 0.0, most)), uvec2(axis.samples));
}

// One output, sample by sample: the general form. `image` is the element of the channel's first pixel.
float roi_output(uint image, RoiAxis y, RoiAxis x, uint oy, uint ox) {
    const uvec2 range_y = roi_inside_range(y, oy, p.input_height);
    const uvec2 range_x = roi_inside_range(x, ox, p.input_width);
    float total = MAXIMUM == 1 ? -INFINITY : 0.0;
    float inside = 0.0;
    for (uint iy = range_y.x; iy < range_y.y; ++iy) {
        const RoiSample sy = roi_sample(y, oy, iy, p.input_height);
        if (!is_inside(sy)) continue;
        const uvec2 rows = image + sy.pixel * p.input_strides[2];
        float row = 0.0; // summed by itself: fewer roundings in a row
        for (uint ix = range_x.x; ix < range_x.y; ++ix) {
            const RoiSample sx = roi_sample(x, ox, ix, p.input_width);
            if (!is_inside(sx)) continue;
            const uvec2 columns = sx.pixel * p.input_strides[3];
            float value = 0.0;
            [[unroll]] for (uint ty = 0; ty < TAPS; ++ty) {
                [[unroll]] for (uint tx = 0; tx < TAPS; ++tx) {
                    const float weight = sy.weight[ty] * sx.weight[tx];
                    if (weight != 0.0) value += weight * roi_input(rows[ty] + columns[tx]);
                }
            }
            inside += 1.0;
            if (MAXIMUM == 1) total = roi_max(total, value);
            else row += value;
        }
        if (MAXIMUM == 0) total += row;
    }
    const float count = float(y.samples) * float(x.samples);
    if (MAXIMUM == 1) return inside < count ? roi_max(total, p.out_of_bounds_input_value) : total;
    if (inside < count) total += (count - inside) * p.out_of_bounds_input_value;
    return total / count;
}

#endif
