// The only index arithmetic: linear workgroup and element indices, and coordinates of strided tensors.
//
// Byte offsets inside a binding fit 32 bits, because a storage binding is at most 4 GiB - 1 bytes.

#ifndef DMLVK_TENSOR_GLSL
#define DMLVK_TENSOR_GLSL

// The grid is folded into x and y where it is larger than the device's limit in x; z is free for the kernel's use.
uint linear_workgroup() { return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
uint linear_invocation() { return linear_workgroup() * gl_WorkGroupSize.x + gl_LocalInvocationID.x; }

// Whether this invocation has none of `count` items (at most 2^32 - 1): the grid is larger than the work. Beyond the last
// workgroup linear_invocation() may wrap around, so that is asked first.
bool beyond(uint count) {
    return linear_workgroup() > (count - 1u) / gl_WorkGroupSize.x || linear_invocation() >= count;
}

// Walks the coordinates of a linear index, last dimension first: VISIT(dimension, coordinate) once a dimension.
// `rank` is best a specialisation constant, so that the loop unrolls; `sizes` is an array of the parameter block.
#define FOR_EACH_COORDINATE(linear, rank, sizes, VISIT)                        \
    {                                                                          \
        uint rest_ = (linear);                                                 \
        for (int dim_ = int(rank) - 1; dim_ > 0; --dim_) {                     \
            const uint next_ = rest_ / (sizes)[dim_];                          \
            const uint coordinate_ = rest_ - next_ * (sizes)[dim_];            \
            rest_ = next_;                                                     \
            VISIT(dim_, coordinate_)                                           \
        }                                                                      \
        VISIT(0, rest_)                                                        \
    }

// Divisions as multiplications: `divisors` is an array of the parameter block that holds, for each dimension, what
// `kernels/common/shapes.py` makes of its size. The quotient is exact for every 32-bit index.
uint quotient(uint dividend, uvec2 divisor) {
    uint high, low;
    umulExtended(dividend, divisor.x, high, low);
    return (high + ((dividend - high) >> (divisor.y & 1u))) >> (divisor.y >> 1);
}

#define FOR_EACH_COORDINATE_FAST(linear, rank, sizes, divisors, VISIT)                                        \
    {                                                                                                         \
        uint rest_ = (linear);                                                                                \
        [[unroll]] for (int dim_ = int(rank) - 1; dim_ > 0; --dim_) {                                         \
            const uint next_ = quotient(rest_, uvec2((divisors)[2 * dim_], (divisors)[2 * dim_ + 1]));        \
            const uint coordinate_ = rest_ - next_ * (sizes)[dim_];                                           \
            rest_ = next_;                                                                                    \
            VISIT(dim_, coordinate_)                                                                          \
        }                                                                                                     \
        VISIT(0, rest_)                                                                                       \
    }

#endif
