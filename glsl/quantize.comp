// y = clamp(rint(x / scale) + zero point), in float32 (include/quantizer.glsl): to 8 bits, or to 4.
//
// Bindings: x, scale, zero_point (any bytes where there is none), output.
// Variants: T, the type of x; S, that of the scale, which T is but for INT32; U, UINT8, or absent for 4 bits; LANES.
//   LANES > 1   x and the output lie packed in the same order, the index space's: groups of LANES elements, scales and zero
//               points as include/blocks.glsl has them. The rule "groups".
//   LANES 1     any strides, one element at a time. The rule "elements" to 8 bits, and to 4 where elements lie between each
//               other: each changes its own bits of a word, by atomic operations, whose order makes no difference.
//   PACKED 0    to 4 bits, any strides: an item is a 32-bit word of the memory that the output spans, so that no two
//               invocations write to one word. A position in it is an element, or a gap between elements, which keeps its
//               bits. The output's strides fall and nest, so dividing by them gives the coordinates. The rule "elements".
// Constants: SIGNED 0, HAS_ZERO_POINT 1, PACKED 1, RANK 1, ROWS 0, SCALE_MODE 0, ZERO_POINT_MODE 0, ITEMS 1,
//   LOCAL_SIZE_X.
// Parameters: count of items; inner_size, the elements of all items; sizes of the index space in elements, and what divides
//   by them; strides in elements.

#include "items.glsl"
#include "blocks.glsl"
#include "quantizer.glsl"

LANES_BUFFER(readonly, T, X, x)
QUANTIZED_BUFFER(, OUTPUT, output)

struct Item {
    uint output_, lanes, written;
    T_MATH x[LANES];
    float scale[LANES];
    uint zero_point[LANES];
};

// Where the element at a position of the output's memory is, if there is one.
bool find(uint position, out Place at) {
    at = Place(0u, 0u, 0u, 0u, 0u);
    uint rest = position;
    bool found = true;
    for (int d = 0; d < int(RANK); ++d) {
        const uint coordinate = rest / p.output_strides[d];
        rest -= coordinate * p.output_strides[d];
        found = found && coordinate < p.sizes[d];
        VISIT(d, coordinate)
    }
    return found && rest == 0u;
}

Item load(uint number) {
    Item item;
    const uint element = number * LANES;
    item.lanes = min(p.inner_size - element, LANES);
    item.written = (1u << item.lanes) - 1u;
    item.output_ = element;
#if LANES == 1
    const Place at = place(element);
    item.output_ = at.output_;
    item.x[0] = T_MATH(ELEMENT(T, X, x, at.x));
    load_scales(element, 1u, at, item.scale, item.zero_point);
#else
    if (PACKED != 0u) {
        if (item.lanes == LANES) {
            LOAD_LANES(T, item.x, X, x, MODE_GROUPS, element, 1u)
        } else {
            [[unroll]] for (uint i = 0; i < LANES; ++i)
                item.x[i] = T_MATH(ELEMENT(T, X, x, element + min(i, item.lanes - 1u)));
        }
        load_scales(element, item.lanes, place(element), item.scale, item.zero_point);
    } else {
        item.written = 0u;
        [[unroll]] for (uint i = 0; i < LANES; ++i) {
            Place at;
            item.scale[i] = 1.0;
            if (i >= item.lanes || !find(element + i, at)) continue;
            item.written |= 1u << i;
            item.x[i] = T_MATH(ELEMENT(T, X, x, at.x));
            item.scale[i] = scale_at(at);
            item.zero_point[i] = zero_point_at(at);
        }
    }
#endif
    return item;
}

void store(Item item, uint y[LANES]) {
#ifdef U
    if (item.lanes == LANES) {
        STORE_LANES(U, OUTPUT, output, MODE_GROUPS, item.output_, 1u, y)
    } else {
        [[unroll]] for (uint i = 0; i < LANES; ++i)
            if (i < item.lanes) ELEMENT(U, OUTPUT, output, item.output_ + i) = U(y[i]);
    }
#elif LANES == 1
    const uint shift = item.output_ % 8u * 4u;
    atomicAnd(WORD_(OUTPUT, output, item.output_), ~(0xFu << shift));
    atomicOr(WORD_(OUTPUT, output, item.output_), (y[0] & 0xFu) << shift);
#else
    uint word = 0u, kept = 0u;
    [[unroll]] for (int i = 0; i < LANES; ++i) {
        if ((item.written >> i & 1u) != 0u)
            word = bitfieldInsert(word, y[i], 4 * i, 4);
        else
            kept |= 0xFu << (4 * i);
    }
    if (kept != 0u) word |= WORD_(OUTPUT, output, item.output_) & kept;
    WORD_(OUTPUT, output, item.output_) = word;
#endif
}

// Whether all lanes have one scale and zero point. (A compiler does not find out by itself.)
#if LANES > 1
#define ONE_SCALE (PACKED != 0u && ROWS == ROWS_ONE && SCALE_MODE == MODE_BROADCAST && ZERO_POINT_MODE == MODE_BROADCAST)
#else
#define ONE_SCALE true
#endif

void main() {
    if (beyond_items()) return;
    Item items[MOST_ITEMS];
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) items[i] = load(item_number(i));

    const int most = int((1u << (QUANTIZED_BITS - SIGNED)) - 1u), least = SIGNED != 0u ? -most - 1 : 0;
    [[unroll]] for (uint i = 0; i < ITEMS; ++i) {
        if (!has_item(i)) continue;
        uint y[LANES];
        Quantizer q = quantizer(items[i].scale[0], number(items[i].zero_point[0]), least, most);
        [[unroll]] for (int j = 0; j < LANES; ++j) {
            if (j > 0 && !ONE_SCALE) q = quantizer(items[i].scale[j], number(items[i].zero_point[j]), least, most);
            y[j] = uint(quantize(q, float(items[i].x[j])));
        }
        store(items[i], y);
    }
}
