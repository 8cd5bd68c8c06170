// y = 0 but for y[index[i]] = x[i]; of several i with one index the largest counts. Bits alone move.
//
// Three dispatches make that the same every time: PHASE 0 clears the table, PHASE 1 keeps in its entry the largest i + 1 that
// has the index, PHASE 2 turns entries into elements, 0 where no i came. The table is the output itself where its elements
// have 32-bit words, one entry in the first word of each; else it is temporary memory, one word an element of the output, or
// of a part of it where a binding holds no more: each part has three dispatches, and reads all indices.
//
// Bindings: input, indices (as 32-bit words), output, table (its 32-bit words, or the output's).
// Variants: T, the unsigned type of the elements, or UINT32 for the words of 64-bit ones.
// Constants: PHASE; WORDS, of T in an element; INDEX_WORDS (1 UINT32, 2 UINT64); IN_OUTPUT (1 where the table is).
// Parameters: first, the part's first element in the output, and places, how many it has; sizes and strides of 4 dimensions.
// Grid: x folded into y, over the elements of the part, in PHASE 1 of the input.

#include "tensor.glsl"

layout(set = 0, binding = BINDING_INPUT, std430) readonly buffer Input { T x[]; };
layout(set = 0, binding = BINDING_INDICES, std430) readonly buffer Indices { uint index_words[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) buffer Output { T y[]; };
layout(set = 0, binding = BINDING_TABLE, std430) buffer Table { uint table[]; };

#define ADD_STEP_(dim, coordinate) offset_ += (coordinate) * strides_[dim];
// Where the element of a linear index lies, in elements.
#define OFFSET(linear, sizes, divisors, strides, offset)                   \
    {                                                                      \
        const uint strides_[4] = strides;                                  \
        uint offset_ = 0;                                                  \
        FOR_EACH_COORDINATE_FAST(linear, 4, sizes, divisors, ADD_STEP_)    \
        offset = offset_;                                                  \
    }

uint output_offset(uint linear) {
    uint offset;
    OFFSET(linear, p.output_sizes, p.output_divisors, p.output_strides, offset)
    return offset;
}

// Of an element of the part; an output that is the table is one part.
uint entry_of(uint place) { return BYTE_OFFSET_TABLE / 4 + (IN_OUTPUT == 1 ? output_offset(place) * WORDS : place); }

void main() {
    if (beyond(p.count)) return;
    const uint linear = linear_invocation();
    if (PHASE == 0) {
        table[entry_of(linear)] = 0;
    } else if (PHASE == 1) {
        uint at;
        OFFSET(linear, p.input_sizes, p.input_divisors, p.index_strides, at)
        const uint word = BYTE_OFFSET_INDICES / 4 + at * INDEX_WORDS;
        const uint place = index_words[word] - p.first;
        const bool far = INDEX_WORDS == 2 && index_words[word + 1] != 0;
        if (!far && place < p.places) atomicMax(table[entry_of(place)], linear + 1);
    } else {
        const uint source = table[entry_of(linear)];
        const uint to = BYTE_OFFSET_OUTPUT / T_BYTES + output_offset(p.first + linear) * WORDS;
        uint from;
        OFFSET(max(source, 1) - 1, p.input_sizes, p.input_divisors, p.input_strides, from)
        from = BYTE_OFFSET_INPUT / T_BYTES + from * WORDS;
        [[unroll]] for (uint w = 0; w < WORDS; ++w) y[to + w] = T(source == 0 ? T_MATH(0) : T_MATH(x[from + w]));
    }
}
