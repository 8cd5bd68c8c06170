// Four neighbouring columns of a matrix product at once: quads of the operands, and how four finished sums are stored.
//
// Constant: VECTOR_Y, whether quads of Y's columns are aligned: p.columns, its strides and starts are multiples of 4, and 1
// along the columns. Declares views of A, B, Addend and Y in quads: QUAD of the factors, RESULT_QUAD of the others.

#ifndef DMLVK_GEMM_QUADS_GLSL
#define DMLVK_GEMM_QUADS_GLSL

#include "gemm.glsl"
#include "quads.glsl"

#if defined(R_IS_FLOAT32) && !defined(T_IS_FLOAT32)
#define RESULT_QUAD vec4
#define unpack_results(quad) (quad)
#define pack_results(values) (values)
#else
#define RESULT_QUAD QUAD
#define unpack_results unpack_quad
#define pack_results pack_quad
#endif

layout(set = 0, binding = BINDING_A, std430) readonly buffer AQuads { QUAD a_quads[]; };
layout(set = 0, binding = BINDING_B, std430) readonly buffer BQuads { QUAD b_quads[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YQuads { RESULT_QUAD y_quads[]; };

// The quad that begins with an element: elements and starts are multiples of 4.
QUAD load_a_quad(uint element) { return a_quads[(BYTE_OFFSET_A / T_BYTES + element) / 4]; }
QUAD load_b_quad(uint element) { return b_quads[(BYTE_OFFSET_B / T_BYTES + element) / 4]; }

#if ADDS
layout(set = 0, binding = BINDING_ADDEND, std430) readonly buffer AddendQuads { RESULT_QUAD addend_quads[]; };

// The first element of the addend's matrix, which kernels set whose sums begin with it.
uint addend_start;

// The addends of columns n .. n + 3 of row m, with which sums begin: read at the end they would wait for memory by themselves, and for
// the stores before them. n is a multiple of 4. Past the last row or column they are others.
RESULT_QUAD load_addends(uint m, uint n) {
    const uint row = addend_start + min(m, p.rows - 1) * p.addend_strides[2];
    if (ADDEND == ADDEND_FIRST_QUADS) return addend_quads[(row + min(n, p.columns - 4)) / 4];
    vec4 values;
    [[unroll]] for (uint c = 0; c < 4; ++c) values[c] = RESULT_NUMBER(addend[row + min(n + c, p.columns - 1) * p.addend_strides[3]]);
    return pack_results(values);
}
#endif

// Finishes the sums of columns n .. n + 3 of row m and stores those that there are. n is a multiple of 4.
void store_quad(uint outer, uint inner, uint m, uint n, vec4 sum) {
    if (m >= p.rows || n >= p.columns) return;
    if (VECTOR_Y != 0) {
        vec4 values;
        [[unroll]] for (uint c = 0; c < 4; ++c) values[c] = finished(outer, inner, m, n + c, sum[c]);
        const uint element = matrix_start(outer, inner, p.y_strides) + m * p.y_strides[2] + n;
        y_quads[(BYTE_OFFSET_Y / R_BYTES + element) / 4] = pack_results(values);
    } else {
        [[unroll]] for (uint c = 0; c < 4; ++c)
            if (n + c < p.columns) store(outer, inner, m, n + c, sum[c]);
    }
}

#endif
