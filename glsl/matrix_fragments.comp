// Asks a device whether the elements of matrices lie in invocations as include/matrix_fragments.glsl has them. No operator.
//
//   y[i] = whether all elements of both factors that invocation i has are those that it should have
//
// Bindings: Y, a word for each invocation.
// Constants: LOCAL_SIZE_X (32), one subgroup.

#pragma use_vulkan_memory_model

#include "tensor.glsl"
#include "matrix_fragments.glsl"

layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { uint y[]; };

shared float16_t numbers[16 * 16];

void main() {
    // Each number tells its place: all are whole numbers that FLOAT16 has.
    for (uint i = gl_LocalInvocationIndex; i < 16 * 16; i += LOCAL_SIZE_X) numbers[i] = float16_t(i);
    barrier();
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> rows;
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> columns;
    coopMatLoad(rows, numbers, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(columns, numbers, 0, 16, gl_CooperativeMatrixLayoutColumnMajor);
    bool right = gl_SubgroupSize == 32 && rows.length() == FRAGMENT_ELEMENTS && columns.length() == FRAGMENT_ELEMENTS;
    if (right)
        for (uint line = 0; line < 2; ++line)
            for (uint pair = 0; pair < 2; ++pair)
                for (uint one = 0; one < 2; ++one) {
                    const uint e = fragment_element(line, pair, one);
                    const uint along = gl_SubgroupInvocationID / 4 + 8 * line;
                    const uint depth = 2 * (gl_SubgroupInvocationID % 4) + 8 * pair + one;
                    const float16_t expected = float16_t(16 * along + depth);
                    right = right && rows[e] == expected && columns[e] == expected;
                }
    y[BYTE_OFFSET_Y / 4 + gl_LocalInvocationIndex] = uint(right);
}
