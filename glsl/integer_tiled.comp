// Integer products of packed operands, tile by tile through shared memory, a block of sums in each invocation's registers.
//
//   sum(row, column) = sum over taps t and channels c of (x[row under t, c] - x's zero point) * (w[column, c, t] - w's)
//
// See include/integer.glsl for what rows and columns are and what becomes of a sum, include/integer_packed.glsl for operands
// and zero points.
// Variants: DOT 1 multiplies four pairs of bytes at a time (the device feature integer_dot_product), 0 one by one.
// Constants: LOCAL_SIZE_X by LOCAL_SIZE_Y invocations (16 by 16), each with THREAD_R (4) rows by THREAD_C (4) columns; WORDS
// (2) of a line, 16 channels each, are staged at a time: a divisor of p.words. ROWS_INNER (0): X goes along rows, not columns.
// The words of either operand's tile are a multiple of the invocations.
// Grid: x over tiles of columns, y over tiles of rows (the other way round with ROWS_INNER), z over groups.
//
// The next words' loads are in flight, to registers, while the current ones are multiplied. An invocation's rows or
// columns along X are LOCAL_SIZE_X apart, so that neighbours read neighbouring words of shared memory and store neighbours.
// Chosen where the product fills tiles and the device has no cooperative matrices of bytes.

#include "integer_packed.glsl"
#include "integer_dot.glsl"

const uint INVOCATIONS = LOCAL_SIZE_X * LOCAL_SIZE_Y;
const uint TILE_R = (ROWS_INNER != 0 ? LOCAL_SIZE_X : LOCAL_SIZE_Y) * THREAD_R;
const uint TILE_C = (ROWS_INNER != 0 ? LOCAL_SIZE_Y : LOCAL_SIZE_X) * THREAD_C;
// One word of padding spreads the words of a line over the banks.
const uint PITCH_R = TILE_R + 1;
const uint PITCH_C = TILE_C + 1;
const uint STAGED_X = TILE_R * WORDS / INVOCATIONS;
const uint STAGED_W = TILE_C * WORDS / INVOCATIONS;

shared uvec4 tile_x[WORDS * PITCH_R];
shared uvec4 tile_w[WORDS * PITCH_C];
shared int row_sums[TILE_R];
shared int column_sums[TILE_C];

// The place in the tile of the invocation's i-th row and column.
uint tile_row(uint i) {
    return ROWS_INNER != 0 ? i * LOCAL_SIZE_X + gl_LocalInvocationID.x : gl_LocalInvocationID.y * THREAD_R + i;
}

uint tile_column(uint i) {
    return ROWS_INNER != 0 ? gl_LocalInvocationID.y * THREAD_C + i : i * LOCAL_SIZE_X + gl_LocalInvocationID.x;
}

void main() {
    const uint group_number = gl_WorkGroupID.z;
    const Group group = group_of(group_number);
    const uint first_row = (ROWS_INNER != 0 ? gl_WorkGroupID.x : gl_WorkGroupID.y) * TILE_R;
    const uint first_column = (ROWS_INNER != 0 ? gl_WorkGroupID.y : gl_WorkGroupID.x) * TILE_C;
    const uint word = gl_LocalInvocationIndex % WORDS;

    // Rows and columns past the end read the last ones, whose sums nobody stores.
    uvec3 pixels[STAGED_X];
    uvec4 outside[STAGED_X];
    [[unroll]] for (uint i = 0; i < STAGED_X; ++i) {
        const uint row = min(first_row + (i * INVOCATIONS + gl_LocalInvocationIndex) / WORDS, p.rows - 1);
        pixels[i] = pixel_of(row);
        outside[i] = splat(shifted_x_zero_point(row));
    }
    for (uint i = gl_LocalInvocationIndex; i < TILE_R; i += INVOCATIONS)
        row_sums[i] = sum_of_row(group_number, min(first_row + i, p.rows - 1));
    for (uint i = gl_LocalInvocationIndex; i < TILE_C; i += INVOCATIONS)
        column_sums[i] = sum_of_column(group_number, min(first_column + i, p.columns - 1));

    int sums[THREAD_R][THREAD_C];
    [[unroll]] for (uint i = 0; i < THREAD_R; ++i)
        [[unroll]] for (uint j = 0; j < THREAD_C; ++j) sums[i][j] = 0;

    // Round r loads and multiplies what round r - 1 loaded: the first only loads, the last only multiplies.
    uvec4 staged_x[STAGED_X], staged_w[STAGED_W];
    bool inside[STAGED_X];
    uvec2 tap = uvec2(0);
    uint first_word = 0;
    const uint rounds = p.window[0] * p.window[1] * (p.words / WORDS);
    for (uint round = 0; round <= rounds; ++round) {
        if (round > 0) {
            barrier();
            [[unroll]] for (uint i = 0; i < STAGED_X; ++i) {
                const uint line = (i * INVOCATIONS + gl_LocalInvocationIndex) / WORDS;
                tile_x[word * PITCH_R + line] = inside[i] ? staged_x[i] : outside[i];
            }
            [[unroll]] for (uint i = 0; i < STAGED_W; ++i) {
                const uint line = (i * INVOCATIONS + gl_LocalInvocationIndex) / WORDS;
                tile_w[word * PITCH_C + line] = staged_w[i];
            }
            barrier();
        }
        if (round < rounds) {
            [[unroll]] for (uint i = 0; i < STAGED_X; ++i) {
                uint line;
                inside[i] = x_line(pixels[i], tap, line);
                staged_x[i] = x_words[x_word(group_number, line, first_word + word)];
            }
            [[unroll]] for (uint i = 0; i < STAGED_W; ++i) {
                const uint column = min(first_column + (i * INVOCATIONS + gl_LocalInvocationIndex) / WORDS, p.columns - 1);
                staged_w[i] = w_words[w_word(group_number, w_line(column, tap), first_word + word)];
            }
            first_word += WORDS;
            if (first_word == p.words) {
                first_word = 0;
                tap = next_tap(tap);
            }
        }
        if (round > 0) {
            [[unroll]] for (uint k = 0; k < WORDS; ++k) {
                uvec4 rows[THREAD_R];
                [[unroll]] for (uint i = 0; i < THREAD_R; ++i) rows[i] = tile_x[k * PITCH_R + tile_row(i)];
                [[unroll]] for (uint j = 0; j < THREAD_C; ++j) {
                    const uvec4 column = tile_w[k * PITCH_C + tile_column(j)];
                    [[unroll]] for (uint i = 0; i < THREAD_R; ++i) sums[i][j] += dot_of_words(rows[i], column);
                }
            }
        }
    }

    Finish finishes[THREAD_C];
    int w_zeros[THREAD_C];
    [[unroll]] for (uint j = 0; j < THREAD_C; ++j) {
        const uint column = min(first_column + tile_column(j), p.columns - 1);
        w_zeros[j] = shifted_w_zero_point(group, column);
        if (ROW_PARAMETERS == 0) finishes[j] = finish_of(group, 0, column);
    }
    [[unroll]] for (uint i = 0; i < THREAD_R; ++i) {
        const uint row = first_row + tile_row(i);
        const uvec3 pixel = pixel_of(min(row, p.rows - 1));
        const int x_zero = shifted_x_zero_point(min(row, p.rows - 1));
        [[unroll]] for (uint j = 0; j < THREAD_C; ++j) {
            const uint column = first_column + tile_column(j);
            if (row >= p.rows || column >= p.columns) continue;
            if (ROW_PARAMETERS != 0) finishes[j] = finish_of(group, row, column);
            const int sum = corrected(sums[i][j], x_zero, w_zeros[j], row_sums[tile_row(i)], column_sums[tile_column(j)]);
            store(group, row, pixel, column, sum, finishes[j]);
        }
    }
}
