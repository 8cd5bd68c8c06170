// Linear attention: each row of keys and values changes a state, by which its queries are answered.
//
//   state = exp(decay) state;   v' = HAS_RATE ? rate (v - state^T k) : v;   state += k v'^T;   y = scale q^T state
//
// LANES neighbouring invocations hold a column of the state of one head in registers, lane i the elements i, i + LANES and so
// on, HELD of them; columns do not meet. All of them go through the rows from p.first_row to p.end_row one by one.
// Bindings: Q, K, V, PAST, DECAY, RATE read, Y and STATE written. What is absent is bound to Q and not read. Strides are in
// elements: of Q, K, V, DECAY and Y (batch entry, row, head, element), of RATE without the last, of PAST and STATE (batch
// entry, head, key element, column). PAST and STATE may be the same bytes: an invocation reads what it writes.
// Variants: T of Q, K, V, DECAY, RATE, Y; U of PAST and STATE.
// Constants: LANES (a power of two), HELD, HAS_PAST, HAS_DECAY, HAS_RATE.
// Grid: folded into x and y, p.tiles workgroups a head of keys, of LOCAL_SIZE_X / LANES columns each.
// Chosen always.

#include "dtype.glsl"
#include "math.glsl"
#include "tensor.glsl"
#include "workgroup.glsl"

layout(set = 0, binding = BINDING_Q, std430) readonly buffer Q { T q[]; };
layout(set = 0, binding = BINDING_K, std430) readonly buffer K { T k[]; };
layout(set = 0, binding = BINDING_V, std430) readonly buffer V { T v[]; };
layout(set = 0, binding = BINDING_PAST, std430) readonly buffer Past { U past[]; };
layout(set = 0, binding = BINDING_DECAY, std430) readonly buffer Decay { T decay[]; };
layout(set = 0, binding = BINDING_RATE, std430) readonly buffer Rate { T rate[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { T y[]; };
layout(set = 0, binding = BINDING_STATE, std430) writeonly buffer State { U state[]; };

uint row_at(uint strides[4], uint entry, uint row, uint head) {
    return entry * strides[0] + row * strides[1] + head * strides[2];
}

// Where the memory of a workgroup holds what subgroups found, it is free again for the next sum.
float sum_of_column(float value) {
    const float sum = sum_over_lanes(value, 0);
    if (LANES > gl_SubgroupSize) barrier();
    return sum;
}

void main() {
    const uint workgroup = linear_workgroup();
    if (workgroup >= p.workgroups) return;
    const uint tile = workgroup % p.tiles;
    const uint head = workgroup / p.tiles % p.heads;
    const uint entry = workgroup / p.tiles / p.heads;
    const uint invocation = workgroup_invocation();
    const uint lane = invocation % LANES;
    const uint column = tile * (LOCAL_SIZE_X / LANES) + invocation / LANES;
    // Past the last column everything but the writing happens to the last one, so that every invocation reaches the sums.
    const bool writes = column < p.value_size;
    const uint own = min(column, p.value_size - 1);

    float held[HELD];
    [[unroll]] for (uint i = 0; i < HELD; ++i) {
        const uint d = lane + i * LANES;
        held[i] = 0.0;
        if (HAS_PAST != 0 && d < p.size)
            held[i] = float(past[BYTE_OFFSET_PAST / U_BYTES + row_at(p.past_strides, entry, head, d) + own * p.past_strides[3]]);
    }
    for (uint row = p.first_row; row < p.end_row; ++row) {
        const uint k_row = BYTE_OFFSET_K / T_BYTES + row_at(p.k_strides, entry, row, head);
        const uint decay_row = BYTE_OFFSET_DECAY / T_BYTES + row_at(p.decay_strides, entry, row, head);
        float value = float(v[BYTE_OFFSET_V / T_BYTES + row_at(p.v_strides, entry, row, head) + own * p.v_strides[3]]);
        float keys[HELD];
        float found = 0.0;
        [[unroll]] for (uint i = 0; i < HELD; ++i) {
            const uint d = lane + i * LANES;
            keys[i] = d < p.size ? float(k[k_row + d * p.k_strides[3]]) : 0.0;
            if (HAS_DECAY != 0 && d < p.size) held[i] *= exp_accurate(float(decay[decay_row + d * p.decay_strides[3]]));
            found = fma(held[i], keys[i], found);
        }
        if (HAS_RATE != 0) {
            const uint place = entry * p.rate_strides[0] + row * p.rate_strides[1] + head * p.rate_strides[2];
            value = float(rate[BYTE_OFFSET_RATE / T_BYTES + place]) * (value - sum_of_column(found));
        }
        [[unroll]] for (uint i = 0; i < HELD; ++i) held[i] = fma(keys[i], value, held[i]);
        for (uint member = 0; member < p.group; ++member) {
            const uint query_head = head * p.group + member;
            const uint q_row = BYTE_OFFSET_Q / T_BYTES + row_at(p.q_strides, entry, row, query_head);
            float answer = 0.0;
            [[unroll]] for (uint i = 0; i < HELD; ++i) {
                const uint d = lane + i * LANES;
                if (d < p.size) answer = fma(float(q[q_row + d * p.q_strides[3]]), held[i], answer);
            }
            answer = sum_of_column(answer);
            if (writes && lane == 0)
                y[BYTE_OFFSET_Y / T_BYTES + row_at(p.y_strides, entry, row, query_head) + column * p.y_strides[3]] =
                    T(p.scale * answer);
        }
    }
    [[unroll]] for (uint i = 0; i < HELD; ++i) {
        const uint d = lane + i * LANES;
        if (writes && d < p.size)
            state[BYTE_OFFSET_STATE / U_BYTES + row_at(p.state_strides, entry, head, d) + column * p.state_strides[3]] = U(held[i]);
    }
}
