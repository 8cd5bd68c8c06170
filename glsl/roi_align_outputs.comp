// ROI align, one invocation an output.
//
//   y[r, c, oy, ox] = average or maximum over the samples of output (oy, ox) of region r, which interpolate
//                     x[batch_indices[r], c, ...]; see spec/ops/roi.py (RoiAlign1), include/roi.glsl and roi_values.glsl
//
// Bindings: INPUT, ROI (4 coordinates a region), BATCH (indices as 32-bit words), OUTPUT; any strides.
// Constants: NEAREST, CORNERS, MAXIMUM (0 or 1), BATCH_WORDS (1 or 2 words an index), CHANNELS_FASTEST (whether
// neighbouring invocations take neighbouring channels, or neighbouring outputs of a row), ROUND (samples that a round of a
// loop takes).
// Grid: x folded into y, over all outputs.
//
// Every invocation works out its own sample positions, so any number of samples will do. Chosen where channels are
// neighbours in memory, which neighbouring invocations then read together, and where a region has too many samples for
// the tables of roi_align_columns.

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
#define ROI_ROUND ROUND
#include "roi_values.glsl"

void main() {
    const uint index = linear_invocation();
    if (index >= p.outputs) return;
    const uvec4 sizes = CHANNELS_FASTEST == 1
        ? uvec4(p.roi_count, p.output_height, p.output_width, p.channels)
        : uvec4(p.roi_count, p.channels, p.output_height, p.output_width);
    uvec4 at;
#define SET_COORDINATE(dim, coordinate) at[dim] = coordinate;
    FOR_EACH_COORDINATE(index, 4, sizes, SET_COORDINATE)
    if (CHANNELS_FASTEST == 1) at = at.xwyz;

    float result = p.out_of_bounds_input_value;
    uint batch;
    if (roi_batch(at[0], batch)) {
        const RoiAxis ry = roi_axis_y(at[0]), rx = roi_axis_x(at[0]);
        result = roi_output(batch * p.input_strides[0] + at[1] * p.input_strides[1], ry, rx, at[2], at[3],
                            p.out_of_bounds_input_value);
    }
    const uint element = at[0] * p.output_strides[0] + at[1] * p.output_strides[1] + at[2] * p.output_strides[2] +
        at[3] * p.output_strides[3];
    y[BYTE_OFFSET_OUTPUT / T_BYTES + element] = T(result);
}
