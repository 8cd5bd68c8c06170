// Random bits by Philox4x32-10 (include/philox.glsl).
//
//   y[4 i + j] = word j of block(counter + i, key), i the index in the order of coordinates
//
// Bindings: STATE, four words of counter and two of key, the least significant first; OUTPUT and OUTPUT_STATE, the counter
// moved on by the number of blocks, written. An invocation makes UNITS blocks.
// Variants: WORDS, how it writes:
//   1  a 16-byte word a block, and word by word what is left at the end. The output's rows are contiguous and start on
//      16 bytes; if there is more than one row, rows are whole blocks. The rule "words".
//   0  one 32-bit word at a time, any strides. The rule "elements".
// Constants: LOCAL_SIZE_X, UNITS, RANK, HAS_OUTPUT_STATE.
// Parameters: elements; blocks; sizes of the output, what divides by them, and strides, of blocks where WORDS is 1;
// state_step and output_state_step between the words of the states.

#include "philox.glsl"
#include "tensor.glsl"

layout(set = 0, binding = BINDING_STATE, std430) readonly buffer State { uint state[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer Output { uint output_elements[]; };
#if WORDS
layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer OutputWords { uvec4 output_words[]; };
#endif
layout(set = 0, binding = BINDING_OUTPUT_STATE, std430) writeonly buffer OutputState { uint output_state[]; };

uint state_word(uint i) { return state[BYTE_OFFSET_STATE / 4 + i * p.state_step]; }

// Where an element, or a block, of the output lies.
uint place_of(uint index) {
    uint place = 0u;
#define VISIT(dimension, coordinate) place += (coordinate) * p.strides[dimension];
    FOR_EACH_COORDINATE_FAST(index, RANK, p.sizes, p.divisors, VISIT)
    return place;
}

void store_block(uint index, uvec4 block) {
    const uint first = 4u * index;
#if WORDS
    if (p.elements - first >= 4u) {
        output_words[BYTE_OFFSET_OUTPUT / 16 + place_of(index)] = block;
        return;
    }
    const uint start = BYTE_OFFSET_OUTPUT / 4 + first;
    [[unroll]] for (uint j = 0u; j < 4u; ++j)
        if (j < p.elements - first) output_elements[start + j] = block[j];
#else
    [[unroll]] for (uint j = 0u; j < 4u; ++j)
        if (j < p.elements - first) output_elements[BYTE_OFFSET_OUTPUT / 4 + place_of(first + j)] = block[j];
#endif
}

void main() {
    const uvec4 counter = uvec4(state_word(0u), state_word(1u), state_word(2u), state_word(3u));
    const uvec2 key = uvec2(state_word(4u), state_word(5u));
    if (HAS_OUTPUT_STATE != 0u && linear_workgroup() == 0u && gl_LocalInvocationIndex < 6u) {
        const uint i = gl_LocalInvocationIndex;
        output_state[BYTE_OFFSET_OUTPUT_STATE / 4 + i * p.output_state_step] =
            i < 4u ? moved_on(counter, p.blocks)[i] : key[i - 4u];
    }
    const uint first = linear_workgroup() * UNITS * LOCAL_SIZE_X + gl_LocalInvocationIndex;
    [[unroll]] for (uint u = 0u; u < UNITS; ++u) {
        const uint index = first + u * LOCAL_SIZE_X;
        if (index < p.blocks) store_block(index, random_block(moved_on(counter, index), key));
    }
}
