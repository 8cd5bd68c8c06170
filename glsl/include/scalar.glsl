// Scalars of the data type macro T from a parameter block.
//
//   T_MATH scalar(uint low, uint high)   the number whose bits, as `kernels/elementwise/lowering.py` packs them, are these
//   REAL_OF(words)                       the number of the type REAL whose bits two words of such a block are

#ifndef DMLVK_SCALAR_GLSL
#define DMLVK_SCALAR_GLSL

#if defined(T_IS_FLOAT64)
T_MATH scalar(uint low, uint high) { return packDouble2x32(uvec2(low, high)); }
#define REAL_OF(words) scalar(words[0], words[1])
#elif T_IS_FLOAT
T_MATH scalar(uint low, uint high) { return uintBitsToFloat(low); }
#elif T_BYTES == 8
T_MATH scalar(uint low, uint high) { return T_MATH(packUint2x32(uvec2(low, high))); }
#else
T_MATH scalar(uint low, uint high) { return T_MATH(low); }
#endif

#ifndef REAL_OF
#define REAL_OF(words) uintBitsToFloat(words[0])
#endif

#endif
