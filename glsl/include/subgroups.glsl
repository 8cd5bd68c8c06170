// How many subgroups there may be, and a numbering of the invocations that keeps those of a subgroup together.

#ifndef DMLVK_SUBGROUPS_GLSL
#define DMLVK_SUBGROUPS_GLSL

#define MOST_SUBGROUPS (MOST_INVOCATIONS / LEAST_SUBGROUP)

// Numbers the invocations so that those of a subgroup are neighbours (which gl_LocalInvocationIndex need not do).
uint workgroup_invocation() { return gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID; }

#endif
