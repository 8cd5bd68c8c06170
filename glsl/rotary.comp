// Rotary embedding: the elements of each head turned by pairs.
//
//   (a, b) -> (a cos - b sin, a sin + b cos), cos and sin from a table, by the row's position and the pair's number
//
// An invocation turns four pairs of a head, or copies four elements behind the last pair.
// Bindings: X, COSINES, SINES, POSITIONS read, Y written. Strides are in elements: of X and Y (batch entry, row, head, element),
// of the tables (batch entry, position, pair), of POSITIONS (batch entry, row), which is bound to X and not read where there is
// none.
// Constants: INTERLEAVED: a pair's elements are neighbours, else the second stands p.pairs behind the first; POSITION_WORDS:
// 32-bit words of a position, 0 where a row's position is its number; QUADS: rows of X, Y and the tables start on groups of four
// elements and consist of them, and so do the pairs.
// Grid: folded into x and y, `count` groups of four pairs or elements.
// Chosen always.

#include "dtype.glsl"
#include "strided_quads.glsl"
#include "tensor.glsl"

STRIDED_QUADS(X, x)
STRIDED_QUADS(COSINES, cosines)
STRIDED_QUADS(SINES, sines)
layout(set = 0, binding = BINDING_POSITIONS, std430) readonly buffer Positions { uint positions[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { T y[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YQuads { QUAD y_quads[]; };

// Writes elements d to d + 3 of a row of y, as far as they come before `end`.
void store(uint start, uint d, uint end, vec4 values) {
    start += BYTE_OFFSET_Y / T_BYTES;
    if (QUADS != 0) {
        y_quads[(start + d) / 4] = pack_quad(values);
    } else {
        [[unroll]] for (int i = 0; i < 4; ++i)
            if (d + i < end) y[start + (d + i) * p.y_strides[3]] = T(values[i]);
    }
}

uint position_of(uint entry, uint row) {
    if (POSITION_WORDS == 0) return row;
    const uint element = entry * p.positions_strides[0] + row * p.positions_strides[1];
    const int position = int(positions[BYTE_OFFSET_POSITIONS / 4 + element * POSITION_WORDS]);
    return uint(clamp(position, 0, int(p.places) - 1));
}

uint start_of(uint strides[4], uint entry, uint row, uint head) {
    return entry * strides[0] + row * strides[1] + head * strides[2];
}

void main() {
    if (beyond(p.count)) return;
    const uint pair_chunks = (p.pairs + 3) / 4;
    const uint chunks = pair_chunks + (p.size - 2 * p.pairs + 3) / 4;
    uint rest = linear_invocation();
    const uint chunk = rest % chunks;
    rest /= chunks;
    const uint head = rest % p.heads;
    rest /= p.heads;
    const uint row = rest % p.rows;
    const uint entry = rest / p.rows;
    const uint x_start = start_of(p.x_strides, entry, row, head);
    const uint y_start = start_of(p.y_strides, entry, row, head);
    if (chunk >= pair_chunks) {
        const uint d = 2 * p.pairs + (chunk - pair_chunks) * 4;
        store(y_start, d, p.size, x_at(x_start, d, p.size, p.x_strides[3], QUADS));
        return;
    }
    const uint place = position_of(entry, row);
    const uint pair = chunk * 4;
    const vec4 c = cosines_at(entry * p.cosines_strides[0] + place * p.cosines_strides[1], pair, p.pairs, p.cosines_strides[2], QUADS);
    const vec4 s = sines_at(entry * p.sines_strides[0] + place * p.sines_strides[1], pair, p.pairs, p.sines_strides[2], QUADS);
    const uint first = INTERLEAVED != 0 ? 2 * pair : pair;
    const uint second = INTERLEAVED != 0 ? first + 4 : p.pairs + pair;
    const uint first_end = INTERLEAVED != 0 ? 2 * p.pairs : p.pairs;
    const uint second_end = 2 * p.pairs;
    vec4 a = x_at(x_start, first, first_end, p.x_strides[3], QUADS);
    vec4 b = x_at(x_start, second, second_end, p.x_strides[3], QUADS);
    if (INTERLEAVED != 0) {
        const vec4 low = a;
        a = vec4(low.xz, b.xz);
        b = vec4(low.yw, b.yw);
    }
    precise vec4 real = a * c - b * s;
    precise vec4 imaginary = a * s + b * c;
    if (INTERLEAVED != 0) {
        const vec4 low = vec4(real.x, imaginary.x, real.y, imaginary.y);
        imaginary = vec4(real.z, imaginary.z, real.w, imaginary.w);
        real = low;
    }
    store(y_start, first, first_end, real);
    store(y_start, second, second_end, imaginary);
}
