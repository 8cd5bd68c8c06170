// Scalars of the data type macro T: from a parameter block, and from float32.
//
//   T_MATH scalar(uint low, uint high)   the number whose bits, as `kernels/lowering/elementwise.py` packs them, are these
//   T_MATH from_float(float)             a float in the type: toward zero and clamped to its range for integers, NaN to 0

#ifndef DMLVK_SCALAR_GLSL
#define DMLVK_SCALAR_GLSL

#define T_BIT_COUNT (8 * T_BYTES)

#if T_IS_FLOAT
#if defined(T_IS_FLOAT64)
T_MATH scalar(uint low, uint high) { return packDouble2x32(uvec2(low, high)); }
#else
T_MATH scalar(uint low, uint high) { return uintBitsToFloat(low); }
#endif
T_MATH from_float(float x) { return T_MATH(x); }

#else
#if T_BYTES == 8
T_MATH scalar(uint low, uint high) { return T_MATH(packUint2x32(uvec2(low, high))); }
#else
T_MATH scalar(uint low, uint high) { return T_MATH(low); }
#endif

T_MATH from_float(float x) {
#if T_IS_SIGNED
    const T_MATH half_range = T_MATH(1) << (T_BIT_COUNT - 2);
    const T_MATH largest = half_range - T_MATH(1) + half_range;
    const T_MATH least = -largest - T_MATH(1);
    const float beyond = uintBitsToFloat(uint(127 + T_BIT_COUNT - 1) << 23); // 2^(bits - 1)
    if (x < -beyond) return least;
#else
    const T_MATH half_range = T_MATH(1) << (T_BIT_COUNT - 1);
    const T_MATH largest = half_range - T_MATH(1) + half_range;
    const float beyond = uintBitsToFloat(uint(127 + T_BIT_COUNT) << 23); // 2^bits
    if (x < 1.0) return T_MATH(0);
#endif
    return x >= beyond ? largest : (floatBitsToUint(x) & 0x7FFFFFFFu) > 0x7F800000u ? T_MATH(0) : T_MATH(x);
}
#endif

#endif
