// The rows of what is chosen, {batch, class, box} in INT64, and how many there are.
//
// Parameters: groups; classes of a batch; room, the boxes for which a group has memory. Bindings: COUNTS and CHOSEN, left by
// suppression_choose.comp, read; COUNT and ROWS written.
// A workgroup has a group; its first row follows those of all groups before it, whose counts it adds up itself.
// Grid: folded into x and y.

#include "prefix.glsl"
#include "tensor.glsl"

layout(set = 0, binding = BINDING_COUNTS, std430) readonly buffer Counts { uint counts[]; };
layout(set = 0, binding = BINDING_CHOSEN, std430) readonly buffer Chosen { uint chosen[]; };
layout(set = 0, binding = BINDING_COUNT, std430) writeonly buffer Count { uint total_count[]; };
layout(set = 0, binding = BINDING_ROWS, std430) writeonly buffer Rows { uint rows[]; };

void main() {
    const uint group = linear_workgroup();
    if (group >= p.groups) return;
    uint before = 0u, first;
    for (uint i = workgroup_invocation(); i < group; i += LOCAL_SIZE_X) before += counts[BYTE_OFFSET_COUNTS / 4 + i];
    prefix_sum(before, 0u, first);
    const uint count = counts[BYTE_OFFSET_COUNTS / 4 + group];
    if (group == p.groups - 1u && workgroup_invocation() == 0u) total_count[BYTE_OFFSET_COUNT / 4] = first + count;
    const uint batch = group / p.classes;
    for (uint word = workgroup_invocation(); word < 6u * count; word += LOCAL_SIZE_X) {
        const uint row = word / 6u, column = word % 6u;
        uint value = 0u; // of the upper halves
        if (column == 0u) value = batch;
        if (column == 2u) value = group - batch * p.classes;
        if (column == 4u) value = chosen[BYTE_OFFSET_CHOSEN / 4 + group * p.room + row];
        rows[BYTE_OFFSET_ROWS / 4 + 6u * first + word] = value;
    }
}
