// Weights of a few bits in blocks, as block_pack.comp lays them out: columns of a product, or rows of a table, of p.depth codes.
//
//   number = scale * (code - zero) + minimum, in float32
//
// The buffer B has planes one after the other, each from a multiple of 16 bytes on, the first from 0 and the others from these words:
//   the low 4 bits of codes    [column, chunk] 16 bytes for a chunk of CHUNK codes. Of 8 bits, the chunk's first half
//   p.high_start               [column, chunk] the further bits: 4 bytes of 5, 8 of 6; of 8 bits the second half, 16
//   p.scale_start              [quad, block]   the scales of four columns side by side
//   p.offset_start             [quad, block]   their zero points or minimums likewise
//   p.factor_start             [quad, group]   the FLOAT16 of a group's scales, and that of its minimums above it
// A chunk has four groups of eight codes. Of up to 6 bits a word of 32 has those of one: code 2 i in bits 4 i and on, code 2 i + 1 in bits
// 16 + 4 i and on, so that a mask and a shift give two neighbours as halves of a word. Further bits are likewise those of pairs,
// 16 bits apart. Of 8 bits two words have a group, their bytes in the order 0, 2, 1, 3.
//
// Constants: BITS, BLOCK, GROUP, SCALE, OFFSET (dmlvk/spec/block_formats.py). Parameters: the starts, p.chunks of a column,
// p.blocks, p.groups.

#ifndef DMLVK_BLOCK_CODES_GLSL
#define DMLVK_BLOCK_CODES_GLSL

layout(set = 0, binding = BINDING_B, std430) readonly buffer BlockWords { uint block_words[]; };
layout(set = 0, binding = BINDING_B, std430) readonly buffer BlockPairs { uvec2 block_pairs[]; };
layout(set = 0, binding = BINDING_B, std430) readonly buffer BlockQuads { uvec4 block_quads[]; };

// The middle of the codes.
const uint CENTRE = 1u << (BITS - 1u);
const uint GROUPS_OF_EIGHT = CHUNK / 8;

struct Chunk {
    uvec4 low, high;
};

Chunk load_chunk(uint column, uint chunk) {
    const uint at = column * p.chunks + chunk;
    Chunk found;
    found.low = block_quads[BYTE_OFFSET_B / 16 + at];
    found.high = uvec4(0);
    if (BITS == 8) found.high = block_quads[BYTE_OFFSET_B / 16 + p.high_start / 4 + at];
    if (BITS == 6) found.high.xy = block_pairs[BYTE_OFFSET_B / 8 + p.high_start / 2 + at];
    if (BITS == 5) found.high.x = block_words[BYTE_OFFSET_B / 4 + p.high_start + at];
    return found;
}

// The word of codes 4 w .. 4 w + 3 of a chunk of 8 bits.
uint word_of_bytes(Chunk chunk, uint w) { return w < 4 ? chunk.low[w] : chunk.high[w - 4]; }

// Codes 2 i and 2 i + 1 of group g, in the halves of a word.
uint pair_of(Chunk chunk, uint g, uint i) {
    if (BITS == 8) return word_of_bytes(chunk, 2 * g + i / 2) >> 8 * (i % 2) & 0x00FF00FFu;
    uint pair = chunk.low[g] >> 4 * i & 0x000F000Fu;
    if (BITS == 6) pair |= (chunk.high[g / 2] >> 2 * (g % 2 * 4 + i) & 0x00030003u) << 4;
    if (BITS == 5) pair |= (chunk.high.x >> (g * 4 + i) & 0x00010001u) << 4;
    return pair;
}

// Bits `first` to `first + count` - 1 of a word, below the 23rd, less CENTRE: as the low bits of a float of 2^23 they need no shift, and
// taking that off again is exact.
float field(uint word, uint first, uint count) {
    const float unit = 1.0 / float(1u << first);
    const uint bits = word & (((1u << count) - 1u) << first);
    return fma(uintBitsToFloat(bits | 0x4B000000u), unit, -8388608.0 * unit - float(CENTRE));
}

// The codes of group g less CENTRE.
void eight_of(Chunk chunk, uint g, out float codes[8]) {
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        uint word, first, count = BITS;
        if (BITS == 4) {
            word = chunk.low[g], first = 4 * i;
        } else if (BITS == 8) {
            word = word_of_bytes(chunk, 2 * g + i / 2), first = 8 * (i % 2);
        } else {
            word = pair_of(chunk, g, i), first = 0;
        }
        codes[2 * i] = field(word, first, count);
        codes[2 * i + 1] = field(word >> 16, first, count);
    }
}

// What makes numbers of codes, for four columns.
struct Terms {
    vec4 scale, zero, minimum;
};

// Four numbers of the scales' type, at an index of a plane.
vec4 four_reals(uint start, uint at) {
    if (SCALE == SCALE_FLOAT32) return uintBitsToFloat(block_quads[BYTE_OFFSET_B / 16 + start / 4 + at]);
    const uvec2 pair = block_pairs[BYTE_OFFSET_B / 8 + start / 2 + at];
    if (SCALE == SCALE_BFLOAT16)
        return uintBitsToFloat(uvec4(pair.x << 16, pair.x & 0xFFFF0000u, pair.y << 16, pair.y & 0xFFFF0000u));
    return vec4(unpackHalf2x16(pair.x), unpackHalf2x16(pair.y));
}

vec4 four_bytes(uint start, uint at) {
    const uint word = block_words[BYTE_OFFSET_B / 4 + start + at];
    return vec4(word & 0xFFu, word >> 8 & 0xFFu, word >> 16 & 0xFFu, word >> 24);
}

vec4 four_signed_bytes(uint start, uint at) {
    const int word = int(block_words[BYTE_OFFSET_B / 4 + start + at]);
    return vec4(bitfieldExtract(word, 0, 8), bitfieldExtract(word, 8, 8), bitfieldExtract(word, 16, 8), word >> 24);
}

// Those of one column, as they lie in memory, with the column.
struct ColumnBits {
    uint scale, offset, factor, column;
};

ColumnBits load_bits(uint column, uint block) {
    const uint quad = column / 4, c = column % 4, at = quad * p.blocks + block, start = BYTE_OFFSET_B / 4;
    const bool grouped = SCALE == SCALE_SIXES || SCALE == SCALE_BYTES;
    const uint real = SCALE == SCALE_FLOAT32 ? at * 4 + c : at * 2 + c / 2;
    ColumnBits found = ColumnBits(0, 0, 0, column);
    found.scale = block_words[start + p.scale_start + (grouped ? at : real)];
    if (OFFSET == OFFSET_ZERO_POINT || OFFSET == OFFSET_LESS) found.offset = block_words[start + p.offset_start + at];
    if (OFFSET == OFFSET_REAL || OFFSET == OFFSET_MINIMUM) found.offset = block_words[start + p.offset_start + real];
    if (grouped) found.factor = block_words[start + p.factor_start + (quad * p.groups + block / max(GROUP / BLOCK, 1)) * 4 + c];
    return found;
}

float real_of(uint word, uint c) {
    if (SCALE == SCALE_FLOAT32) return uintBitsToFloat(word);
    const uint half_ = word >> 16 * (c % 2) & 0xFFFFu;
    return SCALE == SCALE_BFLOAT16 ? uintBitsToFloat(half_ << 16) : unpackHalf2x16(half_).x;
}

// (scale, zero, minimum) of a column. Products with the FLOAT16 of a group are exact.
vec3 terms_of(ColumnBits bits) {
    const uint c = bits.column % 4;
    vec3 found = vec3(0.0, float(CENTRE), 0.0);
    const vec2 factor = unpackHalf2x16(bits.factor);
    const float byte = float(bits.offset >> 8 * c & 0xFFu);
    if (SCALE == SCALE_SIXES) found.x = factor.x * float(bits.scale >> 8 * c & 0xFFu);
    else if (SCALE == SCALE_BYTES) found.x = factor.x * float(bitfieldExtract(int(bits.scale), int(8 * c), 8));
    else found.x = real_of(bits.scale, c);
    if (OFFSET == OFFSET_ZERO_POINT) found.y = byte;
    if (OFFSET == OFFSET_REAL) found.y = real_of(bits.offset, c);
    if (OFFSET == OFFSET_MINIMUM) found.yz = vec2(0.0, real_of(bits.offset, c));
    if (OFFSET == OFFSET_LESS) found.yz = vec2(0.0, -factor.y * byte);
    return found;
}

// Those of block `block` of the four columns of a quad. Products with the FLOAT16 of a group are exact.
Terms terms_of(uint quad, uint block) {
    const uint at = quad * p.blocks + block;
    Terms found = Terms(vec4(0), vec4(float(CENTRE)), vec4(0));
    if (SCALE == SCALE_SIXES || SCALE == SCALE_BYTES) {
        const uvec4 factors = block_quads[BYTE_OFFSET_B / 16 + p.factor_start / 4 + quad * p.groups + block / max(GROUP / BLOCK, 1)];
        vec4 factor, least;
        [[unroll]] for (uint c = 0; c < 4; ++c) {
            const vec2 both = unpackHalf2x16(factors[c]);
            factor[c] = both.x, least[c] = both.y;
        }
        found.scale = factor * (SCALE == SCALE_SIXES ? four_bytes(p.scale_start, at) : four_signed_bytes(p.scale_start, at));
        if (OFFSET == OFFSET_LESS) found.minimum = -least * four_bytes(p.offset_start, at);
    } else {
        found.scale = four_reals(p.scale_start, at);
    }
    if (OFFSET == OFFSET_ZERO_POINT) found.zero = four_bytes(p.offset_start, at);
    if (OFFSET == OFFSET_REAL) found.zero = four_reals(p.offset_start, at);
    if (OFFSET == OFFSET_MINIMUM) found.minimum = four_reals(p.offset_start, at);
    if (OFFSET == OFFSET_MINIMUM || OFFSET == OFFSET_LESS) found.zero = vec4(0);
    return found;
}

// Eight codes of a column as they lie in memory: a word of them, another one or that of their further bits, the group's number in its
// chunk, and what makes numbers of them.
struct EightCodes {
    uint low, more, g;
    ColumnBits bits;
};

// Group `eight` of a column.
EightCodes load_eight_codes(uint column, uint eight) {
    const uint chunk = column * p.chunks + eight / GROUPS_OF_EIGHT, g = eight % GROUPS_OF_EIGHT, start = BYTE_OFFSET_B / 4;
    EightCodes found;
    found.g = g;
    found.more = 0;
    if (BITS == 8) {
        const uint half_ = GROUPS_OF_EIGHT / 2;
        const uvec2 codes = block_pairs[(start + (g < half_ ? 0 : p.high_start) + chunk * 4) / 2 + g % half_];
        found.low = codes.x, found.more = codes.y;
    } else {
        found.low = block_words[start + chunk * 4 + g];
        if (BITS == 6) found.more = block_words[start + p.high_start + chunk * 2 + g / 2];
        if (BITS == 5) found.more = block_words[start + p.high_start + chunk];
    }
    found.bits = load_bits(column, eight * 8 / BLOCK);
    return found;
}

// Group g of a chunk.
EightCodes eight_codes_of(Chunk chunk, uint g, ColumnBits bits) {
    EightCodes found = EightCodes(chunk.low[g], 0, g, bits);
    if (BITS == 8) found.low = word_of_bytes(chunk, 2 * g), found.more = word_of_bytes(chunk, 2 * g + 1);
    if (BITS == 6) found.more = chunk.high[g / 2];
    if (BITS == 5) found.more = chunk.high.x;
    return found;
}

// Their numbers.
void numbers_of(EightCodes codes, out float numbers[8]) {
    const vec3 terms = terms_of(codes.bits);
    const float rest = fma(terms.x, float(CENTRE) - terms.y, terms.z);
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        uint pair;
        if (BITS == 8) {
            pair = (i < 2 ? codes.low : codes.more) >> 8 * (i % 2) & 0x00FF00FFu;
        } else {
            pair = codes.low >> 4 * i & 0x000F000Fu;
            if (BITS == 6) pair |= (codes.more >> 2 * (codes.g % 2 * 4 + i) & 0x00030003u) << 4;
            if (BITS == 5) pair |= (codes.more >> (codes.g * 4 + i) & 0x00010001u) << 4;
        }
        numbers[2 * i] = fma(terms.x, field(pair, 0, 16), rest);
        numbers[2 * i + 1] = fma(terms.x, field(pair >> 16, 0, 16), rest);
    }
}

// Whether a number is the product of two FLOAT16: the scale, and a code less CENTRE.
const bool HALF_NUMBERS = SCALE == SCALE_FLOAT16 && OFFSET == OFFSET_NONE && BITS != 6;

#ifdef HALF_ARITHMETIC // defined by who has the extension for it
// The numbers, rounded to FLOAT16 as they come, where HALF_NUMBERS. Two codes that lie in halves of a word are the low bits of two FLOAT16
// of 1024, or four bits further up, so that next to nothing has to be shifted; taking 1024 off again is exact. What the driver does not know for
// a constant is in a register: an instruction that masks and adds bits has one constant only.
void half_numbers_of(EightCodes codes, out uvec4 numbers) {
    const uint thousands = 0x64006400u | p.chunks >> 31;
    const f16vec2 scale = f16vec2(float16_t(real_of(codes.bits.scale, codes.bits.column % 4)));
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        f16vec2 pair;
        if (BITS == 4) {
            const uint word = i < 2 ? codes.low : codes.low >> 8;
            if (i % 2 == 0) pair = unpackFloat2x16((word & 0x000F000Fu) | thousands) - f16vec2(1024.0 + float(CENTRE));
            else pair = fma(unpackFloat2x16((word & 0x00F000F0u) | thousands), f16vec2(0.0625), f16vec2(-64.0 - float(CENTRE)));
        } else {
            uint word = codes.low >> 4 * i & 0x000F000Fu;
            if (BITS == 5) word |= (codes.more >> (codes.g * 4 + i) & 0x00010001u) << 4;
            if (BITS == 8) word = (i < 2 ? codes.low : codes.more) >> 8 * (i % 2) & 0x00FF00FFu;
            pair = unpackFloat2x16(word | thousands) - f16vec2(1024.0 + float(CENTRE));
        }
        numbers[i] = packFloat2x16(pair * scale);
    }
}

// The same of every format.
uvec4 rounded_numbers_of(EightCodes codes) {
    uvec4 halves;
    if (HALF_NUMBERS) {
        half_numbers_of(codes, halves);
        return halves;
    }
    float numbers[8];
    numbers_of(codes, numbers);
    [[unroll]] for (uint i = 0; i < 4; ++i) halves[i] = packHalf2x16(vec2(numbers[2 * i], numbers[2 * i + 1]));
    return halves;
}
#endif

// The number of a code less CENTRE.
float number_of(vec3 terms, float code) { return fma(terms.x, code + float(CENTRE) - terms.y, terms.z); }

#endif
