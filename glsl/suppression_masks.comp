// Which boxes of a chunk overlap which: for each box a bit for every later one of the chunk, and whether it overlaps one that
// was chosen before the chunk.
//
// Groups, order, parameters: include/suppression.glsl; and tiles, of a chunk. Constants: CENTERS (whether a box is its center,
// width and height).
// Bindings: BOXES; SCORES and ORDER, the boxes' numbers, best first; MOST, OVERLAP, LEAST, a number each; COUNTS and CHOSEN,
// the boxes of each group that are chosen, read; MASKS, {group, box of the chunk, word}, and MARKED, {group, mark, box of the
// chunk}, written.
// Grid: folded into x and y. A workgroup compares a tile of boxes with the boxes of a mask, or with MARK_BOXES of those chosen.
//
// Areas and quotients are rounded as IEEE 754 says, so that two boxes overlap by the threshold on all devices or on none.

#include "requantizer.glsl"
#include "suppression.glsl"

layout(set = 0, binding = BINDING_BOXES, std430) readonly buffer Boxes { float boxes[]; };
layout(set = 0, binding = BINDING_OVERLAP, std430) readonly buffer Overlap { float overlap[]; };
layout(set = 0, binding = BINDING_COUNTS, std430) readonly buffer Counts { uint counts[]; };
layout(set = 0, binding = BINDING_CHOSEN, std430) readonly buffer Chosen { uint chosen[]; };
layout(set = 0, binding = BINDING_MASKS, std430) writeonly buffer Masks { uint masks[]; };
layout(set = 0, binding = BINDING_MARKED, std430) writeonly buffer Marked { uint marked[]; };

struct Box {
    vec2 low;
    vec2 high;
    float area;
};

shared Box others[LOCAL_SIZE_X];

Box load_box(uint group, uint index) {
    const uint at = BYTE_OFFSET_BOXES / 4 + 4u * (group / p.classes * p.boxes + index);
    const vec2 a = vec2(boxes[at], boxes[at + 1]), b = vec2(boxes[at + 2], boxes[at + 3]);
    Box box;
    if (CENTERS == 1) {
        const vec2 radius = b * 0.5;
        precise vec2 low = a - radius, high = a + radius;
        box.low = low;
        box.high = high;
    } else {
        box.low = mix(a, b, greaterThanEqual(a, b));
        box.high = mix(b, a, greaterThanEqual(a, b));
    }
    precise vec2 size = box.high - box.low;
    precise float area = size.x * size.y;
    box.area = area;
    return box;
}

// The areas of what two boxes share and of their union; false where one of them is nothing.
bool areas(Box a, Box b, out float intersection, out float either) {
    const vec2 low = mix(a.low, b.low, lessThan(a.low, b.low)), high = mix(a.high, b.high, lessThan(b.high, a.high));
    precise vec2 size = high - low;
    precise float area = size.x * size.y;
    precise float both = a.area + b.area;
    precise float rest = both - area;
    intersection = area;
    either = rest;
    return high.x > low.x && high.y > low.y && a.area > 0.0 && b.area > 0.0 && area > 0.0 && rest > 0.0;
}

// A bit for each of up to 32 boxes that overlap one. What is too close to the threshold to be told by a product is divided
// in the end, so that the loop over all has no division.
uint overlaps(Box own, uint first, uint count, float threshold) {
    uint found = 0u, close = 0u;
    float intersection, either;
    for (uint i = 0u; i < count; ++i) {
        const bool meets = areas(own, others[first + i], intersection, either);
        const float excess = intersection - threshold * either;
        if (meets && excess > 0.0) found |= 1u << i;
        if (meets && abs(excess) <= 1e-6 * intersection) close |= 1u << i;
    }
    for (; close != 0u; close &= close - 1u) {
        const uint i = uint(findLSB(close));
        areas(own, others[first + i], intersection, either);
        found = (found & ~(1u << i)) | uint(exact_quotient(intersection, either) > threshold) << i;
    }
    return found;
}

// The bits of those of a mask's boxes that come after a box.
uint later_bits(uint bits, uint row, uint first) {
    if (row < first) return bits;
    return row - first >= MASK_BOXES - 1u ? 0u : bits & ~((2u << (row - first)) - 1u);
}

void main() {
    const uint columns = p.words + p.marks;
    const uint tile = linear_workgroup() / columns, column = linear_workgroup() % columns;
    const uint group = tile / p.tiles;
    if (group >= p.groups) return;
    const uint first_row = tile % p.tiles * LOCAL_SIZE_X;
    const uint row = first_row + gl_LocalInvocationID.x;
    const bool is_mark = column >= p.words;
    const uint first = is_mark ? (column - p.words) * MARK_BOXES : column * MASK_BOXES;
    const uint there = p.start == 0u ? 0u : counts[BYTE_OFFSET_COUNTS / 4 + group];
    if (there >= most_chosen() || p.start + first_row >= p.boxes) return; // nothing more is chosen of these
    if (!is_mark && first + MASK_BOXES <= first_row + 1u) return;         // no later boxes

    const uint end = is_mark ? min(first + MARK_BOXES, there) : min(first + MASK_BOXES, p.boxes - p.start);
    const uint boxes_base = BYTE_OFFSET_ORDER / 4 + group * p.boxes + p.start;
    const uint chosen_base = BYTE_OFFSET_CHOSEN / 4 + group * p.room;
    const bool is_candidate = may_be_chosen(group, p.start + row);
    const float threshold = overlap[BYTE_OFFSET_OVERLAP / 4];
    Box own;
    if (is_candidate) own = load_box(group, box_order[boxes_base + row]);
    uint bits = 0u;
    for (uint from = first; from < end; from += LOCAL_SIZE_X) {
        const uint other = from + gl_LocalInvocationID.x;
        barrier();
        if (other < end)
            others[gl_LocalInvocationID.x] = load_box(group, is_mark ? chosen[chosen_base + other] : box_order[boxes_base + other]);
        barrier();
        const uint count = min(end - from, LOCAL_SIZE_X);
        if (is_candidate) {
            for (uint i = 0u; i < count; i += MASK_BOXES) bits |= overlaps(own, i, min(count - i, MASK_BOXES), threshold);
        }
    }
    if (is_mark)
        marked[BYTE_OFFSET_MARKED / 4 + (group * p.marks + column - p.words) * p.chunk + row] = min(bits, 1u);
    else
        masks[BYTE_OFFSET_MASKS / 4 + (group * p.chunk + row) * p.words + column] = later_bits(bits, row, first);
}
