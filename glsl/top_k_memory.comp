// The K largest or smallest elements of rows where K is larger than shared memory: sorts whole rows in temporary memory.
//
// Keys, order, bindings and parameters: include/top_k.glsl. ENTRY_KEYS has the keys of p.rows rows from p.first_row on, and
// ENTRY_POSITIONS their positions: apart, so that a binding holds those of a long row. The sort is bitonic and in place, and every exchange puts the smaller element first, so
// that a row of any length behaves like one that goes on to a power of two with the largest keys. Constant PHASE:
//   BLOCKS    reads X, sorts blocks of CAPACITY elements in shared memory and writes them to memory
//   EXCHANGE  one step over memory: pairs that are mirror images in runs of p.reach (p.mirrored 1) or p.reach apart
//   MERGE     the last steps of a merge, inside blocks of CAPACITY, in shared memory
//   OUTPUT    writes the first K
// Grid: folded into x and y; BLOCKS and MERGE: a workgroup a block, p.items blocks a row; else an invocation an item.
// Chosen as the last resort: log2(length / CAPACITY)^2 / 2 reads and writes of each entry.

#include "top_k.glsl"

layout(set = 0, binding = BINDING_ENTRY_KEYS, std430) buffer EntryKeys { uint entry_keys[]; };
layout(set = 0, binding = BINDING_ENTRY_POSITIONS, std430) buffer EntryPositions { uint entry_positions[]; };

uint entry_at(uint row, uint place) { return row * p.row_size + place; }

uint entry_position(uint at) { return entry_positions[BYTE_OFFSET_ENTRY_POSITIONS / 4 + at]; }

void load_entry(uint at, out KEY key, out uint position) {
    const uint word = BYTE_OFFSET_ENTRY_KEYS / 4 + at * HALVES;
#if HALVES == 2
    key = uvec2(entry_keys[word], entry_keys[word + 1]);
#else
    key = entry_keys[word];
#endif
    position = entry_position(at);
}

void store_entry(uint at, KEY key, uint position) {
    const uint word = BYTE_OFFSET_ENTRY_KEYS / 4 + at * HALVES;
#if HALVES == 2
    entry_keys[word] = key.x;
    entry_keys[word + 1] = key.y;
#else
    entry_keys[word] = key;
#endif
    entry_positions[BYTE_OFFSET_ENTRY_POSITIONS / 4 + at] = position;
}

void sort_block(uint row, uint first) {
    const uint length = min(CAPACITY, p.row_size - first);
    const uint start = find_row(p.first_row + row).x;
    for (uint i = gl_LocalInvocationID.x; i < length; i += LOCAL_SIZE_X) {
        if (PHASE == PHASE_BLOCKS) {
            positions[i] = first + i;
            keys[i] = key_of(bits_at(start + (first + i) * p.x_step));
        } else {
            load_entry(entry_at(row, first + i), keys[i], positions[i]);
        }
    }
    barrier();
    if (PHASE == PHASE_BLOCKS) {
        sort_segments(CAPACITY, length, CAPACITY / 2);
    } else {
        merge_steps(CAPACITY / 2, CAPACITY, length, CAPACITY / 2, 0xFFFFFFFFu);
    }
    for (uint i = gl_LocalInvocationID.x; i < length; i += LOCAL_SIZE_X)
        store_entry(entry_at(row, first + i), keys[i], positions[i]);
}

void exchange_in_memory(uint row, uint i) {
    const uvec2 places = p.mirrored != 0u ? mirrored_pair(i, p.reach) : pair_apart(i, p.reach);
    if (places.y >= p.row_size) return;
    const uint low = entry_at(row, places.x), high = entry_at(row, places.y);
    KEY a, b;
    uint a_position, b_position;
    load_entry(low, a, a_position);
    load_entry(high, b, b_position);
    if (comes_before(b, b_position, a, a_position)) {
        store_entry(low, b, b_position);
        store_entry(high, a, a_position);
    }
}

void main() {
    if (PHASE == PHASE_BLOCKS || PHASE == PHASE_MERGE) {
        const uint row = linear_workgroup() / p.items;
        if (row < p.rows) sort_block(row, linear_workgroup() % p.items * CAPACITY);
        return;
    }
    if (beyond(p.rows * p.items)) return;
    const uint row = linear_invocation() / p.items, i = linear_invocation() % p.items;
    if (PHASE == PHASE_EXCHANGE) {
        exchange_in_memory(row, i);
    } else {
        store(find_row(p.first_row + row), i, entry_position(entry_at(row, i)));
    }
}
