// How many subgroups there may be, and a numbering of the invocations that keeps those of a subgroup together.

#ifndef DMLVK_SUBGROUPS_GLSL
#define DMLVK_SUBGROUPS_GLSL

// A workgroup has at most 1024 invocations, a subgroup at least 4 wherever Vulkan 1.3 runs.
#define MOST_SUBGROUPS 256

// Numbers the invocations so that those of a subgroup are neighbours (which gl_LocalInvocationIndex need not do).
uint workgroup_invocation() { return gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID; }

#endif
