// ROI align, a workgroup for each region and block of channels, sample positions in shared tables.
//
//   y[r, c, oy, ox] = average or maximum over the samples of output (oy, ox) of region r, which interpolate
//                     x[batch_indices[r], c, ...]; see ops/resampling.py (RoiAlign1) and include/roi.glsl
//
// Bindings: INPUT, ROI (4 coordinates a region), BATCH (indices as 32-bit words), OUTPUT; any strides.
// Constants: NEAREST, CORNERS, MAXIMUM (0 or 1), BATCH_WORDS (1 or 2 words an index), SAMPLES (samples of an output
// along each axis, 0 where the box's size decides), ROWS and COLUMNS (entries of the tables), PARTIALS (of the buffer).
// Grid: x folded into y, over blocks of p.block_channels channels and, fastest, regions.
//
// Interpolation is separable: out[oy, ox] = sum over columns of weight * (sum over rows of weight * x[row, column]).
// The rows and columns that the samples read, and their weights, are the same for all channels, and are worked out once
// into the tables. Then an invocation takes one column of one channel and adds up its rows, output row after output row;
// neighbours take neighbouring columns, so that an access reads a short stretch of one image row and not as many cache
// lines as invocations. The columns' partial results meet in shared memory, from which each output gathers its own.
// For MAXIMUM, which does not separate, a column is a whole sample, and an invocation interpolates at each.
//
// Regions are the fastest dimension of the grid so that the workgroups in flight together read the same few channels of
// all images: these stay in the cache until every region has read them. A region whose samples do not fit the tables is
// left to roi_output, output by output. Chosen wherever rows are what memory runs along.

layout(set = 0, binding = BINDING_INPUT, std430) readonly buffer Input { T x[]; };
layout(set = 0, binding = BINDING_ROI, std430) readonly buffer Roi { T boxes[]; };
layout(set = 0, binding = BINDING_BATCH, std430) readonly buffer Batch { uint batch_words[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer Output { T y[]; };

float roi_input(uint element) { return float(x[BYTE_OFFSET_INPUT / T_BYTES + element]); }
float roi_coordinate(uint element) { return float(boxes[BYTE_OFFSET_ROI / T_BYTES + element]); }
uint roi_batch_word(uint word) { return batch_words[BYTE_OFFSET_BATCH / 4 + word]; }

#include "tensor.glsl"
#include "roi.glsl"

// Entry TAPS * sample + tap: the element offset of the row or column, and the weight's bits.
shared uvec2 rows[ROWS];
shared uvec2 columns[COLUMNS];
shared float partials[PARTIALS];

void store(uint roi, uint channel, uint oy, uint ox, float value) {
    const uint element = roi * p.output_strides[0] + channel * p.output_strides[1] + oy * p.output_strides[2] +
        ox * p.output_strides[3];
    y[BYTE_OFFSET_OUTPUT / T_BYTES + element] = T(value);
}

uvec2 table_entry(RoiSample s, uint tap, uint stride) {
    return uvec2(s.pixel[tap] * stride, floatBitsToUint(s.weight[tap]));
}

float row_weight(uint entry) { return uintBitsToFloat(rows[entry].y); }
float column_weight(uint entry) { return uintBitsToFloat(columns[entry].y); }
bool row_is_inside(uint s) { return row_weight(TAPS * s) + row_weight(TAPS * s + TAPS - 1) != 0.0; }
bool column_is_inside(uint s) { return column_weight(TAPS * s) + column_weight(TAPS * s + TAPS - 1) != 0.0; }

// The average's share of one column in output row oy: its weight times the weighted sum of the rows.
float column_sum(uint image, uint column, uint oy, uint samples) {
    const float weight = column_weight(column);
    const uint start = image + columns[column].x;
    const uint first = oy * samples * TAPS;
    float sum = 0.0;
    [[unroll]] for (uint r = 0; r < samples * TAPS; ++r) {
        const uvec2 row = rows[first + r];
        sum += weighted(uintBitsToFloat(row.y), roi_input(start + row.x));
    }
    return weighted(weight, sum);
}

// The maximum of one column of samples in output row oy.
float column_max(uint image, uint column, uint oy, uint samples) {
    const bool outside = !column_is_inside(column);
    float result = -INFINITY;
    for (uint s = oy * samples; s < (oy + 1) * samples; ++s) {
        float value = p.out_of_bounds_input_value;
        if (!outside && row_is_inside(s)) {
            value = 0.0;
            [[unroll]] for (uint ty = 0; ty < TAPS; ++ty) {
                [[unroll]] for (uint tx = 0; tx < TAPS; ++tx) {
                    const float weight = row_weight(TAPS * s + ty) * column_weight(TAPS * column + tx);
                    const uint element = image + rows[TAPS * s + ty].x + columns[TAPS * column + tx].x;
                    if (weight != 0.0) value += weight * roi_input(element);
                }
            }
        }
        result = roi_max(result, value);
    }
    return result;
}

// An output from its columns' partial results, of which the first is at `first`.
float gather(uint first, uint oy, uint ox, uint samples_y, uint samples_x) {
    if (MAXIMUM == 1) {
        float result = -INFINITY;
        for (uint i = 0; i < samples_x; ++i) result = roi_max(result, partials[first + i]);
        return result;
    }
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < samples_x * TAPS; ++i) sum += partials[first + i];
    const float count = float(samples_y) * float(samples_x);
    if (p.out_of_bounds_input_value != 0.0) {
        uvec2 inside = uvec2(0);
        for (uint i = 0; i < samples_y; ++i) inside.y += uint(row_is_inside(oy * samples_y + i));
        for (uint i = 0; i < samples_x; ++i) inside.x += uint(column_is_inside(ox * samples_x + i));
        const float outside = count - float(inside.y) * float(inside.x);
        if (outside > 0.0) sum += outside * p.out_of_bounds_input_value;
    }
    return sum / count;
}

void main() {
    const uint lane = gl_LocalInvocationID.x;
    const uint block = linear_workgroup() / p.roi_count;
    const uint roi = linear_workgroup() - block * p.roi_count;
    const uint first_channel = block * p.block_channels;
    if (first_channel >= p.channels) return;
    const uint channels = min(p.block_channels, p.channels - first_channel);
    const uint plane = p.output_height * p.output_width;

    uint batch;
    const bool batch_exists = roi_batch(roi, batch);
    const uint image = (batch_exists ? batch : 0) * p.input_strides[0];
    RoiAxis ry, rx;
    roi_axes(roi, ry, rx);
    const uint samples_y = SAMPLES != 0 ? SAMPLES : ry.samples;
    const uint samples_x = SAMPLES != 0 ? SAMPLES : rx.samples;

    if (!batch_exists || samples_y > ROWS / (TAPS * p.output_height) || samples_x > COLUMNS / (TAPS * p.output_width)) {
        for (uint i = lane; i < channels * plane; i += LOCAL_SIZE_X) {
            const uint channel = first_channel + i / plane;
            const uint oy = i % plane / p.output_width;
            const uint ox = i % p.output_width;
            const float value = batch_exists
                ? roi_output(image + channel * p.input_strides[1], ry, rx, oy, ox)
                : p.out_of_bounds_input_value;
            store(roi, channel, oy, ox, value);
        }
        return;
    }

    for (uint s = lane; s < p.output_height * samples_y; s += LOCAL_SIZE_X) {
        const RoiSample at = roi_sample(ry, s / samples_y, s % samples_y, p.input_height);
        for (uint tap = 0; tap < TAPS; ++tap) rows[TAPS * s + tap] = table_entry(at, tap, p.input_strides[2]);
    }
    for (uint s = lane; s < p.output_width * samples_x; s += LOCAL_SIZE_X) {
        const RoiSample at = roi_sample(rx, s / samples_x, s % samples_x, p.input_width);
        for (uint tap = 0; tap < TAPS; ++tap) columns[TAPS * s + tap] = table_entry(at, tap, p.input_strides[3]);
    }
    barrier();

    // As many channels a round as there are invocations for their columns and room for their partial results; of a single
    // channel, as many output rows as there is room for.
    const uint output_columns = MAXIMUM == 1 ? samples_x : samples_x * TAPS;
    const uint column_count = p.output_width * output_columns;
    const uint line = column_count | 1; // odd: the gathering invocations then meet different banks
    const uint round_rows = min(p.output_height, PARTIALS / line);
    const uint round_channels = max(min(PARTIALS / (line * p.output_height), LOCAL_SIZE_X / column_count), 1);
    for (uint c0 = 0; c0 < channels; c0 += round_channels) {
        const uint channel_count = min(round_channels, channels - c0);
        for (uint y0 = 0; y0 < p.output_height; y0 += round_rows) {
            const uint row_count = min(round_rows, p.output_height - y0);
            for (uint i = lane; i < channel_count * column_count; i += LOCAL_SIZE_X) {
                const uint c = i / column_count;
                const uint column = i - c * column_count;
                const uint channel_image = image + (first_channel + c0 + c) * p.input_strides[1];
                for (uint row = 0; row < row_count; ++row) {
                    partials[(c * row_count + row) * line + column] = MAXIMUM == 1
                        ? column_max(channel_image, column, y0 + row, samples_y)
                        : column_sum(channel_image, column, y0 + row, samples_y);
                }
            }
            barrier();
            for (uint i = lane; i < channel_count * row_count * p.output_width; i += LOCAL_SIZE_X) {
                const uint l = i / p.output_width;
                const uint ox = i - l * p.output_width;
                const uint c = l / row_count;
                const uint oy = y0 + l - c * row_count;
                const float value = gather(l * line + ox * output_columns, oy, ox, samples_y, samples_x);
                store(roi, first_channel + c0 + c, oy, ox, value);
            }
            barrier();
        }
    }
}
