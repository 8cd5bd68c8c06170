// Where the outputs of a resampling lie in its input, exactly, and which elements are around: for the resampling kernels and
// their gradients. See spec/ops/resample.py (Resample3).
//
// Constant: RANK. Parameters of a dimension d: output o lies at start + o * step, where start = start_whole + start_part / parts
//   and step = step_whole + step_part / parts; step_estimate = floor(2^32 * step_part / parts); parts is below 2^30.
//   weight_of_part is 1 / parts, input_sizes the input's size.

#ifndef DMLVK_RESAMPLE_POSITIONS_GLSL
#define DMLVK_RESAMPLE_POSITIONS_GLSL

// x = whole + part / parts.
struct Position {
    int whole;
    uint part;
};

void carry(int d, inout Position at) {
    if (at.part >= p.parts[d]) {
        at.part -= p.parts[d];
        ++at.whole;
    }
}

// The estimated quotient of step_part * o by parts is at most 1 too small and loses its fraction, the start's adds less than
// 1: what is left is below three parts, and right in 32 bits though its terms are not.
Position position_of(int d, uint o) {
    uint quotient, low;
    umulExtended(o, p.step_estimate[d], quotient, low);
    Position at;
    at.whole = p.start_whole[d] + p.step_whole[d] * int(o) + int(quotient);
    at.part = p.start_part[d] + p.step_part[d] * o - quotient * p.parts[d];
    carry(d, at);
    carry(d, at);
    return at;
}

// The position of the next output.
void advance(int d, inout Position at) {
    at.whole += p.step_whole[d];
    at.part += p.step_part[d];
    carry(d, at);
}

uint last_input(int d) { return p.input_sizes[d] - 1u; }
uint clamp_input(int d, int i) { return uint(clamp(i, 0, int(last_input(d)))); }

// The two elements around a position and their weights. (1 minus the other weight would have the error of a number near 1.)
// Where there is but one, at an edge or where the position is whole, it is both, each with half the weight: the result is
// exact, and no other element turns it into NaN.
struct Pair {
    uint low, high;
    float low_weight, high_weight;
};

Pair pair_of(int d, Position at) {
    const int last = int(last_input(d));
    const bool single = at.part == 0u || at.whole < 0 || at.whole >= last;
    const uint low = uint(clamp(at.whole, 0, last));
    const float weight = p.weight_of_part[d];
    return Pair(low, single ? low : low + 1u, single ? 0.5 : float(p.parts[d] - at.part) * weight,
                single ? 0.5 : float(at.part) * weight);
}

#endif
