// Blocks of four depths by four columns of a matrix product, and the same depths of a row of A.
//
// Needs gemm_quads.glsl; HALVES, the times that B has Y's columns; the sums, vec4 sums[], of four columns each; a_start and b_start,
// where the operands start.
// Constants: ALONG_K (1): an access of B has neighbours along the depth, else neighbouring columns; VECTOR_A (1): A's rows are read four
// depths at a time; VECTOR_B (1): so is B, in the direction of ALONG_K.

#ifndef DMLVK_GEMM_BLOCKS_GLSL
#define DMLVK_GEMM_BLOCKS_GLSL

#ifndef A_QUAD
#define A_QUAD(element) unpack_quad(load_a_quad(element))
#define B_QUAD(element) unpack_quad(load_b_quad(element))
#endif

// Depths k to k + 3 of a row of A; those past the end are the last one where they are read one by one.
vec4 load_row(uint row, uint k) {
    const uint at = a_start + row * p.a_strides[2];
    if (VECTOR_A != 0) return A_QUAD(at + k);
    vec4 values;
    [[unroll]] for (uint c = 0; c < 4; ++c) values[c] = load_a(at + min(k + c, p.depth - 1) * p.a_strides[3]);
    return values;
}

// Part i of the block of four depths from k on: ALONG_K, those depths of column n + i, else columns n .. n + 3 of depth
// k + i.
// Rows, columns and depths past the end read the last one.
vec4 load_block(uint n, uint k, uint i) {
    const uint last = HALVES * p.columns - 1;
    const uint column = min(n + (ALONG_K != 0 ? i : 0), last);
    const uint depth = ALONG_K != 0 ? min(k, (p.depth - 1) / 4 * 4) : min(k + i, p.depth - 1);
    if (VECTOR_B != 0) {
        const uint quad = ALONG_K != 0 ? depth + column * p.b_strides[3] : column / 4 * 4 + depth * p.b_strides[2];
        return B_QUAD(b_start + quad);
    }
    vec4 values;
    [[unroll]] for (uint c = 0; c < 4; ++c) {
        const uint x = ALONG_K != 0 ? column : min(n + c, last);
        const uint z = ALONG_K != 0 ? min(k + c, p.depth - 1) : depth;
        values[c] = load_b(b_start + x * p.b_strides[3] + z * p.b_strides[2]);
    }
    return values;
}

// What of depths k to k + 3 there is.
bvec4 inside(uint k) { return lessThan(uvec4(k, k + 1, k + 2, k + 3), uvec4(p.depth)); }

// Part i of a block with zeros for depths past the end.
vec4 inside_part(vec4 part, uint k, uint i) { return mix(vec4(0), part, ALONG_K != 0 ? inside(k) : bvec4(k + i < p.depth)); }

void multiply_block(uint sum, vec4 values, vec4 block[4]) {
    if (ALONG_K != 0) {
        [[unroll]] for (uint i = 0; i < 4; ++i)
            [[unroll]] for (uint c = 0; c < 4; ++c) sums[sum][i] = fma(values[c], block[i][c], sums[sum][i]);
    } else {
        [[unroll]] for (uint c = 0; c < 4; ++c) sums[sum] = fma(vec4(values[c]), block[c], sums[sum]);
    }
}

#endif
