// What local response normalization and its gradient share: regions, and what divides their middle.
//
//   base = bias + factor * sum of x * x over the region
//   normalized(v, base) = v / base ** beta
//
// The region of an element reaches from `before` elements before it to `after` elements after it in one dimension, A, or in
// two, A and B, as far as the tensor goes. An invocation handles one item (items.glsl) after another, a run of neighbours in
// dimension A, whose regions overlap: what one has read is in the nearest cache for the next. Neighbouring invocations take
// neighbouring items.
//   VISIT_PLACE(dimension, coordinate)   part of the kernel's VISIT
//   find_place()          after LOCATE: the invocation's first item is at the place `at`, its coordinates in A and B, the items
//                         end before `stop` in A, and `own_lanes` of their lanes count
//   LOAD_ITEM(NAME, name, index, values), STORE_ITEM   an item of a tensor of type T; lanes that do not count are the last
//   LOAD_ITEM_OF_U, STORE_ITEM_OF_U                    one's; and of type U
//   region(place)         the first and the last position in A, and those in B, of the region around a place
//   regions_with(place)   the same of the places in whose regions it lies
//   x_at(place)           where x of the item at a place is
//   bases(place, base)    base of its lanes
//
// The kernel has the constants RANK, PLANE (0: regions have no dimension B), WHOLE (1: all lanes of all items count), and
// X_MODE, as for each other tensor (lanes.glsl). Its parameters: count of invocations; run, how many items in A one handles;
// sizes of the index space, the innermost in items, dimension A's divided by run and rounded up, and what divides by them;
// inner_size, the innermost in elements; a_strides and b_strides, what a step in each dimension adds to the place; ends, the
// sizes of A and B; before, after, factor, beta and bias; and of each tensor its strides in elements for a step in each
// dimension, step, that of one element in the innermost, and neighbour, those of one in A and one in B.

#ifndef DMLVK_LOCAL_RESPONSE_GLSL
#define DMLVK_LOCAL_RESPONSE_GLSL

#define ITEMS 1u
#include "items.glsl"
#include "lanes.glsl"
#include "power.glsl"

LANES_BUFFER(readonly, T, X, x)

uvec2 at = uvec2(0);
uint x_index = 0, stop, own_lanes;

#define VISIT_PLACE(dimension, coordinate)            \
    x_index += (coordinate) * p.x_strides[dimension]; \
    at.x += (coordinate) * p.a_strides[dimension];    \
    at.y += (coordinate) * p.b_strides[dimension];

void find_place() {
    own_lanes = lanes_here();
    x_index -= at.x * p.x_neighbour[0] + at.y * p.x_neighbour[1];
    stop = min(at.x + p.run, p.ends[0]);
}

uint x_at(uvec2 place) { return x_index + place.x * p.x_neighbour[0] + place.y * p.x_neighbour[1]; }

// Known beforehand where it can be: a load in a branch waits for what converts its elements.
#define IS_WHOLE (LANES == 1 || WHOLE != 0u || own_lanes == LANES)

// (A data type is a macro, too, so it must not pass through a second macro on its way to ##: two of each.)
#define LOAD_LANES_ONE_BY_ONE_(D, NAME, name, index, values) \
    [[unroll]] for (uint j_ = 0; j_ < LANES; ++j_)           \
        values[j_] = float(name##_elements[BYTE_OFFSET_##NAME / D##_BYTES + (index) + min(j_, own_lanes - 1u) * p.name##_step]);
#define LOAD_ITEM(NAME, name, index, values)                                                                     \
    if (IS_WHOLE) {                                                                      \
        LOAD_LANES(T, values, NAME, name, NAME##_MODE, index, p.name##_step)                                     \
    } else {                                                                                                     \
        LOAD_LANES_ONE_BY_ONE_(T, NAME, name, index, values)                                                     \
    }
#define LOAD_ITEM_OF_U(NAME, name, index, values)                                                                \
    if (IS_WHOLE) {                                                                      \
        LOAD_LANES(U, values, NAME, name, NAME##_MODE, index, p.name##_step)                                     \
    } else {                                                                                                     \
        LOAD_LANES_ONE_BY_ONE_(U, NAME, name, index, values)                                                     \
    }
#define STORE_LANES_ONE_BY_ONE_(D, NAME, name, index, values) \
    [[unroll]] for (uint j_ = 0; j_ < LANES; ++j_)            \
        if (j_ < own_lanes) name##_elements[BYTE_OFFSET_##NAME / D##_BYTES + (index) + j_ * p.name##_step] = D(values[j_]);
#define STORE_ITEM(NAME, name, index, values)                                                                    \
    if (IS_WHOLE) {                                                                      \
        STORE_LANES(T, NAME, name, NAME##_MODE, index, p.name##_step, values)                                    \
    } else {                                                                                                     \
        STORE_LANES_ONE_BY_ONE_(T, NAME, name, index, values)                                                    \
    }
#define STORE_ITEM_OF_U(NAME, name, index, values)                                                               \
    if (IS_WHOLE) {                                                                      \
        STORE_LANES(U, NAME, name, NAME##_MODE, index, p.name##_step, values)                                    \
    } else {                                                                                                     \
        STORE_LANES_ONE_BY_ONE_(U, NAME, name, index, values)                                                    \
    }

uvec2 reach(uint position, uint end, uint before, uint after) {
    return uvec2(position - min(position, before), position + min(end - 1u - position, after));
}
uvec4 reaches(uvec2 place, uint before, uint after) {
    const uvec2 columns = PLANE != 0u ? reach(place.y, p.ends[1], before, after) : uvec2(0);
    return uvec4(reach(place.x, p.ends[0], before, after), columns);
}
uvec4 region(uvec2 place) { return reaches(place, p.before, p.after); }
uvec4 regions_with(uvec2 place) { return reaches(place, p.after, p.before); }

void bases(uvec2 place, out float base[LANES]) {
    const uvec4 around = region(place);
    float x[LANES], sums[LANES], of_row[LANES]; // sums of sums: fewer roundings one after another
    [[unroll]] for (int j = 0; j < LANES; ++j) sums[j] = 0.0;
    for (uint row = around.x; row <= around.y; ++row) {
        [[unroll]] for (int j = 0; j < LANES; ++j) of_row[j] = 0.0;
        for (uint column = around.z; column <= around.w; ++column) {
            const uint index = x_at(uvec2(row, column));
            LOAD_ITEM(X, x, index, x)
            [[unroll]] for (int j = 0; j < LANES; ++j) of_row[j] += x[j] * x[j];
        }
        [[unroll]] for (int j = 0; j < LANES; ++j) sums[j] += of_row[j];
    }
    [[unroll]] for (int j = 0; j < LANES; ++j) base[j] = p.bias + p.factor * sums[j];
}

float normalized(float v, float base) {
    // The usual power takes two roots, where these are defined and of full precision.
    if (p.beta == 0.75 && base >= 1.1754944e-38 && base <= 3.4e38) {
        const float root = sqrt(base);
        return v / (root * sqrt(root));
    }
    return v * power(base, -p.beta);
}

#endif
