// Chooses each sequence's token: the best one, or one by chance among those that top-k and top-p leave.
//
// Controls, bins, masses, parameters: include/sampling.glsl. Bindings: LENGTHS; VALUES, float32 logits, rows of whole chunks, and BESTS, left by
// sample_prepare.comp, read; BINS, of all sequences, and behind them a counter for each, added to and read; TOKENS; NEW_HISTORY,
// {sequences, room}, of which one element a sequence, and NEW_LENGTHS written.
// Constants: HAS_HISTORY, HAS_LENGTHS: whether the last two are wanted; they are bound to TOKENS where not; AT_ONCE (1), the tokens that an
// invocation loads together.
//
// Tokens are in the order of their distances from the best, equal ones in that of their numbers. The first so many tokens, or the
// first with so much mass together, are a beginning of that order, and so is what top-k and top-p leave together. All questions
// are one: where the count, or the mass, of a beginning exceeds a target (`descend`). For top-k and top-p it answers the mass of the
// beginning; a random part of that mass is the target whose answer is the token. A question goes from the bins down: a bin's keys are
// divided into BINS parts, whose tokens are counted, and so on, and those of one key by their numbers, until one token is left.
// Chunks whose best token is too far away are passed over.
//
// A workgroup counts the tokens of a chunk and their mass in shared memory, and adds what it has found to the sequence's bins. Sums of whole
// numbers: the same bits in any order. The one that counts last chooses. Of a sequence that takes the best token there is nothing to count,
// and the first workgroup chooses.
// Grid: folded into x and y, the chunks of all sequences.
// Chosen always; the second of two dispatches.

#include "last_workgroup.glsl"
#include "philox.glsl"
#include "sampling_best.glsl"

layout(set = 0, binding = BINDING_LENGTHS, std430) readonly buffer Lengths { int lengths[]; };
layout(set = 0, binding = BINDING_VALUES, std430) readonly buffer Values { float values[]; };
layout(set = 0, binding = BINDING_BINS, std430) coherent buffer Bins { uint bins[]; };
layout(set = 0, binding = BINDING_TOKENS, std430) writeonly buffer Tokens { int tokens[]; };
layout(set = 0, binding = BINDING_NEW_HISTORY, std430) writeonly buffer NewHistory { int new_history[]; };
layout(set = 0, binding = BINDING_NEW_LENGTHS, std430) writeonly buffer NewLengths { int new_lengths[]; };

// Tokens with keys, and numbers, from the first to the last.
struct Span {
    uint first_key, last_key;
    uint first_token, last_token;
};

struct Sum {
    uint count;
    uvec2 mass;
};

shared uint whole_bins[BINS * BIN_WORDS]; // of the sequence
shared uint part_bins[BINS * BIN_WORDS];  // of the span in question
shared uint group_bins[BINS / GROUP * BIN_WORDS];
shared uint nearest_keys[MOST_CHUNKS]; // of each chunk
shared uint live_chunks[MOST_CHUNKS];
shared uint live_count;
shared uint found_token;

Sum add_sums(Sum a, Sum b) { return Sum(a.count + b.count, add_masses(a.mass, b.mass)); }

#define SUM_AT(words, i) Sum((words)[(i) * BIN_WORDS], uvec2((words)[(i) * BIN_WORDS + 1u], (words)[(i) * BIN_WORDS + 2u]))

bool exceeds(Sum sum, bool by_mass, uvec2 target) {
    return by_mass ? is_larger(sum.mass, target) : sum.count > target.x;
}

// Walks groups of bins, then the bins of one, up to where the sum exceeds the target; adds what comes before it to `below`. All
// invocations walk alike.
#define FIND_BIN(words, by_mass, target, below, bin)                                                              \
    {                                                                                                             \
        barrier();                                                                                                \
        for (uint group_ = gl_LocalInvocationIndex; group_ < BINS / GROUP; group_ += LOCAL_SIZE_X) {              \
            Sum sum_ = SUM_AT(words, group_ * GROUP);                                                             \
            for (uint i_ = 1u; i_ < GROUP; ++i_) sum_ = add_sums(sum_, SUM_AT(words, group_ * GROUP + i_));       \
            group_bins[group_ * BIN_WORDS] = sum_.count;                                                          \
            group_bins[group_ * BIN_WORDS + 1u] = sum_.mass.x;                                                    \
            group_bins[group_ * BIN_WORDS + 2u] = sum_.mass.y;                                                    \
        }                                                                                                         \
        barrier();                                                                                                \
        bin = 0u;                                                                                                 \
        for (; bin < BINS - GROUP; bin += GROUP) {                                                                \
            const Sum next_ = add_sums(below, SUM_AT(group_bins, bin / GROUP));                                   \
            if (exceeds(next_, by_mass, target)) break;                                                           \
            below = next_;                                                                                        \
        }                                                                                                         \
        for (const uint last_ = bin + GROUP - 1u; bin < last_; ++bin) {                                           \
            const Sum next_ = add_sums(below, SUM_AT(words, bin));                                                \
            if (exceeds(next_, by_mass, target)) break;                                                           \
            below = next_;                                                                                        \
        }                                                                                                         \
    }

bool is_in(Span span, uint key, uint token) {
    return key >= span.first_key && key <= span.last_key && token >= span.first_token && token <= span.last_token;
}

// How far to shift distances within a range so that they are below BINS.
uint shift_of(uint range) { return uint(max(findMSB(range) - findMSB(BINS) + 1, 0)); }

// Lists the chunks that may have tokens of a span.
void list_chunks(Span span) {
    barrier();
    if (gl_LocalInvocationIndex == 0u) live_count = 0u;
    barrier();
    for (uint chunk = gl_LocalInvocationIndex; chunk < p.chunks; chunk += LOCAL_SIZE_X)
        if (nearest_keys[chunk] <= span.last_key) live_chunks[atomicAdd(live_count, 1u)] = chunk;
    barrier();
}

// VISIT(key, token) for each token of the listed chunks that is in a span; several loads wait together.
#define FOR_EACH_TOKEN(sequence, best, span, VISIT)                                                               \
    for (uint first_ = gl_LocalInvocationIndex; first_ < live_count * CHUNK; first_ += LOCAL_SIZE_X * AT_ONCE) {  \
        float loaded_[AT_ONCE];                                                                                   \
        uint tokens_[AT_ONCE];                                                                                    \
        [[unroll]] for (uint u_ = 0u; u_ < AT_ONCE; ++u_) {                                                       \
            const uint item_ = first_ + u_ * LOCAL_SIZE_X;                                                        \
            const bool is_there_ = item_ < live_count * CHUNK;                                                    \
            const uint place_ = live_chunks[is_there_ ? item_ / CHUNK : 0u] * CHUNK + item_ % CHUNK;              \
            tokens_[u_] = is_there_ ? place_ : p.vocabulary;                                                      \
            loaded_[u_] = values[BYTE_OFFSET_VALUES / 4 + (sequence) * p.chunks * CHUNK + place_];                \
        }                                                                                                         \
        [[unroll]] for (uint u_ = 0u; u_ < AT_ONCE; ++u_) {                                                       \
            const uint key_ = key_of(best, loaded_[u_]);                                                          \
            if (tokens_[u_] < p.vocabulary && is_in(span, key_, tokens_[u_])) VISIT(key_, tokens_[u_])            \
        }                                                                                                         \
    }

// The sum up to and with the token by which a beginning's sum exceeds the target, which there must be, and the span of that token.
Sum descend(uint sequence, float best, Control control, bool by_mass, uvec2 target, out Span span) {
    Sum below = Sum(0u, uvec2(0u)), own;
    bool is_first = true, by_key = true;
    uint shift = 0u;
    barrier(); // the last search is over for all
    for (uint word = gl_LocalInvocationIndex; word < BINS * BIN_WORDS; word += LOCAL_SIZE_X) part_bins[word] = whole_bins[word];
    while (true) {
        uint bin;
        FIND_BIN(part_bins, by_mass, target, below, bin)
        own = SUM_AT(part_bins, bin);
        const uint last = (1u << shift) - 1u;
        if (is_first) {
            span.first_key = first_key_of(bin);
            span.last_key = min(bin == BINS - 1u ? uint(INFINITE_ORDER) : first_key_of(bin + 1u) - 1u, floatBitsToUint(control.furthest));
            span.first_token = 0u;
            span.last_token = p.vocabulary - 1u;
        } else if (by_key) {
            span.first_key += bin << shift;
            span.last_key = min(span.last_key, span.first_key + last);
        } else {
            span.first_token += bin << shift;
            span.last_token = min(span.last_token, span.first_token + last);
        }
        if (own.count <= 1u) break;
        is_first = false;
        by_key = span.first_key < span.last_key;
        shift = shift_of(by_key ? span.last_key - span.first_key : span.last_token - span.first_token);
        list_chunks(span);
        for (uint word = gl_LocalInvocationIndex; word < BINS * BIN_WORDS; word += LOCAL_SIZE_X) part_bins[word] = 0u;
        barrier();
#define COUNT(key, token)                                                                                         \
    {                                                                                                             \
        const uint part_ = (by_key ? (key) - span.first_key : (token) - span.first_token) >> shift;               \
        const uvec2 mass_ = mass_of(key, control.inverse_temperature);                                            \
        ADD_TO_BIN(part_bins, part_ * BIN_WORDS, 1u, mass_)                                                       \
    }
        FOR_EACH_TOKEN(sequence, best, span, COUNT)
    }
    return add_sums(below, own);
}

// The upper half of a product of two numbers of 64 bits.
uvec2 upper_product(uvec2 a, uvec2 b) {
    uint high[4], low[4], carry, carries;
    umulExtended(a.x, b.x, high[0], low[0]);
    umulExtended(a.x, b.y, high[1], low[1]);
    umulExtended(a.y, b.x, high[2], low[2]);
    umulExtended(a.y, b.y, high[3], low[3]);
    uint middle = uaddCarry(high[0], low[1], carries);
    middle = uaddCarry(middle, low[2], carry);
    carries += carry;
    return add_masses(add_masses(uvec2(low[3], high[3]), uvec2(high[1], 0u)), add_masses(uvec2(high[2], 0u), uvec2(carries, 0u)));
}

// The largest number below part / 2^32 of a mass: a beginning has that part where its mass is larger.
uvec2 below_part(uvec2 mass, uint part) {
    uint high[2], low[2];
    umulExtended(mass.x, part, high[0], low[0]);
    umulExtended(mass.y, part, high[1], low[1]);
    const uvec2 whole = add_masses(uvec2(high[0], 0u), uvec2(low[1], high[1]));
    if (low[0] != 0u) return whole;
    return uvec2(whole.x - 1u, whole.x == 0u ? whole.y - 1u : whole.y);
}

// Adds the tokens of a chunk to the sequence's bins.
void count_chunk(uint sequence, uint chunk, Control control) {
    for (uint word = gl_LocalInvocationIndex; word < BINS * BIN_WORDS; word += LOCAL_SIZE_X) part_bins[word] = 0u;
    barrier();
    const float best = from_order_up(best_order);
    const uint furthest = floatBitsToUint(control.furthest);
    const uint count = min(CHUNK, p.vocabulary - chunk * CHUNK);
    for (uint i = gl_LocalInvocationIndex; i < count; i += LOCAL_SIZE_X) {
        const uint key = key_of(best, values[BYTE_OFFSET_VALUES / 4 + (sequence * p.chunks + chunk) * CHUNK + i]);
        if (key <= furthest) {
            const uvec2 mass = mass_of(key, control.inverse_temperature);
            ADD_TO_BIN(part_bins, bin_of(key) * BIN_WORDS, 1u, mass)
        }
    }
    barrier();
    for (uint bin = gl_LocalInvocationIndex; bin < BINS; bin += LOCAL_SIZE_X) {
        const uint tokens = part_bins[bin * BIN_WORDS];
        if (tokens == 0u) continue;
        const uvec2 mass = uvec2(part_bins[bin * BIN_WORDS + 1u], part_bins[bin * BIN_WORDS + 2u]);
        ADD_TO_BIN(bins, BYTE_OFFSET_BINS / 4 + (sequence * BINS + bin) * BIN_WORDS, tokens, mass)
    }
}

// Loads the sequence's bins, and finds how near each chunk comes to the best token.
Sum load_bins(uint sequence, float best) {
    for (uint word = gl_LocalInvocationIndex; word < BINS * BIN_WORDS; word += LOCAL_SIZE_X)
        whole_bins[word] = bins[BYTE_OFFSET_BINS / 4 + sequence * BINS * BIN_WORDS + word];
    for (uint chunk = gl_LocalInvocationIndex; chunk < p.chunks; chunk += LOCAL_SIZE_X)
        nearest_keys[chunk] = key_of(best, from_order_up(int(best_of_chunk(sequence, chunk).x)));
    uint bin;
    Sum total = Sum(0u, uvec2(0u));
    FIND_BIN(whole_bins, false, uvec2(0xFFFFFFFFu), total, bin)
    return add_sums(total, SUM_AT(whole_bins, bin));
}

uint chance(uint sequence, uint count, Control control) {
    const float best = from_order_up(best_order);
    Sum kept = load_bins(sequence, best);
    const uvec2 number = random_block(uvec4(count, 0u, 0u, 0u), control.seed).xy;
    Span span;
    // Top-k, top-p, chance: one loop, so that a driver has one search to compile. Of three lavapipe's (Mesa 25) took 64 s, of one 12.
    [[dont_unroll]] for (uint question = control.top_k != 0u && control.top_k < kept.count ? 0u : 1u; question < 3u; ++question) {
        if (question == 1u && control.top_p == 0u) continue;
        uvec2 target = uvec2(control.top_k - 1u, 0u);
        if (question == 1u) target = below_part(kept.mass, control.top_p);
        if (question == 2u) target = upper_product(kept.mass, number);
        kept = descend(sequence, best, control, question > 0u, target, span);
    }
    list_chunks(span);
#define FIND(key, token) found_token = token;
    FOR_EACH_TOKEN(sequence, best, span, FIND)
    barrier();
    return found_token;
}

void main() {
    const uint workgroup = linear_workgroup();
    if (workgroup >= p.sequences * p.chunks) return;
    const uint sequence = workgroup / p.chunks, chunk = workgroup % p.chunks;
    const Control control = control_of(sequence);
    const bool is_greedy = control.inverse_temperature == 0.0;
    if (!control.is_active || is_greedy && chunk > 0u) return;
    find_best(sequence);
    if (!is_greedy) {
        count_chunk(sequence, chunk, control);
        bool is_last;
        COUNT_WORKGROUP(bins[BYTE_OFFSET_BINS / 4 + p.sequences * BINS * BIN_WORDS + sequence], p.chunks, is_last)
        if (!is_last) return;
    }
    const int length = max(lengths[BYTE_OFFSET_LENGTHS / 4 + sequence], 0);
    const uint count = uint(length) + p.pending;
    const uint token = is_greedy ? best_token : chance(sequence, count, control);
    if (gl_LocalInvocationIndex != 0u) return;
    tokens[BYTE_OFFSET_TOKENS / 4 + sequence] = int(token);
    if (HAS_HISTORY != 0u && count < p.room)
        new_history[BYTE_OFFSET_NEW_HISTORY / 4 + sequence * p.room + count] = int(token);
    if (HAS_LENGTHS != 0u) new_lengths[BYTE_OFFSET_NEW_LENGTHS / 4 + sequence] = length + 1;
}
