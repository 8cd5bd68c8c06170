// The partial sums of a matrix product whose depth was split, bound to A, added in the order of the parts.
//
// They are float32, part by part, rows of p.partial_pitch (a multiple of 4) numbers. Included behind gemm_quads.glsl.

#ifndef DMLVK_GEMM_PARTIALS_GLSL
#define DMLVK_GEMM_PARTIALS_GLSL

layout(set = 0, binding = BINDING_A, std430) readonly buffer Partials { vec4 partials[]; };

// Adds so many parts, all of which are on their way from memory before the first is added.
#define ADD_PARTS(number)                                                                                             \
    {                                                                                                                 \
        vec4 parts_[number];                                                                                          \
        [[unroll]] for (uint i_ = 0; i_ < number; ++i_) parts_[i_] = partials[at + i_ * count];                       \
        [[unroll]] for (uint i_ = 0; i_ < number; ++i_) sum += parts_[i_];                                            \
        at += number * count;                                                                                         \
    }

// Four sums side by side: quad `element` of the `count` that a part has. A fixed order, so the same bits every time.
vec4 merged_sums(uint element, uint count) {
    vec4 sum = vec4(0);
    uint at = BYTE_OFFSET_A / 16 + element;
    for (uint rest = p.splits; rest >= 8; rest -= 8) ADD_PARTS(8)
    if ((p.splits & 4) != 0) ADD_PARTS(4)
    if ((p.splits & 2) != 0) ADD_PARTS(2)
    if ((p.splits & 1) != 0) ADD_PARTS(1)
    return sum;
}

#endif
