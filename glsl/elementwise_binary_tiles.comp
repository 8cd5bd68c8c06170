// y = activation(f(a, b)), element for element, where one of the three tensors is contiguous in another dimension than the
// other two: NHWC and NCHW operands among them.
//
// The operator is as in elementwise_binary.comp. The odd one out (ODD) goes through a tile in shared memory (tile.glsl). Where
// it is an input, a workgroup fills the tile along the dimension in which that is contiguous, the rows' (ROW_DIMENSION), and
// computes along the columns', the innermost; where it is the output, the other way round. The rule "tiles".
//
// Bindings: a, b, output.
// Variants: T and U, the data type, one and the same; LANES and TILE.
// Constants: OPERATION (none by default), ACTIVATION 0, RANK 2, ROW_DIMENSION 0, ODD 0 (its binding), A_MODE 0,
//   B_MODE 0, OUTPUT_MODE 0 (lanes.glsl), LOCAL_SIZE_X, 128 or 64.
// Parameters: count of tiles; sizes of the index space, rows and columns in tiles, and what divides by them; rows and
//   columns, their sizes in elements; strides in elements for a step of one tile in those two; row and column strides of
//   each tensor for a step of one element; the operator's parameters and the activation's.

#include "tensor.glsl"
#include "binary.glsl"
#include "lanes.glsl"
#include "tile.glsl"

LANES_BUFFER(readonly, T, A, a)
LANES_BUFFER(readonly, T, B, b)
LANES_BUFFER(, U, OUTPUT, output)

uint a_index, b_index, output_index, rows, columns;

uint at_a(uint row, uint column) { return a_index + row * p.a_steps[0] + column * p.a_steps[1]; }
uint at_b(uint row, uint column) { return b_index + row * p.b_steps[0] + column * p.b_steps[1]; }

// LANES neighbours of an input from (row, column) on in the dimension of the step. Those outside the tensor, of which there
// are some where not `whole`, are not read.
#define LOAD(NAME, name, MODE, row, column, step, whole, lanes, values)                                            \
    if (whole) {                                                                                                   \
        LOAD_LANES(T, values, NAME, name, MODE, at_##name(row, column), step)                                      \
    } else {                                                                                                       \
        [[unroll]] for (uint k_ = 0; k_ < LANES; ++k_)                                                             \
            if (k_ < (lanes)) values[k_] = T_MATH(ELEMENT(T, NAME, name, at_##name(row, column) + k_ * (step)));   \
    }

// A share of the output is LANES columns of LANES rows; neighbouring invocations take neighbouring columns.
#define MOST_SHARES (GROUPS_OF_TILE * GROUPS_OF_TILE / LEAST_INVOCATIONS)
#define SHARES (MOST_SHARES * LEAST_INVOCATIONS / gl_WorkGroupSize.x)
uint share(uint s) { return s * gl_WorkGroupSize.x + gl_LocalInvocationID.x; }
uint share_column(uint s) { return share(s) % GROUPS_OF_TILE * LANES; }
uint share_row(uint s) { return share(s) / GROUPS_OF_TILE * LANES; }
uint lanes_at(uint row, uint column) { return row < rows && column < columns ? columns - column : 0u; }

T_MATH other[MOST_SHARES][LANES][LANES];

// Reads the input that is not odd, before anything waits for the tile.
void prefetch(bool whole) {
    [[unroll]] for (uint s = 0; s < SHARES; ++s) {
        [[unroll]] for (uint i = 0; i < LANES; ++i) {
            const uint row = share_row(s) + i, column = share_column(s), lanes = lanes_at(row, column);
            if (ODD == BINDING_A) LOAD(B, b, B_MODE, row, column, p.b_steps[1], whole, lanes, other[s][i])
            if (ODD == BINDING_B) LOAD(A, a, A_MODE, row, column, p.a_steps[1], whole, lanes, other[s][i])
        }
    }
}

void fill(bool whole) {
    T_MATH a[LANES], b[LANES];
    [[unroll]] for (uint n = gl_LocalInvocationID.x; n < TILE * GROUPS_OF_TILE; n += gl_WorkGroupSize.x) {
        const uint row = n % GROUPS_OF_TILE * LANES, column = n / GROUPS_OF_TILE;
        const uint lanes = row < rows && column < columns ? rows - row : 0u;
        if (ODD != BINDING_B) LOAD(A, a, A_MODE, row, column, p.a_steps[0], whole, lanes, a)
        if (ODD != BINDING_A) LOAD(B, b, B_MODE, row, column, p.b_steps[0], whole, lanes, b)
        if (ODD == BINDING_OUTPUT) [[unroll]] for (int k = 0; k < LANES; ++k) a[k] = BINARY(a[k], b[k]);
        if (ODD == BINDING_B) put_rows(column, row, b); else put_rows(column, row, a);
    }
}

void empty(bool whole) {
    T_MATH block[LANES][LANES];
    [[unroll]] for (uint s = 0; s < SHARES; ++s) {
        get_block(share_column(s), share_row(s), block);
        [[unroll]] for (uint i = 0; i < LANES; ++i) {
            const uint row = share_row(s) + i, column = share_column(s), index = output_index + row * p.row_stride + column;
            [[unroll]] for (int k = 0; k < LANES; ++k) {
                if (ODD == BINDING_A) block[i][k] = BINARY(block[i][k], other[s][i][k]);
                if (ODD == BINDING_B) block[i][k] = BINARY(other[s][i][k], block[i][k]);
            }
            if (whole) {
                STORE_LANES(U, OUTPUT, output, OUTPUT_MODE, index, 1u, block[i])
            } else {
                [[unroll]] for (uint k = 0; k < LANES; ++k)
                    if (k < lanes_at(row, column)) ELEMENT(U, OUTPUT, output, index + k) = U(block[i][k]);
            }
        }
    }
}

void main() {
    if (linear_workgroup() >= p.count) return;
    a_index = 0, b_index = 0, output_index = 0;
    uint first_row = 0, first_column = 0;
#define VISIT(dimension, coordinate)                                                        \
    a_index += (coordinate) * p.a_strides[dimension];                                       \
    b_index += (coordinate) * p.b_strides[dimension];                                       \
    output_index += (coordinate) * p.output_strides[dimension];                             \
    first_row = uint(dimension) == ROW_DIMENSION ? (coordinate) * TILE : first_row;         \
    first_column = uint(dimension) == RANK - 1u ? (coordinate) * TILE : first_column;
    FOR_EACH_COORDINATE_FAST(linear_workgroup(), RANK, p.sizes, p.divisors, VISIT)

    rows = min(p.rows - first_row, TILE);
    columns = min(p.columns - first_column, TILE);
    const bool whole = rows == TILE && columns == TILE;
    if (whole) {
        prefetch(true);
        fill(true);
    } else {
        prefetch(false);
        fill(false);
    }
    barrier();
    if (whole) empty(true); else empty(false);
}
