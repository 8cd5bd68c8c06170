// Weights in blocks, from the bytes of a file or of ONNX Runtime's tensors to the planes of include/block_codes.glsl.
//
// Bindings: codes, rows of p.row_bytes bytes; scales and zero_points, of formats APART; packed.
// Constants: those of a format (dmlvk/spec/block_formats.py). APART (0): scales and zero points are tensors of their own.
// Grid: linear over quads of columns and chunks, a column's chunks neighbours. An invocation writes whole words.

#include "tensor.glsl"

layout(set = 0, binding = BINDING_CODES, std430) readonly buffer Codes { uint code_words[]; };
layout(set = 0, binding = BINDING_SCALES, std430) readonly buffer Scales { uint scale_words[]; };
layout(set = 0, binding = BINDING_ZERO_POINTS, std430) readonly buffer ZeroPoints { uint point_words[]; };
layout(set = 0, binding = BINDING_PACKED, std430) writeonly buffer Packed { uint packed_words[]; };

const uint CENTRE = 1u << (BITS - 1u);
const uint HIGH_WORDS = BITS == 8 ? 4 : BITS - 4;

uint byte_at(uint at) {
    at += BYTE_OFFSET_CODES;
    return code_words[at / 4] >> 8 * (at % 4) & 0xFFu;
}

uint half_at(uint at) { return byte_at(at) | byte_at(at + 1) << 8; }

// The first byte of the group of a column that code k is in.
uint group_at(uint column, uint k) { return column * p.row_bytes + (GROUP != 0 ? k / max(GROUP, 1) * GROUP_BYTES : 0); }

uint code_at(uint column, uint k) {
    if (k >= p.depth) return CENTRE;
    const uint start = group_at(column, k), e = GROUP != 0 ? k % max(GROUP, 1) : k;
    const uint chunk = e / CHUNK, i = e % CHUNK;
    uint code = 0;
    switch (ORDER) {
        case ORDER_BYTES: code = byte_at(start + CODES + e); break;
        case ORDER_NEIGHBOURS: code = byte_at(start + CODES + e / 2) >> 4 * (e % 2) & 0xFu; break;
        case ORDER_HALVES:
            code = byte_at(start + CODES + i % 16) >> 4 * (i / 16) & 0xFu;
            if (BITS == 5) code |= (byte_at(start + HIGH + i / 8) >> (i % 8) & 1u) << 4;
            break;
        case ORDER_CHUNKS:
            code = byte_at(start + CODES + chunk / 2 * 32 + i) >> 4 * (chunk % 2) & 0xFu;
            if (BITS == 5) code |= (byte_at(start + HIGH + i) >> chunk & 1u) << 4;
            break;
        case ORDER_SIXES:
            code = byte_at(start + CODES + chunk / 4 * 64 + chunk % 2 * 32 + i) >> 4 * (chunk % 4 / 2) & 0xFu;
            code |= (byte_at(start + HIGH + chunk / 4 * 32 + i) >> 2 * (chunk % 4) & 3u) << 4;
            break;
    }
    return SIGNED != 0 ? code ^ CENTRE : code;
}

void put_codes(uint column, uint chunk) {
    uvec4 low = uvec4(0), high = uvec4(0);
    for (uint i = 0; i < CHUNK; ++i) {
        const uint code = code_at(column, chunk * CHUNK + i);
        const uint pair = i / 2, half_ = i % 2 * 16;
        if (BITS == 8) {
            const uint shift = i % 4 / 2 * 8 + half_;
            if (i < CHUNK / 2) low[i / 4] |= code << shift;
            else high[i / 4 - 4] |= code << shift;
        } else {
            low[i / 8] |= (code & 0xFu) << (pair % 4 * 4 + half_);
            if (BITS == 6) high[i / 16] |= code >> 4 << (pair % 8 * 2 + half_);
            if (BITS == 5) high.x |= code >> 4 << (pair + half_);
        }
    }
    const uint at = column * p.chunks + chunk;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        packed_words[BYTE_OFFSET_PACKED / 4 + at * 4 + i] = low[i];
        if (i < HIGH_WORDS) packed_words[BYTE_OFFSET_PACKED / 4 + p.high_start + at * HIGH_WORDS + i] = high[i];
    }
}

// Scale and minimum s of a group whose whole numbers of 6 bits are the 12 bytes from `start` on.
uvec2 sixes_at(uint start, uint s) {
    const uint first = byte_at(start + s % 4), second = byte_at(start + 4 + s % 4);
    if (s < 4) return uvec2(first & 63u, second & 63u);
    const uint third = byte_at(start + 8 + s % 4);
    return uvec2((third & 0xFu) | first >> 6 << 4, third >> 4 | second >> 6 << 4);
}

// An element of a tensor of numbers of the scales' type.
#define REAL_AT(words, offset, at)                                 \
    (SCALE == SCALE_FLOAT32 ? words[(offset) / 4 + (at)]           \
                            : words[((offset) / 2 + (at)) / 2] >> 16 * (((offset) / 2 + (at)) % 2) & 0xFFFFu)

uint zero_point_at(uint column, uint block) {
    const uint at = BYTE_OFFSET_ZERO_POINTS + column * p.point_bytes + block * BITS / 8;
    const uint byte = point_words[at / 4] >> 8 * (at % 4) & 0xFFu;
    const uint code = BITS == 4 ? byte >> 4 * (block % 2) & 0xFu : byte;
    return SIGNED != 0 ? code ^ CENTRE : code;
}

// (scale, offset) of a block, their bits.
uvec2 block_at(uint column, uint block) {
    if (APART != 0) {
        const uint at = column * p.blocks + block;
        uint offset = 0;
        if (OFFSET == OFFSET_ZERO_POINT) offset = zero_point_at(column, block);
        if (OFFSET == OFFSET_REAL) offset = REAL_AT(point_words, BYTE_OFFSET_ZERO_POINTS, at);
        return uvec2(REAL_AT(scale_words, BYTE_OFFSET_SCALES, at), offset);
    }
    const uint start = group_at(column, block * BLOCK) + SCALES, own = block % max(GROUP / BLOCK, 1);
    if (SCALE == SCALE_SIXES) return sixes_at(start, own);
    if (SCALE == SCALE_BYTES) return uvec2(byte_at(start + own), 0);
    return uvec2(half_at(start), OFFSET == OFFSET_MINIMUM ? half_at(start + 2) : 0);
}

// Four numbers of `bits` bits in the words of an index of a plane.
void put_four(uint start, uint at, uvec4 four, uint bits) {
    const uint to = BYTE_OFFSET_PACKED / 4 + start + at * (bits / 8);
    if (bits == 32) {
        [[unroll]] for (uint c = 0; c < 4; ++c) packed_words[to + c] = four[c];
    } else if (bits == 16) {
        packed_words[to] = four.x | four.y << 16;
        packed_words[to + 1] = four.z | four.w << 16;
    } else {
        packed_words[to] = four.x | four.y << 8 | four.z << 16 | four.w << 24;
    }
}

void put_block(uint quad, uint block) {
    const uint real = SCALE == SCALE_FLOAT32 ? 32 : 16;
    const bool grouped = SCALE == SCALE_SIXES || SCALE == SCALE_BYTES;
    uvec4 scales, offsets;
    [[unroll]] for (uint c = 0; c < 4; ++c) {
        const uvec2 both = block_at(min(4 * quad + c, p.columns - 1), block);
        scales[c] = both.x, offsets[c] = both.y;
    }
    const uint at = quad * p.blocks + block;
    put_four(p.scale_start, at, scales, grouped ? 8 : real);
    if (OFFSET == OFFSET_ZERO_POINT || OFFSET == OFFSET_LESS) put_four(p.offset_start, at, offsets, 8);
    if (OFFSET == OFFSET_REAL || OFFSET == OFFSET_MINIMUM) put_four(p.offset_start, at, offsets, real);
    if (grouped && block * BLOCK % max(GROUP, 1) == 0) {
        uvec4 factors;
        [[unroll]] for (uint c = 0; c < 4; ++c) {
            const uint start = group_at(min(4 * quad + c, p.columns - 1), block * BLOCK) + FACTORS;
            factors[c] = half_at(start) | (OFFSET == OFFSET_LESS ? half_at(start + 2) << 16 : 0);
        }
        put_four(p.factor_start, quad * p.groups + block * BLOCK / max(GROUP, 1), factors, 32);
    }
}

void main() {
    const uint quads = (p.columns + 3) / 4;
    if (beyond(quads * p.chunks)) return;
    const uint quad = linear_invocation() / p.chunks, chunk = linear_invocation() - quad * p.chunks;
    for (uint c = 0; c < 4 && 4 * quad + c < p.columns; ++c) put_codes(4 * quad + c, chunk);
    const uint first = chunk * CHUNK;
    if (BLOCK >= CHUNK) {
        if (first % BLOCK == 0) put_block(quad, first / BLOCK);
    } else {
        for (uint k = first; k < min(first + CHUNK, p.depth); k += BLOCK) put_block(quad, k / BLOCK);
    }
}
