// The blocks of images as columns (im2col).
//
//   y[n, c * window + k, b] = x[n, c, b * stride + k * dilation - start padding], 0 where that lies in the padding; see
//   spec/ops/fold.py
//
// A row of include/rows.glsl is a line of blocks along the innermost spatial dimension for one element k of the window: a run
// of a line of the image, p.x_step units apart, cut where it leaves the image.
//
// Bindings: x, output.
// Variants, constants and parameters: include/rows.glsl, and
// Constants: SPATIAL dimensions, and KEPT before them: 2, or 1 where N continues C.
// Parameters: x_start, where position 0 of the padded image would be; sizes of the dimensions over which rows are counted,
//   and what divides by them: the kept ones, the window's, and the blocks' but for the innermost; x_strides and
//   output_strides along them; moves, by how much the position in an image moves along them (not of the kept ones);
//   start_padding and image_sizes; stride of the innermost blocks, and what divides by it. All that is along the innermost
//   dimension counts units.
// Rules: "rows" with ROWS 1, "elements" with ROWS 0.

#include "row.glsl"

Row row_at(uint row) {
    uint source = p.x_start, target = 0u;
    uint at[6] = uint[6](0u, 0u, 0u, 0u, 0u, 0u); // in the padded image
#define VISIT(dimension, coordinate)                                              \
    source += (coordinate) * p.x_strides[dimension];                              \
    target += (coordinate) * p.output_strides[dimension];                         \
    if (uint(dimension) >= KEPT)                                                  \
        at[(uint(dimension) - KEPT) % SPATIAL] += (coordinate) * p.moves[dimension];
    FOR_EACH_COORDINATE_FAST(row, KEPT + 2u * SPATIAL - 1u, p.sizes, p.divisors, VISIT)

    // Positions before the image are huge.
    bool inside = true;
    [[unroll]] for (uint d = 0u; d + 1u < SPATIAL; ++d) inside = inside && at[d] - p.start_padding[d] < p.image_sizes[d];
    const uvec2 stride = uvec2(p.stride_divisor[0], p.stride_divisor[1]);
    // The blocks at which the image begins and ends.
    const uint begin = p.start_padding[SPATIAL - 1u], end = begin + p.image_sizes[SPATIAL - 1u], own = at[SPATIAL - 1u];
    const uint first = begin > own ? quotient(begin - own + p.stride - 1u, stride) : 0u;
    const uint last = end > own ? quotient(end - own + p.stride - 1u, stride) : 0u;
    return Row(source, inside ? first : 0u, inside ? min(last, p.inner_size) : 0u, target);
}

#include "rows.glsl"
