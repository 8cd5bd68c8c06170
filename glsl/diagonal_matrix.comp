// y = the value on the diagonals begin <= d < end, or on all others, elsewhere the input or 0 (DiagonalMatrix1).
//
// Diagonals are counted from the bottom left corner, d = column - row + rows - 1, so that none is negative: position in
// include/fill.glsl, with the strides 1 and -1.
//
// Bindings: input (not read without HAS_INPUT), output. Variants, constants and parameters: include/fill.glsl, and
// Constants: HAS_INPUT 0, OUTSIDE 0: whether the diagonals outside begin and end are those filled.
// Parameters: value, its bits; begin, end.

layout(set = 0, binding = BINDING_INPUT, std430) readonly buffer Input { T input_elements[]; };

uvec2 value_at(uint diagonal, uint source) {
    const bool inside = diagonal >= p.begin && diagonal < p.end;
    if (inside != (OUTSIDE == 1u)) return uvec2(p.value[0], p.value[1]);
    if (HAS_INPUT == 0u) return uvec2(0u);
    const uint element = BYTE_OFFSET_INPUT / T_BYTES + source;
    return uvec2(input_elements[element], HALVES == 2u ? uint(input_elements[element + 1u]) : 0u);
}

#include "fill.glsl"
