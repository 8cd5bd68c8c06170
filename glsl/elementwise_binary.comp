// y = activation(f(a, b)), element for element: every binary operator.
//
// f is the operator OPERATION of binary.glsl, activation that of activation.glsl (none by default).
//
// Bindings: a, b, output. The output may be the bytes of a or of b: an invocation reads only what it writes.
// Variants: T, the data type of a and b; U, of output; LANES.
// Constants: OPERATION (none by default), ACTIVATION 0, RANK 1, ITEMS 1 (items.glsl), A_MODE 0, B_MODE 0,
//   OUTPUT_MODE 0 (lanes.glsl), LOCAL_SIZE_X.
// Parameters: count of items; sizes of the index space, the innermost in items, and what divides by them; inner_size, the
//   innermost in elements; strides in elements for a step of one item, and, in the innermost dimension, of one element;
//   the operator's parameters and the activation's.
// Rules: "groups" and "runs" (RUNS 1) with LANES > 1, "elements" with 1.

#include "binary.glsl"
#include "binary_items.glsl"
