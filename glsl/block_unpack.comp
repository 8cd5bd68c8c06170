// Weights in blocks as numbers, for products of so many rows that other kernels read them faster than they unpack them.
//
//   y[column, k] = number (include/block_codes.glsl) of code k of the column
//
// Bindings: B, weights as block_pack.comp lays them out; Y, whose rows are whole groups of eight: what is behind the depth is
// undefined.
// Constants: the format's.
// Grid: linear over columns and groups of eight codes, a column's groups neighbours.

#include "tensor.glsl"
#include "block_codes.glsl"

layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YWords { uvec4 y_words[]; };

void main() {
    const uint groups = (p.depth + 7) / 8;
    if (beyond(p.columns * groups)) return;
    const uint column = linear_invocation() / groups;
    float numbers[8];
    numbers_of(load_eight_codes(column, linear_invocation() - column * groups), numbers);
    const uint at = BYTE_OFFSET_Y / WORD_BYTES + linear_invocation() * T_BYTES / 2;
#if T_BYTES == 2
    uvec4 word;
    [[unroll]] for (uint i = 0; i < 4; ++i) word[i] = packHalf2x16(vec2(numbers[2 * i], numbers[2 * i + 1]));
    y_words[at] = word;
#else
    [[unroll]] for (uint w = 0; w < 2; ++w) {
        const vec4 four = vec4(numbers[4 * w], numbers[4 * w + 1], numbers[4 * w + 2], numbers[4 * w + 3]);
        y_words[at + w] = floatBitsToUint(four);
    }
#endif
}
