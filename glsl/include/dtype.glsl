// Whole 16-byte words of a tensor, unpacked to arithmetic values and packed again.
//
// For a data type macro T (see the generated prelude: T storage type, T_MATH arithmetic type, T_BYTES) this gives
//   T_PER_WORD                     elements in a 16-byte word
//   void unpack_word(uvec4, out T_MATH[T_PER_WORD])
//   uvec4 pack_word(T_MATH[T_PER_WORD])
// FLOAT16 rounds to nearest even on packing; integers keep their low bits. Only 32-bit storage access is needed here,
// so packed kernels of 8 and 16-bit types move four or two elements a component whatever the device's storage features.

#ifndef DMLVK_DTYPE_GLSL
#define DMLVK_DTYPE_GLSL

#define T_PER_WORD (WORD_BYTES / T_BYTES)

#if defined(T_IS_FLOAT16)
void unpack_word(uvec4 word, out T_MATH values[T_PER_WORD]) {
    [[unroll]] for (int i = 0; i < 4; ++i) {
        const vec2 pair = unpackHalf2x16(word[i]);
        values[2 * i] = pair.x;
        values[2 * i + 1] = pair.y;
    }
}

uvec4 pack_word(T_MATH values[T_PER_WORD]) {
    uvec4 word;
    [[unroll]] for (int i = 0; i < 4; ++i) word[i] = packHalf2x16(vec2(values[2 * i], values[2 * i + 1]));
    return word;
}
#elif T_BYTES == 4
// Bit casts; the constructors below are chosen by type.
float from_bits_as(float unused, uint bits) { return uintBitsToFloat(bits); }
int from_bits_as(int unused, uint bits) { return int(bits); }
uint from_bits_as(uint unused, uint bits) { return bits; }
uint to_bits(float value) { return floatBitsToUint(value); }
uint to_bits(int value) { return uint(value); }
uint to_bits(uint value) { return value; }

void unpack_word(uvec4 word, out T_MATH values[T_PER_WORD]) {
    [[unroll]] for (int i = 0; i < 4; ++i) values[i] = from_bits_as(T_MATH(0), word[i]);
}

uvec4 pack_word(T_MATH values[T_PER_WORD]) {
    uvec4 word;
    [[unroll]] for (int i = 0; i < 4; ++i) word[i] = to_bits(values[i]);
    return word;
}
#elif defined(T_IS_FLOAT64)
void unpack_word(uvec4 word, out T_MATH values[T_PER_WORD]) {
    values[0] = packDouble2x32(word.xy);
    values[1] = packDouble2x32(word.zw);
}

uvec4 pack_word(T_MATH values[T_PER_WORD]) {
    return uvec4(unpackDouble2x32(values[0]), unpackDouble2x32(values[1]));
}
#elif T_BYTES == 8
void unpack_word(uvec4 word, out T_MATH values[T_PER_WORD]) {
    values[0] = T_MATH(packUint2x32(word.xy));
    values[1] = T_MATH(packUint2x32(word.zw));
}

uvec4 pack_word(T_MATH values[T_PER_WORD]) {
    return uvec4(unpackUint2x32(uint64_t(values[0])), unpackUint2x32(uint64_t(values[1])));
}
#else
// 8 and 16-bit integers: bit fields of a component, sign-extended where signed.
#define T_PER_COMPONENT (4 / T_BYTES)
#define T_BITS (8 * T_BYTES)

void unpack_word(uvec4 word, out T_MATH values[T_PER_WORD]) {
    [[unroll]] for (int i = 0; i < T_PER_WORD; ++i)
        values[i] = bitfieldExtract(T_MATH(word[i / T_PER_COMPONENT]), (i % T_PER_COMPONENT) * T_BITS, T_BITS);
}

uvec4 pack_word(T_MATH values[T_PER_WORD]) {
    uvec4 word = uvec4(0);
    [[unroll]] for (int i = 0; i < T_PER_WORD; ++i)
        word[i / T_PER_COMPONENT] = bitfieldInsert(
            word[i / T_PER_COMPONENT], uint(values[i]), (i % T_PER_COMPONENT) * T_BITS, T_BITS);
    return word;
}
#endif

#endif
