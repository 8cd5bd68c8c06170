// y = f(g(x)), element for element, from one contiguous dimension to another: transposes among them.
//
// The operator is as in elementwise_unary.comp. A workgroup moves a tile of TILE x TILE elements through shared memory:
// it reads along the dimension in which x is contiguous, the rows' (ROW_DIMENSION), and writes along the one in which the
// output is, the columns', which is the innermost. The rule "tiles".
//
// Bindings: x, output.
// Variants: T, the data type; TILE.
// Constants: OPERATION (none by default), HAS_SCALE_BIAS 0, RANK 2, ROW_DIMENSION 0, LOCAL_SIZE_X, a multiple of TILE.
// Parameters: count of tiles; sizes of the index space, rows and columns in tiles; rows and columns, their sizes in
//   elements; strides in elements for a step of one tile in those two; row_stride of the output and column_stride of x for
//   a step of one element; scale and bias; the operator's parameters.

#include "tensor.glsl"
#include "unary.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer X { T x_elements[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer Output { T output_elements[]; };

shared T_MATH tile[TILE][TILE + 1]; // a row longer, so that columns spread over the banks

void main() {
    if (linear_workgroup() >= p.count) return;
    uint x_index = BYTE_OFFSET_X / T_BYTES, output_index = BYTE_OFFSET_OUTPUT / T_BYTES, row = 0, column = 0;
#define VISIT(dimension, coordinate)                                              \
    x_index += (coordinate) * p.x_strides[dimension];                             \
    output_index += (coordinate) * p.output_strides[dimension];                   \
    row = uint(dimension) == ROW_DIMENSION ? (coordinate) * TILE : row;           \
    column = uint(dimension) == RANK - 1u ? (coordinate) * TILE : column;
    FOR_EACH_COORDINATE(linear_workgroup(), RANK, p.sizes, VISIT)

    const uint rows = min(p.rows - row, TILE), columns = min(p.columns - column, TILE);
    const uint lane = gl_LocalInvocationID.x % TILE, first = gl_LocalInvocationID.x / TILE;
    const uint step = gl_WorkGroupSize.x / TILE;
    if (lane < rows)
        for (uint c = first; c < columns; c += step)
            tile[c][lane] = UNARY(T_MATH(x_elements[x_index + lane + c * p.column_stride]));
    barrier();
    if (lane < columns)
        for (uint r = first; r < rows; r += step) output_elements[output_index + r * p.row_stride + lane] = T(tile[lane][r]);
}
