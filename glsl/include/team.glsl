// Merges the accumulators of a team: TEAM neighbouring invocations that share a row. TEAM, a constant, is a power of two that
// divides LOCAL_SIZE_X. For any subgroup size (read, never assumed), by shuffles within a subgroup and shared memory between.
//
// Before including: struct Accumulator, ACCUMULATOR_WORDS, to_words(), from_words(), merged(), empty(). Needs
// GL_KHR_shader_subgroup_shuffle. The order of merging depends on the subgroup size and on nothing else.

#ifndef DMLVK_TEAM_GLSL
#define DMLVK_TEAM_GLSL

#include "subgroups.glsl"

shared uint team_parts[ACCUMULATOR_WORDS][MOST_SUBGROUPS];

Accumulator of_neighbour(Accumulator own, uint distance) {
    uint words[ACCUMULATOR_WORDS] = to_words(own);
    [[unroll]] for (int i = 0; i < ACCUMULATOR_WORDS; ++i) words[i] = subgroupShuffleXor(words[i], distance);
    return from_words(words);
}

// Every invocation of the workgroup must call, once; the first of each team gets its team's accumulator.
Accumulator over_team(Accumulator own) {
    for (uint distance = 1; distance < min(TEAM, gl_SubgroupSize); distance *= 2)
        own = merged(own, of_neighbour(own, distance));
    if (TEAM <= gl_SubgroupSize) return own;
    if (gl_SubgroupInvocationID == 0u) {
        const uint words[ACCUMULATOR_WORDS] = to_words(own);
        [[unroll]] for (int i = 0; i < ACCUMULATOR_WORDS; ++i) team_parts[i][gl_SubgroupID] = words[i];
    }
    barrier();
    const uint count = TEAM / gl_SubgroupSize;
    const uint first = gl_SubgroupID / count * count;
    Accumulator all = empty();
    for (uint part = gl_SubgroupInvocationID; part < count; part += gl_SubgroupSize) {
        uint words[ACCUMULATOR_WORDS];
        [[unroll]] for (int i = 0; i < ACCUMULATOR_WORDS; ++i) words[i] = team_parts[i][first + part];
        all = merged(all, from_words(words));
    }
    for (uint distance = 1; distance < min(count, gl_SubgroupSize); distance *= 2)
        all = merged(all, of_neighbour(all, distance));
    return all;
}

#endif
