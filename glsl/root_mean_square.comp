// Normalization by the root mean square, of a sum that is written, too.
//
//   sum = x + addend    y = scale * sum / sqrt(mean of sum^2 over the row + epsilon)
//
// LANES neighbouring invocations share a row; a workgroup has LOCAL_SIZE_X / LANES rows. Lane i has the groups of four elements
// i, i + LANES and so on: HELD of them stay in registers, or with HELD 0 a row is read twice.
// Bindings: X, ADDEND, SCALE read; Y, SUM written. What is absent is bound to another and left alone. Strides of X, ADDEND, Y and
// SUM are in elements, for three dimensions of rows, p.sizes, and the element.
// Variants: T of Y, U of X, SCALE and SUM.
// Parameters: zero is 0.
// Constants: LANES (a power of two), HELD; ADDEND_TYPE: ADDEND_TYPE_NONE, of which other tensor it is, or FLOAT16; HAS_SCALE, HAS_SUM; QUADS: rows of all
// tensors start on groups of four elements and consist of them.
// Grid: folded into x and y, workgroups of rows.
// Chosen always.

#include "tensor.glsl"
#include "workgroup.glsl"

vec4 unpacked(uvec2 quad) { return vec4(unpackHalf2x16(quad.x), unpackHalf2x16(quad.y)); }
vec4 unpacked(vec4 quad) { return quad; }
void pack(vec4 values, out uvec2 quad) { quad = uvec2(packHalf2x16(values.xy), packHalf2x16(values.zw)); }
void pack(vec4 values, out vec4 quad) { quad = values; }

#if T_BYTES == 2
#define QUAD_T uvec2
#else
#define QUAD_T vec4
#endif
#if U_BYTES == 2
#define QUAD_U uvec2
#else
#define QUAD_U vec4
#endif

// (D is a macro, too, so it must not pass through a second macro on its way to ##.)
#define TENSOR(access, D, NAME, name)                                                          \
    layout(set = 0, binding = BINDING_##NAME, std430) access buffer NAME##D { D name[]; };     \
    layout(set = 0, binding = BINDING_##NAME, std430) access buffer NAME##D##Quads { QUAD_##D name##_quads[]; };

#define LOAD(D, NAME, name, start, d, step, values)                                       \
    {                                                                                     \
        const uint at_ = BYTE_OFFSET_##NAME / D##_BYTES + (start);                        \
        if (QUADS != 0) {                                                                 \
            values = unpacked(name##_quads[(at_ + (d)) / 4]);                             \
        } else {                                                                          \
            values = vec4(0.0);                                                           \
            [[unroll]] for (int i_ = 0; i_ < 4; ++i_)                                     \
                if ((d) + i_ < p.width) values[i_] = float(name[at_ + ((d) + i_) * (step)]); \
        }                                                                                 \
    }

#define STORE(D, NAME, name, start, d, step, values)                                   \
    {                                                                                  \
        const uint at_ = BYTE_OFFSET_##NAME / D##_BYTES + (start);                     \
        if (QUADS != 0) {                                                              \
            pack(values, name##_quads[(at_ + (d)) / 4]);                               \
        } else {                                                                       \
            [[unroll]] for (int i_ = 0; i_ < 4; ++i_)                                  \
                if ((d) + i_ < p.width) name[at_ + ((d) + i_) * (step)] = D(values[i_]); \
        }                                                                              \
    }

const uint HELD_SIZE = HELD > 0 ? HELD : 1;

TENSOR(readonly, U, X, x)
TENSOR(readonly, T, ADDEND, addend)
TENSOR(readonly, U, ADDEND, wide_addend)
layout(set = 0, binding = BINDING_ADDEND, std430) readonly buffer HalfAddend { uint half_addend[]; }; // two in a word
layout(set = 0, binding = BINDING_ADDEND, std430) readonly buffer HalfAddendQuads { uvec2 half_addend_quads[]; };
TENSOR(readonly, U, SCALE, scale)
TENSOR(writeonly, T, Y, y)
TENSOR(, U, SUM, sums)

uint start_of(uvec3 place, uint strides[4]) {
    return place.x * strides[0] + place.y * strides[1] + place.z * strides[2];
}

// Elements d to d + 3 of a row of an addend of FLOAT16 among tensors of FLOAT32.
vec4 half_addend_at(uint start, uint d) {
    const uint at = BYTE_OFFSET_ADDEND / 2 + start;
    if (QUADS != 0) return unpacked(half_addend_quads[(at + d) / 4]);
    vec4 values = vec4(0.0);
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        const uint element = at + (d + i) * p.addend_strides[3];
        if (d + i < p.width) values[i] = unpackHalf2x16(half_addend[element / 2] >> 16 * (element % 2)).x;
    }
    return values;
}

// Elements d to d + 3 of the sum of a row, as it is written.
vec4 sum_at(uvec3 place, uint d) {
    vec4 values;
    LOAD(U, X, x, start_of(place, p.x_strides), d, p.x_strides[3], values)
    if (ADDEND_TYPE == ADDEND_TYPE_NONE) return values;
    vec4 more;
    if (ADDEND_TYPE == ADDEND_TYPE_OUTPUT) LOAD(T, ADDEND, addend, start_of(place, p.addend_strides), d, p.addend_strides[3], more)
    if (ADDEND_TYPE == ADDEND_TYPE_INPUT) LOAD(U, ADDEND, wide_addend, start_of(place, p.addend_strides), d, p.addend_strides[3], more)
    if (ADDEND_TYPE == ADDEND_TYPE_HALF) more = half_addend_at(start_of(place, p.addend_strides), d);
    values += more;
#if U_BYTES == 2
    QUAD_U rounded;
    pack(values, rounded);
    // With a 0 of which compilers know nothing: NVIDIA's would take what is packed and unpacked for what it was before.
    values = unpacked(rounded ^ p.zero);
#endif
    return values;
}

// Elements d to d + 3 of the scale.
vec4 scale_at(uint d) {
    vec4 own = vec4(1.0);
    if (HAS_SCALE != 0) LOAD(U, SCALE, scale, 0, d, p.scale_stride, own)
    return own;
}

void finish(uvec3 place, uint d, vec4 values, vec4 scales, float factor) {
    values *= factor;
    if (HAS_SCALE != 0) values *= scales;
    STORE(T, Y, y, start_of(place, p.y_strides), d, p.y_strides[3], values)
}

void main() {
    const uint invocation = workgroup_invocation();
    const uint lane = invocation % LANES;
    const uint row = linear_workgroup() * (LOCAL_SIZE_X / LANES) + invocation / LANES;
    // Past the last row everything but the writing happens to the last one, so that every invocation reaches the sum.
    const bool writes = row < p.rows;
    uint rest = min(row, p.rows - 1);
    uvec3 place;
    place.z = rest % p.sizes[2];
    rest /= p.sizes[2];
    place.y = rest % p.sizes[1];
    place.x = rest / p.sizes[1];
    const uint sum_start = start_of(place, p.sum_strides);

    float squares = 0.0;
    vec4 held[HELD_SIZE], scales[HELD_SIZE]; // all loads wait for memory together
    if (HELD != 0) {
        [[unroll]] for (uint i = 0; i < HELD; ++i) {
            const uint d = 4 * (i * LANES + lane);
            held[i] = d < p.width ? sum_at(place, d) : vec4(0.0);
            scales[i] = d < p.width ? scale_at(d) : vec4(0.0);
        }
        [[unroll]] for (uint i = 0; i < HELD; ++i) {
            const uint d = 4 * (i * LANES + lane);
            squares += dot(held[i], held[i]);
            if (HAS_SUM != 0 && writes && d < p.width) STORE(U, SUM, sums, sum_start, d, p.sum_strides[3], held[i])
        }
    } else {
        for (uint d = 4 * lane; d < p.width; d += 4 * LANES) {
            const vec4 values = sum_at(place, d);
            squares += dot(values, values);
            if (HAS_SUM != 0 && writes) STORE(U, SUM, sums, sum_start, d, p.sum_strides[3], values)
        }
    }
    const float mean = sum_over_lanes(squares, 0) / float(p.width);
    const float factor = 1.0 / sqrt(mean + p.epsilon);
    if (!writes) return;
    if (HELD != 0) {
        [[unroll]] for (uint i = 0; i < HELD; ++i) {
            const uint d = 4 * (i * LANES + lane);
            if (d < p.width) finish(place, d, held[i], scales[i], factor);
        }
    } else {
        for (uint d = 4 * lane; d < p.width; d += 4 * LANES) {
            vec4 values;
            if (HAS_SUM != 0) // which may lie where x was
                LOAD(U, SUM, sums, sum_start, d, p.sum_strides[3], values)
            else
                values = sum_at(place, d);
            finish(place, d, values, scale_at(d), factor);
        }
    }
}
