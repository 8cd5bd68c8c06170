// Scales and zero points of quantized tensors: which of them belong to an element, for LANES neighbouring elements at once.
//
// The elements form an index space in which the scale and the zero point have strides: 0 in the dimensions that a block or
// a broadcast covers. LANES > 1 takes neighbours in that space, whose tensors of data are packed in its order.
//
// A quantized number is the low bits of a uint. The tensor of type U has 8 to 32 bits; without U, 4: eight to a 32-bit
// word, the first in its lowest bits.
//   QUANTIZED_BITS
//   QUANTIZED_BUFFER(access, NAME, name)    declares a tensor of quantized numbers
//   QUANTIZED(NAME, name, index)            one of them
//   LOAD_QUANTIZED(values, NAME, name, mode, index)    LANES of them (lanes.glsl has the modes)
//   int number(uint quantized)              its value; of at most 16 bits, or any that fit int
//   Place place(uint element)               where an element's parts are; .run: elements left in its row, itself included
//   load_scales(element, lanes, at, scale, zero_point)   those of LANES elements, or of the last ones of the tensor
//
// The kernel has the buffers scale, of type S, and zero_point; the constants RANK, SIGNED, HAS_ZERO_POINT and, for LANES > 1,
// ROWS (below), SCALE_MODE and ZERO_POINT_MODE (of ROWS_ONE); the parameters sizes, divisors and the strides of x, scale,
// zero_point and output.

#ifndef DMLVK_BLOCKS_GLSL
#define DMLVK_BLOCKS_GLSL

#include "lanes.glsl"
#if LANES > 1
#define OF_TYPE(name) name##S
#define TYPE_MATH S_MATH
#define TYPE_BYTES S_BYTES
#define TYPE_IS_FLOAT S_IS_FLOAT
#include "lanes_of_type.glsl"
#endif
#include "tensor.glsl"

#ifdef U
#define QUANTIZED_BITS (8 * U_BYTES)
#define QUANTIZED_BUFFER(access, NAME, name) LANES_BUFFER(access, U, NAME, name)
#define QUANTIZED(NAME, name, index) uint(ELEMENT(U, NAME, name, index))
#define LOAD_QUANTIZED(values, NAME, name, mode, index) LOAD_LANES(U, values, NAME, name, mode, index, 0u)
#else
#define QUANTIZED_BITS 4
#define QUANTIZED_BUFFER(access, NAME, name) \
    layout(set = 0, binding = BINDING_##NAME, std430) access buffer NAME##Words { uint name##_words[]; };
#define WORD_(NAME, name, index) name##_words[BYTE_OFFSET_##NAME / 4 + (index) / 8]
#define QUANTIZED(NAME, name, index) bitfieldExtract(WORD_(NAME, name, index), int((index) % 8u * 4u), 4)
#define LOAD_QUANTIZED(values, NAME, name, mode, index)                                                    \
    {                                                                                                      \
        const uint word_ = WORD_(NAME, name, index);                                                       \
        [[unroll]] for (int i_ = 0; i_ < LANES; ++i_)                                                      \
            values[i_] = bitfieldExtract(word_, int((mode) == MODE_BROADCAST ? (index) % 8u : i_) * 4, 4); \
    }
#endif

int number(uint quantized) {
    return SIGNED != 0u ? bitfieldExtract(int(quantized), 0, QUANTIZED_BITS) : int(quantized);
}

LANES_BUFFER(readonly, S, SCALE, scale)
QUANTIZED_BUFFER(readonly, ZERO_POINT, zero_point)

struct Place {
    uint x, scale, zero_point, output_, run;
};

#define VISIT(dimension, coordinate)                                          \
    at.x += (coordinate) * p.x_strides[dimension];                            \
    at.scale += (coordinate) * p.scale_strides[dimension];                    \
    at.zero_point += (coordinate) * p.zero_point_strides[dimension];          \
    at.output_ += (coordinate) * p.output_strides[dimension];                 \
    at.run = uint(dimension) == RANK - 1u ? p.sizes[dimension] - (coordinate) : at.run;

Place place(uint element) {
    Place at = Place(0u, 0u, 0u, 0u, 0u);
    FOR_EACH_COORDINATE_FAST(element, RANK, p.sizes, p.divisors, VISIT)
    return at;
}

float scale_at(Place at) { return float(ELEMENT(S, SCALE, scale, at.scale)); }
uint zero_point_at(Place at) { return HAS_ZERO_POINT != 0u ? QUANTIZED(ZERO_POINT, zero_point, at.zero_point) : 0u; }

void load_scales(uint element, uint lanes, Place at, out float scale[LANES], out uint zero_point[LANES]) {
#if LANES == 1
    scale[0] = scale_at(at);
    zero_point[0] = zero_point_at(at);
#else
    if (ROWS == ROWS_ONE && lanes == LANES) {
        LOAD_LANES(S, scale, SCALE, scale, SCALE_MODE, at.scale, 0u)
        [[unroll]] for (int i = 0; i < LANES; ++i) zero_point[i] = 0u;
        if (HAS_ZERO_POINT != 0u) LOAD_QUANTIZED(zero_point, ZERO_POINT, zero_point, ZERO_POINT_MODE, at.zero_point)
    } else if (ROWS == ROWS_TWO && lanes == LANES) {
        Place next = at;
        if (at.run < LANES) next = place(element + (LANES - 1u));
        const float first_scale = scale_at(at), next_scale = scale_at(next);
        const uint first_zero_point = zero_point_at(at), next_zero_point = zero_point_at(next);
        [[unroll]] for (uint i = 0; i < LANES; ++i) {
            scale[i] = i < at.run ? first_scale : next_scale;
            zero_point[i] = i < at.run ? first_zero_point : next_zero_point;
        }
    } else {
        [[unroll]] for (uint i = 0; i < LANES; ++i) {
            const Place own = place(element + min(i, lanes - 1u));
            scale[i] = scale_at(own);
            zero_point[i] = zero_point_at(own);
        }
    }
#endif
}

#endif
