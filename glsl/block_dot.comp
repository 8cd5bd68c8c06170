// Products of a few rows with weights in blocks by dot products of bytes: bound by one read of the weights.
//
//   y[m, n] = activation(alpha * sum over k of a[m, k] * number (include/block_codes.glsl) of code k of column n + beta * c[n])
//
// With a GATE there are twice as many columns of weights as of Y, and Y is the gate of column n times column n + p.columns.
//
// Variant NORMALIZED: a is what include/normalized_row.glsl makes of A; the workgroups of the first columns write the sum.
//
// Bindings: A; B, weights as block_pack.comp lays them out; C, Y; see include/gemm.glsl.
// Constants: the format's. LOCAL_SIZE_X invocations; LANES (32), how many of them share four columns and take turns at their chunks, of
// which LANES_NEAR (32, a power of two that divides LANES, no more than a subgroup) are neighbours; STAGED, the chunks of a row of A; WEIGHTS_FIRST (1).
// VECTOR_Y, HAS_C, ADDEND, the activation's id.
// Rows of A start on 16 bytes and have a multiple of 8 neighbours.
// Grid: linear over groups of LOCAL_SIZE_X / LANES quads of columns and rows, the latter neighbours: all but the first of them find the
// weights in a cache.
//
// To make a float32 of a code and multiply with it takes three instructions, which together take longer than the read of the weights.
// A dot product multiplies four codes at a time with bytes. So each workgroup first writes its row of A to shared memory as whole numbers,
// in digits of a signed byte each: two of FLOAT16, which has 11 bits, three of FLOAT32. The numbers of a chunk are so many times a step, the power of
// two that the largest of them has room for. Sums of a chunk are then exact, but for the rounding of A to 2^-15 of the largest of its
// 32 numbers, of FLOAT32 to 2^-23. The first weights are on their way while digits are made. With WEIGHTS_FIRST they are asked for before the row is:
// where a processor has several workgroups, those that multiply hide what others wait for. Else they would arrive before the row, for which
// all invocations wait, and are asked for when that has come.

#include "tensor.glsl"
#include "gemm_quads.glsl"
#include "gate.glsl"
#include "block_codes.glsl"
#include "subgroups.glsl"
#include "integer_dot.glsl"

const uint HALVES = GATE != GATE_NONE ? 2 : 1;
const uint TEAMS = LOCAL_SIZE_X / LANES;
const uint SPANS = LOCAL_SIZE_X / LANES_NEAR;
const uint PARTS = BLOCK < CHUNK ? CHUNK / BLOCK : 1; // blocks of a chunk: 1 or 2
const uint EIGHT_WORDS = T_BYTES / 2; // of eight numbers
const uint DIGITS = T_BYTES == 2 ? 2 : 3;

// The highest bit of the whole numbers: digits from -128 to 127 have room for it.
const uint TOP = 8 * DIGITS - 3;
// 1.5 * 2^23: added to a number below 2^22 it rounds that to a whole one, and leaves it in the low bits.
const float ROUNDER = 12582912.0;

layout(set = 0, binding = BINDING_A, std430) readonly buffer WordsA { uvec4 words_a[]; };

shared uvec4 digits[STAGED * DIGITS * 2];
shared float steps[STAGED];
shared float totals[OFFSET != OFFSET_NONE ? STAGED * PARTS : 1];
shared vec4 span_sums[LANES > LANES_NEAR ? HALVES * SPANS : 1];
#ifdef NORMALIZED
const uint NORMALIZED_ROWS = 1;
#include "normalized_row.glsl"
#endif

vec4 sums[HALVES];

// The word of the digits `digit` of half a chunk.
uint digits_at(uint digit, uint half_, uint chunk) { return (digit * 2 + half_) * p.chunks + chunk; }

// Eight numbers of a row of A as they lie in memory, zeros past the end.
void load_eight(uint row, uint eight, out uvec4 words[EIGHT_WORDS]) {
    const bool inside = eight * 8 < p.depth;
    const uint at = (BYTE_OFFSET_A / T_BYTES + row * p.a_strides[2] + (inside ? eight * 8 : 0)) / (WORD_BYTES / T_BYTES);
    [[unroll]] for (uint w = 0; w < EIGHT_WORDS; ++w) words[w] = inside ? words_a[at + w] : uvec4(0);
}

void numbers_of_eight(uvec4 words[EIGHT_WORDS], out float values[8]) {
    [[unroll]] for (uint w = 0; w < EIGHT_WORDS; ++w)
        [[unroll]] for (uint i = 0; i < 4; ++i) {
#if T_BYTES == 2
            const vec2 pair = unpackHalf2x16(words[w][i]);
            values[2 * i] = pair.x, values[2 * i + 1] = pair.y;
#else
            values[4 * w + i] = uintBitsToFloat(words[w][i]);
#endif
        }
}

// The bytes `digit` of four numbers, in the order 0, 2, 1, 3.
uint digit_of(uvec4 four, uint digit) {
    const uint even = digit < 2 ? (four.x & 0xFFFFu) | four.y << 16 : four.x >> 16 | (four.y & 0xFFFF0000u);
    const uint odd = digit < 2 ? (four.z & 0xFFFFu) | four.w << 16 : four.z >> 16 | (four.w & 0xFFFF0000u);
    if (digit == 1) return (even >> 8 & 0x00FF00FFu) | (odd & 0xFF00FF00u);
    return (even & 0x00FF00FFu) | (odd & 0x00FF00FFu) << 8;
}

// Puts eight numbers into shared memory. Four neighbouring invocations have a chunk.
void stage_eight(uint eight, float values[8]) {
    const uint chunk = eight / GROUPS_OF_EIGHT, g = eight % GROUPS_OF_EIGHT;
    float most = abs(values[0]), total = values[0];
    [[unroll]] for (uint e = 1; e < 8; ++e) most = max(most, abs(values[e])), total += values[e];
    most = max(most, subgroupShuffleXor(most, 1));
    most = max(most, subgroupShuffleXor(most, 2));
    if (OFFSET != OFFSET_NONE) {
        total += subgroupShuffleXor(total, 1);
        if (PARTS == 1) total += subgroupShuffleXor(total, 2);
    }
    const uint exponent = max(floatBitsToUint(most) >> 23, TOP + 1);
    const float inverse = uintBitsToFloat((254 + TOP - exponent) << 23);
    uint whole[8];
    [[unroll]] for (uint e = 0; e < 8; ++e)
        whole[e] = floatBitsToUint(fma(values[e], inverse, ROUNDER)) - floatBitsToUint(ROUNDER) + 0x00808080u;
    // As codes lie in a word: see word_of_codes.
    const uvec4 first = BITS == 8 ? uvec4(whole[0], whole[1], whole[2], whole[3]) : uvec4(whole[0], whole[1], whole[4], whole[5]);
    const uvec4 second = BITS == 8 ? uvec4(whole[4], whole[5], whole[6], whole[7]) : uvec4(whole[2], whole[3], whole[6], whole[7]);
    [[unroll]] for (uint d = 0; d < DIGITS; ++d) {
        const uint at = digits_at(d, g / 2, chunk);
        digits[at][g % 2 * 2] = digit_of(first, d) ^ 0x80808080u;
        digits[at][g % 2 * 2 + 1] = digit_of(second, d) ^ 0x80808080u;
    }
    if (g == 0) {
        // An infinity or what is no number makes the row's sums such.
        const float step_ = uintBitsToFloat(exponent < 255 ? (exponent - TOP) << 23 : 0x7FC00000u);
        steps[chunk] = step_ / float(1u << (8 - BITS));
    }
    if (OFFSET != OFFSET_NONE && g % (GROUPS_OF_EIGHT / PARTS) == 0)
        totals[chunk * PARTS + g / (GROUPS_OF_EIGHT / PARTS)] = total;
}

// Four codes of group g of a chunk less CENTRE, times 2^(8 - BITS), as signed bytes. Of up to 6 bits those are codes 0, 4, 1, 5, or with `second`
// 2, 6, 3, 7; of 8 bits 0, 2, 1, 3 or 4, 6, 5, 7.
uint word_of_codes(Chunk chunk, uint g, uint second) {
    if (BITS == 8) return word_of_bytes(chunk, 2 * g + second) ^ 0x80808080u;
    if (BITS == 4) return ((second == 0 ? chunk.low[g] << 4 : chunk.low[g]) ^ 0x80808080u) & 0xF0F0F0F0u;
    return (pair_of(chunk, g, second) | pair_of(chunk, g, second + 2) << 8) << (8 - BITS) ^ 0x80808080u;
}

// Eight numbers of a row, zeros past the end. Where the row is normalized they are not divided yet, their squares are added to others, and the sum
// is written where it `writes`.
void find_eight(uint row, uint eight, bool writes, inout float squares, inout float values[8]) {
#ifdef NORMALIZED
    if (eight * 8 < p.depth) numbers_of_row(fetch_numbers(row, eight * 8), row, eight * 8, writes, squares, values);
#else
    uvec4 words[EIGHT_WORDS];
    load_eight(row, eight, words);
    numbers_of_eight(words, values);
#endif
}

// Adds the products of a chunk of four columns to a sum.
void multiply_chunk(uint to, uint chunk, Chunk codes[4], Terms terms[PARTS]) {
    ivec4 found[DIGITS];
    [[unroll]] for (uint half_ = 0; half_ < 2; ++half_) {
        if (half_ % (3 - PARTS) == 0)
            [[unroll]] for (uint d = 0; d < DIGITS; ++d) found[d] = ivec4(0);
        uvec4 own[DIGITS];
        [[unroll]] for (uint d = 0; d < DIGITS; ++d) own[d] = digits[digits_at(d, half_, chunk)];
        [[unroll]] for (uint c = 0; c < 4; ++c)
            [[unroll]] for (uint i = 0; i < 4; ++i) {
                const uint word = word_of_codes(codes[c], 2 * half_ + i / 2, i % 2);
                [[unroll]] for (uint d = 0; d < DIGITS; ++d) found[d][c] += dot_of_quads(word, own[d][i]);
            }
        if (PARTS == 1 && half_ == 0) continue;
        const uint part = PARTS == 1 ? 0 : half_;
        vec4 value = vec4(found[DIGITS - 1] * 256 + found[DIGITS - 2]);
        if (DIGITS == 3) value = fma(value, vec4(256), vec4(found[0]));
        sums[to] = fma(terms[part].scale * steps[chunk], value, sums[to]);
        if (OFFSET != OFFSET_NONE) {
            const vec4 rest = fma(terms[part].scale, vec4(float(CENTRE)) - terms[part].zero, terms[part].minimum);
            sums[to] = fma(rest, vec4(totals[chunk * PARTS + part]), sums[to]);
        }
    }
}

void main() {
    const uint invocation = workgroup_invocation();
    const uint near = invocation % LANES_NEAR, span = invocation / LANES_NEAR;
    const uint team = span % TEAMS, far = span / TEAMS;
    const uint quads = (p.columns + 3) / 4;
    const uint group = linear_workgroup() / p.rows;
    const uint row = linear_workgroup() - group * p.rows;
    const uint first_quad = group * TEAMS;
    if (first_quad >= quads) return;
    const uint quad = min(first_quad + team, quads - 1);

    const uint ends = HALVES * p.columns, behind = HALVES > 1 ? quads : 0;
    [[unroll]] for (uint h = 0; h < HALVES; ++h) sums[h] = vec4(0);
    Chunk codes[HALVES][4];
    Terms terms[HALVES][PARTS];
#define FETCH(at)                                                                                                         \
    [[unroll]] for (uint h = 0; h < HALVES; ++h) {                                                                        \
        const uint own = quad + h * behind;                                                                               \
        [[unroll]] for (uint c = 0; c < 4; ++c) codes[h][c] = load_chunk(min(own * 4 + c, ends - 1), at);                 \
        [[unroll]] for (uint i = 0; i < PARTS; ++i) {                                                                     \
            const uint block = BLOCK < CHUNK ? (at) * PARTS + i : (at) * CHUNK / BLOCK;                                   \
            terms[h][i] = terms_of(own, min(block, p.blocks - 1));                                                        \
        }                                                                                                                 \
    }
    uint chunk = far * LANES_NEAR + near;
    if (WEIGHTS_FIRST != 0) { FETCH(min(chunk, p.chunks - 1)) }
    const float nothing[8] = float[8](0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
    const uint eights = p.chunks * GROUPS_OF_EIGHT;
    float squares = 0.0;
    uint eight = invocation;
    for (; eight + LOCAL_SIZE_X < eights; eight += LOCAL_SIZE_X) {
        float values[8] = nothing;
        find_eight(row, eight, group == 0, squares, values);
        stage_eight(eight, values);
    }
    float last[8] = nothing;
    if (eight < eights) find_eight(row, eight, group == 0, squares, last);
    if (WEIGHTS_FIRST == 0) {
        const uint none = floatBitsToUint(last[7]) & p.chunks >> 31; // 0, of which compilers do not know: these loads wait for those
        FETCH(min(chunk, p.chunks - 1) + none)
    }
    if (eight < eights) stage_eight(eight, last);
#ifdef NORMALIZED
    keep_squares(0, squares, LANES_NEAR);
#endif
    barrier();
    while (chunk < p.chunks) {
        [[unroll]] for (uint h = 0; h < HALVES; ++h) multiply_chunk(h, chunk, codes[h], terms[h]);
        chunk += LANES;
        FETCH(min(chunk, p.chunks - 1))
    }

    [[unroll]] for (uint distance = 1; distance < LANES_NEAR; distance *= 2)
        [[unroll]] for (uint h = 0; h < HALVES; ++h) sums[h] += subgroupShuffleXor(sums[h], distance);
    if (LANES > LANES_NEAR) {
        if (near == 0)
            [[unroll]] for (uint h = 0; h < HALVES; ++h) span_sums[h * SPANS + span] = sums[h];
        barrier();
        if (far > 0) return;
        [[unroll]] for (uint h = 0; h < HALVES; ++h)
            for (uint i = 1; i < LANES / LANES_NEAR; ++i) sums[h] += span_sums[h * SPANS + i * TEAMS + team];
    }
    if (first_quad + team >= quads || near > 0) return;
#ifdef NORMALIZED
    const float factor = row_factor(0);
    [[unroll]] for (uint h = 0; h < HALVES; ++h) sums[h] *= factor;
#endif
    if (GATE != GATE_NONE) store_gated(0, 0, row, quad * 4, sums[0], sums[HALVES - 1]);
    else store_quad(0, 0, row, quad * 4, sums[0]);
}
