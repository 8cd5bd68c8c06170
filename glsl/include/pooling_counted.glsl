// How many positions of a window count for a mean along one dimension, for kernels with the parameter include_padding.

#ifndef DMLVK_POOLING_COUNTED_GLSL
#define DMLVK_POOLING_COUNTED_GLSL

// Of the positions from `start` on, which may lie in the start padding.
uint counted(int start, uint window, uint size, uint end_padding) {
    const int end = int(p.include_padding == 1 ? size + end_padding : size);
    return uint(max(min(start + int(window), end) - (p.include_padding == 1 ? start : max(start, 0)), 0));
}

#endif
