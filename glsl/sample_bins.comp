// How many tokens of each sequence lie in each bin of distances from its best one, and their mass.
//
// Controls, bins, masses, parameters: include/sampling.glsl. Bindings: VALUES, float32 logits, rows of whole chunks; BESTS; both
// left by sample_prepare.comp, read; BINS, added to.
// A workgroup counts a chunk in shared memory, and adds what it has found to the sequence's bins. Sums of whole numbers: the same
// bits in any order. Of a sequence that takes the best token there is nothing to count.
// Grid: folded into x and y, the chunks of all sequences.
// Chosen always; the second of three dispatches.

#include "sampling_best.glsl"

layout(set = 0, binding = BINDING_VALUES, std430) readonly buffer Values { float values[]; };
layout(set = 0, binding = BINDING_BINS, std430) buffer Bins { uint bins[]; };

shared uint found[BINS * BIN_WORDS];

void main() {
    const uint workgroup = linear_workgroup();
    if (workgroup >= p.sequences * p.chunks) return;
    const uint sequence = workgroup / p.chunks, chunk = workgroup % p.chunks;
    const Control control = control_of(sequence);
    if (!control.is_active || control.inverse_temperature == 0.0) return;
    for (uint word = gl_LocalInvocationIndex; word < BINS * BIN_WORDS; word += LOCAL_SIZE_X) found[word] = 0u;
    find_best(sequence);

    const float best = from_order_up(best_order);
    const uint furthest = floatBitsToUint(control.furthest);
    const uint count = min(CHUNK, p.vocabulary - chunk * CHUNK);
    for (uint i = gl_LocalInvocationIndex; i < count; i += LOCAL_SIZE_X) {
        const uint key = key_of(best, values[BYTE_OFFSET_VALUES / 4 + workgroup * CHUNK + i]);
        if (key <= furthest) {
            const uvec2 mass = mass_of(key, control.inverse_temperature);
            ADD_TO_BIN(found, bin_of(key) * BIN_WORDS, 1u, mass)
        }
    }
    barrier();
    for (uint bin = gl_LocalInvocationIndex; bin < BINS; bin += LOCAL_SIZE_X) {
        const uint tokens = found[bin * BIN_WORDS];
        if (tokens == 0u) continue;
        const uvec2 mass = uvec2(found[bin * BIN_WORDS + 1u], found[bin * BIN_WORDS + 2u]);
        ADD_TO_BIN(bins, BYTE_OFFSET_BINS / 4 + (sequence * BINS + bin) * BIN_WORDS, tokens, mass)
    }
}
