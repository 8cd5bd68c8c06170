// The logits of each sequence with the penalties for tokens that it has, and the best of each chunk of them.
//
// Controls, chunks, parameters: include/sampling.glsl. Bindings: LOGITS, {sequences, vocabulary}; HISTORY, {sequences, room},
// and LENGTHS, how many tokens of it count but for `pending` more, read; VALUES, float32, rows of whole chunks; BESTS, for each
// chunk the order of its best logit and the token, the first of equal ones; BINS and the counters behind them, set to 0, written.
// A workgroup has a chunk, whose loads wait together. A bit for each token says whether it is penalised, and a number how often the
// answer has it. The answer's penalties are products and differences that are rounded each, as everybody computes them.
// Grid: folded into x and y, the chunks of all sequences.
// Chosen always; the first of two dispatches.

#include "sampling.glsl"

layout(set = 0, binding = BINDING_LOGITS, std430) readonly buffer Logits { T logits[]; };
layout(set = 0, binding = BINDING_HISTORY, std430) readonly buffer History { int history[]; };
layout(set = 0, binding = BINDING_LENGTHS, std430) readonly buffer Lengths { int lengths[]; };
layout(set = 0, binding = BINDING_VALUES, std430) writeonly buffer Values { float values[]; };
layout(set = 0, binding = BINDING_BESTS, std430) writeonly buffer Bests { uvec2 bests[]; };
layout(set = 0, binding = BINDING_BINS, std430) writeonly buffer Bins { uint bins[]; };

shared uint penalised[CHUNK / 32u];
shared uint answered[CHUNK];
shared int best_order;
shared uint best_token;

bool has_answer_penalty(Control control) { return control.presence != 0.0 || control.frequency != 0.0; }

void mark_history(uint sequence, uint first, Control control) {
    const bool counts_answer = has_answer_penalty(control);
    for (uint word = gl_LocalInvocationIndex; word < CHUNK / 32u; word += LOCAL_SIZE_X) penalised[word] = 0u;
    if (counts_answer)
        for (uint token = gl_LocalInvocationIndex; token < CHUNK; token += LOCAL_SIZE_X) answered[token] = 0u;
    barrier();
    const uint length = uint(max(lengths[BYTE_OFFSET_LENGTHS / 4 + sequence], 0)) + p.pending;
    const uint count = min(length, p.room);
    if (counts_answer) {
        for (uint i = control.answer + gl_LocalInvocationIndex; i < count; i += LOCAL_SIZE_X) {
            const uint token = uint(history[BYTE_OFFSET_HISTORY / 4 + sequence * p.room + i]) - first;
            if (token < CHUNK) atomicAdd(answered[token], 1u);
        }
    }
    if (control.penalty != 1.0) {
        const uint start = count - min(count, control.window);
        for (uint i = start + gl_LocalInvocationIndex; i < count; i += LOCAL_SIZE_X) {
            const uint token = uint(history[BYTE_OFFSET_HISTORY / 4 + sequence * p.room + i]) - first;
            if (token < CHUNK) atomicOr(penalised[token / 32u], 1u << (token % 32u));
        }
    }
    barrier();
}

void main() {
    const uint workgroup = linear_workgroup();
    if (workgroup >= p.sequences * p.chunks) return;
    const uint sequence = workgroup / p.chunks, chunk = workgroup % p.chunks;
    const Control control = control_of(sequence);
    if (!control.is_active) return;
    const uint own = gl_LocalInvocationIndex, first = chunk * CHUNK;
    const bool is_greedy = control.inverse_temperature == 0.0; // then nobody reads values and bins
    const bool counts_answer = has_answer_penalty(control);
    if (chunk == 0u && !is_greedy) {
        for (uint word = own; word < BINS * BIN_WORDS; word += LOCAL_SIZE_X)
            bins[BYTE_OFFSET_BINS / 4 + sequence * BINS * BIN_WORDS + word] = 0u;
        if (own == 0u) bins[BYTE_OFFSET_BINS / 4 + p.sequences * BINS * BIN_WORDS + sequence] = 0u;
    }
    if (own == 0u) {
        best_order = LEAST_ORDER;
        best_token = p.vocabulary;
    }
    mark_history(sequence, first, control);

    int own_order = LEAST_ORDER;
    uint own_token = p.vocabulary;
    const uint count = min(CHUNK, p.vocabulary - first);
    const uint start = BYTE_OFFSET_LOGITS / T_BYTES + sequence * p.vocabulary + first;
    for (uint from = own; from < count; from += AT_ONCE * LOCAL_SIZE_X) {
        float loaded[AT_ONCE];
        [[unroll]] for (uint u = 0u; u < AT_ONCE; ++u)
            loaded[u] = float(logits[start + min(from + u * LOCAL_SIZE_X, count - 1u)]);
        [[unroll]] for (uint u = 0u; u < AT_ONCE; ++u) {
            const uint i = min(from + u * LOCAL_SIZE_X, count - 1u); // the last token again, which changes nothing
            float value = loaded[u];
            if (is_nan_bits(floatBitsToUint(value))) value = -INFINITY;
            if ((penalised[i / 32u] >> (i % 32u) & 1u) != 0u) value *= value > 0.0 ? control.reward : control.penalty;
            if (counts_answer && answered[i] != 0u) {
                precise const float many = control.frequency * float(answered[i]);
                precise const float once = value - control.presence;
                precise const float less = once - many;
                value = less;
            }
            if (!is_greedy) values[BYTE_OFFSET_VALUES / 4 + workgroup * CHUNK + i] = value;
            const int order = order_of_zeros(order_up(value));
            if (order > own_order) {
                own_order = order;
                own_token = first + i;
            }
        }
    }
    atomicMax(best_order, own_order);
    barrier();
    if (own_order == best_order) atomicMin(best_token, own_token);
    barrier();
    if (own == 0u) bests[BYTE_OFFSET_BESTS / 8 + workgroup] = uvec2(uint(best_order), best_token);
}
