// Where the elements of 16 x 16 matrices of FLOAT16 lie in a subgroup of 32: as NVIDIA's processors have them.
//
// Vulkan leaves that to the driver. matrix_fragments.comp asks a device, and only on those that have them here may a kernel fill
// matrices element by element, which spares their way through shared memory.
//
// An invocation has eight elements of each factor: of the lines (rows of A, columns of B) `lane / 4` and 8 more, at the depths
// 2 * (lane % 4), one more, and both 8 further on. Of FLOAT32 sums it has those of the same rows, and of the columns that are
// the depths of A.

#ifndef DMLVK_MATRIX_FRAGMENTS_GLSL
#define DMLVK_MATRIX_FRAGMENTS_GLSL

const uint FRAGMENT_ELEMENTS = 16 * 16 / 32;
const uint FRAGMENT_LINE = FRAGMENT_ELEMENTS / 2; // of one line

// Of element e: which of the two lines, which of the two pairs along the depth, which one of a pair.
uint fragment_element(uint line, uint pair, uint one) { return FRAGMENT_LINE * line + 2 * pair + one; }

// The line and the depth of an invocation's element e.
uvec2 fragment_place(uint lane, uint e) {
    return uvec2(lane / 4 + 8 * (e / FRAGMENT_LINE), 2 * (lane % 4) + 8 * (e / 2 % 2) + e % 2);
}

#endif
