// Sums over the invocations of a workgroup, or over equal parts of it, for any subgroup size (read, never assumed).
//
// Before including: LANES (a constant: how many neighbouring invocations share a sum; a power of two that divides
// LOCAL_SIZE_X). Needs GL_KHR_shader_subgroup_arithmetic and GL_KHR_shader_subgroup_shuffle.
//
// Every invocation of the workgroup must call, and each gets its part's sum. The order of additions depends on the
// subgroup size and on nothing else, so a device gives the same bits every time. Works for float and vec2.

#ifndef DMLVK_WORKGROUP_GLSL
#define DMLVK_WORKGROUP_GLSL

#include "subgroups.glsl"

shared vec2 subgroup_sums[2][MOST_SUBGROUPS];

// `slot` is 0 or 1: two sums that follow each other use different slots, and a third needs a barrier in between.
vec2 sum_over_lanes(vec2 value, uint slot) {
    if (LANES <= gl_SubgroupSize) {
        for (uint distance = 1; distance < LANES; distance *= 2) value += subgroupShuffleXor(value, distance);
        return value;
    }
    value = subgroupAdd(value);
    if (subgroupElect()) subgroup_sums[slot][gl_SubgroupID] = value;
    barrier();
    const uint count = LANES / gl_SubgroupSize;
    const uint first = gl_SubgroupID / count * count;
    vec2 total = vec2(0);
    for (uint i = gl_SubgroupInvocationID; i < count; i += gl_SubgroupSize) total += subgroup_sums[slot][first + i];
    return subgroupAdd(total);
}

float sum_over_lanes(float value, uint slot) { return sum_over_lanes(vec2(value, 0), slot).x; }

#endif
