// Rows of a table of weights in blocks, as numbers.
//
//   y[i, k] = number (include/block_codes.glsl) of code k of row indices[i]
//
// The table has p.rows rows. Bindings: B, p.columns of them from p.first on, as block_pack.comp lays them out; indices, of INDEX_WORDS words each (the low one comes first); Y.
// Constants: the format's; INDEX_WORDS (1), INDEX_SIGNED (1). A negative index counts from the end; out of range it is clamped.
// Grid: linear over indices and groups of eight codes, a row's groups neighbours. What is no row of this part is left to others.

#include "tensor.glsl"
#include "block_codes.glsl"

layout(set = 0, binding = BINDING_INDICES, std430) readonly buffer Indices { uint index_words[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { T y[]; };

uint row_at(uint i) {
    const uint at = BYTE_OFFSET_INDICES / 4 + i * p.index_stride * INDEX_WORDS;
    const uint low = index_words[at], last = p.rows - 1;
    if (INDEX_SIGNED == 0) return min(low, last);
    // Of 64 bits: a number of 32 bits, or one far out of range on the side of its sign.
    const int high = INDEX_WORDS > 1 ? int(index_words[at + INDEX_WORDS - 1]) : int(low) >> 31;
    if (high == 0) return min(low, last);
    if (high > 0) return last;
    return high == -1 && low >= 0u - p.rows ? p.rows + low : 0;
}

void main() {
    const uint groups = (p.depth + 7) / 8;
    if (beyond(p.count * groups)) return;
    const uint i = linear_invocation() / groups, group = linear_invocation() - i * groups;
    const uint row = row_at(i) - p.first;
    if (row >= p.columns) return;
    const uint chunk = group / GROUPS_OF_EIGHT, g = group % GROUPS_OF_EIGHT;
    const vec3 terms = terms_of(load_bits(row, group * 8 / BLOCK));
    const Chunk codes = load_chunk(row, chunk);
    float numbers[8];
    eight_of(codes, g, numbers);
    const uint start = BYTE_OFFSET_Y / T_BYTES + i * p.y_strides[0];
    [[unroll]] for (uint c = 0; c < 8; ++c) {
        const uint k = group * 8 + c;
        if (k < p.depth) y[start + k * p.y_strides[1]] = T(number_of(terms, numbers[c]));
    }
}
