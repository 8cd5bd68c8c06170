// Matrix product, one invocation an output element: any strides and batch.
//
//   y = activation(alpha * sum over k of a[m, k] * b[k, n] + beta * c[m, n] + addend[m, n])
//
// Bindings: A, B, C, Addend, Y; see include/gemm.glsl. Constants: HAS_C (1), ADDEND (0), the activation's id.
// Grid: linear over the output elements, columns fastest, then rows, inner and outer batch.
//
// Sums in float32, in the order of k: the other schedules are checked against it. Chosen when no other schedule fits.

#include "tensor.glsl"
#include "gemm.glsl"

void main() {
    const uint element = linear_invocation();
    if (element >= p.count) return;
    uint rest = element / p.columns;
    const uint n = element - rest * p.columns;
    uint next = rest / p.rows;
    const uint m = rest - next * p.rows;
    const uint outer = next / p.inner_batch;
    const uint inner = next - outer * p.inner_batch;

    uint at = matrix_start(outer, inner, p.a_strides) + m * p.a_strides[2];
    uint bt = matrix_start(outer, inner, p.b_strides) + n * p.b_strides[3];
    float sum = 0.0;
    for (uint k = 0; k < p.depth; ++k) {
        sum = fma(load_a(at), load_b(bt), sum);
        at += p.a_strides[3];
        bt += p.b_strides[2];
    }
    store(outer, inner, m, n, sum);
}
