// Rows of a product that its workgroups normalize by the root mean square on their way to shared memory.
//
//   sum[m, k] = A[m, k] + norm_addend[m, k]    row m = norm_scale[k] * sum[m, k], and each product of it is to be multiplied with
//   1 / sqrt(mean of sum[m]^2 + epsilon)
//
// Every workgroup has the whole row, so that each finds its mean by itself, in one order, and no dispatch before this one has to. What the row is
// divided by is one number, which the finished sums are multiplied with: nothing waits for the mean.
//
// Before including: subgroups.glsl; the constants NORMALIZED_ROWS, the rows of a workgroup, and SPANS, the groups of neighbouring invocations
// that sum squares together. AT_ONCE, of the manifest: how many numbers an invocation takes at a time, 8 or 4. Buffers A, NORM_SCALE and SUM of
// type U, in which the sum is rounded, NORM_ADDEND of type T, U or FLOAT16, as NORM_ADDEND_TYPE says; all of packed rows of p.depth elements, a multiple
// of AT_ONCE. HAS_SUM: whether there is a SUM. Parameters: p.epsilon; p.zero is 0.

#ifndef DMLVK_NORMALIZED_ROW_GLSL
#define DMLVK_NORMALIZED_ROW_GLSL

// As many numbers of 16 bits as are taken at a time, or half as many of 32.
#if AT_ONCE == 8
#define NUMBERS uvec4
#else
#define NUMBERS uvec2
#endif

layout(set = 0, binding = BINDING_A, std430) readonly buffer RowNumbers { NUMBERS row_numbers[]; };
layout(set = 0, binding = BINDING_NORM_ADDEND, std430) readonly buffer NormAddendNumbers { NUMBERS norm_addend_numbers[]; };
layout(set = 0, binding = BINDING_NORM_SCALE, std430) readonly buffer NormScaleNumbers { NUMBERS norm_scale_numbers[]; };
layout(set = 0, binding = BINDING_SUM, std430) writeonly buffer SumNumbers { NUMBERS sum_numbers[]; };

shared float span_squares[NORMALIZED_ROWS * SPANS];

const uint HALF = AT_ONCE / 2;
const uint ADDEND_BYTES = NORM_ADDEND_TYPE == ADDEND_TYPE_OUTPUT ? T_BYTES : NORM_ADDEND_TYPE == ADDEND_TYPE_INPUT ? U_BYTES : 2;

// What is read of AT_ONCE elements, as it lies in memory: a number of 32 bits is one of a second word, too.
struct Fetched {
    NUMBERS own[2];
    NUMBERS more[2];
    NUMBERS scales[2];
};

#define FETCH_NUMBERS(numbers, bytes, element, into)                                 \
    {                                                                                \
        const uint at_ = (element) / (2 * AT_ONCE / (bytes));                        \
        [[unroll]] for (uint w_ = 0; w_ < (bytes) / 2; ++w_) into[w_] = numbers[at_ + w_]; \
    }

// Elements k to k + AT_ONCE - 1 of a row.
Fetched fetch_numbers(uint row, uint k) {
    const uint element = row * p.depth + k;
    Fetched found;
    FETCH_NUMBERS(row_numbers, U_BYTES, BYTE_OFFSET_A / U_BYTES + element, found.own)
    FETCH_NUMBERS(norm_scale_numbers, U_BYTES, BYTE_OFFSET_NORM_SCALE / U_BYTES + k, found.scales)
    if (NORM_ADDEND_TYPE != ADDEND_TYPE_NONE)
        FETCH_NUMBERS(norm_addend_numbers, ADDEND_BYTES, BYTE_OFFSET_NORM_ADDEND / ADDEND_BYTES + element, found.more)
    return found;
}

void unpack_numbers(NUMBERS words[2], uint bytes, out float values[AT_ONCE]) {
    [[unroll]] for (uint i = 0; i < HALF; ++i) {
        const vec2 pair = unpackHalf2x16(words[0][i]);
        values[bytes == 2 ? 2 * i : i] = bytes == 2 ? pair.x : uintBitsToFloat(words[0][i]);
        values[bytes == 2 ? 2 * i + 1 : HALF + i] = bytes == 2 ? pair.y : uintBitsToFloat(words[1][i]);
    }
}

// Adds numbers to those of A, which become what is written, and writes them.
void add_numbers(Fetched fetched, uint element, bool writes, inout float values[AT_ONCE]) {
    float more[AT_ONCE];
    unpack_numbers(fetched.more, ADDEND_BYTES, more);
    [[unroll]] for (uint e = 0; e < AT_ONCE; ++e) values[e] += more[e];
    NUMBERS found[U_BYTES / 2];
    [[unroll]] for (uint w = 0; w < U_BYTES / 2; ++w)
        [[unroll]] for (uint i = 0; i < HALF; ++i) {
#if U_BYTES == 2
            // With a 0 of which compilers know nothing: NVIDIA's would take what is packed and unpacked for what it was before.
            found[w][i] = packHalf2x16(vec2(values[2 * i], values[2 * i + 1]));
            const vec2 pair = unpackHalf2x16(found[w][i] ^ p.zero);
            values[2 * i] = pair.x, values[2 * i + 1] = pair.y;
#else
            found[w][i] = floatBitsToUint(values[HALF * w + i]);
#endif
        }
    if (HAS_SUM != 0 && writes)
        [[unroll]] for (uint w = 0; w < U_BYTES / 2; ++w)
            sum_numbers[(BYTE_OFFSET_SUM / U_BYTES + element) / (2 * AT_ONCE / U_BYTES) + w] = found[w];
}

// The same elements, not divided yet; their squares are added to others, and with `writes` the sum is written.
void numbers_of_row(Fetched fetched, uint row, uint k, bool writes, inout float squares, out float values[AT_ONCE]) {
    float scales[AT_ONCE];
    unpack_numbers(fetched.own, U_BYTES, values);
    unpack_numbers(fetched.scales, U_BYTES, scales);
    if (NORM_ADDEND_TYPE != ADDEND_TYPE_NONE) add_numbers(fetched, row * p.depth + k, writes, values);
    [[unroll]] for (uint e = 0; e < AT_ONCE; ++e) {
        squares = fma(values[e], values[e], squares);
        values[e] *= scales[e];
    }
}

// Keeps the squares of row `slot` of the workgroup that the invocations of a span, `near` neighbours, have found.
void keep_squares(uint slot, float squares, uint near) {
    for (uint distance = 1; distance < near; distance *= 2) squares += subgroupShuffleXor(squares, distance);
    const uint invocation = workgroup_invocation();
    if (invocation % near == 0) span_squares[slot * SPANS + invocation / near] = squares;
}

// What products of row `slot` are multiplied with; behind a barrier.
float row_factor(uint slot) {
    float squares = 0.0;
    for (uint i = 0; i < SPANS; ++i) squares += span_squares[slot * SPANS + i];
    return 1.0 / sqrt(squares / float(p.depth) + p.epsilon);
}

#endif
