// What the kernels of running sums and products share: partial results, how they combine, and where the elements lie.
//
// A Part is the sum or product of some neighbouring elements; combine(a, b) is that of a's elements followed by b's.
//   integers         wrap around
//   floating sums    are float32, or float64 of such; `Running`, what came before a tile, keeps what rounding takes from it beside it
//   floating products are value * 2^exponent, 1 <= |value| < 2 (or 0, infinite, NaN), so that nothing overflows on the way
// Constants: PRODUCT (0 sums, 1 products), PHASE:
//   WHOLE   a row is read and written at once
//   TOTALS  reads one of p.chunks chunks of a row and leaves its Part in PARTIALS, chunk c of row r at r * p.chunks + c
//   APPLY   combines the Parts of the chunks before its own, each invocation in the same order, reads it again and writes it
// Parameters: rows; units, of a row; chunks; chunk_units; kept_* of the dimensions beside the axis, merged; x_step, y_step along the axis; reverse (1: from the
// row's end); exclusive. Bindings: X read, Y written (perhaps the same bytes), PARTIALS. Steps are in units: a 16-byte word
// of consecutive elements where WORDS is 1, else one element anywhere.

#ifndef DMLVK_SCAN_GLSL
#define DMLVK_SCAN_GLSL

#include "dtype.glsl"
#include "math.glsl"
#include "tensor.glsl"

layout(set = 0, binding = BINDING_PARTIALS, std430) buffer Partials { uvec4 partials[]; };

#if T_IS_FLOAT

struct Part {
    REAL value;
    int exponent; // of products
};

struct Running {
    Part part;
    REAL lost; // of sums: part.value + lost is the sum
};

Part identity() { return Part(PRODUCT != 0 ? 1.0 : 0.0, 0); }

// Its value and its exponent apart, if it is normal.
#if defined(T_IS_FLOAT64)
Part normalized(Part a) {
    const uvec2 bits = unpackDouble2x32(a.value);
    const uint field = bits.y >> 20 & 0x7FFu;
    if (PRODUCT == 0 || field == 0u || field == 0x7FFu) return a;
    return Part(packDouble2x32(uvec2(bits.x, bits.y & 0x800FFFFFu | 0x3FF00000u)), a.exponent + int(field) - 1023);
}

Part part_of(double x) {
    const bool small = size_bits(x) <= SIGNIFICAND_OF_DOUBLE;
    return normalized(small && PRODUCT != 0 ? Part(x * two_to(54), -54) : Part(x, 0));
}

double rounded(Part a) {
    const int exponent = clamp(a.exponent, -2044, 2044);
    const int first = exponent >> 1;
    return a.value * two_to(first) * two_to(exponent - first);
}
#else
Part normalized(Part a) {
    const uint bits = floatBitsToUint(a.value);
    const uint field = bits >> 23 & 0xFFu;
    if (PRODUCT == 0 || field == 0u || field == 0xFFu) return a;
    return Part(uintBitsToFloat(bits & 0x807FFFFFu | 0x3F800000u), a.exponent + int(field) - 127);
}

Part part_of(float x) {
    const bool small = (floatBitsToUint(x) & 0x7F800000u) == 0u; // subnormal numbers count if the device has them
    return normalized(small && PRODUCT != 0 ? Part(x * 16777216.0, -24) : Part(x, 0));
}

// value * 2^exponent, rounded once.
float rounded(Part a) {
    const int exponent = clamp(a.exponent, -252, 252);
    const int first = exponent >> 1;
    return a.value * power_of_two(first) * power_of_two(exponent - first);
}
#endif

// Not normalized: for at most 16 parts in turn.
Part join(Part a, Part b) {
    if (PRODUCT != 0) return Part(a.value * b.value, a.exponent + b.exponent);
    return Part(a.value + b.value, 0);
}

Part combine(Part a, Part b) {
    Part both = normalized(join(a, b));
    both.exponent = clamp(both.exponent, -0x10000000, 0x10000000);
    return both;
}

Running nothing() { return Running(identity(), 0.0); }

void append(inout Running running, Part next) {
    if (PRODUCT != 0) {
        running.part = combine(running.part, next);
        return;
    }
    // Knuth's two-sum.
    precise const REAL corrected = next.value + running.lost;
    precise const REAL sum = running.part.value + corrected;
    precise const REAL back = sum - running.part.value;
    precise const REAL lost = (running.part.value - (sum - back)) + (corrected - back);
    running.part.value = sum;
    running.lost = finite_or_zero(lost);
}

// The sum or product of all elements so far: those before the tile, and `prefix` of the tile.
REAL finished(Running before, Part prefix) {
    if (PRODUCT != 0) return rounded(join(before.part, prefix));
    precise const REAL sum = before.part.value + (before.lost + prefix.value);
    return sum;
}

#if defined(T_IS_FLOAT64)
Part shuffle(Part a, uint invocation) {
    const uvec2 halves = unpackDouble2x32(a.value);
    const uvec2 value = uvec2(subgroupShuffle(halves.x, invocation), subgroupShuffle(halves.y, invocation));
    return Part(packDouble2x32(value), PRODUCT != 0 ? subgroupShuffle(a.exponent, invocation) : 0);
}

uvec4 to_words(Running running) {
    const uvec2 rest = PRODUCT != 0 ? uvec2(uint(running.part.exponent), 0u) : unpackDouble2x32(running.lost);
    return uvec4(unpackDouble2x32(running.part.value), rest);
}

void append_words(inout Running running, uvec4 words) {
    append(running, Part(packDouble2x32(words.xy), PRODUCT != 0 ? int(words.z) : 0));
    if (PRODUCT == 0) running.lost += packDouble2x32(words.zw);
}
#else
Part shuffle(Part a, uint invocation) {
    const float value = subgroupShuffle(a.value, invocation);
    return Part(value, PRODUCT != 0 ? subgroupShuffle(a.exponent, invocation) : 0);
}

uvec4 to_words(Running running) {
    return uvec4(floatBitsToUint(running.part.value), floatBitsToUint(running.lost), uint(running.part.exponent), 0u);
}

void append_words(inout Running running, uvec4 words) {
    append(running, Part(uintBitsToFloat(words.x), int(words.z)));
    running.lost += uintBitsToFloat(words.y);
}
#endif

#else

struct Part {
    T_MATH value;
};

struct Running {
    Part part;
};

Part identity() { return Part(T_MATH(PRODUCT)); }
Part part_of(T_MATH x) { return Part(x); }
Part join(Part a, Part b) { return Part(PRODUCT != 0 ? a.value * b.value : a.value + b.value); }
Part normalized(Part a) { return a; }
Part combine(Part a, Part b) { return join(a, b); }
Running nothing() { return Running(identity()); }
void append(inout Running running, Part next) { running.part = join(running.part, next); }
T_MATH finished(Running before, Part prefix) { return join(before.part, prefix).value; }

#if T_BYTES == 8
uvec2 halves_of(T_MATH value) { return unpackUint2x32(uint64_t(value)); }
T_MATH of_halves(uvec2 halves) { return T_MATH(packUint2x32(halves)); }
Part shuffle(Part a, uint invocation) {
    const uvec2 halves = halves_of(a.value);
    return Part(of_halves(uvec2(subgroupShuffle(halves.x, invocation), subgroupShuffle(halves.y, invocation))));
}
#else
uvec2 halves_of(T_MATH value) { return uvec2(uint(value), 0u); }
T_MATH of_halves(uvec2 halves) { return T_MATH(halves.x); }
Part shuffle(Part a, uint invocation) { return Part(subgroupShuffle(a.value, invocation)); }
#endif

uvec4 to_words(Running running) { return uvec4(halves_of(running.part.value), 0u, 0u); }
void append_words(inout Running running, uvec4 words) { append(running, Part(of_halves(words.xy))); }

#endif

#if WORDS
#define UNIT uvec4
#define UNIT_ELEMENTS T_PER_WORD
#define UNIT_BYTES WORD_BYTES
layout(set = 0, binding = BINDING_X, std430) readonly buffer X { uvec4 x_units[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { uvec4 y_units[]; };
#else
#define UNIT T_MATH
#define UNIT_ELEMENTS 1
#define UNIT_BYTES T_BYTES
layout(set = 0, binding = BINDING_X, std430) readonly buffer X { T x_units[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { T y_units[]; };
#endif

uint x_start;
uint y_start;

// Where the walk over a row starts: at its last unit where it is reversed.
void find_row(uint row) {
    x_start = BYTE_OFFSET_X / UNIT_BYTES;
    y_start = BYTE_OFFSET_Y / UNIT_BYTES;
#define ADD_KEPT(dimension, coordinate)                 \
    x_start += (coordinate) * p.kept_x[dimension];      \
    y_start += (coordinate) * p.kept_y[dimension];
    FOR_EACH_COORDINATE_FAST(row, p.kept_rank, p.kept_sizes, p.kept_divisors, ADD_KEPT)
}

uint along(uint unit, uint step) { return (p.reverse != 0u ? p.units - 1u - unit : unit) * step; }

UNIT load_unit(uint unit) { return UNIT(x_units[x_start + along(unit, p.x_step)]); }

// The unit's elements in the walk's order.
void unpack_unit(UNIT unit, out T_MATH values[UNIT_ELEMENTS]) {
#if WORDS
    T_MATH stored[UNIT_ELEMENTS];
    unpack_word(unit, stored);
    [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j)
        values[j] = p.reverse != 0u ? stored[UNIT_ELEMENTS - 1 - j] : stored[j];
#else
    values[0] = unit;
#endif
}

void store_unit(uint unit, T_MATH values[UNIT_ELEMENTS]) {
    const uint at = y_start + along(unit, p.y_step);
#if WORDS
    T_MATH stored[UNIT_ELEMENTS];
    [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j)
        stored[j] = p.reverse != 0u ? values[UNIT_ELEMENTS - 1 - j] : values[j];
    y_units[at] = pack_word(stored);
#else
    y_units[at] = T(values[0]);
#endif
}

// The sum or product of what comes before the chunk.
Running before_chunk(uint row, uint chunk) {
    Running running = nothing();
    if (PHASE == PHASE_APPLY) {
        const uint first = BYTE_OFFSET_PARTIALS / 16 + row * p.chunks;
        for (uint i = 0; i < chunk; ++i) append_words(running, partials[first + i]);
    }
    return running;
}

void leave_total(uint row, uint chunk, Running total) {
    partials[BYTE_OFFSET_PARTIALS / 16 + row * p.chunks + chunk] = to_words(total);
}

#endif
