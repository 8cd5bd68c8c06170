// The functions of lanes.glsl for one data type macro D, included once for each. OF_TYPE(name) is name##D, and TYPE_MATH,
// TYPE_BYTES and TYPE_IS_FLOAT are D's.
//
//   groups_D                       how many accesses LANES elements take
//   put_group_D, get_group_D       an access into an array of 32-bit words and out of it
//   unpack_D(words, out values)    elements from their words, in the arithmetic type
//   pack_D(values)                 and back: FLOAT16 rounds to nearest even, integers keep their low bits

#define WORDS_ (LANES * TYPE_BYTES / 4)

#if LANES * TYPE_BYTES == 4
const int OF_TYPE(groups_) = 1;
void OF_TYPE(put_group_)(inout uint words[WORDS_], int g, uint group) { words[g] = group; }
uint OF_TYPE(get_group_)(uint words[WORDS_], int g) { return words[g]; }
#elif LANES * TYPE_BYTES == 8
const int OF_TYPE(groups_) = 1;
void OF_TYPE(put_group_)(inout uint words[WORDS_], int g, uvec2 group) {
    words[2 * g] = group.x;
    words[2 * g + 1] = group.y;
}
uvec2 OF_TYPE(get_group_)(uint words[WORDS_], int g) { return uvec2(words[2 * g], words[2 * g + 1]); }
#else
const int OF_TYPE(groups_) = WORDS_ / 4;
void OF_TYPE(put_group_)(inout uint words[WORDS_], int g, uvec4 group) {
    [[unroll]] for (int i = 0; i < 4; ++i) words[4 * g + i] = group[i];
}
uvec4 OF_TYPE(get_group_)(uint words[WORDS_], int g) {
    return uvec4(words[4 * g], words[4 * g + 1], words[4 * g + 2], words[4 * g + 3]);
}
#endif

void OF_TYPE(unpack_)(uint words[WORDS_], out TYPE_MATH values[LANES]) {
    [[unroll]] for (int i = 0; i < LANES; ++i) {
#if TYPE_IS_FLOAT && TYPE_BYTES == 2
        values[i] = unpackHalf2x16(words[i / 2])[i % 2];
#elif TYPE_IS_FLOAT && TYPE_BYTES == 4
        values[i] = uintBitsToFloat(words[i]);
#elif TYPE_IS_FLOAT
        values[i] = packDouble2x32(uvec2(words[2 * i], words[2 * i + 1]));
#elif TYPE_BYTES == 8
        values[i] = TYPE_MATH(packUint2x32(uvec2(words[2 * i], words[2 * i + 1])));
#elif TYPE_BYTES == 4
        values[i] = TYPE_MATH(words[i]);
#else
        const int per_word = 4 / TYPE_BYTES, bits = 8 * TYPE_BYTES;
        values[i] = bitfieldExtract(TYPE_MATH(words[i / per_word]), i % per_word * bits, bits); // sign-extends where signed
#endif
    }
}

uint[WORDS_] OF_TYPE(pack_)(TYPE_MATH values[LANES]) {
    uint words[WORDS_];
#if TYPE_IS_FLOAT && TYPE_BYTES == 2
    [[unroll]] for (int i = 0; i < WORDS_; ++i) words[i] = packHalf2x16(vec2(values[2 * i], values[2 * i + 1]));
#elif TYPE_IS_FLOAT && TYPE_BYTES == 4
    [[unroll]] for (int i = 0; i < WORDS_; ++i) words[i] = floatBitsToUint(values[i]);
#elif TYPE_BYTES == 8
    [[unroll]] for (int i = 0; i < LANES; ++i) {
#if TYPE_IS_FLOAT
        const uvec2 halves = unpackDouble2x32(values[i]);
#else
        const uvec2 halves = unpackUint2x32(uint64_t(values[i]));
#endif
        words[2 * i] = halves.x;
        words[2 * i + 1] = halves.y;
    }
#elif TYPE_BYTES == 4
    [[unroll]] for (int i = 0; i < WORDS_; ++i) words[i] = uint(values[i]);
#else
    const int per_word = 4 / TYPE_BYTES, bits = 8 * TYPE_BYTES;
    [[unroll]] for (int i = 0; i < WORDS_; ++i) {
        words[i] = 0u;
        [[unroll]] for (int j = 0; j < per_word; ++j)
            words[i] = bitfieldInsert(words[i], uint(values[i * per_word + j]), j * bits, bits);
    }
#endif
    return words;
}

#undef WORDS_
#undef OF_TYPE
#undef TYPE_MATH
#undef TYPE_BYTES
#undef TYPE_IS_FLOAT
