// What the samples of a region of interest are: pixels interpolated, and outputs made of them.
//
// Before including, the kernel includes roi.glsl, declares input_height, input_width and input_strides[4] of InputTensor
// in the uniform block and the constant MAXIMUM (0 or 1), and defines float roi_input(uint element), which reads it. It may
// define ROI_ROUND, samples along x that a round of a loop takes: a CPU's driver counts rounds.

#ifndef DMLVK_ROI_VALUES_GLSL
#define DMLVK_ROI_VALUES_GLSL

#include "accumulate.glsl"

#ifndef ROI_ROUND
#define ROI_ROUND 1
#endif

// weight * value; 0 where the weight is 0, whatever the value.
float weighted(float weight, float value) { return weight == 0.0 ? 0.0 : weight * value; }

// Whether a counts as the larger of two values, NaN being larger than any and the first of equal ones.
bool is_larger_or_equal(float a, float b) { return is_nan(a) || a >= b; }

float roi_max(float a, float b) { return is_larger_or_equal(a, b) ? a : b; }

// One sample inside the border. `image` is the element of the channel's first pixel. Rounded product by product, as everywhere
// else, so that the largest of an output's samples is the same one on every device.
float roi_value(uint image, RoiSample sy, RoiSample sx) {
    const uvec2 rows = image + sy.pixel * p.input_strides[2];
    const uvec2 columns = sx.pixel * p.input_strides[3];
    precise float value = 0.0;
    [[unroll]] for (uint ty = 0; ty < TAPS; ++ty) {
        [[unroll]] for (uint tx = 0; tx < TAPS; ++tx) {
            precise float weight = sy.weight[ty] * sx.weight[tx];
            if (weight != 0.0) value += weight * roi_input(rows[ty] + columns[tx]);
        }
    }
    return value;
}

// The largest sample of an output, of which those outside the border are `outside`. Of equal ones it is the first, y before
// x, but one inside; its pixels have no weights where it lies outside. `index` is its number along x and y.
float roi_largest(uint image, RoiAxis y, RoiAxis x, uint oy, uint ox, float outside,
                  out RoiSample at_y, out RoiSample at_x, out uvec2 index) {
    const uvec2 range_y = roi_inside_range(y, oy, p.input_height);
    const uvec2 range_x = roi_inside_range(x, ox, p.input_width);
    float most = -INFINITY;
    float inside = 0.0;
    at_y = at_x = RoiSample(uvec2(0), vec2(0));
    index = uvec2(0);
    for (uint iy = range_y.x; iy < range_y.y; ++iy) {
        const RoiSample sy = roi_sample(y, oy, iy, p.input_height);
        if (!is_inside(sy)) continue;
        for (uint first = range_x.x; first < range_x.y; first += ROI_ROUND) {
            [[unroll]] for (uint i = 0; i < ROI_ROUND; ++i) {
                const uint ix = first + i;
                const RoiSample sx = roi_sample(x, ox, ix, p.input_width);
                if (ix >= range_x.y || !is_inside(sx)) continue;
                const float value = roi_value(image, sy, sx);
                if (inside == 0.0 || !is_larger_or_equal(most, value)) {
                    most = value;
                    at_y = sy;
                    at_x = sx;
                    index = uvec2(ix, iy);
                }
                inside += 1.0;
            }
        }
    }
    if (inside < float(y.samples) * float(x.samples) && !(inside > 0.0 && is_larger_or_equal(most, outside))) {
        most = outside;
        at_y = at_x = RoiSample(uvec2(0), vec2(0));
    }
    return most;
}

// Adds to a sum of `count` numbers. Of many, what rounding has kept out of the sum is kept as well: otherwise the error of an
// average grows with its samples, to 49 ULP at 700 along each axis.
void roi_add(inout float sum, inout float lost, float value, uint count) {
    if (count > 32) add_compensated(sum, lost, value);
    else sum += value;
}

// The average of `count` samples, of which `inside` add up to `total` and the others are `outside`. That counts by its share,
// because its sum may be beyond float32 where the average is not.
float roi_mean(float total, float inside, float count, float outside) {
    const float mean = total / count;
    return inside < count ? mean + outside * ((count - inside) / count) : mean;
}

// The average of an output's samples, of which those outside the border are `outside`.
float roi_average(uint image, RoiAxis y, RoiAxis x, uint oy, uint ox, float outside) {
    const uvec2 range_y = roi_inside_range(y, oy, p.input_height);
    const uvec2 range_x = roi_inside_range(x, ox, p.input_width);
    float total = 0.0, total_lost = 0.0;
    float inside = 0.0;
    for (uint iy = range_y.x; iy < range_y.y; ++iy) {
        const RoiSample sy = roi_sample(y, oy, iy, p.input_height);
        if (!is_inside(sy)) continue;
        float row = 0.0, row_lost = 0.0; // summed by itself: fewer roundings in a row
        for (uint first = range_x.x; first < range_x.y; first += ROI_ROUND) {
            [[unroll]] for (uint i = 0; i < ROI_ROUND; ++i) {
                const RoiSample sx = roi_sample(x, ox, first + i, p.input_width);
                if (first + i >= range_x.y || !is_inside(sx)) continue;
                roi_add(row, row_lost, roi_value(image, sy, sx), x.samples);
                inside += 1.0;
            }
        }
        roi_add(total, total_lost, row, y.samples);
    }
    return roi_mean(total, inside, float(y.samples) * float(x.samples), outside);
}

// One output, sample by sample: the general form.
float roi_output(uint image, RoiAxis y, RoiAxis x, uint oy, uint ox, float outside) {
    RoiSample at_y, at_x;
    uvec2 index;
    if (MAXIMUM == 1) return roi_largest(image, y, x, oy, ox, outside, at_y, at_x, index);
    return roi_average(image, y, x, oy, ox, outside);
}

#endif
