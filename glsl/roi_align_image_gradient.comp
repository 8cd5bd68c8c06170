// The gradient of ROI align with respect to the images: each pixel gathers from the outputs that read it.
//
//   dx[b, c, row, column] = sum over regions r of batch entry b, their outputs (oy, ox) and the samples of these:
//                           dy[r, c, oy, ox] / samples * (weight of the row) * (weight of the column)
//
// or, for MAXIMUM, over the largest sample of each output alone, undivided; see spec/ops/roi_gradient.py and include/roi.glsl.
//
// Bindings: INPUT (x, read for MAXIMUM only), INPUT_GRADIENT (dy), ROI (4 coordinates a region), BOUNDS (which pixels each
// chunk of outputs reads: roi_align_chunks), OUTPUT (dx); any strides.
// Constants: NEAREST, CORNERS, MAXIMUM (0 or 1), ROUND (samples that a round of a loop takes), CHUNK (edge of a chunk), BATCH
// (chunks whose weights are held at once), CHANNELS (that an invocation has), TILE_WIDTH, TILE_HEIGHT (of a tile, in pixels),
// CHANNELS_FASTEST (whether neighbouring invocations take neighbouring channels, or neighbouring pixels of a row).
// Grid: x folded into y, over tiles of an image (fastest), blocks of GROUPS * CHANNELS channels and images.
//
// A workgroup has a tile of one image in a block of channels, an invocation one column of the tile in CHANNELS of them, whose
// sums stay in registers. The workgroup lists the chunks that read its tile, in the order of their numbers, so that sums have
// one order. Weights are the same for all channels: those of a batch of chunks are worked out together, each invocation going
// through the samples of an output along one axis. Interpolation is separable: what a row of outputs adds to a column is summed
// once, and serves all of the tile's rows. For MAXIMUM, which does not separate, the workgroup finds the position of each
// output's largest sample in each channel, chunk by chunk.

layout(set = 0, binding = BINDING_INPUT, std430) readonly buffer Input { T x[]; };
layout(set = 0, binding = BINDING_INPUT_GRADIENT, std430) readonly buffer InputGradient { T dy[]; };
layout(set = 0, binding = BINDING_ROI, std430) readonly buffer Roi { T boxes[]; };
layout(set = 0, binding = BINDING_BOUNDS, std430) readonly buffer Bounds { uint bounds[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer Output { T dx[]; };

float roi_input(uint element) { return float(x[BYTE_OFFSET_INPUT / T_BYTES + element]); }
float roi_coordinate(uint element) { return float(boxes[BYTE_OFFSET_ROI / T_BYTES + element]); }
float gradient(uint element) { return float(dy[BYTE_OFFSET_INPUT_GRADIENT / T_BYTES + element]); }

#include "tensor.glsl"
#include "roi.glsl"
#define ROI_ROUND ROUND
#include "roi_values.glsl"
#include "roi_chunks.glsl"

// Invocations that share a column.
#define GROUPS (LOCAL_SIZE_X / TILE_WIDTH)
#define LIST (2 * LOCAL_SIZE_X)
#define NOWHERE vec2(-2.0)

// The list of chunks, and which of the last LOCAL_SIZE_X looked at are on it, a bit each.
shared uint list[LIST];
shared uint touched[LOCAL_SIZE_X / 32];

// For averages, of each chunk of a batch the weights of the tile's columns and rows in its outputs along x and y; which outputs
// read a column, and which along y read any row, a bit each; samples of an output along x and y; where its dy starts.
#define LINE (TILE_WIDTH + TILE_HEIGHT)
shared float weights[MAXIMUM == 1 ? 1 : BATCH * CHUNK * LINE];
shared uint column_outputs[MAXIMUM == 1 ? 1 : BATCH * TILE_WIDTH];
shared uint row_outputs[MAXIMUM == 1 ? 1 : BATCH];
shared vec2 counts[MAXIMUM == 1 ? 1 : BATCH];
shared uint starts[MAXIMUM == 1 ? 1 : BATCH];

// For maxima, of each channel and output of one chunk the position (x, y) of the largest sample.
shared vec2 winners[MAXIMUM == 1 ? GROUPS * CHANNELS * CHUNK * CHUNK : 1];

// Whether an item reads a pixel of the tile.
bool reads_tile(uint item, uint batch, uvec2 tile) {
    const uint at = BYTE_OFFSET_BOUNDS / 4 + item;
    const uvec2 low = uvec2(bounds[at + p.items], bounds[at + 3 * p.items]);
    const uvec2 high = uvec2(bounds[at + 2 * p.items], bounds[at + 4 * p.items]);
    const uvec2 end = tile + uvec2(TILE_WIDTH, TILE_HEIGHT);
    return bounds[at] == batch && all(lessThan(low, end)) && all(greaterThanEqual(high, tile));
}

// Looks at the next LOCAL_SIZE_X items and appends to the list of `count` those that read the tile; their number. Every
// invocation calls.
uint append(uint scanned, uint count, uint batch, uvec2 tile) {
    const uint lane = gl_LocalInvocationID.x;
    const uint word = lane / 32;
    const uint bit = lane % 32;
    if (lane < LOCAL_SIZE_X / 32) touched[lane] = 0;
    barrier();
    const bool reads = scanned + lane < p.items && reads_tile(scanned + lane, batch, tile);
    if (reads) atomicOr(touched[word], 1u << bit);
    barrier();
    uint before = 0, all = 0;
    for (uint i = 0; i < LOCAL_SIZE_X / 32; ++i) {
        const uint bits = bitCount(touched[i]);
        if (i < word) before += bits;
        all += bits;
    }
    if (reads) list[count + before + bitCount(touched[word] & ((1u << bit) - 1))] = scanned + lane;
    return all;
}

// The element of dy, in the first channel, at a chunk's first output.
uint chunk_start(RoiChunk chunk) {
    return chunk.roi * p.gradient_strides[0] + chunk.first.y * p.gradient_strides[2] + chunk.first.x * p.gradient_strides[3];
}

// The weights of up to BATCH chunks from the list's entry `first` on. Every invocation calls.
void put_weights(uint first, uint count, uvec2 tile) {
    const uint lane = gl_LocalInvocationID.x;
    for (uint i = lane; i < BATCH * CHUNK * LINE; i += LOCAL_SIZE_X) weights[i] = 0.0;
    for (uint i = lane; i < BATCH * TILE_WIDTH; i += LOCAL_SIZE_X) column_outputs[i] = 0;
    if (lane < BATCH) row_outputs[lane] = 0;
    barrier();
    // An invocation has the samples of one output along one axis.
    for (uint i = lane; i < 2 * CHUNK * min(BATCH, count - first); i += LOCAL_SIZE_X) {
        const uint slot = i / (2 * CHUNK);
        const uint k = i % CHUNK;
        const bool along_y = i / CHUNK % 2 == 1;
        const uint axis_index = along_y ? 1 : 0;
        const RoiChunk chunk = roi_chunk(list[first + slot]);
        if (i % (2 * CHUNK) == 0)
            starts[slot] = chunk.roi * p.gradient_strides[0] + chunk.first.y * p.gradient_strides[2] +
                chunk.first.x * p.gradient_strides[3];
        if (k >= chunk.outputs[axis_index]) continue;
        const RoiAxis axis = along_y ? roi_axis_y(chunk.roi) : roi_axis_x(chunk.roi);
        const uint o = chunk.first[axis_index] + k;
        const uint pixels = along_y ? p.input_height : p.input_width;
        const uint start = tile[axis_index];
        const uint edge = along_y ? TILE_HEIGHT : TILE_WIDTH;
        const uint at = (slot * CHUNK + k) * LINE + (along_y ? TILE_WIDTH : 0);
        if (k == 0) counts[slot][axis_index] = float(axis.samples);
        const uvec2 range = roi_range(axis, roi_span(axis, float(start) - 1.0, float(start + edge)), o);
        for (uint s = range.x; s < range.y; ++s) {
            const RoiSample found = roi_sample(axis, o, s, pixels);
            [[unroll]] for (uint t = 0; t < TAPS; ++t) {
                const uint place = found.pixel[t] - start; // of pixels before the tile a large number
                if (found.weight[t] == 0.0 || place >= edge) continue;
                weights[at + place] += found.weight[t];
                if (along_y) atomicOr(row_outputs[slot], 1u << k);
                else atomicOr(column_outputs[slot * TILE_WIDTH + place], 1u << k);
            }
        }
    }
    barrier();
}

// Adds what one chunk's averages give. `channel_starts` are the elements of dy at the invocation's channels.
void add_averages(uint slot, uint column, uint channel_starts[CHANNELS], inout float sums[CHANNELS][TILE_HEIGHT]) {
    const uint outputs = column_outputs[slot * TILE_WIDTH + column];
    const float share = 1.0 / (counts[slot].x * counts[slot].y);
    for (uint rows = row_outputs[slot]; rows != 0; rows &= rows - 1) {
        const uint ky = findLSB(rows);
        const uint start = starts[slot] + ky * p.gradient_strides[2];
        float line[CHANNELS];
        [[unroll]] for (uint c = 0; c < CHANNELS; ++c) line[c] = 0.0;
        for (uint columns = outputs; columns != 0; columns &= columns - 1) {
            const uint kx = findLSB(columns);
            const float weight = weights[(slot * CHUNK + kx) * LINE + column];
            const uint at = start + kx * p.gradient_strides[3];
            [[unroll]] for (uint c = 0; c < CHANNELS; ++c) line[c] += weight * gradient(channel_starts[c] + at);
        }
        [[unroll]] for (uint c = 0; c < CHANNELS; ++c) line[c] *= share;
        [[unroll]] for (uint row = 0; row < TILE_HEIGHT; ++row) {
            const float weight = weights[(slot * CHUNK + ky) * LINE + TILE_WIDTH + row];
            if (weight == 0.0) continue; // as for all of a subgroup that lies in a row
            [[unroll]] for (uint c = 0; c < CHANNELS; ++c) sums[c][row] += weight * line[c];
        }
    }
}

// Finds the winners of one chunk in the workgroup's channels. Every invocation calls.
void put_winners(uint item, uint image, uint first_channel) {
    const RoiChunk chunk = roi_chunk(item);
    const RoiAxis ry = roi_axis_y(chunk.roi), rx = roi_axis_x(chunk.roi);
    for (uint i = gl_LocalInvocationID.x; i < GROUPS * CHANNELS * CHUNK * CHUNK; i += LOCAL_SIZE_X) {
        const uint channel = first_channel + i / (CHUNK * CHUNK);
        const uvec2 k = uvec2(i % CHUNK, i / CHUNK % CHUNK);
        vec2 position = NOWHERE;
        if (channel < p.channels && all(lessThan(k, chunk.outputs))) {
            const uvec2 o = chunk.first + k;
            RoiSample y, x;
            uvec2 index;
            // The gradient is not told what the forward operator reads outside the border. This takes 0, which it mostly is.
            roi_largest(image + channel * p.input_strides[1], ry, rx, o.y, o.x, 0.0, y, x, index);
            if (is_inside(y)) position = vec2(x.pixel.x + x.weight.y, y.pixel.x + y.weight.y);
        }
        winners[i] = position;
    }
}

// The weight of a pixel in a sample along an axis.
float sample_weight(float position, uint pixel) { return 1.0 - abs(position - float(pixel)); }

// Adds what one chunk's maxima give. `group` is the invocation's among those that share its column.
void add_maxima(uint item, uint group, uvec2 pixel, uint channel_starts[CHANNELS],
                inout float sums[CHANNELS][TILE_HEIGHT]) {
    const RoiChunk chunk = roi_chunk(item);
    const uint start = chunk.roi * p.gradient_strides[0] + chunk.first.y * p.gradient_strides[2] +
        chunk.first.x * p.gradient_strides[3];
    for (uint i = 0; i < CHUNK * CHUNK; ++i) {
        const uvec2 k = uvec2(i % CHUNK, i / CHUNK);
        [[unroll]] for (uint c = 0; c < CHANNELS; ++c) {
            const vec2 position = winners[(c * GROUPS + group) * CHUNK * CHUNK + i];
            const float weight = sample_weight(position.x, pixel.x);
            if (weight <= 0.0) continue;
            const float value =
                weight * gradient(channel_starts[c] + start + k.y * p.gradient_strides[2] + k.x * p.gradient_strides[3]);
            [[unroll]] for (uint row = 0; row < TILE_HEIGHT; ++row) {
                const float row_weight = sample_weight(position.y, pixel.y + row);
                if (row_weight > 0.0) sums[c][row] += row_weight * value;
            }
        }
    }
}

void main() {
    const uvec2 tiles = (uvec2(p.input_width, p.input_height) + uvec2(TILE_WIDTH, TILE_HEIGHT) - 1) /
        uvec2(TILE_WIDTH, TILE_HEIGHT);
    const uint blocks = (p.channels + GROUPS * CHANNELS - 1) / (GROUPS * CHANNELS);
    const uint plane = linear_workgroup() / (tiles.x * tiles.y);
    const uint index = linear_workgroup() - plane * tiles.x * tiles.y;
    const uvec2 tile = uvec2(index % tiles.x, index / tiles.x) * uvec2(TILE_WIDTH, TILE_HEIGHT);
    const uint batch = plane / blocks;
    const uint first_channel = (plane - batch * blocks) * GROUPS * CHANNELS;
    if (batch >= p.batch_count) return;

    const uint lane = gl_LocalInvocationID.x;
    const uint column = CHANNELS_FASTEST == 1 ? lane / GROUPS : lane % TILE_WIDTH;
    const uint group = CHANNELS_FASTEST == 1 ? lane % GROUPS : lane / TILE_WIDTH;
    const uvec2 pixel = tile + uvec2(column, 0);
    float sums[CHANNELS][TILE_HEIGHT];
    uint channel_starts[CHANNELS];
    [[unroll]] for (uint c = 0; c < CHANNELS; ++c) {
        // Channels past the last read the last and are not stored.
        channel_starts[c] = min(first_channel + c * GROUPS + group, p.channels - 1) * p.gradient_strides[1];
        [[unroll]] for (uint row = 0; row < TILE_HEIGHT; ++row) sums[c][row] = 0.0;
    }

    uint scanned = 0;
    while (scanned < p.items) {
        uint count = 0;
        while (scanned < p.items && count <= LIST - LOCAL_SIZE_X) {
            count += append(scanned, count, batch, tile);
            scanned += LOCAL_SIZE_X;
            barrier();
        }
        if (MAXIMUM == 1) {
            for (uint i = 0; i < count; ++i) {
                put_winners(list[i], batch * p.input_strides[0], first_channel);
                barrier();
                add_maxima(list[i], group, pixel, channel_starts, sums);
                barrier();
            }
        } else {
            for (uint first = 0; first < count; first += BATCH) {
                put_weights(first, count, tile);
                for (uint slot = 0; slot < min(BATCH, count - first); ++slot)
                    add_averages(slot, column, channel_starts, sums);
                barrier();
            }
        }
    }

    const uint image = BYTE_OFFSET_OUTPUT / T_BYTES + batch * p.output_strides[0] + pixel.x * p.output_strides[3];
    [[unroll]] for (uint c = 0; c < CHANNELS; ++c) {
        const uint channel = first_channel + c * GROUPS + group;
        [[unroll]] for (uint row = 0; row < TILE_HEIGHT; ++row) {
            if (channel < p.channels && pixel.x < p.input_width && pixel.y + row < p.input_height)
                dx[image + channel * p.output_strides[1] + (pixel.y + row) * p.output_strides[2]] = T(sums[c][row]);
        }
    }
}
