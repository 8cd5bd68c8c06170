// Matrix product, several rows of one column in each invocation's registers.
//
//   y = activation(alpha * sum over k of a[m, k] * b[k, n] + beta * c[m, n] + addend[m, n])
//
// Bindings: A, B, C, Addend, Y; see include/gemm.glsl. Constants: ROWS (8) rows an invocation, HAS_C (1), ADDEND (0),
// the activation's id.
// Grid: x over columns, y over blocks of ROWS rows, z over the batch.
//
// Each value of B is read once for ROWS products. All invocations of a workgroup need the same values of A: each reads
// one of them and the subgroup passes them round, because a CPU's read is a loop over the lanes, even where all of them
// read the same. ROWS is at most the subgroup size. Chosen on CPUs.

#include "gemm.glsl"

void main() {
    // Past the last column everything but the writing happens to the last one, because subgroups must stay whole.
    const uint n = min(gl_GlobalInvocationID.x, p.columns - 1);
    const uint first = gl_WorkGroupID.y * ROWS;
    const uint outer = gl_WorkGroupID.z / p.inner_batch;
    const uint inner = gl_WorkGroupID.z - outer * p.inner_batch;
    // Lane i reads row i % ROWS of A. Rows past the last repeat it, so that every read is inside.
    const uint lane_row = min(first + gl_SubgroupInvocationID % ROWS, p.rows - 1);
    uint at = matrix_start(outer, inner, p.a_strides) + lane_row * p.a_strides[2];
    uint bt = matrix_start(outer, inner, p.b_strides) + n * p.b_strides[3];

    float sums[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) sums[r] = 0.0;
    for (uint k = 0; k < p.depth; ++k) {
        const float row_value = load_a(at);
        const float value = load_b(bt);
        [[unroll]] for (uint r = 0; r < ROWS; ++r) sums[r] = fma(subgroupShuffle(row_value, r), value, sums[r]);
        at += p.a_strides[3];
        bt += p.b_strides[2];
    }
    if (gl_GlobalInvocationID.x >= p.columns) return;
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        if (first + r < p.rows) store(outer, inner, first + r, n, sums[r]);
    }
}
