// Asks a device whether the elements of matrices lie in invocations as include/matrix_fragments.glsl has them. No operator.
//
//   y[i] = whether all elements of both factors and of sums that invocation i has are those that it should have
//
// Bindings: Y, a word for each invocation.
// Constants: LOCAL_SIZE_X (32), one subgroup.

#pragma use_vulkan_memory_model

#include "tensor.glsl"
#include "matrix_fragments.glsl"

layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { uint y[]; };

shared float16_t numbers[16 * 16];
shared float wide_numbers[16 * 16];

void main() {
    // Each number tells its place: all are whole numbers that FLOAT16 has.
    for (uint i = gl_LocalInvocationIndex; i < 16 * 16; i += LOCAL_SIZE_X) {
        numbers[i] = float16_t(i);
        wide_numbers[i] = float(i);
    }
    barrier();
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> rows;
    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> columns;
    coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> sums;
    coopMatLoad(rows, numbers, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
    coopMatLoad(columns, numbers, 0, 16, gl_CooperativeMatrixLayoutColumnMajor);
    coopMatLoad(sums, wide_numbers, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
    bool right = gl_SubgroupSize == 32 && rows.length() == FRAGMENT_ELEMENTS && columns.length() == FRAGMENT_ELEMENTS &&
                 sums.length() == FRAGMENT_ELEMENTS;
    if (right)
        for (uint e = 0; e < FRAGMENT_ELEMENTS; ++e) {
            const uvec2 place = fragment_place(gl_SubgroupInvocationID, e);
            const uint expected = 16 * place.x + place.y;
            right = right && rows[e] == float16_t(expected) && columns[e] == float16_t(expected) && sums[e] == float(expected);
        }
    y[BYTE_OFFSET_Y / 4 + gl_LocalInvocationIndex] = uint(right);
}
