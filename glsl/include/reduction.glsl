// What the kernels of a reduction share: where rows lie, and where results go.
//
// A row is the set of elements that make one result: one index into the kept dimensions, all of the reduced ones. The
// result's position follows from the same index.
//
// Bindings: x; output; partials, accumulators on their way from one dispatch to the next: chunk c of row r at r * chunks + c.
// Of output and partials the one that is not written is bound to the other one's bytes.
// Constants: that of accumulator.glsl; SPLIT (1 leaves partials instead of results). Parameters: those of accumulator.glsl;
// index_words, 1 or 2, of an element of the output that is an index.

#ifndef DMLVK_REDUCTION_GLSL
#define DMLVK_REDUCTION_GLSL

#include "accumulator.glsl"
#include "lanes.glsl"
#include "tensor.glsl"

layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer Output { T output_elements[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer Indices { uint output_words[]; };
layout(set = 0, binding = BINDING_PARTIALS, std430) buffer Partials { uint partial_words[]; };

// Of ARG*, `second` is the place of an element.
void store_result(uint index, Accumulator a) {
    if (!is_argument()) {
        output_elements[BYTE_OFFSET_OUTPUT / T_BYTES + index] = T(finish(a));
    } else {
        const uint word = BYTE_OFFSET_OUTPUT / 4 + index * p.index_words;
        output_words[word] = place_of(a.second);
        if (p.index_words == 2u) output_words[word + 1] = 0u;
    }
}

void store_partial(uint index, Accumulator a) {
    const uint words[ACCUMULATOR_WORDS] = to_words(a);
    const uint first = BYTE_OFFSET_PARTIALS / 4 + index * ACCUMULATOR_WORDS;
    [[unroll]] for (int i = 0; i < ACCUMULATOR_WORDS; ++i) partial_words[first + i] = words[i];
}

Accumulator load_partial(uint index) {
    uint words[ACCUMULATOR_WORDS];
    const uint first = BYTE_OFFSET_PARTIALS / 4 + index * ACCUMULATOR_WORDS;
    [[unroll]] for (int i = 0; i < ACCUMULATOR_WORDS; ++i) words[i] = partial_words[first + i];
    return from_words(words);
}

#endif
