// Local response normalization: each element by the squares of its neighbours.
//
//   y = x / (bias + factor * sum of x * x over the region) ** beta
//
// The region of an element reaches from `before` elements before it to `after` elements after it in one dimension, A, or in
// two, A and B, as far as the tensor goes.
//
// Bindings: x, output.
// Variants: T, the data type of both; U, the same; LANES.
// An invocation handles one item (items.glsl) after another, ITEMS neighbours in dimension A, whose regions overlap: what
// one has read is in the nearest cache for the next. Neighbouring invocations take neighbouring items.
// Constants: RANK 1, ITEMS 1, PLANE (0: a region has no dimension B), X_MODE 0, OUTPUT_MODE 0 (lanes.glsl), LOCAL_SIZE_X.
// Parameters: count of invocations; sizes of the index space, the innermost in items, dimension A's divided by ITEMS and
//   rounded up, and what divides by them; inner_size, the innermost in elements; strides in elements for a step in each
//   dimension, and for one of one element in the innermost; ends, sizes of A and B; a_strides and b_strides, what a step in
//   each dimension adds to the coordinates in A and B; x_neighbour, steps in A and B; output_neighbour, in A.
// Rules: "groups" with LANES > 1, where the innermost dimension is neither A nor B, "elements" with 1.

#include "items.glsl"
#include "lanes.glsl"
#include "power.glsl"

LANES_BUFFER(readonly, T, X, x)
LANES_BUFFER(, U, OUTPUT, output)

#define VISIT(dimension, coordinate)                             \
    x_index += (coordinate) * p.x_strides[dimension];            \
    output_index += (coordinate) * p.output_strides[dimension];  \
    at.x += (coordinate) * p.a_strides[dimension];               \
    at.y += (coordinate) * p.b_strides[dimension];

void load(uint index, uint lanes, out float x[LANES]) {
    if (LANES == 1 || lanes == LANES) {
        LOAD_LANES(T, x, X, x, X_MODE, index, p.x_step)
    } else {
        [[unroll]] for (uint j = 0; j < LANES; ++j) x[j] = float(ELEMENT(T, X, x, index + min(j, lanes - 1u) * p.x_step));
    }
}

float normalized(float x, float sum) {
    const float base = p.bias + p.factor * sum;
    // The usual power takes two roots, where these are defined and of full precision.
    if (p.beta == 0.75 && base >= 1.1754944e-38 && base <= 3.4e38) {
        const float root = sqrt(base);
        return x / (root * sqrt(root));
    }
    return x * power(base, -p.beta);
}

// The first and the last position of a region in a dimension.
uvec2 region(uint position, uint end) {
    return uvec2(position - min(position, p.before), position + min(end - 1u - position, p.after));
}

void main() {
    if (beyond(p.count)) return;
    uint x_index = 0, output_index = 0;
    uvec2 at = uvec2(0);
    LOCATE(linear_invocation())
    const uint lanes = lanes_here();
    const uint origin = x_index - at.x * p.x_neighbour[0] - at.y * p.x_neighbour[1];
    const uint stop = min(at.x + ITEMS, p.ends[0]);
    const uvec2 columns = PLANE != 0 ? region(at.y, p.ends[1]) : uvec2(0);
    for (; at.x < stop; ++at.x) {
        const uvec2 rows = region(at.x, p.ends[0]);
        float x[LANES], sums[LANES];
        [[unroll]] for (int j = 0; j < LANES; ++j) sums[j] = 0.0;
        for (uint row = rows.x; row <= rows.y; ++row) {
            for (uint column = columns.x; column <= columns.y; ++column) {
                load(origin + row * p.x_neighbour[0] + column * p.x_neighbour[1], lanes, x);
                [[unroll]] for (int j = 0; j < LANES; ++j) sums[j] += x[j] * x[j];
            }
        }
        load(origin + at.x * p.x_neighbour[0] + at.y * p.x_neighbour[1], lanes, x);
        float y[LANES];
        [[unroll]] for (int j = 0; j < LANES; ++j) y[j] = normalized(x[j], sums[j]);
        if (LANES == 1 || lanes == LANES) {
            STORE_LANES(U, OUTPUT, output, OUTPUT_MODE, output_index, p.output_step, y)
        } else {
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < lanes) ELEMENT(U, OUTPUT, output, output_index + j * p.output_step) = U(y[j]);
        }
        output_index += p.output_neighbour;
    }
}
