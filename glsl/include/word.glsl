// Loads and stores of a whole 16-byte word of a buffer's elements, as arithmetic values of the data type macro T.
//
// A buffer NAME has the view name_elements of T and the view name_words of uvec4, both from its binding's start.
//   LOAD_WORD(values, name, NAME, STEP, index)   values[i] = element index + i * STEP, STEP being 1 or 0 (a broadcast)
//   STORE_WORD(name, NAME, index, values)        element index + i = values[i]
// `index` counts elements from the tensor's first; it is a multiple of T_PER_WORD, but for a broadcast.

#ifndef DMLVK_WORD_GLSL
#define DMLVK_WORD_GLSL

#include "dtype.glsl"

#define LOAD_WORD(values, name, NAME, STEP, index)                                            \
    if ((STEP) == 0u) {                                                                       \
        const T_MATH only_ = T_MATH(name##_elements[BYTE_OFFSET_##NAME / T_BYTES + (index)]); \
        [[unroll]] for (int i_ = 0; i_ < T_PER_WORD; ++i_) values[i_] = only_;                \
    } else {                                                                                  \
        unpack_word(name##_words[BYTE_OFFSET_##NAME / 16 + (index) / T_PER_WORD], values);    \
    }

#define STORE_WORD(name, NAME, index, values) \
    name##_words[BYTE_OFFSET_##NAME / 16 + (index) / T_PER_WORD] = pack_word(values);

#endif
