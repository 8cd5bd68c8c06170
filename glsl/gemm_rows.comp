// Matrix product, several rows of one column in each invocation's registers.
//
//   y = activation(alpha * sum over k of a[m, k] * b[k, n] + beta * c[m, n])
//
// Bindings: A, B, C, Y; see include/gemm.glsl. Constants: ROWS (8) rows an invocation, HAS_C (1), the activation's id.
// Grid: x over columns, y over blocks of ROWS rows, z over the batch.
//
// Each value of B is read once for ROWS products. All invocations of a workgroup read the same values of A: one scalar
// read, which CPUs broadcast to all lanes. Chosen on CPUs.

#include "gemm.glsl"

void main() {
    const uint n = gl_GlobalInvocationID.x;
    if (n >= p.columns) return;
    const uint first = gl_WorkGroupID.y * ROWS;
    const uint outer = gl_WorkGroupID.z / p.inner_batch;
    const uint inner = gl_WorkGroupID.z - outer * p.inner_batch;
    // Rows past the last repeat it, so that every read is inside; they are not stored.
    uint rows[ROWS];
    float sums[ROWS];
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        rows[r] = matrix_start(outer, inner, p.a_strides) + min(first + r, p.rows - 1) * p.a_strides[2];
        sums[r] = 0.0;
    }
    uint at = 0;
    uint bt = matrix_start(outer, inner, p.b_strides) + n * p.b_strides[3];
    for (uint k = 0; k < p.depth; ++k) {
        const float value = load_b(bt);
        [[unroll]] for (uint r = 0; r < ROWS; ++r) sums[r] = fma(load_a(rows[r] + at), value, sums[r]);
        at += p.a_strides[3];
        bt += p.b_strides[2];
    }
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        if (first + r < p.rows) store(outer, inner, first + r, n, sums[r]);
    }
}
