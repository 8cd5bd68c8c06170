// What the kernels of a suppression share: its groups, a batch and class each, and the boxes that may be chosen.
//
// The boxes of a group are sorted, the best score first, and handled in chunks of that order.
//
// Parameters: groups; classes of a batch; boxes of a group; room, the most that a group may have chosen; start, the place of
// the chunk's first box; chunk, its boxes; words of a mask of them; marks, how many workgroups compare each tile of the chunk
// with what is chosen already.
// Constants: HAS_LEAST (whether a score must be above a number).

#ifndef DMLVK_SUPPRESSION_GLSL
#define DMLVK_SUPPRESSION_GLSL

#include "order.glsl"
#include "tensor.glsl"

layout(set = 0, binding = BINDING_SCORES, std430) readonly buffer Scores { float scores[]; };
layout(set = 0, binding = BINDING_ORDER, std430) readonly buffer Order { uint box_order[]; };
layout(set = 0, binding = BINDING_MOST, std430) readonly buffer Most { uint most[]; };
layout(set = 0, binding = BINDING_LEAST, std430) readonly buffer Least { float least_score[]; };

// The boxes that a group may have: what is wanted, an INT64 and none if negative, and what there is room for.
uint most_chosen() {
    const uint low = most[BYTE_OFFSET_MOST / 4], high = most[BYTE_OFFSET_MOST / 4 + 1];
    if (int(high) < 0) return 0u;
    return high != 0u ? p.room : min(low, p.room);
}

// Whether the box at a place of a group's order may be chosen.
bool may_be_chosen(uint group, uint place) {
    if (place >= p.boxes) return false;
    if (HAS_LEAST == 0) return true;
    const float score = scores[BYTE_OFFSET_SCORES / 4 + group * p.boxes + place];
    const float least = least_score[BYTE_OFFSET_LEAST / 4];
    if (is_nan_bits(floatBitsToUint(score)) || is_nan_bits(floatBitsToUint(least))) return false;
    return order_of_zeros(order_up(score)) > order_of_zeros(order_up(least));
}

#endif
