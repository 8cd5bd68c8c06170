// Blocks of images put back and added up where they overlap (col2im), one invocation an output.
//
//   y[n, c, p] = the sum of x[n, c * window + k, b] over the window's elements k and the blocks b for which
//   b * stride + k * dilation - start padding = p in every spatial dimension; see spec/ops/fold.py
//
// In each dimension those pairs are (k0 + i * tap_step, b0 - i * block_step), where tap_step and block_step are the stride
// and the dilation without their common divisor: k0 * dilation is congruent to p + start padding modulo the stride, which
// k0 * (dilation / divisor) = (p + start padding) / divisor modulo tap_step solves by the inverse of dilation / divisor.
// What lies inside both the window and the blocks is one run of i, so that every sum goes over a box of the input, in the
// order of the window's elements: the same bits every time, without atomics. Neighbours read side by side where the
// innermost stride is 1.
//
// Bindings: X, Y. Variants: T. Float32 sums.
// Constants:
//   KEPT      dimensions before the spatial ones: 2, or 1 where N continues C
//   RANK      all dimensions
//   STRIDED   1 unless every stride is 1
//   DILATED   1 unless every dilation is 1
//   LINES, TAPS   lines of a box and elements of a line that are read together; where LINES is above 1, lines have at most
//             TAPS elements: else the order would not be that of the window
// Parameters: count of outputs; sizes of y, and what divides by them; y_strides; x_kept, the steps of x along the kept
//   dimensions. For each spatial dimension window, blocks, start_padding and dilation; divisor, the one that stride and
//   dilation have in common, tap_step, block_step and inverse, as above; x_tap and x_block, the steps of x from one element
//   of the window to the next and from one block to the next; and what divides by the stride, the divisor and the two steps.
// Grid: x folded into y, over all outputs.
// The only rule, "outputs".

#include "tensor.glsl"
#include "wide.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer X { T x[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { T y[]; };

const uint SPATIAL = RANK - KEPT;

uvec2 words_of(uint divisors[12], uint d) { return uvec2(divisors[2 * d], divisors[2 * d + 1]); }

// The first pair of a dimension and how many there are, for a position in the padded image.
struct Pairs {
    uint tap, block, count;
};

Pairs pairs_of(uint position, uint d) {
    const Pairs none = Pairs(0u, 0u, 0u);
    const uint window = p.window[d], blocks = p.blocks[d], tap_step = p.tap_step[d], block_step = p.block_step[d];
    uint tap = 0u, block = position;
    if (STRIDED == 1u) {
        uint whole = position;
        if (DILATED == 1u) {
            whole = quotient(position, words_of(p.divisor_divisors, d));
            if (whole * p.divisor[d] != position) return none;
        }
        const uvec2 by_tap_step = words_of(p.tap_step_divisors, d);
        tap = whole - quotient(whole, by_tap_step) * tap_step;
        if (DILATED == 1u) {
            if (tap_step <= MOST_NARROW_STEP) {
                tap *= p.inverse[d];
                tap -= quotient(tap, by_tap_step) * tap_step;
            } else {
                tap = wide_quotient(tap, p.inverse[d], tap_step).y;
            }
        }
        if (tap >= window || tap * p.dilation[d] > position) return none;
        block = quotient(position - tap * p.dilation[d], words_of(p.stride_divisors, d));
    }
    // At i the tap is in the window, and the block is not below 0 and below their number.
    uint first = block < blocks ? 0u : block - blocks + block_step, end = block, taps = window - tap + tap_step - 1u;
    if (DILATED == 1u) {
        const uvec2 by_block_step = words_of(p.block_step_divisors, d);
        first = quotient(first, by_block_step);
        end = quotient(end, by_block_step);
    }
    if (STRIDED == 1u) taps = quotient(taps, words_of(p.tap_step_divisors, d));
    end = min(end + 1u, taps);
    if (first >= end) return none;
    return Pairs(tap + first * tap_step, block - first * block_step, end - first);
}

void main() {
    if (beyond(p.count)) return;
    uint at = BYTE_OFFSET_X / T_BYTES, target = BYTE_OFFSET_Y / T_BYTES;
    uint counts[6] = uint[6](1u, 1u, 1u, 1u, 1u, 1u), steps[6] = uint[6](0u, 0u, 0u, 0u, 0u, 0u);
    bool empty = false;
#define VISIT(dimension, coordinate)                                                                     \
    target += (coordinate) * p.y_strides[dimension];                                                     \
    if (uint(dimension) < KEPT) {                                                                        \
        at += (coordinate) * p.x_kept[min(uint(dimension), 1u)];                                         \
    } else {                                                                                             \
        const uint d_ = uint(dimension) - KEPT;                                                          \
        const Pairs pairs_ = pairs_of((coordinate) + p.start_padding[d_], d_);                           \
        at += pairs_.tap * p.x_tap[d_] + pairs_.block * p.x_block[d_];                                   \
        /* The last dimension is the last entry, and so on: absent ones before it have one pair. */      \
        counts[d_ + 6u - SPATIAL] = pairs_.count;                                                        \
        steps[d_ + 6u - SPATIAL] = p.tap_step[d_] * p.x_tap[d_] - p.block_step[d_] * p.x_block[d_];      \
        empty = empty || pairs_.count == 0u;                                                             \
    }
    FOR_EACH_COORDINATE_FAST(linear_invocation(), RANK, p.sizes, p.divisors, VISIT)

    float sum = 0.0;
    uint outer[4] = uint[4](0u, 0u, 0u, 0u);
    for (bool more = !empty; more;) {
        for (uint line = 0u; line < counts[4]; line += LINES) {
            for (uint first = 0u; first < counts[5]; first += TAPS) {
                // Past the end the last line or element again, which is not added.
                float values[LINES * TAPS];
                [[unroll]] for (uint l = 0u; l < LINES; ++l) {
                    const uint start = at + min(line + l, counts[4] - 1u) * steps[4];
                    [[unroll]] for (uint t = 0u; t < TAPS; ++t)
                        values[l * TAPS + t] = float(x[start + min(first + t, counts[5] - 1u) * steps[5]]);
                }
                [[unroll]] for (uint l = 0u; l < LINES; ++l) {
                    [[unroll]] for (uint t = 0u; t < TAPS; ++t)
                        sum += line + l < counts[4] && first + t < counts[5] ? values[l * TAPS + t] : 0.0;
                }
            }
        }
        // The next line of planes, the last of the outer dimensions first.
        more = false;
        if (SPATIAL > 2u) {
            [[unroll]] for (int d = 3; d >= 6 - int(SPATIAL); --d) {
                if (more) continue;
                at += steps[d];
                more = ++outer[d] < counts[d];
                if (!more) {
                    at -= counts[d] * steps[d];
                    outer[d] = 0u;
                }
            }
        }
    }
    y[target] = T(sum);
}
