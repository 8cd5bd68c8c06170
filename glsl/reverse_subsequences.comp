// The first elements along an axis in reverse order, as many as a length says, the others as they are (ReverseSubsequences).
//
//   y[a, i, b] = x[a, i < n ? n - 1 - i : i, b],  n = min(lengths[a, 0, b], size)
//
// A row of include/rows.glsl is what follows the axis where all of that has one length, else one unit.
//
// Bindings: lengths, as 32-bit words; x; output.
// Variants, constants and parameters: include/rows.glsl, and
// Constants: RANK 1, of the rows; AXIS, which of those dimensions is reversed; LENGTH_WORDS, 1 or 2.
// Parameters: sizes of the index space of the rows, the axis among them, and what divides by them; x_strides and
//   output_strides along its dimensions, in units, and length_strides, in words.
// Rules: "rows" with ROWS 1, "units" with ROWS 0.

#include "row.glsl"

layout(set = 0, binding = BINDING_LENGTHS, std430) readonly buffer Lengths { uint length_words[]; };

Row row_at(uint row) {
    uint source = 0u, target = 0u, word = BYTE_OFFSET_LENGTHS / 4u, place = 0u;
#define VISIT(dimension, coordinate)                                               \
    target += (coordinate) * p.output_strides[dimension];                          \
    word += (coordinate) * p.length_strides[dimension];                            \
    if (uint(dimension) == AXIS) place = (coordinate);                             \
    else source += (coordinate) * p.x_strides[dimension];
    FOR_EACH_COORDINATE_FAST(row, RANK, p.sizes, p.divisors, VISIT)
    const bool is_huge = LENGTH_WORDS == 2u && length_words[word + 1u] != 0u;
    const uint length = is_huge ? p.sizes[AXIS] : min(length_words[word], p.sizes[AXIS]);
    if (place < length) place = length - 1u - place;
    return Row(source + place * p.x_strides[AXIS], 0u, p.inner_size, target);
}

#include "rows.glsl"
