// y = x, element for element, to a format that no tensor has, or from it: FormatCast.
//
// From T to U: floats to bits, bits to floats, or floats to those of the format's numbers that are nearest
// (number_format.glsl).
//
// Bindings: x, output. They may be the same bytes: an invocation reads only what it writes.
// Variants: T, U, the data types of x and output; LANES.
// Constants: FORMAT_SCHEME 0, FORMAT_BITS 8, FORMAT_SIGNED 1, FORMAT_MANTISSA 3, FORMAT_BIAS 7, FORMAT_LARGEST 0,
//   FORMAT_INFINITY 0, FORMAT_NAN 0, SATURATE 1, FORMAT_ROUNDING 0 (number_format.glsl); RANK 1, ITEMS 1 (items.glsl),
//   X_MODE 0, OUTPUT_MODE 0 (lanes.glsl), LOCAL_SIZE_X.
// Parameters: of the items (items.glsl); each tensor's strides in elements for a step of one item in its dimensions, and for
//   one of one element in the innermost.
// Rules: "groups" with LANES > 1, "elements" with 1.

#include "items.glsl"
#include "lanes.glsl"
#include "number_format.glsl"

LANES_BUFFER(readonly, T, X, x)
LANES_BUFFER(, U, OUTPUT, output)

#define VISIT(dimension, coordinate)                 \
    x_index += (coordinate) * p.x_strides[dimension]; \
    output_index[i] += (coordinate) * p.output_strides[dimension];

U_MATH cast_number(T_MATH x) {
#if T_IS_FLOAT && U_IS_FLOAT
    return format_number(format_bits(x));
#elif T_IS_FLOAT
    return format_bits(x);
#else
    return format_number(x);
#endif
}

void main() {
    if (beyond_items()) return;
    T_MATH x[MOST_ITEMS][LANES];
    uint output_index[MOST_ITEMS];
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        uint x_index = 0;
        output_index[i] = 0;
        LOCATE(item_number(i))
        lanes[i] = lanes_here();
        if (LANES == 1 || lanes[i] == LANES) {
            LOAD_LANES(T, x[i], X, x, X_MODE, x_index, p.x_step)
        } else {
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < lanes[i]) x[i][j] = T_MATH(ELEMENT(T, X, x, x_index + j * p.x_step));
        }
    }
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        if (!has_item(i)) continue;
        U_MATH y[LANES];
        [[unroll]] for (int j = 0; j < LANES; ++j) y[j] = cast_number(x[i][j]);
        if (LANES == 1 || lanes[i] == LANES) {
            STORE_LANES(U, OUTPUT, output, OUTPUT_MODE, output_index[i], p.output_step, y)
        } else {
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < lanes[i]) ELEMENT(U, OUTPUT, output, output_index[i] + j * p.output_step) = U(y[j]);
        }
    }
}
