// Chooses among the boxes of a chunk, best first, by the bits that say which overlap which.
//
// Groups, order, parameters: include/suppression.glsl. Bindings: SCORES and ORDER, the boxes' numbers, best first; MOST, LEAST,
// a number each; MASKS and MARKED, left by suppression_masks.comp, read; COUNTS and CHOSEN, the boxes of each group that are
// chosen, written on.
// A workgroup has a group, and goes through the chunk a word of boxes at a time. Of those 32 each invocation finds by itself
// which are chosen; then each takes what these overlap out of its own words.

#include "suppression.glsl"

layout(set = 0, binding = BINDING_MASKS, std430) readonly buffer Masks { uint masks[]; };
layout(set = 0, binding = BINDING_MARKED, std430) readonly buffer Marked { uint marked[]; };
layout(set = 0, binding = BINDING_COUNTS, std430) buffer Counts { uint counts[]; };
layout(set = 0, binding = BINDING_CHOSEN, std430) writeonly buffer Chosen { uint chosen[]; };

shared uint removed[MOST_CHUNK / MASK_BOXES];
shared uint rows[MASK_BOXES];

bool is_removed(uint group, uint place) {
    if (!may_be_chosen(group, p.start + place)) return true;
    uint found = 0u;
    for (uint mark = 0u; mark < p.marks; ++mark)
        found |= marked[BYTE_OFFSET_MARKED / 4 + (group * p.marks + mark) * p.chunk + place];
    return found != 0u;
}

void main() {
    const uint group = linear_workgroup();
    if (group >= p.groups) return;
    const uint own = gl_LocalInvocationID.x;
    const uint wanted = most_chosen();
    uint there = p.start == 0u ? 0u : counts[BYTE_OFFSET_COUNTS / 4 + group];
    if (p.start != 0u && there >= wanted) return;
    for (uint word = own; word < p.words; word += LOCAL_SIZE_X) removed[word] = 0u;
    barrier();
    for (uint place = own; place < p.chunk; place += LOCAL_SIZE_X)
        if (is_removed(group, place)) atomicOr(removed[place / MASK_BOXES], 1u << (place % MASK_BOXES));
    barrier();

    for (uint word = 0u; word < p.words && there < wanted; ++word) {
        uint left = ~removed[word];
        if (left == 0u) continue;
        const uint first = word * MASK_BOXES;
        const uint mask = BYTE_OFFSET_MASKS / 4 + (group * p.chunk + first) * p.words;
        for (uint i = own; i < MASK_BOXES; i += LOCAL_SIZE_X) rows[i] = masks[mask + i * p.words + word];
        barrier();
        uint taken = 0u;
        for (uint count = there; left != 0u && count < wanted; ++count) {
            const uint bit = uint(findLSB(left));
            taken |= 1u << bit;
            left &= ~(1u << bit | rows[bit]);
        }
        for (uint i = own; i < MASK_BOXES; i += LOCAL_SIZE_X) {
            if ((taken >> i & 1u) == 0u) continue;
            const uint box = box_order[BYTE_OFFSET_ORDER / 4 + group * p.boxes + p.start + first + i];
            const uint before = uint(bitCount(taken & (1u << i) - 1u));
            chosen[BYTE_OFFSET_CHOSEN / 4 + group * p.room + there + before] = box;
        }
        for (uint later = word + 1u + own; later < p.words; later += LOCAL_SIZE_X) {
            uint overlapped = 0u;
            for (uint rest = taken; rest != 0u; rest &= rest - 1u)
                overlapped |= masks[mask + uint(findLSB(rest)) * p.words + later];
            removed[later] |= overlapped;
        }
        there += uint(bitCount(taken));
        barrier();
    }
    if (own == 0u) counts[BYTE_OFFSET_COUNTS / 4 + group] = there;
}
