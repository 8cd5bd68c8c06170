// The gradient of ROI align, first step: which pixels the outputs of a region read, as rectangles around them.
//
// The outputs of each region are cut into chunks of CHUNK x CHUNK, which are the items that the next kernel,
// roi_align_image_gradient, shares out over tiles of the image. Item i is chunk i % chunks of region i / chunks, chunks in
// rows. Of each item BOUNDS has five words, each p.items after the one before: the batch entry, the first and last column,
// the first and last row. Nothing that is read has NO_BATCH as batch entry.
//
// Bindings: ROI (4 coordinates a region), BATCH (indices as 32-bit words), BOUNDS (temporary).
// Constants: NEAREST, CORNERS (0 or 1), BATCH_WORDS (1), CHUNK.
// Grid: x folded into y, over all items.
//
// Samples of an axis lie in the order of their numbers, or in the opposite one, so the first and the last of a chunk say
// between which pixels all are.

layout(set = 0, binding = BINDING_ROI, std430) readonly buffer Roi { T boxes[]; };
layout(set = 0, binding = BINDING_BATCH, std430) readonly buffer Batch { uint batch_words[]; };
layout(set = 0, binding = BINDING_BOUNDS, std430) writeonly buffer Bounds { uint bounds[]; };

float roi_coordinate(uint element) { return float(boxes[BYTE_OFFSET_ROI / T_BYTES + element]); }
uint roi_batch_word(uint word) { return batch_words[BYTE_OFFSET_BATCH / 4 + word]; }

#include "tensor.glsl"
#include "roi.glsl"
#include "roi_batch.glsl"
#include "roi_chunks.glsl"

// The first and last pixel that samples of outputs `first` to `last` may read; the first is beyond the last where none is.
uvec2 pixels_of(RoiAxis axis, uint first, uint last, uint pixels) {
    const float a = roi_position(axis, first, 0);
    const float b = roi_position(axis, last, axis.samples - 1);
    const float low = min(a, b), high = max(a, b);
    if (!(high >= -1.0 && low <= float(pixels))) return uvec2(1, 0); // outside the border, or NaN
    const float most = float(pixels - 1);
    return uvec2(clamp(floor(low), 0.0, most), min(clamp(floor(high), 0.0, most) + 1.0, most));
}

void main() {
    const uint item = linear_invocation();
    if (beyond(p.items)) return;
    const RoiChunk chunk = roi_chunk(item);
    uint batch;
    const RoiAxis ry = roi_axis_y(chunk.roi), rx = roi_axis_x(chunk.roi);
    const uvec2 rows = pixels_of(ry, chunk.first.y, chunk.first.y + chunk.outputs.y - 1, p.input_height);
    const uvec2 columns = pixels_of(rx, chunk.first.x, chunk.first.x + chunk.outputs.x - 1, p.input_width);
    const bool reads = roi_batch(chunk.roi, batch) && rows.x <= rows.y && columns.x <= columns.y;
    const uint words[BOUNDS_WORDS] = uint[](reads ? batch : NO_BATCH, columns.x, columns.y, rows.x, rows.y);
    [[unroll]] for (uint i = 0; i < BOUNDS_WORDS; ++i) bounds[BYTE_OFFSET_BOUNDS / 4 + i * p.items + item] = words[i];
}
