// Elements of index tensors, which have four types: 32 or 64 bits, signed or not. They are read as 32-bit words, so that no
// 64-bit feature is needed.
//
// Constants of the kernel: INDEX_WORDS 1 or 2, INDEX_SIGNED 0 or 1.

#ifndef DMLVK_INDEX_GLSL
#define DMLVK_INDEX_GLSL

const uint NO_INDEX = 0xFFFFFFFFu; // below no size: a tensor has fewer elements

// An index of a dimension: a negative one counts from the end. NO_INDEX where it is out of range.
uint resolve_index(uint low, uint high, uint size) {
    if (INDEX_SIGNED == 1u && int(INDEX_WORDS == 2u ? high : low) < 0) {
        const uint back = 0u - low; // from 1 on, where the other word has nothing but the sign
        return (INDEX_WORDS == 1u || high == 0xFFFFFFFFu) && back != 0u && back <= size ? size - back : NO_INDEX;
    }
    return (INDEX_WORDS == 1u || high == 0u) && low < size ? low : NO_INDEX;
}

// resolve_index, but the nearest index in range for one out of range.
uint clamp_index(uint low, uint high, uint size) {
    const uint index = resolve_index(low, high, size);
    const bool is_negative = INDEX_SIGNED == 1u && int(INDEX_WORDS == 2u ? high : low) < 0;
    return index != NO_INDEX ? index : is_negative ? 0u : size - 1u;
}

#endif
