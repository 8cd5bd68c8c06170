// Integer products, one invocation an output: any types, strides, windows and groups.
//
//   sum(row, column) = sum over taps t and channels c of (x[row under t, c] - x's zero point) * (w[column, c, t] - w's)
//
// See include/integer.glsl for the bindings, what rows and columns are and what becomes of a sum.
// Constants: its own, and ROWS_INNER (0): neighbouring invocations have neighbouring rows, not columns. LOCAL_SIZE_X.
// Grid: linear over the outputs.
//
// The other schedules are checked against it. Chosen when no faster one fits.

#include "tensor.glsl"
#include "integer.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer X { U x[]; };
layout(set = 0, binding = BINDING_W, std430) readonly buffer W { U w[]; };

int difference(int unused, uint bits, uint zero_point, uint is_signed) {
    return number(bits, is_signed) - number(zero_point, is_signed);
}

// Rounded once: the difference of two 32-bit integers has 33 bits, and its magnitude 32.
float difference(float unused, uint bits, uint zero_point, uint is_signed) {
#if U_BYTES == 4
    const uint offset = is_signed << 31, a = bits ^ offset, b = zero_point ^ offset;
    return a < b ? -float(b - a) : float(a - b);
#else
    return float(difference(0, bits, zero_point, is_signed));
#endif
}

// Long sums are added up in blocks, whose own sums of 8-bit integers are exact and others more accurate than one long one.
#if U_BYTES == 1
#define PART int
#else
#define PART SUM
#endif

void main() {
    if (beyond(p.count)) return;
    uint rest = linear_invocation();
    const uint inner_size = ROWS_INNER != 0 ? p.rows : p.columns, outer_size = ROWS_INNER != 0 ? p.columns : p.rows;
    uint next = rest / inner_size;
    const uint inner = rest - next * inner_size;
    rest = next / outer_size;
    const uint outer = next - rest * outer_size;
    const Group group = group_of(rest);
    const uint row = ROWS_INNER != 0 ? inner : outer, column = ROWS_INNER != 0 ? outer : inner;

    const uvec3 pixel = pixel_of(row);
    const uint x_start = BYTE_OFFSET_X / U_BYTES + group.outer * p.x_strides[0] + group.inner * p.x_strides[1] +
        pixel.x * p.x_strides[2];
    const uint w_start = BYTE_OFFSET_W / U_BYTES + group.outer * p.w_strides[0] + group.inner * p.w_strides[1] +
        column * p.w_strides[2];
    const uint x_zero = x_zero_point(row), w_zero = w_zero_point(group, column);
    SUM sum = SUM(0);
    for (uint h = 0; h < p.window[0]; ++h) {
        for (uint v = 0; v < p.window[1]; ++v) {
            uvec2 position;
            if (!source_position(pixel, uvec2(h, v), position)) continue;
            uint source = x_start + position.x * p.x_strides[4] + position.y * p.x_strides[5];
            uint tap = w_start + h * p.w_strides[4] + v * p.w_strides[5];
            for (uint first = 0; first < p.channels; first += BLOCK) {
                PART part = PART(0);
                for (uint c = first; c < min(first + BLOCK, p.channels); ++c) {
                    part += difference(PART(0), uint(x[source]), x_zero, X_SIGNED) *
                        difference(PART(0), uint(w[tap]), w_zero, W_SIGNED);
                    source += p.x_strides[3];
                    tap += p.w_strides[3];
                }
                sum += SUM(part);
            }
        }
    }
    store(group, row, pixel, column, sum, finish_of(group, row, column));
}
