// Writes the updates of a scatter over an output that is a copy of the input.
//
// An invocation moves a unit of an update: T is the unsigned type of an element's bits, or of several elements' where those of
// a row lie together. Where two updates may have one place, TABLE is 1 and the one whose position is in the place's entry
// writes, the others do not; else the table is not read.
//
// Bindings: indices, updates, table, output.
// Variants: T.
// Constants: LOCAL_SIZE_X, TABLE 1, RANK 1, and those of include/scatter.glsl.
// Parameters: count of units; sizes of the walk over them and what divides by them; along it, the steps of indices, in words,
//   of updates and output, in units, of entries and of positions; and those of include/scatter.glsl.
// Rules: "alone" with TABLE 0, "sparse" with TABLE 1.

#include "scatter.glsl"

layout(set = 0, binding = BINDING_UPDATES, std430) readonly buffer Updates { T update_units[]; };
layout(set = 0, binding = BINDING_TABLE, std430) readonly buffer Table { uint table[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer Output { T output_units[]; };

void main() {
    if (beyond(p.count)) return;
    uint word = 0u, from = 0u, to = 0u, entry = 0u, position = 0u;
#define VISIT(dimension, coordinate)                         \
    word += (coordinate) * p.index_strides[dimension];       \
    from += (coordinate) * p.update_strides[dimension];      \
    to += (coordinate) * p.output_strides[dimension];        \
    entry += (coordinate) * p.entry_strides[dimension];      \
    position += (coordinate) * p.position_strides[dimension];
    FOR_EACH_COORDINATE_FAST(linear_invocation(), RANK, p.sizes, p.divisors, VISIT)

    bool inside = true;
#define NAMED(k, index)                  \
    entry += (index) * p.chosen_entries[k]; \
    to += (index) * p.chosen_outputs[k];
    FOR_EACH_INDEX(inside, word, NAMED)
    if (!inside) return;
    if (TABLE == 1u && table[BYTE_OFFSET_TABLE / 4u + entry] != position + 1u) return;
    output_units[BYTE_OFFSET_OUTPUT / T_BYTES + to] = update_units[BYTE_OFFSET_UPDATES / T_BYTES + from];
}
