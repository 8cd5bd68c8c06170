// Rotary embedding of an element of a head on its way from memory.
//
//   turned(d) = own * cos + partner * (-sin, or sin of the second of a pair)
//
// Needs the bindings COSINES, SINES, POSITIONS, the parameters pairs, places, cosines_strides[2], sines_strides[2],
// positions_strides[2], and the constants TURN, whether and how elements are turned (TURN_HALVES: the second of a pair stands
// p.pairs behind the first; TURN_NEIGHBOURS: right behind it), and POSITION_WORDS, 32-bit words of a position, 0 where a row's
// position is its place in the cache. What is absent is bound to some other range and not read.

#ifndef DMLVK_ATTENTION_TURN_GLSL
#define DMLVK_ATTENTION_TURN_GLSL

layout(set = 0, binding = BINDING_COSINES, std430) readonly buffer Cosines { T cosines[]; };
layout(set = 0, binding = BINDING_SINES, std430) readonly buffer Sines { T sines[]; };
layout(set = 0, binding = BINDING_POSITIONS, std430) readonly buffer Positions { uint positions[]; };

// The row of the tables for new row `row` of an entry, which has place `place` in the cache.
uint table_row(uint entry, uint row, uint place) {
    if (POSITION_WORDS != 0) {
        const uint element = entry * p.positions_strides[0] + row * p.positions_strides[1];
        place = uint(max(int(positions[BYTE_OFFSET_POSITIONS / 4 + element * POSITION_WORDS]), 0));
    }
    return min(place, p.places - 1);
}

bool is_turned(uint d) { return TURN != TURN_NONE && d < 2 * p.pairs; }

// The other element of the pair of element d, or for one that is not turned another of the row's.
uint partner_of(uint d, uint size) {
    return min(TURN == TURN_NEIGHBOURS ? d ^ 1u : d < p.pairs ? d + p.pairs : d - p.pairs, size - 1);
}

// An element of a row that stands at a row of the tables: turned, or as it is. Without a branch, so that several wait for memory together.
float turned(uint table, uint d, float own, float partner) {
    const bool second = TURN == TURN_NEIGHBOURS ? (d & 1u) != 0u : d >= p.pairs;
    const uint pair = min(TURN == TURN_NEIGHBOURS ? d / 2 : second ? d - p.pairs : d, p.pairs - 1);
    const float c = float(cosines[BYTE_OFFSET_COSINES / T_BYTES + table * p.cosines_strides[0] + pair * p.cosines_strides[1]]);
    const float s = float(sines[BYTE_OFFSET_SINES / T_BYTES + table * p.sines_strides[0] + pair * p.sines_strides[1]]);
    precise float result = second ? partner * s + own * c : own * c - partner * s;
    return is_turned(d) ? result : own;
}

#endif
