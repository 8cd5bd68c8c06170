// What the kernels of sampling share: a sequence's controls, the distances of tokens from its best one, masses of 64 bits.
//
// A token's distance is the best logit minus its own, a float whose bits are its key: no sign, so keys are in the order of
// distances. Its mass is e^(-distance / temperature) in units of 2^-44, so that sums are whole numbers and do not depend on
// the order of additions. The best token's mass is 2^44.
//
// Parameters: sequences; vocabulary; chunks of it, CHUNK tokens each; and of some kernels room, the tokens that the memory of
// a history holds; pending, the tokens that count beyond a length.
// Bindings: CONTROLS, rows of words as `sampling_words` makes them (src/dmlvk/spec/ops/sample_token.py).
// A sequence's bins, BIN_WORDS words each, count tokens and their mass: bin i those with distances from i / 8 to (i + 1) / 8,
// the last one all beyond.

#ifndef DMLVK_SAMPLING_GLSL
#define DMLVK_SAMPLING_GLSL

#include "order.glsl"
#include "tensor.glsl"

layout(set = 0, binding = BINDING_CONTROLS, std430) readonly buffer Controls { uint controls[]; };

struct Control {
    float inverse_temperature; // 0: the best token, without chance
    uint top_k;                // 0: all
    uint top_p;                // in units of 2^-32; 0: all
    float furthest;            // tokens further from the best do not count
    float penalty;             // what positive logits of tokens in the history are divided by, and
    float reward;              // its reciprocal
    uint window;               // tokens of the history's end that are penalised
    uvec2 seed;
    bool is_active;
    float presence;            // what logits of tokens in the answer lose, and
    float frequency;           // what they lose for each time that it has them
    uint answer;               // tokens of the history before the answer
};

Control control_of(uint sequence) {
    const uint at = BYTE_OFFSET_CONTROLS / 4 + sequence * CONTROL_WORDS;
    Control c;
    c.inverse_temperature = uintBitsToFloat(controls[at]);
    c.top_k = controls[at + 1u];
    c.top_p = controls[at + 2u];
    c.furthest = uintBitsToFloat(controls[at + 3u]);
    c.penalty = uintBitsToFloat(controls[at + 4u]);
    c.reward = uintBitsToFloat(controls[at + 5u]);
    c.window = controls[at + 6u];
    c.seed = uvec2(controls[at + 7u], controls[at + 8u]);
    c.is_active = controls[at + 9u] != 0u;
    c.presence = uintBitsToFloat(controls[at + 10u]);
    c.frequency = uintBitsToFloat(controls[at + 11u]);
    c.answer = controls[at + 12u];
    return c;
}

uint key_of(float best, float value) {
    // Infinities that are equal have no difference.
    return floatBitsToUint(best) == floatBitsToUint(value) ? 0u : floatBitsToUint(abs(best - value));
}

uint bin_of(uint key) { return uint(min(uintBitsToFloat(key) * 8.0, float(BINS - 1u))); }

// The first key of a bin.
uint first_key_of(uint bin) { return floatBitsToUint(float(bin) * 0.125); }

// A mass, the lower word first.
uvec2 mass_of(uint key, float inverse_temperature) {
    const float scaled = exp_accurate(-uintBitsToFloat(key) * inverse_temperature) * 4096.0;
    const uint high = uint(scaled);
    return uvec2(uint((scaled - float(high)) * 4294967296.0), high);
}

uvec2 add_masses(uvec2 a, uvec2 b) {
    uint carry;
    const uint low = uaddCarry(a.x, b.x, carry);
    return uvec2(low, a.y + b.y + carry);
}

bool is_larger(uvec2 a, uvec2 b) { return a.y != b.y ? a.y > b.y : a.x > b.x; }

// Adds one token to a bin whose words are `bin[0]` to `bin[2]`: any memory with atomics.
#define ADD_TO_BIN(words, first, many, mass)                                    \
    {                                                                           \
        atomicAdd((words)[(first)], (many));                                    \
        const uint before_ = atomicAdd((words)[(first) + 1u], (mass).x);        \
        const uint carry_ = before_ + (mass).x < before_ ? 1u : 0u;             \
        if ((mass).y + carry_ != 0u) atomicAdd((words)[(first) + 2u], (mass).y + carry_); \
    }

#endif
