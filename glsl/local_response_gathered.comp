// The second of two dispatches of the gradient of local response normalization:
//
//   output[i] = g[i] / base[i] ** beta - slope * x[i] * sum of terms[j] over the j in whose regions i lies
//
// Bindings: x, gradient (g), terms (local_response_terms.comp), output.
// Variants: T, the data type; U, FLOAT32, of terms; LANES.
// Constants and parameters: those of include/local_response.glsl; slope, 2 * factor * beta; LOCAL_SIZE_X.
// Rules: "staged_groups" with LANES > 1, where the innermost dimension is neither A nor B, "staged" with 1.

#include "local_response.glsl"

LANES_BUFFER(readonly, T, GRADIENT, gradient)
LANES_BUFFER(readonly, U, TERMS, terms)
LANES_BUFFER(, T, OUTPUT, output)

#define VISIT(dimension, coordinate)                                  \
    VISIT_PLACE(dimension, coordinate)                                \
    gradient_index += (coordinate) * p.gradient_strides[dimension];   \
    terms_index += (coordinate) * p.terms_strides[dimension];         \
    output_index += (coordinate) * p.output_strides[dimension];

void main() {
    if (beyond(p.count)) return;
    uint gradient_index = 0, terms_index = 0, output_index = 0;
    LOCATE(linear_invocation())
    find_place();
    terms_index -= at.x * p.terms_neighbour[0] + at.y * p.terms_neighbour[1];
    for (; at.x < stop; ++at.x) {
        float base[LANES], x[LANES], gradient[LANES], terms[LANES], sums[LANES], of_row[LANES];
        [[unroll]] for (int j = 0; j < LANES; ++j) sums[j] = 0.0;
        const uvec4 around = regions_with(at);
        for (uint row = around.x; row <= around.y; ++row) {
            [[unroll]] for (int j = 0; j < LANES; ++j) of_row[j] = 0.0;
            for (uint column = around.z; column <= around.w; ++column) {
                const uint index = terms_index + row * p.terms_neighbour[0] + column * p.terms_neighbour[1];
                LOAD_ITEM_OF_U(TERMS, terms, index, terms)
                [[unroll]] for (int j = 0; j < LANES; ++j) of_row[j] += terms[j];
            }
            [[unroll]] for (int j = 0; j < LANES; ++j) sums[j] += of_row[j];
        }
        bases(at, base);
        LOAD_ITEM(X, x, x_at(at), x)
        LOAD_ITEM(GRADIENT, gradient, gradient_index, gradient)
        float result[LANES];
        [[unroll]] for (int j = 0; j < LANES; ++j)
            result[j] = normalized(gradient[j], base[j]) - p.slope * x[j] * sums[j];
        STORE_ITEM(OUTPUT, output, output_index, result)
        gradient_index += p.gradient_neighbour[0];
        output_index += p.output_neighbour[0];
    }
}
