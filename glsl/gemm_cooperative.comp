// Matrix product by cooperative matrices: float16 or bfloat16 factors, float32 sums.
//
//   y = activation(alpha * sum over k of a[m, k] * b[k, n] + beta * c[m, n] + addend[m, n])
//
// Bindings: A, B, C, Addend, Y; see include/gemm.glsl. FLOAT32 factors are rounded to float16: only for operators compiled with
// ALLOW_HALF_PRECISION_COMPUTATION.
// Constants: those of include/cooperative_tile.glsl, which multiplies; VECTOR_A, VECTOR_B (1), how the operand's elements are read, 8 at a
// time: ACCESS_WORDS where its lines start on 16 bytes of float16 (32 of float32) and their elements are neighbours, and lines along the depth
// hold whole words of 8, so that a word is a load or two; ACCESS_SHIFTED where elements of 16 bits are neighbours, wherever lines start: the
// two words that 8 of them lie in; else ACCESS_ELEMENTS, one by one; VECTOR_Y (1): how Y is stored (gemm_quads.glsl); HAS_C (1), ADDEND (0),
// the activation's id; PARTIAL (0), as in gemm_tiled.
// Variant WHOLE: 1 where both operands have whole words, 0 where one of them may not. Variant ADDS: whether there is an addend beside C.
// Grid: linear over matrices, splits and tiles, a matrix's tiles neighbours.
//
// Chosen where the device multiplies such matrices and the product fills tiles: on an H200 (driver 580, 2026-11-29) 340 TFLOP/s at 4096^3 in
// float16, and 180 at 4096 x 4100 of depth 4100, whose lines start anywhere, where one element at a time reached 78. The matrices of whole
// workgroups that VK_NV_cooperative_matrix2 has were tried in this kernel's place and reached 168.

#pragma use_vulkan_memory_model

// With the two numbers more that a scaled clip reads, the driver of an H200 spills: 3980 us instead of 416 at 4096^3.
#define NO_SCALED_CLIP
// An H100's does so, too, with activations as accurate as float32, whether or not there is one: 4850 us where factors are FLOAT32.
#define SHORT_MATH

#include "tensor.glsl"
#include "gemm_quads.glsl"
#include "bands.glsl"

layout(set = 0, binding = BINDING_A, std430) readonly buffer WordsA { uvec4 words_a[]; };
layout(set = 0, binding = BINDING_B, std430) readonly buffer WordsB { uvec4 words_b[]; };

uint start_a;
uint start_b;
uint first_m;
uint first_n;

#if WHOLE && T_BYTES == 2
#define Raw uvec4
uvec4 packed_a(Raw raw) { return raw; }
uvec4 packed_b(Raw raw) { return raw; }
#elif T_BYTES == 2
struct Raw {
    uvec4 low, high; // ACCESS_SHIFTED: the two words that 8 elements lie in, or one twice; ACCESS_WORDS: the word; else 8 numbers
    uint before;     // ACCESS_SHIFTED: of the first word's elements, those before the first of the 8
};
uvec4 packed(Raw raw, uint access) {
    if (access == ACCESS_WORDS) return raw.low;
    if (access == ACCESS_ELEMENTS)
        return uvec4(raw.low.xz | raw.low.yw << 16, raw.high.xz | raw.high.yw << 16);
    const bool four = (raw.before & 4) != 0, two = (raw.before & 2) != 0, one = (raw.before & 1) != 0;
    const uvec4 near = four ? uvec4(raw.low.zw, raw.high.xy) : raw.low;
    const uvec2 far = four ? raw.high.zw : raw.high.xy;
    const uvec4 word = two ? uvec4(near.yzw, far.x) : near;
    const uint last = two ? far.y : far.x;
    return one ? word >> 16 | uvec4(word.yzw, last) << 16 : word;
}
uvec4 packed_a(Raw raw) { return packed(raw, VECTOR_A); }
uvec4 packed_b(Raw raw) { return packed(raw, VECTOR_B); }
#else
struct Raw { uint e[8]; };
uvec4 packed_a(Raw raw) {
    uvec4 word;
    [[unroll]] for (uint i = 0; i < 4; ++i)
        word[i] = packHalf2x16(vec2(uintBitsToFloat(raw.e[2 * i]), uintBitsToFloat(raw.e[2 * i + 1])));
    return word;
}
uvec4 packed_b(Raw raw) { return packed_a(raw); }
#endif

// 8 elements: `valid` of them, the others zeros. In words where the operand's lines allow it, else one by one with `step` between them, those
// from `most` on reading the one before. Bound ranges end with whole words of 16 bytes, so that one with an element in it may be read.
#if WHOLE && T_BYTES == 2
#define EIGHT(name, elements, words, access)                                                                \
    Raw name(uint first, uint step, uint most, uint valid) { return valid != 0 ? words[first / 8] : uvec4(0); }
#elif T_BYTES == 2
#ifdef T_IS_BFLOAT16
#define BITS(element) uint(element)
#else
#define BITS(element) uint(float16BitsToUint16(element))
#endif
// A shifted word of which not all counts, which is seldom, is put in its place at once.
#define EIGHT(name, elements, words, access)                                                                \
    Raw name(uint first, uint step, uint most, uint valid) {                                                \
        Raw raw;                                                                                            \
        if (access == ACCESS_WORDS) {                                                                       \
            raw.low = valid != 0 ? words[first / 8] : uvec4(0);                                             \
        } else if (access == ACCESS_SHIFTED) {                                                              \
            const uint at = valid != 0 ? first : 0;                                                         \
            raw.low = words[at / 8];                                                                        \
            raw.high = words[(at + min(most, max(valid, 1) - 1)) / 8];                                      \
            raw.before = at % 8;                                                                            \
            if (valid < 8) {                                                                                \
                const uvec4 word = packed(raw, ACCESS_SHIFTED);                                             \
                [[unroll]] for (uint i = 0; i < 4; ++i)                                                     \
                    raw.low[i] = 2 * i + 1 < valid ? word[i] : 2 * i < valid ? word[i] & 0xFFFFu : 0;       \
                raw.before = 0;                                                                             \
            }                                                                                               \
        } else {                                                                                            \
            [[unroll]] for (uint i = 0; i < 4; ++i) {                                                       \
                raw.low[i] = i < valid ? BITS(elements[first + min(i, most) * step]) : 0;                   \
                raw.high[i] = i + 4 < valid ? BITS(elements[first + min(i + 4, most) * step]) : 0;          \
            }                                                                                               \
        }                                                                                                   \
        return raw;                                                                                         \
    }
#else
#define EIGHT(name, elements, words, access)                                                                \
    Raw name(uint first, uint step, uint most, uint valid) {                                                \
        Raw raw;                                                                                            \
        [[unroll]] for (uint i = 0; i < 8; ++i)                                                             \
            if (access == ACCESS_WORDS) raw.e[i] = valid != 0 ? words[first / 4 + i / 4][i % 4] : 0;        \
            else raw.e[i] = i < valid ? floatBitsToUint(elements[first + min(i, most) * step]) : 0;         \
        return raw;                                                                                         \
    }
#endif
EIGHT(eight_of_a, a, words_a, VECTOR_A)
EIGHT(eight_of_b, b, words_b, VECTOR_B)

// The last row or column that a word may start at: rows and columns past the end read others, and nobody stores what comes of it.
uint across(uint at, uint count) { return min(at, (count - 1) & ~7u); }

uint place_a(uint line, uint word) {
    const uint m = A_ALONG_K != 0 ? min(first_m + line, p.rows - 1) : across(first_m + 8 * word, p.rows);
    return start_a + m * p.a_strides[2] + (A_ALONG_K != 0 ? 8 * word : line) * p.a_strides[3];
}

uint place_b(uint line, uint word) {
    const uint n = B_ALONG_K != 0 ? min(first_n + line, p.columns - 1) : across(first_n + 8 * word, p.columns);
    return start_b + n * p.b_strides[3] + (B_ALONG_K != 0 ? 8 * word : line) * p.b_strides[2];
}

Raw head_a(uint place, uint line, uint word, uint k, uint count) {
    const uint first = place + k * p.a_strides[3];
    if (A_ALONG_K != 0) return eight_of_a(first, p.a_strides[3], 7, count - min(count, 8 * word));
    return eight_of_a(first, p.a_strides[2], p.rows - 1 - across(first_m + 8 * word, p.rows), line < count ? 8 : 0);
}

Raw head_b(uint place, uint line, uint word, uint k, uint count) {
    const uint first = place + k * p.b_strides[2];
    if (B_ALONG_K != 0) return eight_of_b(first, p.b_strides[2], 7, count - min(count, 8 * word));
    return eight_of_b(first, p.b_strides[3], p.columns - 1 - across(first_n + 8 * word, p.columns), line < count ? 8 : 0);
}

Raw fetch_a(uint place, uint line, uint word, uint k) {
    const uint first = place + k * p.a_strides[3];
    if (A_ALONG_K != 0) return eight_of_a(first, p.a_strides[3], 7, 8);
    return eight_of_a(first, p.a_strides[2], p.rows - 1 - across(first_m + 8 * word, p.rows), 8);
}

Raw fetch_b(uint place, uint line, uint word, uint k) {
    const uint first = place + k * p.b_strides[2];
    if (B_ALONG_K != 0) return eight_of_b(first, p.b_strides[2], 7, 8);
    return eight_of_b(first, p.b_strides[3], p.columns - 1 - across(first_n + 8 * word, p.columns), 8);
}

#ifdef T_IS_BFLOAT16
#define FACTOR bfloat16_t
#define SUM_TYPE float
#endif
#if ADDS
void begin_sums();
#define SUMS_BEGIN if (ADDEND >= ADDEND_FIRST) begin_sums();
#endif
// With the widest tile 432 us so and 420 without, at 4096^3.
#define LATE (TILE_N <= 128)
#include "cooperative_tile.glsl"
#include "cooperative_store.glsl"
#include "cooperative_begin.glsl"

void main() {
    const uint tiles_m = (p.rows + TILE_M - 1) / TILE_M;
    const uint tiles_n = (p.columns + TILE_N - 1) / TILE_N;
    const uint part = linear_workgroup() / (tiles_m * tiles_n);
    const uint matrix = part / p.splits;
    const uint split = part - matrix * p.splits;
    if (matrix >= p.matrices) return;
    const uvec2 tile = tile_in_bands(linear_workgroup() - part * tiles_m * tiles_n, tiles_m, tiles_n);
    first_m = tile.x * TILE_M;
    first_n = tile.y * TILE_N;
    const uint outer = matrix / p.inner_batch;
    const uint inner = matrix - outer * p.inner_batch;
    start_a = BYTE_OFFSET_A / T_BYTES + matrix_start(outer, inner, p.a_strides);
    start_b = BYTE_OFFSET_B / T_BYTES + matrix_start(outer, inner, p.b_strides);
#if ADDS
    addend_start = BYTE_OFFSET_ADDEND / R_BYTES + matrix_start(outer, inner, p.addend_strides);
#endif

    // Products of few workgroups would wait for C once more in the end: an element of each of its sectors is asked for now. H200, 128 rows
    // of BERT's products: 0.2 to 0.7 us of 6 to 9.
    const bool asks = HAS_C != 0 && PARTIAL == 0 && AHEAD > 1;
    float asked = 0;
    if (asks) {
        const uint m = min(first_m + gl_SubgroupID / SUBGROUPS_N * SUB_M + gl_SubgroupInvocationID / (SUB_N / 4), p.rows - 1);
        const uint n = min(first_n + gl_SubgroupID % SUBGROUPS_N * SUB_N + gl_SubgroupInvocationID % (SUB_N / 4) * 4, p.columns - 1);
        asked = load_c(matrix_start(outer, inner, p.c_strides) + m * p.c_strides[2] + n * p.c_strides[3]);
    }

    const uint first = split * p.split_rounds * TILE_K;
    multiply(first, min(first + p.split_rounds * TILE_K, p.depth));

    if (asks && floatBitsToUint(asked) == p.depth && p.rows == 0) tiles[0] = uvec4(0); // never: what is asked for must seem to be used
    STORE_TILE(outer, inner, matrix, split)
}
