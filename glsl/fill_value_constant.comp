// y = the value, everywhere (FillValueConstant). Reads nothing, so it runs at the speed of writing.
//
// Bindings: output. Variants, constants and parameters: include/fill.glsl, and the parameter value, its bits.

uvec2 value_at(uint position, uint source) { return uvec2(p.value[0], p.value[1]); }

#include "fill.glsl"
