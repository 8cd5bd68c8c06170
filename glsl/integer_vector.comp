// Integer products of few rows with packed columns: bound by one read of the columns.
//
//   sum(row, column) = sum over k of (x[row, k] - x's zero point) * (w[column, k] - w's zero point)
//
// See include/integer.glsl for what rows and columns are and what becomes of a sum, include/integer_packed.glsl for operands
// and zero points. Rows are lines of x: there is one tap, and it meets every pixel of the input.
// Variants: DOT 1 multiplies four pairs of bytes at a time (the device feature integer_dot_product), 0 one by one.
// Constants: LOCAL_SIZE_X (128) invocations, LANES (32) of them a column: neighbours read neighbouring words of its line. ROWS
// (1) at most, whose sums each invocation holds. LANES is a power of two that divides LOCAL_SIZE_X.
// Grid: x folded into y over columns, z over groups.
//
// The lanes' sums of a column meet in shared memory, in a fixed order.

#include "tensor.glsl"
#include "integer_packed.glsl"
#include "integer_dot.glsl"

shared int partial[ROWS * LOCAL_SIZE_X];

void main() {
    const uint group_number = gl_WorkGroupID.z;
    const uint lane = gl_LocalInvocationID.x % LANES;
    const uint column = linear_workgroup() * (LOCAL_SIZE_X / LANES) + gl_LocalInvocationID.x / LANES;
    const uint line = min(column, p.columns - 1);
    int sums[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) sums[r] = 0;
    for (uint word = lane; word < p.words; word += LANES) {
        const uvec4 of_column = w_words[w_word(group_number, line, word)];
        [[unroll]] for (uint r = 0; r < ROWS; ++r)
            sums[r] += dot_of_words(x_words[x_word(group_number, min(r, p.rows - 1), word)], of_column);
    }
    [[unroll]] for (uint r = 0; r < ROWS; ++r) partial[r * LOCAL_SIZE_X + gl_LocalInvocationID.x] = sums[r];
    barrier();
    // As many lanes as there are rows, or all of them in turns, add up a row each.
    if (column >= p.columns) return;
    const Group group = group_of(group_number);
    for (uint r = lane; r < min(ROWS, p.rows); r += LANES) {
        int sum = 0;
        const uint first = r * LOCAL_SIZE_X + gl_LocalInvocationID.x - lane;
        for (uint i = 0; i < LANES; ++i) sum += partial[first + i];
        const int x_zero = shifted_x_zero_point(r), w_zero = shifted_w_zero_point(group, column);
        sum = corrected(sum, x_zero, w_zero, sum_of_row(group_number, r), sum_of_column(group_number, column));
        store(group, r, pixel_of(r), column, sum, finish_of(group, r, column));
    }
}
