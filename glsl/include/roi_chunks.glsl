// The outputs of regions in chunks of CHUNK x CHUNK, which are the items that the gradient of ROI align shares out.
//
// Before including, the kernel declares output_height and output_width in the uniform block and the constant CHUNK.

#ifndef DMLVK_ROI_CHUNKS_GLSL
#define DMLVK_ROI_CHUNKS_GLSL

// In place of the batch entry of an item that reads no pixel.
#define NO_BATCH 0xFFFFFFFFu

// A chunk: its region, its first output and how many there are along x and y.
struct RoiChunk {
    uint roi;
    uvec2 first;
    uvec2 outputs;
};

RoiChunk roi_chunk(uint item) {
    const uvec2 all = uvec2(p.output_width, p.output_height);
    const uvec2 chunks = (all + CHUNK - 1) / CHUNK;
    RoiChunk chunk;
    chunk.roi = item / (chunks.x * chunks.y);
    const uint index = item - chunk.roi * chunks.x * chunks.y;
    chunk.first = CHUNK * uvec2(index % chunks.x, index / chunks.x);
    chunk.outputs = min(all - chunk.first, uvec2(CHUNK));
    return chunk;
}

#endif
