// An operand of an integer product, packed: signed bytes, the channels of a line side by side and filled up to whole words.
//
//   packed[group, line, channel] = x[group, line, channel] as a number of INT8: less 128 where it is UINT8
//   sums[group, tile, line] = sum of 128 of the line's packed bytes, those of the tile of channels
//
// A line is what one tap of a product's row or column adds up: a row of a matrix, a pixel of the input, a tap of one of
// the filter's output channels. What is past the last channel is the zero point, if the operand has one, else 0, before
// 128 is taken off: a number minus the zero point of its column is 0 there, whatever the other operand holds.
//
// Bindings: x, 8-bit integers of any strides; zero_point; packed, 16-byte words; sums.
// Constants: FLIP (0): x is UINT8. ALONG_CHANNELS (1): neighbouring channels are neighbours in memory; else lines.
// HAS_ZERO_POINT (0): to fill up with. HAS_SUMS (1). LOCAL_SIZE_X (256), a divisor of 256.
// Parameters: channels of a line, its words once packed; lines of a group; their coordinates' last two sizes; strides of x over
// (outer group, inner group, first coordinate, channel, second, third), of the zero point over (inner group, first coordinate).
// Grid: x over 32 lines, y over 128 channels, z over groups.
//
// 4 KiB are turned through shared memory, so that both the reads and the writes of neighbours are neighbours.

layout(set = 0, binding = BINDING_X, std430) readonly buffer X { U x[]; };
layout(set = 0, binding = BINDING_ZERO_POINT, std430) readonly buffer ZeroPoint { U zero_points[]; };
layout(set = 0, binding = BINDING_PACKED, std430) writeonly buffer Packed { uvec4 packed_words[]; };
layout(set = 0, binding = BINDING_SUMS, std430) writeonly buffer Sums { int sums[]; };

const uint WORDS = QUADS / 4;
const uint LOADED = LINES * QUADS / LOCAL_SIZE_X;

shared uint tile[LINES * (QUADS + 1)];
shared int partial[LINES * WORDS];

// Where a line's first channel is, and its zero point.
void find(uint line, out uint element, out uint zero_point) {
    const uint outer = gl_WorkGroupID.z / p.inner_groups, inner = gl_WorkGroupID.z - outer * p.inner_groups;
    const uint rest = line / p.sizes[1], third = line - rest * p.sizes[1];
    const uint first = rest / p.sizes[0], second = rest - first * p.sizes[0];
    element = BYTE_OFFSET_X + outer * p.strides[0] + inner * p.strides[1] + first * p.strides[2] + second * p.strides[4] +
        third * p.strides[5];
    zero_point = BYTE_OFFSET_ZERO_POINT + inner * p.zero_point_strides[0] + first * p.zero_point_strides[1];
}

int sum_of_bytes(uint quad) {
    const int q = int(quad);
    return bitfieldExtract(q, 0, 8) + bitfieldExtract(q, 8, 8) + bitfieldExtract(q, 16, 8) + bitfieldExtract(q, 24, 8);
}

void main() {
    const uint first_line = gl_WorkGroupID.x * LINES, first_quad = gl_WorkGroupID.y * QUADS;
    uint loaded[LOADED][4], fill[LOADED];
    [[unroll]] for (uint i = 0; i < LOADED; ++i) {
        const uint e = i * LOCAL_SIZE_X + gl_LocalInvocationIndex;
        const uint line = ALONG_CHANNELS != 0 ? e / QUADS : e % LINES, quad = ALONG_CHANNELS != 0 ? e % QUADS : e / LINES;
        uint element, zero_point;
        find(min(first_line + line, p.lines - 1), element, zero_point);
        fill[i] = HAS_ZERO_POINT != 0 ? uint(zero_points[zero_point]) : 0u;
        [[unroll]] for (uint j = 0; j < 4; ++j)
            loaded[i][j] = uint(x[element + min(4 * (first_quad + quad) + j, p.channels - 1) * p.strides[3]]);
    }
    [[unroll]] for (uint i = 0; i < LOADED; ++i) {
        const uint e = i * LOCAL_SIZE_X + gl_LocalInvocationIndex;
        const uint line = ALONG_CHANNELS != 0 ? e / QUADS : e % LINES, quad = ALONG_CHANNELS != 0 ? e % QUADS : e / LINES;
        uint packed_quad = 0;
        [[unroll]] for (uint j = 0; j < 4; ++j)
            packed_quad |= (4 * (first_quad + quad) + j < p.channels ? loaded[i][j] : fill[i]) << 8 * j;
        tile[line * (QUADS + 1) + quad] = FLIP != 0 ? packed_quad ^ 0x80808080u : packed_quad;
    }
    barrier();
    for (uint e = gl_LocalInvocationIndex; e < LINES * WORDS; e += LOCAL_SIZE_X) {
        const uint line = e / WORDS, word = first_quad / 4 + e % WORDS;
        const uint at = line * (QUADS + 1) + e % WORDS * 4;
        const uvec4 four = uvec4(tile[at], tile[at + 1], tile[at + 2], tile[at + 3]);
        partial[e] = 0;
        if (word < p.words) {
            partial[e] = sum_of_bytes(four.x) + sum_of_bytes(four.y) + sum_of_bytes(four.z) + sum_of_bytes(four.w);
            if (first_line + line < p.lines)
                packed_words[BYTE_OFFSET_PACKED / 16 + (gl_WorkGroupID.z * p.lines + first_line + line) * p.words + word] = four;
        }
    }
    if (HAS_SUMS == 0) return;
    barrier();
    const uint line = gl_LocalInvocationIndex;
    if (line < LINES && first_line + line < p.lines) {
        int sum = 0;
        [[unroll]] for (uint i = 0; i < WORDS; ++i) sum += partial[line * WORDS + i];
        const uint tile_index = gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y;
        sums[BYTE_OFFSET_SUMS / 4 + tile_index * p.lines + first_line + line] = sum;
    }
}
