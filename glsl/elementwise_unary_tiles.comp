// y = f(g(x)), element for element, from one contiguous dimension to another: transposes among them.
//
// The operator is as in elementwise_unary.comp. A workgroup moves a tile through shared memory (tile.glsl): it reads along
// the dimension in which x is contiguous, the rows' (ROW_DIMENSION), and writes along the one in which the output is, the
// columns', which is the innermost. The rule "tiles".
//
// Bindings: x, output.
// Variants: T and U, the data type, one and the same; LANES and TILE.
// Constants: OPERATION (none by default), HAS_SCALE_BIAS 0, RANK 2, ROW_DIMENSION 0, X_MODE 0, OUTPUT_MODE 0 (lanes.glsl),
//   LOCAL_SIZE_X.
// Parameters: count of tiles; sizes of the index space, rows and columns in tiles, and what divides by them; rows and
//   columns, their sizes in elements; x_start and output_start, where the tensors begin; strides in elements for a step of one tile in those two; row_stride of the output and
//   column_stride of x for a step of one element; scale and bias; the operator's parameters.

#include "tensor.glsl"
#include "lanes.glsl"
#include "tile.glsl"
#include "unary.glsl"

LANES_BUFFER(readonly, T, X, x)
LANES_BUFFER(, U, OUTPUT, output)

uint x_index, output_index, rows, columns;

void fill(bool whole) {
    T_MATH values[LANES];
    [[unroll]] for (uint share = gl_LocalInvocationID.x; share < TILE * GROUPS_OF_TILE; share += gl_WorkGroupSize.x) {
        const uint row = share % GROUPS_OF_TILE * LANES, column = share / GROUPS_OF_TILE;
        const uint index = x_index + row + column * p.column_stride;
        if (whole) {
            LOAD_LANES(T, values, X, x, X_MODE, index, 1u)
        } else {
            [[unroll]] for (uint i = 0; i < LANES; ++i)
                if (row + i < rows && column < columns) values[i] = T_MATH(ELEMENT(T, X, x, index + i));
        }
        [[unroll]] for (int i = 0; i < LANES; ++i) values[i] = UNARY(values[i]);
        put_rows(column, row, values);
    }
}

void empty(bool whole) {
    T_MATH block[LANES][LANES];
    [[unroll]] for (uint share = gl_LocalInvocationID.x; share < GROUPS_OF_TILE * GROUPS_OF_TILE; share += gl_WorkGroupSize.x) {
        const uint column = share % GROUPS_OF_TILE * LANES, row = share / GROUPS_OF_TILE * LANES;
        get_block(column, row, block);
        [[unroll]] for (uint i = 0; i < LANES; ++i) {
            const uint index = output_index + (row + i) * p.row_stride + column;
            if (whole) {
                STORE_LANES(U, OUTPUT, output, OUTPUT_MODE, index, 1u, block[i])
            } else {
                [[unroll]] for (uint j = 0; j < LANES; ++j)
                    if (row + i < rows && column + j < columns) ELEMENT(U, OUTPUT, output, index + j) = U(block[i][j]);
            }
        }
    }
}

void main() {
    if (linear_workgroup() >= p.count) return;
    x_index = p.x_start, output_index = p.output_start;
    uint first_row = 0, first_column = 0;
#define VISIT(dimension, coordinate)                                                        \
    x_index += (coordinate) * p.x_strides[dimension];                                       \
    output_index += (coordinate) * p.output_strides[dimension];                             \
    first_row = uint(dimension) == ROW_DIMENSION ? (coordinate) * TILE : first_row;         \
    first_column = uint(dimension) == RANK - 1u ? (coordinate) * TILE : first_column;
    FOR_EACH_COORDINATE_FAST(linear_workgroup(), RANK, p.sizes, p.divisors, VISIT)

    rows = min(p.rows - first_row, TILE);
    columns = min(p.columns - first_column, TILE);
    const bool whole = rows == TILE && columns == TILE;
    if (whole) fill(true); else fill(false);
    barrier();
    if (whole) empty(true); else empty(false);
}
