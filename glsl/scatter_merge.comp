// The output of a scatter in one pass: each unit is the update's whose position stands in its place's entry, or the input's.
//
// A unit has the type T: an element's bits, or several elements' where those of a row lie together in all tensors. An
// invocation makes ITEMS units, a workgroup's width apart, and reads all of them before it writes any, so that their loads
// overlap. The table of positions (include/scatter.glsl) may be the output itself, an entry the first word of an element:
// then a unit is an element, and whoever reads its entry writes over it. It may have p.places entries from p.first on alone:
// then the units of the others are left to another dispatch.
//
// Bindings: input, updates, table, output.
// Variants: T.
// Constants: LOCAL_SIZE_X, ITEMS 1 (at most MOST_ITEMS), RANK 1, UPDATE_RANK 1.
// Parameters: count of units; sizes of the walk over the output and what divides by them; along it, the steps of input, updates
//   and output, in units, and of entries; first and places; update_sizes, what divides by them and update_places: the dimensions of which a
//   position is a linear index, and steps of the updates along them.
// Rules: "in_output", "table".

#include "tensor.glsl"

layout(set = 0, binding = BINDING_INPUT, std430) readonly buffer Input { T input_units[]; };
layout(set = 0, binding = BINDING_UPDATES, std430) readonly buffer Updates { T update_units[]; };
layout(set = 0, binding = BINDING_TABLE, std430) readonly buffer Table { uint table[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer Output { T output_units[]; };


void main() {
    const uint items = gl_WorkGroupSize.x * ITEMS;
    if (linear_workgroup() > (p.count - 1u) / items) return;
    const uint begin = linear_workgroup() * items, left = p.count - begin;
    uint inputs[MOST_ITEMS], updates[MOST_ITEMS], outputs[MOST_ITEMS], entries[MOST_ITEMS];
    bool written[MOST_ITEMS];
    [[unroll]] for (uint i = 0u; i < ITEMS; ++i) {
        inputs[i] = BYTE_OFFSET_INPUT / T_BYTES;
        updates[i] = BYTE_OFFSET_UPDATES / T_BYTES;
        outputs[i] = BYTE_OFFSET_OUTPUT / T_BYTES;
        uint entry = 0u;
#define VISIT(dimension, coordinate)                           \
    inputs[i] += (coordinate) * p.input_strides[dimension];    \
    updates[i] += (coordinate) * p.update_strides[dimension];  \
    outputs[i] += (coordinate) * p.output_strides[dimension];  \
    entry += (coordinate) * p.entry_strides[dimension];
        // Past the end the last unit of the input is read once more, and no entry: its owner may have written over that.
        const uint unit = begin + min(i * gl_WorkGroupSize.x + gl_LocalInvocationID.x, left - 1u);
        FOR_EACH_COORDINATE_FAST(unit, RANK, p.sizes, p.divisors, VISIT)
        entry -= p.first;
        written[i] = entry < p.places && i * gl_WorkGroupSize.x + gl_LocalInvocationID.x < left;
        entries[i] = written[i] ? table[BYTE_OFFSET_TABLE / 4u + entry] : 0u;
    }
    T_MATH units[MOST_ITEMS];
    [[unroll]] for (uint i = 0u; i < ITEMS; ++i) {
        if (entries[i] == 0u) {
            units[i] = T_MATH(input_units[inputs[i]]);
        } else {
#define FIND(dimension, coordinate) updates[i] += (coordinate) * p.update_places[dimension];
            FOR_EACH_COORDINATE_FAST(entries[i] - 1u, UPDATE_RANK, p.update_sizes, p.update_divisors, FIND)
            units[i] = T_MATH(update_units[updates[i]]);
        }
    }
    [[unroll]] for (uint i = 0u; i < ITEMS; ++i)
        if (written[i]) output_units[outputs[i]] = T(units[i]);
}
