// Dot products of packed signed bytes: four pairs at a time where DOT is 1 (the device feature integer_dot_product, with the
// extension GL_EXT_integer_dot_product), one by one where it is 0.

#ifndef DMLVK_INTEGER_DOT_GLSL
#define DMLVK_INTEGER_DOT_GLSL

int dot_of_quads(uint a, uint b) {
#if DOT
    return dotPacked4x8EXT(int(a), int(b));
#else
    int sum = 0;
    [[unroll]] for (int i = 0; i < 32; i += 8) sum += bitfieldExtract(int(a), i, 8) * bitfieldExtract(int(b), i, 8);
    return sum;
#endif
}

int dot_of_words(uvec4 a, uvec4 b) {
    return dot_of_quads(a.x, b.x) + dot_of_quads(a.y, b.y) + dot_of_quads(a.z, b.z) + dot_of_quads(a.w, b.w);
}

#endif
