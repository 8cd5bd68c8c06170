// The items of a kernel that treats elements one by one: which an invocation handles.
//
// An item is LANES neighbours along the innermost dimension, or what is left of a row of them. An invocation handles ITEMS
// items, a workgroup's width apart, so that neighbouring invocations take neighbouring items, and reads all of them before
// it writes any, so that their loads overlap.
//   beyond_items()      whether the workgroup has none
//   item_number(i)      the number of item i in the index space; the last item's where there is no item i, so that loads
//                       need no condition
//   has_item(i)         whether there is an item i to store
//   LOCATE(number)      the kernel's macro VISIT(dimension, coordinate) for each coordinate of an item; sets `innermost`, the
//                       last of them
//   STEP_OF(NAME, name, dimension)   the elements of a tensor from an item to the next in a dimension (the kernel has RUNS, and includes
//                       lanes.glsl)
//   lanes_here()        the lanes of the item located last: LANES, or fewer at the end of a row
// A kernel may also walk its elements as one line, where the output lies packed (RUNS): an item is then LANES elements of at
// most two rows, and LOCATE takes an element's number. The macro
//   LOCATE_RUNS(i)      locates item i so; sets `element`, its first one's number, `lanes[i]`, and `left`, how many of them are
//                       in the first row. The kernel's macros are VISIT as above and NEXT_RUN, which keeps what VISIT found
//                       for the first row and makes room for the second
//   LOAD_RUNS(NAME, name)   loads input `name` of item i so, of type T: as a group where NAME_MODE is MODE_GROUPS, for one that
//                       is packed as the output is; the rows' elements at name_first and name_index where it is
//                       MODE_BROADCAST; else element by element from these on (the kernel includes lanes.glsl)
// The kernel has the constants ITEMS (at most MOST_ITEMS), RANK and RUNS, and the parameters count, of items; elements, of the
// index space; sizes, the innermost in items (in elements where RUNS), and divisors; and inner_size, the innermost in elements.

#ifndef DMLVK_ITEMS_GLSL
#define DMLVK_ITEMS_GLSL

#include "tensor.glsl"

uint lanes[MOST_ITEMS];
uint innermost, element, left;

uint items_of_workgroup() { return gl_WorkGroupSize.x * ITEMS; }
bool beyond_items() { return linear_workgroup() > (p.count - 1u) / items_of_workgroup(); }

uint item_offset(uint i) { return i * gl_WorkGroupSize.x + gl_LocalInvocationID.x; }
uint items_left() { return p.count - linear_workgroup() * items_of_workgroup(); }
uint item_number(uint i) { return linear_workgroup() * items_of_workgroup() + min(item_offset(i), items_left() - 1u); }
bool has_item(uint i) { return item_offset(i) < items_left(); }

#define VISIT_AND_KEEP_(dimension, coordinate) \
    VISIT(dimension, coordinate)               \
    if (int(dimension) == int(RANK) - 1) innermost = (coordinate);
#define LOCATE(number) FOR_EACH_COORDINATE_FAST(number, RANK, p.sizes, p.divisors, VISIT_AND_KEEP_)
// Of neighbours in one dimension it is known: a short kernel waits for each line of parameters that it reads.
#define STEP_OF(NAME, name, dimension) (RANK == 1 && RUNS == 0 && NAME##_MODE == MODE_GROUPS ? LANES : p.name##_strides[dimension])
uint lanes_here() { return min(p.inner_size - innermost * LANES, LANES); }

#define LOCATE_RUNS(i)                                \
    element = item_number(i) * LANES;                 \
    lanes[i] = min(p.elements - element, LANES);      \
    LOCATE(element)                                   \
    left = p.inner_size - innermost;                  \
    NEXT_RUN                                          \
    LOCATE(min(element + left, p.elements - 1u))

#define LOAD_RUNS(NAME, name)                                                                                        \
    if (NAME##_MODE == MODE_GROUPS && (LANES == 1 || lanes[i] == LANES)) {                                           \
        LOAD_LANES(T, name[i], NAME, name, MODE_GROUPS, element, 1u)                                                 \
    } else if (NAME##_MODE == MODE_BROADCAST) {                                                                      \
        const T_MATH here_ = T_MATH(ELEMENT(T, NAME, name, name##_first));                                           \
        const T_MATH next_ = T_MATH(ELEMENT(T, NAME, name, name##_index));                                           \
        [[unroll]] for (uint j = 0; j < LANES; ++j) name[i][j] = j < left ? here_ : next_;                           \
    } else {                                                                                                         \
        [[unroll]] for (uint j = 0; j < LANES; ++j)                                                                  \
            if (j < lanes[i])                                                                                        \
                name[i][j] = T_MATH(ELEMENT(T, NAME, name, (j < left ? name##_first + j * p.name##_step              \
                                                                     : name##_index + (j - left) * p.name##_step))); \
    }

#endif
