// Where an update goes: its indices name a place in the output, and that place's entry in a table of positions.
//
// The entry of a place holds 1 + the largest position of an update that has it, 0 where none has: so the last update is known
// whatever the order in which invocations run.
//
// Bindings: indices, as 32-bit words.
// Constants: TUPLE, indices of an update; INDEX_WORDS, INDEX_SIGNED (include/index.glsl).
// Parameters: chosen_sizes, of the dimensions that the indices are for; chosen_entries and, in the kernel that writes,
//   chosen_outputs, what a step along each of them is in the table and in the output; index_step, words between the indices of
//   an update.

#ifndef DMLVK_SCATTER_GLSL
#define DMLVK_SCATTER_GLSL

#include "index.glsl"
#include "tensor.glsl"

layout(set = 0, binding = BINDING_INDICES, std430) readonly buffer Indices { uint index_words[]; };

// Whether the indices from a word on are all in range. NAMED(k, index) is the kernel's macro for each of them.
#define FOR_EACH_INDEX(inside, first_word, NAMED)                                                                           \
    {                                                                                                                       \
        uint word_ = BYTE_OFFSET_INDICES / 4u + (first_word);                                                               \
        [[unroll]] for (uint k_ = 0u; k_ < TUPLE; ++k_) {                                                                   \
            const uint high_ = INDEX_WORDS == 2u ? index_words[word_ + 1u] : 0u;                                            \
            const uint index_ = resolve_index(index_words[word_], high_, p.chosen_sizes[k_]);                                \
            inside = inside && index_ != NO_INDEX;                                                                          \
            NAMED(k_, index_)                                                                                               \
            word_ += p.index_step;                                                                                          \
        }                                                                                                                   \
    }

#endif
