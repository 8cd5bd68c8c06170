// output = x, bit for bit, each with strides of its own from a unit of its own: copies, slices, joins, tiles.
//
// Bindings: x, output.
// Variants, constants and parameters: include/rows.glsl, and
// Constants: RANK 1, of the outer dimensions.
// Parameters: x_start and output_start, where the two begin; sizes of the outer dimensions and what divides by them; x_strides
//   and output_strides along them. Strides may be negative: sums are modulo 2^32.
// Rules: "rows" with ROWS 1, "units" with ROWS 0.

#include "row.glsl"

Row row_at(uint row) {
    uint source = p.x_start, target = p.output_start;
#define VISIT(dimension, coordinate)                         \
    source += (coordinate) * p.x_strides[dimension];         \
    target += (coordinate) * p.output_strides[dimension];
    FOR_EACH_COORDINATE_FAST(row, RANK, p.sizes, p.divisors, VISIT)
    return Row(source, 0u, p.inner_size, target);
}

#include "rows.glsl"
