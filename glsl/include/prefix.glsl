// Sums of counts over the invocations before each one, for any subgroup size (read, never assumed).
//
// Needs GL_KHR_shader_subgroup_arithmetic. Invocations are ordered by workgroup_invocation().

#ifndef DMLVK_PREFIX_GLSL
#define DMLVK_PREFIX_GLSL

#include "subgroups.glsl"

shared uint subgroup_counts[2][MOST_SUBGROUPS];

// The counts of all invocations before this one, and of all together. Every invocation of the workgroup must call.
// `slot` is 0 or 1, and alternates: the next call's barrier is what lets the one after it use the slot again.
uint prefix_sum(uint count, uint slot, out uint total) {
    uint before = subgroupExclusiveAdd(count);
    const uint own = subgroupAdd(count);
    if (subgroupElect()) subgroup_counts[slot][gl_SubgroupID] = own;
    barrier();
    total = 0u;
    for (uint i = 0u; i < gl_NumSubgroups; ++i) {
        const uint other = subgroup_counts[slot][i];
        before += i < gl_SubgroupID ? other : 0u;
        total += other;
    }
    return before;
}

#endif
