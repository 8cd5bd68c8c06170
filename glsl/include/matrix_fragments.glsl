// Where the elements of 16 x 16 matrices of FLOAT16 lie in a subgroup of 32: as NVIDIA's processors have them.
//
// Vulkan leaves that to the driver. matrix_fragments.comp asks a device, and only on those that have them here may a kernel fill
// matrices element by element, which spares their way through shared memory.
//
// An invocation has eight elements of each factor: of the lines (rows of A, columns of B) `lane / 4` and 8 more, at the depths
// 2 * (lane % 4), one more, and both 8 further on.

#ifndef DMLVK_MATRIX_FRAGMENTS_GLSL
#define DMLVK_MATRIX_FRAGMENTS_GLSL

const uint FRAGMENT_ELEMENTS = 16 * 16 / 32;

// Of element e: which of the two lines, which of the two pairs along the depth, which one of a pair.
uint fragment_element(uint line, uint pair, uint one) { return 4 * line + 2 * pair + one; }

#endif
