// Adds the partial sums of a matrix product whose depth was split, in the order of the parts, and finishes them.
//
//   y = activation(alpha * sum over splits of partials[split, matrix, m, n] + beta * c[m, n] + addend[m, n])
//
// Bindings: A, the partial sums, see include/gemm_partials.glsl; B, unused; C, Addend, Y: see include/gemm.glsl.
// Constants: LOCAL_SIZE_X (128), VECTOR_Y (1), HAS_C (1), ADDEND (0), the activation's id.
// Grid: linear over quads of outputs, columns fastest, then rows and matrices.
//
// Follows gemm_tiled, gemm_cooperative and gemm_vector where they split.

#include "tensor.glsl"
#include "gemm_quads.glsl"
#include "gemm_partials.glsl"

void main() {
    const uint quads = p.partial_pitch / 4;
    const uint count = quads * p.rows * p.matrices;
    if (beyond(count)) return;
    const uint element = linear_invocation();
    const uint row = element / quads;
    const uint matrix = row / p.rows;
    const uint outer = matrix / p.inner_batch;
    const uvec3 place = uvec3(outer, matrix - outer * p.inner_batch, row - matrix * p.rows);
    store_quad(place.x, place.y, place.z, (element - row * quads) * 4, merged_sums(element, count));
}
