// Attention, one invocation an element of the output; see include/attention.glsl.
//
// A walk over the keys of its row: the score, which every element of the row computes anew, and a sum of weighted values
// that is brought to each new peak, as in the tiled kernel. Nothing is shared, so any sizes and strides will do.
// Bindings: Q, K, V, BIAS, MASK, RELATIVE, LENGTHS, SINKS read, Y written. Grid: folded into x and y, `count` elements of y.
// Chosen for heads too wide for the tiles, and as the first kernel to be right.

#include "attention.glsl"

void main() {
    if (beyond(p.count)) return;
    const uint column = linear_invocation() % p.value_size;
    const uint row = linear_invocation() / p.value_size;
    const uint heads = p.key_heads * GROUP;
    const uint head = row % heads;
    uint s = row / heads;
    uint entry = s / p.queries;
    Sequence sequence = sequence_of(entry);
    s -= entry * p.queries;
    bool found = true;
    const uint y_element = y_start(Sequence(entry, entry * p.queries, 0u, 0u, 0u, 0u, 0, 0), s, head);
    if (UNPADDED != 0) {
        const uint token = entry * p.queries + s;
        found = false;
        for (entry = 0; entry < p.batch && !found; ++entry) {
            sequence = sequence_of(entry);
            found = token >= sequence.first_query && token - sequence.first_query < sequence.queries;
        }
        s = token - sequence.first_query;
    }
    const uint key_head = head / GROUP;
    const uint q_row = q_start(sequence, s, head);
    const uint seen = found ? keys_seen(sequence, s) : 0u;
    float peak = first_peak(head);
    float weights = first_weights();
    float sum = 0.0;
    for (uint j = first_seen(sequence, s); j < seen; ++j) {
        const uint k_row = k_start(sequence, j, key_head);
        float product = 0.0;
        for (uint d = 0; d < p.head_size; d += 4) {
            const vec4 a = load_q(q_row, head, d);
            const vec4 b = load_k(k_row, key_head, d);
            [[unroll]] for (int i = 0; i < 4; ++i) product = fma(a[i], b[i], product);
        }
        const float score = scaled(product) + added(sequence, s, head, j);
        const float higher = max(peak, score);
        const float factor = exp_of_negative(peak - subtracted(higher));
        const float weight = exp_of_negative(score - subtracted(higher));
        weights = fma(weights, factor, weight);
        sum = fma(sum, factor, weight * load_v(v_start(sequence, j, key_head), key_head, column & ~3u)[column & 3u]);
        peak = higher;
    }
    y[BYTE_OFFSET_Y / T_BYTES + y_element + column * p.y_strides[3]] = T(share(sum, weights));
}
