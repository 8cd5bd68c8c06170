// ROI align, a workgroup for each region and block of channels, sample positions in shared tables.
//
//   y[r, c, oy, ox] = average or maximum over the samples of output (oy, ox) of region r, which interpolate
//                     x[batch_indices[r], c, ...]; see spec/ops/roi.py (RoiAlign1), include/roi.glsl and roi_values.glsl
//
// Bindings: INPUT, ROI (4 coordinates a region), BATCH (indices as 32-bit words), OUTPUT; any strides.
// Constants: NEAREST, CORNERS, MAXIMUM (0 or 1), BATCH_WORDS (1 or 2 words an index), SAMPLES (samples of an output
// along each axis, which then fit the tables; 0 where the box's size decides), ROWS (samples that the table of rows has
// room for), COLUMNS (entries of the table of columns), PARTIALS (of the buffer), OUTPUT_ROWS (that an invocation works
// on together: reads in flight).
// Grid: x folded into y, over blocks of p.block_channels channels and, fastest, regions.
//
// Interpolation is separable: out[oy, ox] = sum over columns of weight * (sum over rows of weight * x[row, column]).
// The rows and columns that the samples read, and their weights, are the same for all channels, and are worked out once
// into the tables. Then an invocation takes one column of one channel and adds up its rows for every output row;
// neighbours take neighbouring columns, so that an access reads a short stretch of one image row and not as many cache
// lines as invocations. The columns' partial results meet in shared memory, from which each output gathers its own.
// For MAXIMUM, which does not separate, a column is a whole sample, and an invocation interpolates at each.
//
// Regions are the fastest dimension of the grid so that the workgroups in flight together read the same few channels of
// all images: these stay in the cache until every region has read them. A region whose samples do not fit the tables is
// left to roi_output, output by output. Chosen on GPUs wherever rows are what memory runs along.

layout(set = 0, binding = BINDING_INPUT, std430) readonly buffer Input { T x[]; };
layout(set = 0, binding = BINDING_ROI, std430) readonly buffer Roi { T boxes[]; };
layout(set = 0, binding = BINDING_BATCH, std430) readonly buffer Batch { uint batch_words[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer Output { T y[]; };

float roi_input(uint element) { return float(x[BYTE_OFFSET_INPUT / T_BYTES + element]); }
float roi_coordinate(uint element) { return float(boxes[BYTE_OFFSET_ROI / T_BYTES + element]); }
uint roi_batch_word(uint word) { return batch_words[BYTE_OFFSET_BATCH / 4 + word]; }

#include "tensor.glsl"
#include "roi.glsl"
#include "roi_batch.glsl"
#include "roi_values.glsl"

// Of each sample, the element offset and the weight's bits of its first row in .xy, of its second in .zw; of each column
// likewise, in entry TAPS * sample + tap.
shared uvec4 rows[ROWS];
shared uvec2 columns[COLUMNS];
shared float partials[PARTIALS];

void store(uint roi, uint channel, uint oy, uint ox, float value) {
    const uint element = roi * p.output_strides[0] + channel * p.output_strides[1] + oy * p.output_strides[2] +
        ox * p.output_strides[3];
    y[BYTE_OFFSET_OUTPUT / T_BYTES + element] = T(value);
}

// Where a sample lies on a row, and its second weight is 0, the first row counts twice by half instead. So both weights
// are 0 together, which is outside the border, or neither: one test tells what must not be read.
uvec4 row_entry(RoiSample s, uint stride) {
    if (s.weight.x == 1.0 && NEAREST == 0) s = RoiSample(s.pixel.xx, vec2(0.5));
    const uvec2 offset = s.pixel * stride;
    return uvec4(offset.x, floatBitsToUint(s.weight.x), offset.y, floatBitsToUint(s.weight.y));
}

uvec2 column_entry(RoiSample s, uint tap, uint stride) {
    return uvec2(s.pixel[tap] * stride, floatBitsToUint(s.weight[tap]));
}

float column_weight(uint entry) { return uintBitsToFloat(columns[entry].y); }
bool is_inside(uvec4 row) { return row.y != 0; }
bool column_is_inside(uint s) { return column_weight(TAPS * s) + column_weight(TAPS * s + TAPS - 1) != 0.0; }

// The weighted sum of a sample's rows at one column; 0 outside the border.
float row_sum(uvec4 row, uint column_start) {
    float sum = uintBitsToFloat(row.y) * roi_input(column_start + row.x);
    if (NEAREST == 0) sum += uintBitsToFloat(row.w) * roi_input(column_start + row.z);
    return is_inside(row) ? sum : 0.0;
}

// Sample `s` of output row oy; of the last row for those past it, whose results are not kept.
uint row_sample(uint oy, uint samples, uint s) { return min(oy, p.output_height - 1) * samples + s; }

// The average's shares of one column in output rows oy and on: its weight times the weighted sums of the rows.
void column_sums(uint image, uint column, uint oy, uint samples, out float results[OUTPUT_ROWS]) {
    const uint start = image + columns[column].x;
    float lost[OUTPUT_ROWS];
    [[unroll]] for (uint r = 0; r < OUTPUT_ROWS; ++r) results[r] = lost[r] = 0.0;
    [[unroll]] for (uint s = 0; s < samples; ++s) {
        [[unroll]] for (uint r = 0; r < OUTPUT_ROWS; ++r)
            roi_add(results[r], lost[r], row_sum(rows[row_sample(oy + r, samples, s)], start), samples);
    }
    [[unroll]] for (uint r = 0; r < OUTPUT_ROWS; ++r) results[r] = weighted(column_weight(column), results[r]);
}

// The maxima of one column of samples in output rows oy and on.
void column_maxima(uint image, uint column, uint oy, uint samples, out float results[OUTPUT_ROWS]) {
    const bool inside = column_is_inside(column);
    [[unroll]] for (uint r = 0; r < OUTPUT_ROWS; ++r) {
        results[r] = -INFINITY;
        for (uint s = 0; s < samples; ++s) {
            const uvec4 row = rows[row_sample(oy + r, samples, s)];
            float value = p.out_of_bounds_input_value;
            if (inside && is_inside(row)) {
                value = 0.0;
                [[unroll]] for (uint tap = 0; tap < TAPS; ++tap) {
                    const uint entry = TAPS * column + tap;
                    if (column_weight(entry) != 0.0)
                        value += column_weight(entry) * row_sum(row, image + columns[entry].x);
                }
            }
            results[r] = roi_max(results[r], value);
        }
    }
}

// An output from its columns' partial results, of which the first is at `first`.
float gather(uint first, uint oy, uint ox, uint samples_y, uint samples_x) {
    if (MAXIMUM == 1) {
        float result = -INFINITY;
        for (uint i = 0; i < samples_x; ++i) result = roi_max(result, partials[first + i]);
        return result;
    }
    float sum = 0.0, lost = 0.0;
    [[unroll]] for (uint i = 0; i < samples_x * TAPS; ++i) roi_add(sum, lost, partials[first + i], samples_x);
    const float count = float(samples_y) * float(samples_x);
    if (p.out_of_bounds_input_value != 0.0) {
        uvec2 inside = uvec2(0);
        for (uint i = 0; i < samples_y; ++i) inside.y += uint(is_inside(rows[oy * samples_y + i]));
        for (uint i = 0; i < samples_x; ++i) inside.x += uint(column_is_inside(ox * samples_x + i));
        return roi_mean(sum, float(inside.y) * float(inside.x), count, p.out_of_bounds_input_value);
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
    const RoiAxis ry = roi_axis_y(roi), rx = roi_axis_x(roi);
    const uint samples_y = SAMPLES != 0 ? SAMPLES : ry.samples;
    const uint samples_x = SAMPLES != 0 ? SAMPLES : rx.samples;

    const bool fits = SAMPLES != 0 ||
        samples_y <= ROWS / p.output_height && samples_x <= COLUMNS / (TAPS * p.output_width);
    if (!batch_exists || !fits) {
        for (uint i = lane; i < channels * plane; i += LOCAL_SIZE_X) {
            const uint channel = first_channel + i / plane;
            const uint oy = i % plane / p.output_width;
            const uint ox = i % p.output_width;
            const float value = batch_exists && SAMPLES == 0
                ? roi_output(image + channel * p.input_strides[1], ry, rx, oy, ox, p.out_of_bounds_input_value)
                : p.out_of_bounds_input_value;
            store(roi, channel, oy, ox, value);
        }
        return;
    }

    for (uint s = lane; s < p.output_height * samples_y; s += LOCAL_SIZE_X) {
        const RoiSample at = roi_sample(ry, s / samples_y, s % samples_y, p.input_height);
        rows[s] = row_entry(at, p.input_strides[2]);
    }
    for (uint s = lane; s < p.output_width * samples_x; s += LOCAL_SIZE_X) {
        const RoiSample at = roi_sample(rx, s / samples_x, s % samples_x, p.input_width);
        for (uint tap = 0; tap < TAPS; ++tap) columns[TAPS * s + tap] = column_entry(at, tap, p.input_strides[3]);
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
                const uint line_start = c * row_count * line + column;
                for (uint row = 0; row < row_count; row += OUTPUT_ROWS) {
                    float results[OUTPUT_ROWS];
                    if (MAXIMUM == 1) column_maxima(channel_image, column, y0 + row, samples_y, results);
                    else column_sums(channel_image, column, y0 + row, samples_y, results);
                    [[unroll]] for (uint r = 0; r < OUTPUT_ROWS; ++r)
                        if (row + r < row_count) partials[line_start + (row + r) * line] = results[r];
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
