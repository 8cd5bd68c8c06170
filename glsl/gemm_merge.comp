// Adds the partial sums of a matrix product whose depth was split, in the order of the parts, and finishes them.
//
//   y = activation(alpha * sum over splits of partials[split, matrix, m, n] + beta * c[m, n] + addend[m, n])
//
// Bindings: A, the partial sums in float32, rows of p.partial_pitch (a multiple of 4) numbers; B, unused; C, Addend, Y: see
// include/gemm.glsl. Constants: LOCAL_SIZE_X (128), VECTOR_Y (1), HAS_C (1), ADDEND (0), the activation's id.
// Grid: linear over quads of outputs, columns fastest, then rows and matrices.
//
// A fixed order, so the same bits every time. Follows gemm_tiled and gemm_vector where they split.

#include "tensor.glsl"
#include "gemm_quads.glsl"

layout(set = 0, binding = BINDING_A, std430) readonly buffer Partials { vec4 partials[]; };

void main() {
    const uint quads = p.partial_pitch / 4;
    const uint count = quads * p.rows * p.matrices;
    if (beyond(count)) return;
    const uint element = linear_invocation();
    vec4 sum = vec4(0);
    for (uint split = 0; split < p.splits; ++split) sum += partials[BYTE_OFFSET_A / 16 + split * count + element];
    const uint row = element / quads;
    const uint matrix = row / p.rows;
    const uint outer = matrix / p.inner_batch;
    store_quad(outer, matrix - outer * p.inner_batch, row - matrix * p.rows, (element - row * quads) * 4, sum);
}
