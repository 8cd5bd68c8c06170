// Adds the partial sums of a matrix product whose depth was split, finishes them, and normalizes each row of the product.
//
//   product = alpha * sum over splits of partials[split, matrix, m, n] + beta * c[m, n] + addend[m, n]
//   y       = norm_scale[n] * (product - mean of row) / sqrt(variance of row + epsilon) + norm_bias[n]
//
// LANES neighbouring invocations share a row; a workgroup has LOCAL_SIZE_X / LANES rows. Lane i holds the quads i,
// i + LANES, i + 2 LANES... of its row, not rounded. Three passes over registers, as in mean_variance_row.
//
// Bindings: A, the partial sums, see include/gemm_partials.glsl; B, unused; C, Addend: see include/gemm.glsl; Y, the product; norm_scale
// and norm_bias, a number for each column; normalized. Of those that are absent others are bound. The product and what is normalized are
// packed, and their columns whole quads.
// Constants: LOCAL_SIZE_X, LANES (a power of two), UNITS (quads that each lane holds: LANES * UNITS >= quads of a row), HAS_C, ADDEND, HAS_PRODUCT,
// HAS_SCALE, HAS_BIAS, USE_MEAN (0: nothing is subtracted, and the variance is the mean of the squares).
// Grid: linear over workgroups' rows, of all matrices.

#include "tensor.glsl"
#include "gemm_quads.glsl"
#include "gemm_partials.glsl"
#include "accumulate.glsl"
#include "workgroup.glsl"

layout(set = 0, binding = BINDING_NORM_SCALE, std430) readonly buffer NormScale { QUAD norm_scale[]; };
layout(set = 0, binding = BINDING_NORM_BIAS, std430) readonly buffer NormBias { QUAD norm_bias[]; };
layout(set = 0, binding = BINDING_NORMALIZED, std430) writeonly buffer Normalized { QUAD normalized[]; };

void main() {
    const uint invocation = workgroup_invocation();
    const uint lane = invocation % LANES;
    const uint quads = p.columns / 4;
    const uint rows = p.rows * p.matrices;
    const uint row = linear_workgroup() * (LOCAL_SIZE_X / LANES) + invocation / LANES;
    // Past the last row everything but the writing happens to the last one, so that every invocation reaches the sums.
    const uint own = min(row, rows - 1);
    const uint matrix = own / p.rows;
    const uint outer = matrix / p.inner_batch;
    const uint inner = matrix - outer * p.inner_batch;
    const uint m = own - matrix * p.rows;
    const uint c_start = matrix_start(outer, inner, p.c_strides) + m * p.c_strides[2];
    const uint addends = matrix_start(outer, inner, p.addend_strides) + m * p.addend_strides[2];

    // All that is read is on its way before the first of it is used.
    vec4 held[UNITS];
    vec4 c[UNITS], more[UNITS];
    QUAD scale[UNITS], bias[UNITS];
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uint quad = min(i * LANES + lane, quads - 1);
        [[unroll]] for (uint e = 0; e < 4; ++e) {
            const uint column = quad * 4 + e;
            if (HAS_C != 0) c[i][e] = load_c(c_start + column * p.c_strides[3]);
            if (ADDEND != ADDEND_NONE) more[i][e] = float(addend[BYTE_OFFSET_ADDEND / T_BYTES + addends + column * p.addend_strides[3]]);
        }
        if (HAS_SCALE != 0) scale[i] = norm_scale[BYTE_OFFSET_NORM_SCALE / (4 * T_BYTES) + quad];
        if (HAS_BIAS != 0) bias[i] = norm_bias[BYTE_OFFSET_NORM_BIAS / (4 * T_BYTES) + quad];
    }
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uint quad = i * LANES + lane;
        held[i] = vec4(0);
        if (quad < quads) {
            held[i] = p.alpha * merged_sums(own * quads + quad, quads * rows);
            if (HAS_C != 0) held[i] = fma(vec4(p.beta), c[i], held[i]);
            if (ADDEND != ADDEND_NONE) held[i] += more[i];
            if (HAS_PRODUCT != 0 && row < rows) y_quads[BYTE_OFFSET_Y / (4 * T_BYTES) + own * quads + quad] = pack_quad(held[i]);
        }
        sum += dot(held[i], vec4(1));
    }
    const float count = float(p.columns);
    const float mean = USE_MEAN != 0 ? sum_over_lanes(sum, 0) / count : 0.0;

    vec2 deviations = vec2(0);
    [[unroll]] for (uint i = 0; i < UNITS; ++i)
        if (i * LANES + lane < quads) {
            const vec4 deviation = held[i] - mean;
            deviations += vec2(dot(deviation, vec4(1)), dot(deviation, deviation));
        }
    deviations = sum_over_lanes(deviations, 1);
    Statistics statistics = Statistics(count, 0.0, 0.0, deviations.y);
    if (USE_MEAN != 0) statistics = centred(count, mean, deviations);
    const float reciprocal = 1.0 / sqrt(statistics.squares / count + p.epsilon);

    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uint quad = i * LANES + lane;
        if (quad >= quads || row >= rows) continue;
        vec4 value = ((held[i] - statistics.mean) - statistics.remainder) * reciprocal;
        if (HAS_SCALE != 0) value *= unpack_quad(scale[i]);
        if (HAS_BIAS != 0) value += unpack_quad(bias[i]);
        normalized[BYTE_OFFSET_NORMALIZED / (4 * T_BYTES) + own * quads + quad] = pack_quad(value);
    }
}
