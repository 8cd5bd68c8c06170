// Products of a matrix with a few vectors (a product of at most MOST_ROWS rows): bound by reading B once.
//
//   y = activation(alpha * sum over k of a[m, k] * b[k, n] + beta * c[m, n])
//
// Bindings: A, B, C, Y; see include/gemm.glsl. Where the columns, not the rows, are few, the host swaps the operands.
// Constants: ROWS (1) rows of A, all of them; LOCAL_SIZE_X invocations, LANES (32) of which share a column and split its
// depth. ALONG_K (1): neighbouring invocations read neighbours along the depth (its stride in B is the smaller one), else
// neighbouring columns. HAS_C (1), the activation's id.
// Grid: x over blocks of LOCAL_SIZE_X / LANES columns, folded into y; z over the batch.
//
// The lanes' partial sums meet in shared memory and are added pairwise in a fixed order.
// Chosen where the rows are too few for tiles.

#include "tensor.glsl"
#include "gemm.glsl"

#define IN_FLIGHT 8

const uint COLUMNS = LOCAL_SIZE_X / LANES;

shared float partial[ROWS][LOCAL_SIZE_X];

void main() {
    const uint invocation = gl_LocalInvocationID.x;
    const uint lane = ALONG_K != 0 ? invocation % LANES : invocation / COLUMNS;
    const uint column = ALONG_K != 0 ? invocation / LANES : invocation % COLUMNS;
    // Where the lane's partial sums lie, and how far the next lane's: columns side by side, lanes COLUMNS apart.
    const uint place = lane * COLUMNS + column;
    const uint n = linear_workgroup() * COLUMNS + column;
    const uint outer = gl_WorkGroupID.z / p.inner_batch;
    const uint inner = gl_WorkGroupID.z - outer * p.inner_batch;
    const uint a_start = matrix_start(outer, inner, p.a_strides);
    const uint b_start = matrix_start(outer, inner, p.b_strides) + min(n, p.columns - 1) * p.b_strides[3];

    float sums[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) sums[r] = 0.0;
    // Several loads are in flight at a time; past the end they repeat the last one, and count nothing.
    for (uint first = lane; first < p.depth; first += LANES * IN_FLIGHT) {
        float values[IN_FLIGHT];
        [[unroll]] for (uint i = 0; i < IN_FLIGHT; ++i)
            values[i] = load_b(b_start + min(first + i * LANES, p.depth - 1) * p.b_strides[2]);
        [[unroll]] for (uint i = 0; i < IN_FLIGHT; ++i) {
            const uint k = first + i * LANES;
            if (k < p.depth) {
                [[unroll]] for (uint r = 0; r < ROWS; ++r)
                    sums[r] = fma(load_a(a_start + r * p.a_strides[2] + k * p.a_strides[3]), values[i], sums[r]);
            }
        }
    }
    [[unroll]] for (uint r = 0; r < ROWS; ++r) partial[r][place] = sums[r];
    for (uint half_lanes = LANES / 2; half_lanes > 0; half_lanes /= 2) {
        barrier();
        if (lane < half_lanes) {
            [[unroll]] for (uint r = 0; r < ROWS; ++r) partial[r][place] += partial[r][place + half_lanes * COLUMNS];
        }
    }
    if (lane == 0 && n < p.columns) {
        [[unroll]] for (uint r = 0; r < ROWS; ++r) store(outer, inner, r, n, partial[r][place]);
    }
}
