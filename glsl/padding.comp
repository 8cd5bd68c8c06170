// The input with elements before it and after it in every dimension (Padding1), and between its own (SliceGrad).
//
// With CONSTANT there is input from low to high only: coordinate c of a padded dimension is the input's coordinate
//   (c + shift) / period
// where that has no remainder. The shift moves the input's first place to 0; the period is 1 where nothing is between its
// elements, and is not looked at then.
//
// Every mode but CONSTANT takes coordinate c of a padded dimension from the input's coordinate
//   min(r, mirror - r),  r = (clamp(c, low, high) + shift) mod period
//   EDGE         low and high are the input's first and last place in the output
//   REFLECTION   the period is 2 * (size - 1), which is also the mirror
//   SYMMETRIC    the period is 2 * size, the mirror one less
//   WRAP         the period is the size, the mirror beyond it
// where `shift` moves the input's first place to 0, too.
//
// A row of include/rows.glsl is the innermost dimension: input from p.first to p.last, and outside the fill with CONSTANT. In
// another mode what is outside is taken unit by unit from elsewhere in the row where words are made (ROWS 1); where units are
// (ROWS 0), a padded innermost dimension counts as an outer one, and rows are of one unit. So does one with something between
// the input's elements.
//
// Bindings: x, output.
// Variants, constants and parameters: include/rows.glsl, and
// Constants: RANK 1, of the outer dimensions; PADDED, a bit for each dimension that is, the innermost one's that of RANK;
//   DILATED, the same of those with something between the input's elements; FILLED 1 with CONSTANT.
// Parameters: x_start, where unit 0 of a row at input coordinates 0 comes from; first and last, as above; sizes of the outer
//   dimensions and what divides by them; x_strides and output_strides along them; low, high, shift, period and what divides
//   by it, mirror of each dimension, the innermost one's behind the outer ones'.
// Rules: "rows" with ROWS 1, "units" with ROWS 0.

#include "row.glsl"

bool is_padded(uint d) { return (PADDED >> d & 1u) == 1u; }
bool is_dilated(uint d) { return (DILATED >> d & 1u) == 1u; }

uint in_periods(uint place, uint d) {
    return quotient(place, uvec2(p.period_divisors[2u * d], p.period_divisors[2u * d + 1u]));
}

// Where a coordinate of the output comes from in the input, in any mode but CONSTANT.
uint mapped(uint coordinate, uint d) {
    uint place = clamp(coordinate, p.low[d], p.high[d]) + p.shift[d];
    place -= in_periods(place, d) * p.period[d];
    return min(place, p.mirror[d] - place);
}

// With CONSTANT: whether there is input at a place of the output, which becomes its place in the input.
bool has_input(inout uint place, uint d) {
    const bool inside = p.low[d] <= place && place <= p.high[d];
    place += p.shift[d];
    if (!is_dilated(d)) return inside;
    const uint before = place;
    place = in_periods(before, d);
    return inside && place * p.period[d] == before;
}

Row row_at(uint row) {
    uint source = p.x_start, target = 0u;
    bool inside = true;
#define VISIT(dimension, coordinate)                                                                       \
    {                                                                                                      \
        uint place_ = (coordinate);                                                                        \
        target += place_ * p.output_strides[dimension];                                                    \
        if (is_padded(dimension)) {                                                                        \
            if (FILLED == 1u)                                                                              \
                inside = has_input(place_, dimension) && inside;                                           \
            else                                                                                           \
                place_ = mapped(place_, dimension);                                                        \
        }                                                                                                  \
        source += place_ * p.x_strides[dimension];                                                         \
    }
    FOR_EACH_COORDINATE_FAST(row, RANK, p.sizes, p.divisors, VISIT)
    return Row(source, inside ? p.first : 0u, inside ? p.last : 0u, target);
}

#define OUTSIDE_IS_FILL (FILLED == 1u || !is_padded(RANK))
uint source_outside(Row row, uint j) { return row.source + p.first + mapped(j, RANK); }

#include "rows.glsl"
