// The gradient of local response normalization across one dimension, in one dispatch:
//
//   output[i] = g[i] / base[i] ** beta - slope * x[i] * sum of term[j] over the j in whose regions i lies
//   term[j] = g[j] * x[j] / base[j] ** (beta + 1),  slope = 2 * factor * beta
//
// An invocation goes along dimension A and keeps the last SIZE elements of x and of the terms, as many as a region has. With
// each element of x that it reads, the region of an earlier one is complete, whose term follows; with each term the sum of a
// still earlier one. So an invocation reads its run of elements and SIZE - 1 on either side once, a step ahead of their use.
// Outside of the tensor x and the terms are 0.
//
// Bindings: x, gradient (g), output.
// Variants: T, the data type; U, FLOAT32, in which is computed; LANES.
// Constants and parameters: those of include/local_response.glsl; SIZE 1, the region's; slope; LOCAL_SIZE_X.
// Rules: "groups" with LANES > 1, where the innermost dimension is not A, "elements" with 1.

#include "local_response.glsl"

#define BEFORE ((SIZE - 1u) / 2u)
#define AFTER (SIZE / 2u)

LANES_BUFFER(readonly, T, GRADIENT, gradient)
LANES_BUFFER(, T, OUTPUT, output)

#define VISIT(dimension, coordinate)                                  \
    VISIT_PLACE(dimension, coordinate)                                \
    gradient_index += (coordinate) * p.gradient_strides[dimension];   \
    output_index += (coordinate) * p.output_strides[dimension];

bool is_inside(int place) { return uint(place) < p.ends[0]; }
uint inside(int place) { return uint(clamp(place, 0, int(p.ends[0]) - 1)); }

// x at a place, and the gradient AFTER places before it; of places outside of the tensor, any numbers.
void read(int place, uint gradient_index, out float x[LANES], out float gradient[LANES]) {
    LOAD_ITEM(X, x, x_at(uvec2(inside(place), 0u)), x)
    LOAD_ITEM(GRADIENT, gradient, gradient_index + inside(place - int(AFTER)) * p.gradient_neighbour[0], gradient)
}

void main() {
    if (beyond(p.count)) return;
    uint gradient_index = 0, output_index = 0;
    LOCATE(linear_invocation())
    find_place();
    gradient_index -= at.x * p.gradient_neighbour[0];

    // The newest last: of x at `place`, of the terms at the middle of its region. Of g / base ** beta the first is for the place
    // whose sum the newest term completes.
    float x[SIZE][LANES], terms[SIZE][LANES], through[SIZE][LANES];
    [[unroll]] for (int k = 0; k < SIZE; ++k)
        [[unroll]] for (int j = 0; j < LANES; ++j) x[k][j] = 0.0, terms[k][j] = 0.0, through[k][j] = 0.0;
    float next_x[LANES], gradient[LANES], next_gradient[LANES];
    int place = int(at.x) - int(SIZE - 1u);
    read(place, gradient_index, next_x, next_gradient);
    const uint steps = stop - at.x + 2u * (SIZE - 1u);
    for (uint step = 0; step < steps; ++step, ++place) {
        const bool is_there = is_inside(place);
        [[unroll]] for (int j = 0; j < LANES; ++j) {
            [[unroll]] for (int k = 1; k < SIZE; ++k) x[k - 1][j] = x[k][j];
            x[SIZE - 1][j] = is_there ? next_x[j] : 0.0;
            gradient[j] = next_gradient[j];
        }
        read(place + 1, gradient_index, next_x, next_gradient);
        if (step < SIZE - 1u) continue; // no region is complete

        const bool has_term = is_inside(place - int(AFTER));
        [[unroll]] for (int j = 0; j < LANES; ++j) {
            float sum = 0.0;
            [[unroll]] for (int k = 0; k < SIZE; ++k) sum += x[k][j] * x[k][j];
            const float base = p.bias + p.factor * sum;
            [[unroll]] for (int k = 1; k < SIZE; ++k) terms[k - 1][j] = terms[k][j];
            [[unroll]] for (int k = 1; k <= BEFORE; ++k) through[k - 1][j] = through[k][j];
            through[BEFORE][j] = normalized(gradient[j], base);
            terms[SIZE - 1][j] = has_term ? divide(through[BEFORE][j] * x[BEFORE][j], base) : 0.0;
        }
        if (step < 2u * (SIZE - 1u)) continue; // no sum of the invocation's own is

        float result[LANES];
        [[unroll]] for (int j = 0; j < LANES; ++j) {
            float sum = 0.0;
            [[unroll]] for (int k = 0; k < SIZE; ++k) sum += terms[k][j];
            result[j] = through[0][j] - p.slope * x[0][j] * sum;
        }
        STORE_ITEM(OUTPUT, output, output_index, result)
        output_index += p.output_neighbour[0];
    }
}
