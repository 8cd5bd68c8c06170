// Integer products of packed operands by cooperative matrices: factors of 8 bits, sums of 32.
//
//   sum(row, column) = sum over taps t and channels c of (x[row under t, c] - x's zero point) * (w[column, c, t] - w's)
//
// See include/integer.glsl for what rows and columns are and what becomes of a sum, include/integer_packed.glsl for operands
// and zero points, include/cooperative_tile.glsl for the multiplication: the depth is channels of taps, both padded.
// Constants: those of include/cooperative_tile.glsl, A being x and B w, both along the depth, and TILE_K a divisor of a line.
// PLAIN (1): a window of one tap that meets every pixel of the input, so that rows are lines. VECTOR_Y (0): four
// columns of y are neighbours in memory and start on a multiple of four. ROWS_INNER (0): neighbouring rows are instead. GROUP
// (8): tiles of so many rows follow each other before the next tile of columns, so that neighbouring workgroups share operands
// in the cache.
// Grid: x over tiles, z over groups.
//
// Chosen where the device multiplies such matrices and the product fills tiles.

#pragma use_vulkan_memory_model

#include "integer_packed.glsl"

#if T_BYTES == 4
#define QUAD uvec4
#elif T_BYTES == 2
#define QUAD uvec2
#else
#define QUAD uint
#endif
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YQuads { QUAD y_quads[]; };

// Of rows: the sum of x, its zero point, where y starts. Of columns: the sum of w, its zero point, the factor of sums.
shared int row_sums[TILE_M];
shared int row_zero_points[TILE_M];
shared uint row_elements[TILE_M];
shared int column_sums[TILE_N];
shared int column_zero_points[TILE_N];
shared float column_factors[TILE_N];

uint first_row;
uint first_column;
uvec4 outside_word;

// A row's pixel, or its line where PLAIN.
struct Place {
    uvec3 pixel;
};

struct Raw {
    uvec4 word;
    bool inside;
};

// The tap to which a place in the depth belongs, and the word of its line.
uvec2 tap_of(uint k) {
    const uint number = k / (16 * p.words);
    return uvec2(number / p.window[1], number % p.window[1]);
}

uint word_in_line(uint k) { return PLAIN != 0 ? k / 16 : k / 16 % p.words; }

Place place_a(uint line, uint word) {
    const uint row = min(first_row + line, p.rows - 1);
    return Place(PLAIN != 0 ? uvec3(row) : pixel_of(row));
}

uint place_b(uint line, uint word) { return min(first_column + line, p.columns - 1); }

Raw fetch_a(Place place, uint line, uint word, uint k) {
    uint source = place.pixel.x;
    const bool inside = PLAIN != 0 || x_line(place.pixel, tap_of(k), source);
    return Raw(x_words[x_word(gl_WorkGroupID.z, source, word_in_line(k) + word)], inside);
}

Raw fetch_b(uint place, uint line, uint word, uint k) {
    const uint source = PLAIN != 0 ? place : w_line(place, tap_of(k));
    return Raw(w_words[w_word(gl_WorkGroupID.z, source, word_in_line(k) + word)], true);
}

// The depth is a multiple of TILE_K, so its first tile is as any other.
Raw head_a(Place place, uint line, uint word, uint k, uint count) { return fetch_a(place, line, word, k); }
Raw head_b(uint place, uint line, uint word, uint k, uint count) { return fetch_b(place, line, word, k); }

uvec4 packed_a(Raw raw) { return raw.inside ? raw.word : outside_word; }
uvec4 packed_b(Raw raw) { return raw.word; }

#define FACTOR int8_t
#define FACTORS WORD_BYTES
#define SUM_TYPE int
#define PLACE_A Place
#include "cooperative_tile.glsl"

void main() {
    const Group group = group_of(gl_WorkGroupID.z);
    const uint tiles_m = (p.rows + TILE_M - 1) / TILE_M, tiles_n = (p.columns + TILE_N - 1) / TILE_N;
    const uint band = gl_WorkGroupID.x / (GROUP * tiles_n);
    const uint band_rows = min(GROUP, tiles_m - band * GROUP);
    const uint in_band = gl_WorkGroupID.x - band * GROUP * tiles_n;
    first_row = (band * GROUP + in_band % band_rows) * TILE_M;
    first_column = in_band / band_rows * TILE_N;
    outside_word = splat(shifted_x_zero_point(0)); // one for all rows, where there is an outside
    for (uint i = gl_LocalInvocationIndex; i < TILE_M; i += LOCAL_SIZE_X) {
        const uint row = min(first_row + i, p.rows - 1);
        row_sums[i] = sum_of_row(gl_WorkGroupID.z, row);
        row_zero_points[i] = shifted_x_zero_point(row);
        row_elements[i] = BYTE_OFFSET_Y / T_BYTES + y_element(group, pixel_of(row), 0);
    }
    for (uint i = gl_LocalInvocationIndex; i < TILE_N; i += LOCAL_SIZE_X) {
        const uint column = min(first_column + i, p.columns - 1);
        column_sums[i] = sum_of_column(gl_WorkGroupID.z, column);
        column_zero_points[i] = shifted_w_zero_point(group, column);
        if (ROW_PARAMETERS == 0) column_factors[i] = finish_of(group, 0, column).factor;
    }

    multiply(0, 16 * p.words * p.window[0] * p.window[1]);

    const uint block_m = gl_SubgroupID / SUBGROUPS_N * SUB_M, block_n = gl_SubgroupID % SUBGROUPS_N * SUB_N;
    const uint quads = SUB_N / 4;
    const int zero_point = finish_of(group, 0, 0).zero_point;
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) {
        share_sums(i);
        subgroupMemoryBarrierShared();
        subgroupBarrier();
        for (uint e = gl_SubgroupInvocationID; e < MAT_M * quads; e += gl_SubgroupSize) {
            const uint m = ROWS_INNER != 0 ? e % MAT_M : e / quads, quad = ROWS_INNER != 0 ? e / MAT_M : e % quads;
            const uint in_rows = block_m + i * MAT_M + m, in_tile = block_n + 4 * quad;
            const uint row = first_row + in_rows, column = first_column + in_tile;
            const ivec4 four = ivec4(sum_bits_at(m, quad));
            if (row >= p.rows) continue;
            const int of_row = row_sums[in_rows], x_zero = row_zero_points[in_rows];
            T_MATH values[4];
            [[unroll]] for (uint j = 0; j < 4; ++j) {
                const int sum = corrected(four[j], x_zero, column_zero_points[in_tile + j], of_row, column_sums[in_tile + j]);
                Finish finish = Finish(column_factors[in_tile + j], zero_point);
                if (ROW_PARAMETERS != 0) finish = finish_of(group, row, min(column + j, p.columns - 1));
                values[j] = finished(group, row, min(column + j, p.columns - 1), sum, finish);
            }
            if (VECTOR_Y != 0 && column + 4 <= p.columns) {
#if T_BYTES == 4 && T_IS_FLOAT
                const QUAD result = floatBitsToUint(vec4(values[0], values[1], values[2], values[3]));
#elif T_BYTES == 4
                const QUAD result = uvec4(values[0], values[1], values[2], values[3]);
#elif T_BYTES == 2
                const QUAD result = uvec2(packHalf2x16(vec2(values[0], values[1])), packHalf2x16(vec2(values[2], values[3])));
#else
                const QUAD result = (values[0] & 0xFFu) | (values[1] & 0xFFu) << 8 | (values[2] & 0xFFu) << 16 | values[3] << 24;
#endif
                y_quads[(row_elements[in_rows] + column) / 4] = result;
            } else {
                [[unroll]] for (uint j = 0; j < 4; ++j)
                    if (column + j < p.columns) y[row_elements[in_rows] + (column + j) * p.y_strides[3]] = T(values[j]);
            }
        }
        subgroupBarrier();
    }
}
