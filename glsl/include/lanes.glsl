// Moves the LANES elements of an invocation between a buffer and arithmetic values: as one 16-byte word where LANES is
// T_PER_WORD, one by one at a row's end.
//
// A buffer NAME has the view name_elements of T and, where LANES > 1, name_words of uvec4, both from its binding's start.
//   LOAD_LANES(values, name, NAME, STEP, index, lanes)    values = elements index, index + STEP, ...; STEP is 0 or 1
//   STORE_LANES(name, NAME, index, lanes, values)         elements index, index + 1, ... = values
// `index` counts elements from the tensor's first, `lanes` is how many of the LANES exist; a word needs all of them and
// an index that is a multiple of LANES. Of a broadcast (STEP 0) only the one element is touched.

#ifndef DMLVK_LANES_GLSL
#define DMLVK_LANES_GLSL

#define LOAD_ELEMENTS(values, name, NAME, STEP, index, lanes)                                              \
    [[unroll]] for (uint lane_ = 0; lane_ < LANES; ++lane_)                                                \
        values[lane_] = lane_ < (lanes) ? T_MATH(name##_elements[BYTE_OFFSET_##NAME / T_BYTES + (index) +  \
                                                                 lane_ * (STEP)])                          \
                                        : T_MATH(0);

#define STORE_ELEMENTS(name, NAME, index, lanes, values)                                                   \
    [[unroll]] for (uint lane_ = 0; lane_ < LANES; ++lane_)                                                \
        if (lane_ < (lanes)) name##_elements[BYTE_OFFSET_##NAME / T_BYTES + (index) + lane_] = T(values[lane_]);

#if LANES > 1
#define LOAD_LANES(values, name, NAME, STEP, index, lanes)                                                 \
    if ((STEP) == 0u) {                                                                                    \
        const T_MATH only_ = T_MATH(name##_elements[BYTE_OFFSET_##NAME / T_BYTES + (index)]);              \
        [[unroll]] for (uint lane_ = 0; lane_ < LANES; ++lane_) values[lane_] = only_;                     \
    } else if ((lanes) == LANES) {                                                                         \
        unpack_word(name##_words[BYTE_OFFSET_##NAME / 16 + (index) / LANES], values);                      \
    } else {                                                                                               \
        LOAD_ELEMENTS(values, name, NAME, 1u, index, lanes)                                                \
    }
#define STORE_LANES(name, NAME, index, lanes, values)                                                      \
    if ((lanes) == LANES) {                                                                                \
        name##_words[BYTE_OFFSET_##NAME / 16 + (index) / LANES] = pack_word(values);                       \
    } else {                                                                                               \
        STORE_ELEMENTS(name, NAME, index, lanes, values)                                                   \
    }
#else
#define LOAD_LANES(values, name, NAME, STEP, index, lanes) LOAD_ELEMENTS(values, name, NAME, STEP, index, lanes)
#define STORE_LANES(name, NAME, index, lanes, values) STORE_ELEMENTS(name, NAME, index, lanes, values)
#endif

#endif
