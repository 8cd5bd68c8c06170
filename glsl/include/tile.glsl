// A tile of TILE x TILE elements in shared memory, filled along one dimension and emptied along the other.
//
// Along both dimensions an invocation moves LANES neighbours at a time; those of types below 32 bits share a word, LANES of
// them, so that every access to memory is of 4 bytes at least. The dimension along which the tile is filled is its rows',
// the one along which it is emptied its columns'.
//   put_rows(column, row, values)         LANES neighbours along the rows, from the `row`-th on
//   get_block(column, row, block)         block[i][j] is the element of column + j and row + i, LANES of either
// `row` (and for get_block `column`) are multiples of LANES.

#ifndef DMLVK_TILE_GLSL
#define DMLVK_TILE_GLSL

#include "lanes.glsl"

#define GROUPS_OF_TILE (TILE / LANES)

#if LANES == 1
shared T_MATH tile[TILE][TILE + 1]; // a row longer, so that columns spread over the banks
void put_rows(uint column, uint row, T_MATH values[LANES]) { tile[column][row] = values[0]; }
void get_block(uint column, uint row, out T_MATH block[LANES][LANES]) { block[0][0] = tile[column][row]; }
#else
shared uint tile[TILE][GROUPS_OF_TILE + 1];
void put_rows(uint column, uint row, T_MATH values[LANES]) { tile[column][row / LANES] = pack_T(values)[0]; }
void get_block(uint column, uint row, out T_MATH block[LANES][LANES]) {
    [[unroll]] for (int j = 0; j < LANES; ++j) {
        const uint words[1] = uint[](tile[column + j][row / LANES]);
        T_MATH values[LANES];
        unpack_T(words, values);
        [[unroll]] for (int i = 0; i < LANES; ++i) block[i][j] = values[i];
    }
}
#endif

#endif
