// Where a row of an output comes from and goes to: what rows.glsl asks a kernel for.

#ifndef DMLVK_ROW_GLSL
#define DMLVK_ROW_GLSL

#include "tensor.glsl"

struct Row {
    uint source; // the input's unit that belongs to the row's unit 0
    uint first, last; // the units of the row that come from the input: first <= j < last
    uint target; // the output's unit 0 of the row
};

#endif
