// What every matrix product shares: the operands' addresses and how a finished sum is stored.
//
//   y = activation(p.alpha * sum over k of a[m, k] * b[k, n] + p.beta * c[m, n] + addend[m, n]) for each matrix of the batch
//
// Needs the parameter block and the bindings of the gemm rows of the manifest, and declares the buffers A, B, C, Addend and Y.
// T is the data type of the factors. R is that of the others, where it may be another one; BFLOAT16 is held as its bits.
// Every operand has its strides in the order (outer batch, inner batch, row, column) of the untransposed product, so no
// shader knows about transposes, and zero strides broadcast. C is unused where HAS_C is 0, and of the factors' type where it
// is C_BITS; a kernel that defines OWN_C has the number of the next output there. Addend is unused where ADDEND is 0, which
// says when it is added: see the manifest. A variant ADDS of 0 has no addend at all: code that never runs costs registers
// too. NO_SCALED_CLIP: whoever includes this fuses no clip with a ScaleBias.

#ifndef DMLVK_GEMM_GLSL
#define DMLVK_GEMM_GLSL

#include "activation.glsl"

#ifndef ADDS
#define ADDS 1
#endif
#ifndef R
#define R T
#define R_BYTES T_BYTES
#endif

#ifdef T_IS_BFLOAT16
#include "bfloat16.glsl"
#define FACTOR_NUMBER(element) bfloat16_number(uint(element))
#else
#define FACTOR_NUMBER(element) float(element)
#endif
#ifdef R_IS_BFLOAT16
#define RESULT_NUMBER(element) bfloat16_number(uint(element))
#define RESULT(number) R(bfloat16_bits(number))
#else
#define RESULT_NUMBER(element) float(element)
#define RESULT(number) R(number)
#endif

layout(set = 0, binding = BINDING_A, std430) readonly buffer A { T a[]; };
layout(set = 0, binding = BINDING_B, std430) readonly buffer B { T b[]; };
layout(set = 0, binding = BINDING_C, std430) readonly buffer C { R c[]; };
#if ADDS
layout(set = 0, binding = BINDING_ADDEND, std430) readonly buffer Addend { R addend[]; };
#endif
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { R y[]; };

#if defined(T_IS_BFLOAT16) && defined(R_IS_FLOAT32)
layout(set = 0, binding = BINDING_C, std430) readonly buffer CBits { T c_bits[]; };
float load_c(uint element) {
    if (HAS_C == C_BITS) return FACTOR_NUMBER(c_bits[BYTE_OFFSET_C / T_BYTES + element]);
    return RESULT_NUMBER(c[BYTE_OFFSET_C / R_BYTES + element]);
}
#else
float load_c(uint element) { return RESULT_NUMBER(c[BYTE_OFFSET_C / R_BYTES + element]); }
#endif

float load_a(uint element) { return FACTOR_NUMBER(a[BYTE_OFFSET_A / T_BYTES + element]); }
float load_b(uint element) { return FACTOR_NUMBER(b[BYTE_OFFSET_B / T_BYTES + element]); }

// The first element of the matrix at (outer, inner) of the batch.
uint matrix_start(uint outer, uint inner, uint strides[4]) { return outer * strides[0] + inner * strides[1]; }

// The output for a sum: it is scaled, C is added, then the addend unless the sum began with it, and the activation is applied; in this
// order, so that the bits are those of a Gemm and an addition. One function: as two, one of which called the other, gemm_cooperative took 30 us
// instead of 6 (H200, driver 580).
float finished(uint outer, uint inner, uint m, uint n, float sum) {
#if ADDS
    precise
#endif
    float value = p.alpha * sum;
    if (HAS_C != 0) {
#ifdef OWN_C
        value = fma(p.beta, OWN_C, value);
#else
        const uint element = matrix_start(outer, inner, p.c_strides) + m * p.c_strides[2] + n * p.c_strides[3];
        value = fma(p.beta, load_c(element), value);
#endif
    }
#if ADDS
    if (ADDEND == ADDEND_LAST) {
        const uint element = matrix_start(outer, inner, p.addend_strides) + m * p.addend_strides[2] + n * p.addend_strides[3];
        value += RESULT_NUMBER(addend[BYTE_OFFSET_ADDEND / R_BYTES + element]);
    }
#endif
#ifdef NO_SCALED_CLIP
    return activate(ACTIVATION, value, p.param0, p.param1);
#else
    return activate_scaled(ACTIVATION, value, p.param0, p.param1, p.clip_scale, p.clip_bias);
#endif
}

// Finishes a sum and stores it.
void store(uint outer, uint inner, uint m, uint n, float sum) {
    const uint element = matrix_start(outer, inner, p.y_strides) + m * p.y_strides[2] + n * p.y_strides[3];
    y[BYTE_OFFSET_Y / R_BYTES + element] = RESULT(finished(outer, inner, m, n, sum));
}

#endif
