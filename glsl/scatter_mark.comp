// The table of positions of a scatter (include/scatter.glsl): clears it, or enters the updates.
//
// An invocation has an entry (PHASE_CLEAR_ALL) or an update:
//   PHASE_CLEAR_ALL  writes 0 into every entry
//   PHASE_CLEAR      writes 0 into the entries of the updates, where they are few
//   PHASE_MARK       writes the largest position + 1 into each of those, by an integer maximum, which does not depend on the order
//
// Bindings: indices; table, 32-bit words, which may be the output: then an entry is the first word of an element. It may have
// p.places entries from p.first on alone: then the others are left out.
// Constants: LOCAL_SIZE_X, PHASE, RANK 1, and those of include/scatter.glsl.
// Parameters: count; sizes of the walk over updates (or entries) and what divides by them; along it, the steps of indices, in
//   words, of entries and of positions; first and places; and those of include/scatter.glsl.

#include "scatter.glsl"

layout(set = 0, binding = BINDING_TABLE, std430) buffer Table { uint table[]; };

void main() {
    if (beyond(p.count)) return;
    uint word = 0u, entry = 0u, position = 0u;
#define VISIT(dimension, coordinate)                         \
    word += (coordinate) * p.index_strides[dimension];       \
    entry += (coordinate) * p.entry_strides[dimension];      \
    position += (coordinate) * p.position_strides[dimension];
    FOR_EACH_COORDINATE_FAST(linear_invocation(), RANK, p.sizes, p.divisors, VISIT)

    bool inside = true;
#define NAMED(k, index) entry += (index) * p.chosen_entries[k];
    if (PHASE != PHASE_CLEAR_ALL) FOR_EACH_INDEX(inside, word, NAMED)
    entry -= p.first;
    if (!inside || entry >= p.places) return;
    if (PHASE == PHASE_MARK) atomicMax(table[BYTE_OFFSET_TABLE / 4u + entry], position + 1u);
    else table[BYTE_OFFSET_TABLE / 4u + entry] = 0u;
}
