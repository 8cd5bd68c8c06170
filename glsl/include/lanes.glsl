// LANES neighbouring elements of a tensor at once: an invocation's loads and stores, for the data type macros T, U and R.
//
// LANES is a macro of the kernel's variant: 1, or enough for 4 bytes of every type. A tensor of type D (T, U or R) is reached
// through
//   LANES_BUFFER(access, D, NAME, name)                    its declarations; `access` is readonly, or empty where written
//   LOAD_LANES(D, values, NAME, name, mode, index, step)   values[i] = element index + i * step, as D_MATH
//   STORE_LANES(D, NAME, name, mode, index, step, values)  element index + i * step = values[i]
//   ELEMENT(D, NAME, name, index)                          one element
// `mode` says how the lanes lie, best by a specialisation constant:
//   MODE_ELEMENTS   any step: one access a lane; the only one where LANES is 1
//   MODE_GROUPS     step 1 and an index that is a multiple of LANES: accesses of 4, 8 or 16 bytes (D_GROUP)
//   MODE_BROADCAST  step 0: one element serves all lanes
// `index` counts elements from the tensor's first. U_IS_T is whether the two types are one.

#ifndef DMLVK_LANES_GLSL
#define DMLVK_LANES_GLSL

#ifdef U
#define U_IS_T (U_BYTES == T_BYTES && U_IS_FLOAT == T_IS_FLOAT && U_IS_SIGNED == T_IS_SIGNED)
#endif

#define ELEMENT(D, NAME, name, index) name##_elements[BYTE_OFFSET_##NAME / D##_BYTES + (index)]

#if LANES == 1
#define LANES_BUFFER(access, D, NAME, name) \
    layout(set = 0, binding = BINDING_##NAME, std430) access buffer NAME##Elements { D name##_elements[]; };
#define LOAD_LANES(D, values, NAME, name, mode, index, step) \
    values[0] = D##_MATH(name##_elements[BYTE_OFFSET_##NAME / D##_BYTES + (index)]);
#define STORE_LANES(D, NAME, name, mode, index, step, values) \
    name##_elements[BYTE_OFFSET_##NAME / D##_BYTES + (index)] = D(values[0]);
#else

#define OF_TYPE(name) name##T
#define TYPE_MATH T_MATH
#define TYPE_BYTES T_BYTES
#define TYPE_IS_FLOAT T_IS_FLOAT
#include "lanes_of_type.glsl"
#ifdef U
#define OF_TYPE(name) name##U
#define TYPE_MATH U_MATH
#define TYPE_BYTES U_BYTES
#define TYPE_IS_FLOAT U_IS_FLOAT
#include "lanes_of_type.glsl"
#endif
#ifdef R
#define OF_TYPE(name) name##R
#define TYPE_MATH R_MATH
#define TYPE_BYTES R_BYTES
#define TYPE_IS_FLOAT R_IS_FLOAT
#include "lanes_of_type.glsl"
#endif

#define LANES_BUFFER(access, D, NAME, name)                                                                   \
    layout(set = 0, binding = BINDING_##NAME, std430) access buffer NAME##Elements { D name##_elements[]; };  \
    layout(set = 0, binding = BINDING_##NAME, std430) access buffer NAME##Groups { D##_GROUP name##_groups[]; };

// (D is a macro, too, so it must not pass through a second macro on its way to ##.)
#define LOAD_LANES(D, values, NAME, name, mode, index, step)                                                  \
    {                                                                                                         \
        const uint at_ = BYTE_OFFSET_##NAME / D##_BYTES + (index);                                            \
        if ((mode) == MODE_GROUPS) {                                                                          \
            uint words_[LANES * D##_BYTES / 4];                                                               \
            [[unroll]] for (int g_ = 0; g_ < groups_##D; ++g_)                                                \
                put_group_##D(words_, g_, name##_groups[at_ / (LANES / groups_##D) + g_]);                    \
            unpack_##D(words_, values);                                                                       \
        } else if ((mode) == MODE_BROADCAST) {                                                                \
            const D##_MATH only_ = D##_MATH(name##_elements[at_]);                                            \
            [[unroll]] for (int i_ = 0; i_ < LANES; ++i_) values[i_] = only_;                                 \
        } else {                                                                                              \
            [[unroll]] for (int i_ = 0; i_ < LANES; ++i_)                                                     \
                values[i_] = D##_MATH(name##_elements[at_ + i_ * (step)]);                                    \
        }                                                                                                     \
    }

#define STORE_LANES(D, NAME, name, mode, index, step, values)                                                 \
    {                                                                                                         \
        const uint at_ = BYTE_OFFSET_##NAME / D##_BYTES + (index);                                            \
        if ((mode) == MODE_GROUPS) {                                                                          \
            const uint words_[LANES * D##_BYTES / 4] = pack_##D(values);                                      \
            [[unroll]] for (int g_ = 0; g_ < groups_##D; ++g_)                                                \
                name##_groups[at_ / (LANES / groups_##D) + g_] = get_group_##D(words_, g_);                   \
        } else {                                                                                              \
            [[unroll]] for (int i_ = 0; i_ < LANES; ++i_) name##_elements[at_ + i_ * (step)] = D(values[i_]); \
        }                                                                                                     \
    }
#endif

#endif
