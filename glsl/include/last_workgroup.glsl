// The last of some workgroups that leave what they have found in memory: it goes on with what all of them have found.

#ifndef DMLVK_LAST_WORKGROUP_GLSL
#define DMLVK_LAST_WORKGROUP_GLSL

shared bool counted_last;

// Sets `is_last` to whether the others of `count` workgroups have been here; all invocations of a workgroup come here together, once. What the others
// have written to coherent buffers is there then. `counter`, of a coherent buffer, is 0 before the first and behind the last.
#define COUNT_WORKGROUP(counter, count, is_last)                 \
    {                                                            \
        memoryBarrierBuffer();                                   \
        barrier();                                               \
        if (gl_LocalInvocationIndex == 0) {                      \
            counted_last = atomicAdd(counter, 1) == (count) - 1; \
            if (counted_last) counter = 0;                       \
        }                                                        \
        barrier();                                               \
        memoryBarrierBuffer();                                   \
        is_last = counted_last;                                  \
    }

#endif
