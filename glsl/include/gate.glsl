// The gate of a product's first columns, and how four of them times the others are stored.
//
// Needs gemm_quads.glsl, the constant GATE and dmlvk/spec/gate.py's numbers. p.columns are those of Y, a multiple of 4: the product has
// twice as many.

#ifndef DMLVK_GATE_GLSL
#define DMLVK_GATE_GLSL

// 2 sqrt(2 / pi), and that times 0.044715.
const float GELU_SLOPE = 1.5957691216057308, GELU_CUBE = 0.07135481627260026;

// The gate of a finished sum, as the activation and the chain of operators that it stands for compute it.
float gated(float x) {
    if (GATE == GATE_SILU) return activate(OP_ACTIVATION_SWISH, x, 1.0, 0.0);
    precise const float square = x * x;
    precise const float slope = GELU_CUBE * square + GELU_SLOPE;
    precise const float angle = x * slope;
    return x * sigmoid(angle);
}

// Finishes the sums of columns n .. n + 3 of row m and of those behind them, and stores the gates of the first times the second.
void store_gated(uint outer, uint inner, uint m, uint n, vec4 gates, vec4 others) {
    if (m >= p.rows || n >= p.columns) return;
    vec4 values;
    [[unroll]] for (uint c = 0; c < 4; ++c)
        values[c] = gated(finished(outer, inner, m, n + c, gates[c])) * finished(outer, inner, m, p.columns + n + c, others[c]);
    const uint element = matrix_start(outer, inner, p.y_strides) + m * p.y_strides[2] + n * p.y_strides[3];
    const uint at = BYTE_OFFSET_Y / R_BYTES + element;
    if (VECTOR_Y != 0) y_quads[at / 4] = pack_results(values);
    else
        [[unroll]] for (uint c = 0; c < 4; ++c) y[at + c * p.y_strides[3]] = RESULT(values[c]);
}

#endif
