// Four neighbouring elements of a floating-point tensor as one access of 16 bytes (FLOAT32) or 8 (FLOAT16, BFLOAT16).
//
// For the data type macro T this gives
//   QUAD                       what a buffer of quads is an array of, and how loads wait in registers: still packed
//   vec4 unpack_quad(QUAD)     and QUAD pack_quad(vec4), which rounds to nearest even

#ifndef DMLVK_QUADS_GLSL
#define DMLVK_QUADS_GLSL

#ifdef T_IS_BFLOAT16
#include "bfloat16.glsl"
#define QUAD uvec2
vec4 unpack_quad(QUAD quad) { return vec4(bfloat16_pair(quad.x), bfloat16_pair(quad.y)); }
QUAD pack_quad(vec4 values) { return QUAD(bfloat16_word(values.xy), bfloat16_word(values.zw)); }
#elif T_BYTES == 2
#define QUAD uvec2
vec4 unpack_quad(QUAD quad) { return vec4(unpackHalf2x16(quad.x), unpackHalf2x16(quad.y)); }
QUAD pack_quad(vec4 values) { return QUAD(packHalf2x16(values.xy), packHalf2x16(values.zw)); }
#else
#define QUAD vec4
vec4 unpack_quad(QUAD quad) { return quad; }
QUAD pack_quad(vec4 values) { return values; }
#endif

#endif
