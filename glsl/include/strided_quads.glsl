// Four neighbouring elements along a dimension of any stride, as one access where they lie contiguous.
//
// STRIDED_QUADS(NAME, name) declares the buffer NAME of the manifest row twice, as elements `name` and as quads `name_quads`
// (quads.glsl), and gives
//   vec4 name_at(start, d, size, step, quads)   elements d to d + 3 of a row that starts at element `start`; those from `size` on
//                                               are 0. `quads`, best a constant: rows start on quads, consist of them, and
//                                               step is 1

#ifndef DMLVK_STRIDED_QUADS_GLSL
#define DMLVK_STRIDED_QUADS_GLSL

#include "quads.glsl"

#define STRIDED_QUADS(NAME, name)                                                                           \
    layout(set = 0, binding = BINDING_##NAME, std430) readonly buffer NAME##Elements { T name[]; };         \
    layout(set = 0, binding = BINDING_##NAME, std430) readonly buffer NAME##Quads { QUAD name##_quads[]; }; \
    vec4 name##_at(uint start, uint d, uint size, uint step, uint quads) {                                  \
        const uint first = BYTE_OFFSET_##NAME / T_BYTES + start;                                            \
        if (quads != 0) return unpack_quad(name##_quads[(first + d) / 4]);                                  \
        vec4 values = vec4(0.0);                                                                            \
        [[unroll]] for (int i = 0; i < 4; ++i)                                                              \
            if (d + i < size) values[i] = float(name[first + (d + i) * step]);                              \
        return values;                                                                                      \
    }

#endif
