// The best of a sequence's tokens, of equal ones the first, from the best of each chunk.
//
// Bindings: BESTS, for each chunk the order of its best logit and the token. Every invocation of the workgroup must call.

#ifndef DMLVK_SAMPLING_BEST_GLSL
#define DMLVK_SAMPLING_BEST_GLSL

#include "sampling.glsl"

layout(set = 0, binding = BINDING_BESTS, std430) readonly buffer Bests { uvec2 bests[]; };

shared int best_order;
shared uint best_token;

uvec2 best_of_chunk(uint sequence, uint chunk) { return bests[BYTE_OFFSET_BESTS / 8 + sequence * p.chunks + chunk]; }

// Leaves them in best_order and best_token.
void find_best(uint sequence) {
    if (gl_LocalInvocationIndex == 0u) {
        best_order = LEAST_ORDER;
        best_token = p.vocabulary;
    }
    barrier();
    for (uint chunk = gl_LocalInvocationIndex; chunk < p.chunks; chunk += LOCAL_SIZE_X)
        atomicMax(best_order, int(best_of_chunk(sequence, chunk).x));
    barrier();
    for (uint chunk = gl_LocalInvocationIndex; chunk < p.chunks; chunk += LOCAL_SIZE_X) {
        const uvec2 best = best_of_chunk(sequence, chunk);
        if (int(best.x) == best_order) atomicMin(best_token, best.y);
    }
    barrier();
}

#endif
