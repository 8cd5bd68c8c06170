// Products of four pairs of bytes and their sums, in registers: what the device reaches without memory. No operator; for
// dmlvk_bench.ceilings.
//
//   y[i] = the sum over chains of value, where value += dot product of value's bytes and the factor's, rounds * STEPS times
//
// Bindings: Y, an int for each invocation.
// Variant: DOT 1, the device feature integer_dot_product.
// Constants: LOCAL_SIZE_X (256) invocations; CHAINS (8) independent values each, which hide the latency of one; STEPS (16),
// unrolled.
// Parameters: rounds; factor, unknown to the compiler, so that nothing is folded.

#include "tensor.glsl"
#include "integer_dot.glsl"

layout(set = 0, binding = BINDING_Y, scalar) writeonly buffer Y { int y[]; };

void main() {
    const uint factor = p.factor;
    int values[CHAINS];
    [[unroll]] for (uint i = 0; i < CHAINS; ++i) values[i] = int((gl_LocalInvocationID.x + i) * factor);
    for (uint round = 0; round < p.rounds; ++round)
        [[unroll]] for (uint step = 0; step < STEPS; ++step)
            [[unroll]] for (uint i = 0; i < CHAINS; ++i) values[i] += dot_of_quads(uint(values[i]), factor);
    int sum = 0;
    [[unroll]] for (uint i = 0; i < CHAINS; ++i) sum += values[i];
    y[BYTE_OFFSET_Y / 4 + linear_invocation()] = sum;
}
