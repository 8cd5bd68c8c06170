// Local response normalization: each element by the squares of its neighbours.
//
//   y = x / (bias + factor * sum of x * x over the region) ** beta
//
// Bindings: x, output.
// Variants: T, the data type of both; U, the same; LANES.
// Constants and parameters: those of include/local_response.glsl; LOCAL_SIZE_X.
// Rules: "groups" with LANES > 1, where the innermost dimension is neither A nor B, "elements" with 1.

#include "local_response.glsl"

LANES_BUFFER(, T, OUTPUT, output)

#define VISIT(dimension, coordinate)     \
    VISIT_PLACE(dimension, coordinate)   \
    output_index += (coordinate) * p.output_strides[dimension];

void main() {
    if (beyond(p.count)) return;
    uint output_index = 0;
    LOCATE(linear_invocation())
    find_place();
    for (; at.x < stop; ++at.x) {
        float base[LANES], x[LANES], y[LANES];
        bases(at, base);
        LOAD_ITEM(X, x, x_at(at), x)
        [[unroll]] for (int j = 0; j < LANES; ++j) y[j] = normalized(x[j], base[j]);
        STORE_ITEM(OUTPUT, output, output_index, y)
        output_index += p.output_neighbour[0];
    }
}
