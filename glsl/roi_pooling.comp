// ROI pooling: the maxima of the cells of a grid that lies over each region.
//
//   y[r, c, oy, ox] = maximum of x[batch of r, c, rows of oy, columns of ox], 0 where there are none
//
// Of each axis (see spec/ops/roi.py, RoiPooling): first and last are the region's corners times the scale, rounded to whole
// pixels; size = last - first + 1; cell o covers the pixels from o * size / cells to ((o + 1) * size + cells - 1) / cells,
// counted from first, as far as they lie in the image.
//
// Bindings: INPUT, ROI ({batch index, x1, y1, x2, y2} a region), OUTPUT; any strides.
// Constants: CHANNELS_FASTEST (whether neighbouring invocations take neighbouring channels, or neighbouring outputs of a row).
// Grid: x folded into y, over all outputs. Rule "outputs".

#include "math.glsl"
#include "order.glsl"
#include "tensor.glsl"
#include "wide.glsl"

layout(set = 0, binding = BINDING_INPUT, std430) readonly buffer Input { T x[]; };
layout(set = 0, binding = BINDING_ROI, std430) readonly buffer Roi { T regions[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer Output { T y[]; };

#define MOST_PIXELS 1073741824.0

float region_value(uint region, uint column) {
    return float(regions[BYTE_OFFSET_ROI / T_BYTES + region * p.roi_stride + column * p.coordinate_stride]);
}

// The nearest whole pixel, halves away from 0; what no image has is bounded, and NaN is 0.
int pixel(float coordinate) {
    if (is_nan(coordinate)) return 0;
    const float magnitude = min(abs(coordinate), MOST_PIXELS);
    const float whole = floor(magnitude);
    const int rounded = int(whole) + (magnitude - whole >= 0.5 ? 1 : 0);
    return coordinate < 0.0 ? -rounded : rounded;
}

// The pixels of a cell: the first, and the one after the last.
ivec2 cell(int first, int last, uint index, uint cells, uint pixels) {
    const uint size = uint(max(last - first, 0)) + 1u;
    // Products with the whole part and the rest of size / cells: the quotients then fit 32 bits.
    const uint whole = size / cells, rest = size - whole * cells;
    const uint start = index * whole + wide_quotient(index, rest, cells).x;
    const uvec2 next = wide_quotient(index + 1u, rest, cells);
    const uint end = (index + 1u) * whole + next.x + uint(next.y != 0u);
    return clamp(first + ivec2(start, end), ivec2(0), ivec2(pixels));
}

void main() {
    if (beyond(p.outputs)) return;
    const uvec4 sizes = CHANNELS_FASTEST == 1
        ? uvec4(p.roi_count, p.output_height, p.output_width, p.channels)
        : uvec4(p.roi_count, p.channels, p.output_height, p.output_width);
    uvec4 at;
#define SET_COORDINATE(dim, coordinate) at[dim] = coordinate;
    FOR_EACH_COORDINATE(linear_invocation(), 4, sizes, SET_COORDINATE)
    if (CHANNELS_FASTEST == 1) at = at.xwyz;

    const float batch = region_value(at[0], 0);
    ORDER most = LEAST_ORDER; // as long as there is no pixel
    if (batch > -1.0 && batch < float(p.batch_count)) { // not where it is NaN
        const uint entry = min(uint(max(batch, 0.0)), p.batch_count - 1u);
        int corners[4];
        [[unroll]] for (uint i = 0; i < 4; ++i) corners[i] = pixel(region_value(at[0], 1 + i) * p.scale);
        const ivec2 columns = cell(corners[0], corners[2], at[3], p.output_width, p.input_width);
        const ivec2 rows = cell(corners[1], corners[3], at[2], p.output_height, p.input_height);
        const uint plane = BYTE_OFFSET_INPUT / T_BYTES + entry * p.input_strides[0] + at[1] * p.input_strides[1];
        for (int row = rows.x; row < rows.y; ++row) {
            const uint line = plane + row * p.input_strides[2];
            for (int column = columns.x; column < columns.y; column += 4) {
                // Several reads in flight; past the end the last pixel again.
                [[unroll]] for (int i = 0; i < 4; ++i)
                    most = max(most, order_up(float(x[line + min(column + i, columns.y - 1) * p.input_strides[3]])));
            }
        }
    }
    const uint element = at[0] * p.output_strides[0] + at[1] * p.output_strides[1] + at[2] * p.output_strides[2] +
        at[3] * p.output_strides[3];
    y[BYTE_OFFSET_OUTPUT / T_BYTES + element] = T(most == LEAST_ORDER ? 0.0 : from_order_up(most));
}
