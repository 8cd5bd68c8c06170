// Multiply-adds in registers: what the device's arithmetic reaches without memory. No operator; for dmlvk_bench.ceilings.
//
//   y[i] = the sum over chains of value, where value = fma(value, factor, addend) rounds * STEPS times
//
// Bindings: Y, a float for each invocation.
// Macros: NUMBER, float, or f16vec2 with HALVES 1: one instruction multiplies and adds both halves.
// Constants: LOCAL_SIZE_X (256) invocations; CHAINS (8) independent values each, which hide the latency of one; STEPS (16),
// unrolled.
// Parameters: rounds; factor, addend and step, by which these differ between invocations: unknown to the compiler, so that nothing is
// folded. An H200 reaches 102 TFLOP/s of halves so, 84 where the two halves differ and all invocations have the same, 65 with one
// number for all.

#include "tensor.glsl"

layout(set = 0, binding = BINDING_Y, scalar) writeonly buffer Y { float y[]; };

#if HALVES
#define PAIR(first, second) f16vec2(first, second)
#else
#define PAIR(first, second) (first)
#endif

void main() {
    const float apart = float(gl_LocalInvocationID.x) * p.step;
    const NUMBER factor = PAIR(p.factor - apart, p.factor), addend = PAIR(p.addend, p.addend + apart);
    NUMBER values[CHAINS];
    [[unroll]] for (uint i = 0; i < CHAINS; ++i) values[i] = NUMBER(float(gl_LocalInvocationID.x + i) * p.addend);
    for (uint round = 0; round < p.rounds; ++round)
        [[unroll]] for (uint step = 0; step < STEPS; ++step)
            [[unroll]] for (uint i = 0; i < CHAINS; ++i) values[i] = fma(values[i], factor, addend);
    NUMBER sum = NUMBER(0);
    [[unroll]] for (uint i = 0; i < CHAINS; ++i) sum += values[i];
    y[BYTE_OFFSET_Y / 4 + linear_invocation()] = float(dot(sum, NUMBER(1)));
}
