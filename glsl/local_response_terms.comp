// The first of two dispatches of the gradient of local response normalization: the terms of its sums,
//
//   terms[j] = g[j] * x[j] / base[j] ** (beta + 1)
//
// Bindings: x, gradient (g), terms.
// Variants: T, the data type of x and gradient; U, FLOAT32, of terms; LANES.
// Constants and parameters: those of include/local_response.glsl; LOCAL_SIZE_X.
// Rules: "staged_groups" with LANES > 1, where the innermost dimension is neither A nor B, "staged" with 1.

#include "local_response.glsl"

LANES_BUFFER(readonly, T, GRADIENT, gradient)
LANES_BUFFER(, U, TERMS, terms)

#define VISIT(dimension, coordinate)                                  \
    VISIT_PLACE(dimension, coordinate)                                \
    gradient_index += (coordinate) * p.gradient_strides[dimension];   \
    terms_index += (coordinate) * p.terms_strides[dimension];

void main() {
    if (beyond(p.count)) return;
    uint gradient_index = 0, terms_index = 0;
    LOCATE(linear_invocation())
    find_place();
    for (; at.x < stop; ++at.x) {
        float base[LANES], x[LANES], gradient[LANES], terms[LANES];
        bases(at, base);
        LOAD_ITEM(X, x, x_at(at), x)
        LOAD_ITEM(GRADIENT, gradient, gradient_index, gradient)
        [[unroll]] for (int j = 0; j < LANES; ++j) terms[j] = divide(normalized(gradient[j], base[j]) * x[j], base[j]);
        STORE_ITEM_OF_U(TERMS, terms, terms_index, terms)
        gradient_index += p.gradient_neighbour[0];
        terms_index += p.terms_neighbour[0];
    }
}
