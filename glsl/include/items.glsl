// The items of a kernel that treats elements one by one: which an invocation handles.
//
// An item is LANES neighbours along the innermost dimension, or what is left of a row of them. An invocation handles ITEMS
// items, a workgroup's width apart, so that neighbouring invocations take neighbouring items, and reads all of them before
// it writes any, so that their loads overlap.
//   beyond_items()      whether the workgroup has none
//   item_number(i)      the number of item i in the index space; the last item's where there is no item i, so that loads
//                       need no condition
//   has_item(i)         whether there is an item i to store
//   LOCATE              the kernel's macro VISIT(dimension, coordinate) for each coordinate of the item ITEM, another of its
//                       macros; and sets `lanes[i]`: LANES, or fewer at the end of a row
// The kernel has the constants ITEMS (at most MOST_ITEMS) and RANK and the parameters count, of items; sizes, the innermost
// in items, and divisors; and inner_size, the innermost in elements.

#ifndef DMLVK_ITEMS_GLSL
#define DMLVK_ITEMS_GLSL

#include "tensor.glsl"

#define MOST_ITEMS 4

uint lanes[MOST_ITEMS];

uint items_of_workgroup() { return gl_WorkGroupSize.x * ITEMS; }
bool beyond_items() { return linear_workgroup() > (p.count - 1u) / items_of_workgroup(); }

uint item_offset(uint i) { return i * gl_WorkGroupSize.x + gl_LocalInvocationID.x; }
uint items_left() { return p.count - linear_workgroup() * items_of_workgroup(); }
uint item_number(uint i) { return linear_workgroup() * items_of_workgroup() + min(item_offset(i), items_left() - 1u); }
bool has_item(uint i) { return item_offset(i) < items_left(); }

#define VISIT_WITH_LANES_(dimension, coordinate)                                                  \
    VISIT(dimension, coordinate)                                                                  \
    if (int(dimension) == int(RANK) - 1) lanes[i] = min(p.inner_size - (coordinate) * LANES, LANES);
#define LOCATE FOR_EACH_COORDINATE_FAST(item_number(i), RANK, p.sizes, p.divisors, VISIT_WITH_LANES_)

#endif
