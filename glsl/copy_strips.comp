// output = x, bit for bit, where one of the two interleaves what the other has apart: images with the channels last and
// first, blocks of space and depth, pairs.
//
// On one side lie strips: N times SHORT units that follow each other, SHORT at most 16. On the other side unit i of each of
// the N groups is in run i: SHORT runs of N units. All of memory moves in words of as many units as every place allows, and an
// invocation moves SHORT of them: the words at one place of the runs, which it interleaves to as many words of the strip that
// follow each other, or the other way round.
//
//   runs     a b c d   A B C D   1 2 3 4     loaded or stored by neighbours next to each other
//   strip    a A 1 b   B 2 c C   3 d D 4     SHORT words of one invocation, so neighbours lie SHORT words apart
//
// For that reason a workgroup's words of strips go through shared memory, from which its invocations take each other's: the
// n-th of them moves the words n, n + LOCAL_SIZE_X... With STAGED 0 each invocation moves its own.
//
// Bindings: x, output.
// Variants: BITS of a unit; T, the unsigned type of a word, which has 128 bits at most.
// Constants: LOCAL_SIZE_X 128, a multiple of 32; RANK 1; SHORT 2; INTERLEAVES 1, where the output has the strips and not x;
//   STAGED 1, with which SHORT words for each invocation and an eighth of that must fit shared memory.
// Parameters, all in words: count, of the words of one run of every strip; x_start and output_start; run_step, from a run to
//   the next; sizes, the last of which is N in words, with what divides by them, and x_strides and output_strides along them.
//   Strides may be negative: sums are modulo 2^32.
// Rules: "strips_shared" with STAGED 1, "strips" with STAGED 0.

#include "tensor.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer X { T x_words[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer Output { T output_words[]; };

const bool INTERLEAVING = INTERLEAVES == 1u;
const uint UNITS = 8 * T_BYTES / BITS; // of a word

T_MATH load(uint word) { return T_MATH(x_words[BYTE_OFFSET_X / T_BYTES + word]); }
void store(uint word, T_MATH value) { output_words[BYTE_OFFSET_OUTPUT / T_BYTES + word] = T(value); }

// -- the words of an invocation

T_MATH words[MOST];

// Words count as components of as many bits as 32 have room for.
#if T_BYTES <= 4
#define COMPONENTS 1
#define COMPONENT_BITS (8 * T_BYTES)
uint component(uint number) { return words[number]; }
#else
#define COMPONENTS (T_BYTES / 4)
#define COMPONENT_BITS 32
uint component(uint number) { return words[number / COMPONENTS][number % COMPONENTS]; }
#endif

// Which of the units loaded is the unit to store, where both count from the first word on.
uint source_unit(uint unit) {
    return INTERLEAVING ? unit % SHORT * UNITS + unit / SHORT : unit % UNITS * SHORT + unit / UNITS;
}

uint rearranged_component(uint number) {
#if BITS == 64
    return component(2u * source_unit(number / 2u) + number % 2u);
#elif BITS == COMPONENT_BITS
    return component(source_unit(number));
#else
    const uint parts = COMPONENT_BITS / BITS;
    uint bits = 0u;
    [[unroll]] for (uint part = 0u; part < parts; ++part) {
        const uint unit = source_unit(number * parts + part);
        bits |= bitfieldExtract(component(unit / parts), int(unit % parts * BITS), BITS) << part * BITS;
    }
    return bits;
#endif
}

T_MATH rearranged(uint i) {
#if COMPONENTS == 1
    return rearranged_component(i);
#else
    T_MATH word;
    [[unroll]] for (uint c = 0u; c < COMPONENTS; ++c) word[c] = rearranged_component(COMPONENTS * i + c);
    return word;
#endif
}

// -- a workgroup's words of strips

// Of 16 bytes, 8 lie in the 128 bytes that shared memory moves at once, and so on: a gap after those keeps neighbours, SHORT
// words apart, from waiting for each other.
const uint PER_LINE = 128u / (4u * COMPONENTS);
const uint STAGED_WORDS = STAGED * gl_WorkGroupSize.x * SHORT;
shared T_MATH staged[STAGED_WORDS + STAGED_WORDS / PER_LINE + 1u]; // at least one, which an array must have
shared uint strip_words[gl_WorkGroupSize.x]; // the first one of each invocation

uint staged_at(uint number) { return number + number / PER_LINE; }

// The i-th of the workgroup's words that the invocation moves between shared memory and a strip.
uint share(uint i) { return i * gl_WorkGroupSize.x + gl_LocalInvocationID.x; }

uint strip_word(uint number) { return strip_words[number / SHORT] + number % SHORT; }

void main() {
    const uint first = linear_workgroup() * gl_WorkGroupSize.x;
    if (linear_workgroup() > (p.count - 1u) / gl_WorkGroupSize.x) return;
    const uint items = min(p.count - first, gl_WorkGroupSize.x); // of the workgroup
    const bool has_item = gl_LocalInvocationID.x < items;
    // Where there is none the last one stands for it, so that what is loaded lies in the tensor.
    const uint item = first + min(gl_LocalInvocationID.x, items - 1u);

    uint x_word = p.x_start, output_word = p.output_start;
#define VISIT(dimension, coordinate)                      \
    x_word += (coordinate) * p.x_strides[dimension];      \
    output_word += (coordinate) * p.output_strides[dimension];
    FOR_EACH_COORDINATE_FAST(item, RANK, p.sizes, p.divisors, VISIT)

    const uint own = gl_LocalInvocationID.x * SHORT;
    if (STAGED == 1u) strip_words[gl_LocalInvocationID.x] = INTERLEAVING ? output_word : x_word;
    if (INTERLEAVING) {
        [[unroll]] for (uint i = 0u; i < SHORT; ++i) words[i] = load(x_word + i * p.run_step);
    } else if (STAGED == 0u) {
        [[unroll]] for (uint i = 0u; i < SHORT; ++i) words[i] = load(x_word + i);
    } else {
        barrier();
        [[unroll]] for (uint i = 0u; i < SHORT; ++i) words[i] = load(strip_word(share(i)));
        [[unroll]] for (uint i = 0u; i < SHORT; ++i) staged[staged_at(share(i))] = words[i];
        barrier();
        [[unroll]] for (uint i = 0u; i < SHORT; ++i) words[i] = staged[staged_at(own + i)];
    }

    if (!INTERLEAVING) {
        if (has_item) [[unroll]] for (uint i = 0u; i < SHORT; ++i) store(output_word + i * p.run_step, rearranged(i));
    } else if (STAGED == 0u) {
        if (has_item) [[unroll]] for (uint i = 0u; i < SHORT; ++i) store(output_word + i, rearranged(i));
    } else {
        [[unroll]] for (uint i = 0u; i < SHORT; ++i) staged[staged_at(own + i)] = rearranged(i);
        barrier();
        [[unroll]] for (uint i = 0u; i < SHORT; ++i)
            if (share(i) < items * SHORT) store(strip_word(share(i)), staged[staged_at(share(i))]);
    }
}
