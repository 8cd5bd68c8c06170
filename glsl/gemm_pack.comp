// The second factor of a product, as an invocation of gemm_streamed.comp loads it.
//
//   packed[block][step][lane] = the eight elements that an invocation has of the matrix of columns 16 * block and terms 16 * step
//
// Its pairs of terms are whole words of 32 bits. Where elements lie in a matrix include/matrix_fragments.glsl says. Past the last column and
// term there are zeros.
//
// Bindings: X, the factor; PACKED, words of 16 bytes. Parameters: columns, depth, and the factor's strides along both; steps of a block;
// count, the words.
// Grid: linear over words.

#include "tensor.glsl"
#include "matrix_fragments.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer X { T x[]; };
layout(set = 0, binding = BINDING_PACKED, std430) writeonly buffer Packed { uvec4 packed[]; };

uint element_at(uint column, uint k) {
    const bool is_there = column < p.columns && k < p.depth;
    return is_there ? uint(x[BYTE_OFFSET_X / T_BYTES + column * p.column_stride + k * p.depth_stride]) : 0;
}

void main() {
    if (beyond(p.count)) return;
    const uint at = linear_invocation();
    const uint lane = at % 32, matrix = at / 32;
    const uint column = matrix / p.steps * 16 + lane / 4, k = matrix % p.steps * 16 + lane % 4 * 2;
    uvec4 word;
    [[unroll]] for (uint line = 0; line < 2; ++line)
        [[unroll]] for (uint pair = 0; pair < 2; ++pair) {
            const uint first = element_at(column + 8 * line, k + 8 * pair);
            word[fragment_element(line, pair, 0) / 2] = first | element_at(column + 8 * line, k + 8 * pair + 1) << 16;
        }
    packed[BYTE_OFFSET_PACKED / WORD_BYTES + at] = word;
}
