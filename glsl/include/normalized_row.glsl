// Rows of a product that its workgroups normalize by the root mean square on their way to shared memory.
//
//   sum[m, k] = A[m, k] + norm_addend[m, k]    row m = norm_scale[k] * sum[m, k], and each product of it is to be multiplied with
//   1 / sqrt(mean of sum[m]^2 + epsilon)
//
// Every workgroup has the whole row, so that each finds its mean by itself, in one order, and no dispatch before this one has to. What the row is
// divided by is one number, which the finished sums are multiplied with: nothing waits for the mean.
//
// Before including: subgroups.glsl; the constants NORMALIZED_ROWS, the rows of a workgroup, and SPANS, the groups of neighbouring invocations
// that sum squares together. Buffers A, NORM_SCALE and SUM of type U, in which the sum is rounded, NORM_ADDEND of type T or U, as NORM_ADDEND_TYPE
// says; all of packed rows of p.depth elements, a multiple of 8. HAS_SUM: whether there is a SUM. Parameters: p.epsilon; p.zero is 0.

#ifndef DMLVK_NORMALIZED_ROW_GLSL
#define DMLVK_NORMALIZED_ROW_GLSL

layout(set = 0, binding = BINDING_A, std430) readonly buffer RowWords { uvec4 row_words[]; };
layout(set = 0, binding = BINDING_NORM_ADDEND, std430) readonly buffer NormAddendWords { uvec4 norm_addend_words[]; };
layout(set = 0, binding = BINDING_NORM_SCALE, std430) readonly buffer NormScaleWords { uvec4 norm_scale_words[]; };
layout(set = 0, binding = BINDING_SUM, std430) writeonly buffer SumWords { uvec4 sum_words[]; };

shared float span_squares[NORMALIZED_ROWS * SPANS];

const uint SUM_WORDS = U_BYTES / 2; // of eight numbers

// Eight numbers of so many bytes each, from a word of 16 bytes on.
#define LOAD_EIGHT(words, bytes, element, values)                                                        \
    {                                                                                                    \
        const uint at_ = (element) / (WORD_BYTES / (bytes));                                             \
        const uvec4 first_ = words[at_];                                                                 \
        if ((bytes) == 2) {                                                                              \
            [[unroll]] for (uint i_ = 0; i_ < 4; ++i_) {                                                 \
                const vec2 pair_ = unpackHalf2x16(first_[i_]);                                           \
                values[2 * i_] = pair_.x, values[2 * i_ + 1] = pair_.y;                                  \
            }                                                                                            \
        } else {                                                                                         \
            const uvec4 second_ = words[at_ + 1];                                                        \
            [[unroll]] for (uint i_ = 0; i_ < 4; ++i_)                                                   \
                values[i_] = uintBitsToFloat(first_[i_]), values[4 + i_] = uintBitsToFloat(second_[i_]); \
        }                                                                                                \
    }

// Adds eight numbers to those of A, which become what is written, and writes them.
void add_eight(uint element, bool writes, inout float values[8]) {
    float more[8];
    if (NORM_ADDEND_TYPE == ADDEND_TYPE_OUTPUT)
        LOAD_EIGHT(norm_addend_words, T_BYTES, BYTE_OFFSET_NORM_ADDEND / T_BYTES + element, more)
    else
        LOAD_EIGHT(norm_addend_words, U_BYTES, BYTE_OFFSET_NORM_ADDEND / U_BYTES + element, more)
    [[unroll]] for (uint e = 0; e < 8; ++e) values[e] += more[e];
    uvec4 words[SUM_WORDS];
    [[unroll]] for (uint w = 0; w < SUM_WORDS; ++w)
        [[unroll]] for (uint i = 0; i < 4; ++i) {
#if U_BYTES == 2
            // With a 0 of which compilers know nothing: NVIDIA's would take what is packed and unpacked for what it was before.
            words[w][i] = packHalf2x16(vec2(values[2 * i], values[2 * i + 1]));
            const vec2 pair = unpackHalf2x16(words[w][i] ^ p.zero);
            values[2 * i] = pair.x, values[2 * i + 1] = pair.y;
#else
            words[w][i] = floatBitsToUint(values[4 * w + i]);
#endif
        }
    if (HAS_SUM != 0 && writes)
        [[unroll]] for (uint w = 0; w < SUM_WORDS; ++w)
            sum_words[(BYTE_OFFSET_SUM / U_BYTES + element) / (WORD_BYTES / U_BYTES) + w] = words[w];
}

// Elements k to k + 7 of a row, not divided yet; their squares are added to others, and with `writes` the sum is written.
void eight_of_row(uint row, uint k, bool writes, inout float squares, out float values[8]) {
    const uint element = row * p.depth + k;
    float scales[8];
    LOAD_EIGHT(row_words, U_BYTES, BYTE_OFFSET_A / U_BYTES + element, values)
    LOAD_EIGHT(norm_scale_words, U_BYTES, BYTE_OFFSET_NORM_SCALE / U_BYTES + k, scales)
    if (NORM_ADDEND_TYPE != ADDEND_TYPE_NONE) add_eight(element, writes, values);
    [[unroll]] for (uint e = 0; e < 8; ++e) {
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
