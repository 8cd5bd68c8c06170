// y = (x - zero point) * scale: the difference exactly, then rounded to float32 as the product is.
//
// Bindings: x, scale, zero_point (any bytes where there is none), output.
// Variants: T, the type of the output, and S, which is the same, of the scale; U, an unsigned type for the bits of x and the zero point, or absent for 4 bits;
//   LANES.
//   LANES > 1   x and the output lie packed in the same order, the index space's: groups of LANES elements, scales and zero
//               points as include/blocks.glsl has them. The rule "groups".
//   LANES 1     any strides, one element at a time. The rule "elements".
// Constants: SIGNED 0, HAS_ZERO_POINT 1, RANK 1, ROWS 0, SCALE_MODE 0, ZERO_POINT_MODE 0, ITEMS 1, LOCAL_SIZE_X.
// Parameters: count of items; inner_size, the elements of all items; sizes of the index space in elements, and what divides
//   by them; strides in elements.

#include "items.glsl"
#include "blocks.glsl"

QUANTIZED_BUFFER(readonly, X, x)
LANES_BUFFER(, T, OUTPUT, output)

struct Item {
    uint output_, lanes;
    uint x[LANES];
    float scale[LANES];
    uint zero_point[LANES];
};

// Rounded once: the difference of two 32-bit integers has 33 bits, and its magnitude 32.
float difference(uint x, uint zero_point) {
#if QUANTIZED_BITS == 32
    const uint offset = SIGNED << 31, a = x ^ offset, b = zero_point ^ offset;
    return a < b ? -float(b - a) : float(a - b);
#else
    return float(number(x) - number(zero_point));
#endif
}

Item load(uint index) {
    Item item;
    const uint element = index * LANES;
    const Place at = place(element);
    item.lanes = min(p.inner_size - element, LANES);
#if LANES == 1
    item.output_ = at.output_;
    item.x[0] = QUANTIZED(X, x, at.x);
#else
    item.output_ = element;
    if (item.lanes == LANES) {
        LOAD_QUANTIZED(item.x, X, x, MODE_GROUPS, element)
    } else {
        [[unroll]] for (uint i = 0; i < LANES; ++i) item.x[i] = QUANTIZED(X, x, element + min(i, item.lanes - 1u));
    }
#endif
    load_scales(element, item.lanes, at, item.scale, item.zero_point);
    return item;
}

void main() {
    if (beyond_items()) return;
    Item items[MOST_ITEMS];
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) items[i] = load(item_number(i));

    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        if (!has_item(i)) continue;
        T_MATH y[LANES];
        [[unroll]] for (int j = 0; j < LANES; ++j)
            y[j] = difference(items[i].x[j], items[i].zero_point[j]) * items[i].scale[j];
        if (items[i].lanes == LANES) {
            STORE_LANES(T, OUTPUT, output, MODE_GROUPS, items[i].output_, 1u, y)
        } else {
            [[unroll]] for (uint j = 0; j < LANES; ++j)
                if (j < items[i].lanes) ELEMENT(T, OUTPUT, output, items[i].output_ + j) = T(y[j]);
        }
    }
}
