// The rows of coordinates of the elements that masks name, in the order of the elements.
//
// A workgroup gathers the elements' indices in shared memory, so that then neighbouring invocations write neighbouring
// words, whatever the masks are: each invocation makes one coordinate, always of the same dimension, of every row that it
// comes to.
//
// Constants: LOCAL_SIZE_X; CAPACITY, elements gathered at a time.
// Parameters: columns, coordinates of a row; for each of those dimensions its column_size, what divides by it
// (column_divisors), and what divides an element's index by the elements of a step along it (step_divisors); row_step and
// column_step of the coordinates.
// Bindings: COUNT and COORDINATES.

#ifndef DMLVK_NONZERO_ROWS_GLSL
#define DMLVK_NONZERO_ROWS_GLSL

#include "prefix.glsl"
#include "tensor.glsl"

layout(set = 0, binding = BINDING_COUNT, std430) writeonly buffer Count { uint nonzero_count[]; };
layout(set = 0, binding = BINDING_COORDINATES, std430) writeonly buffer Coordinates { uint coordinates[]; };

shared uint gathered[CAPACITY];

// Writes the rows of `mask` of each invocation, whose first element is `first`, from `row` on, and returns how many rows
// that were. Every invocation of the workgroup must call; `slot` alternates between 0 and 1.
uint write_rows(uint mask, uint first, uint row, uint slot) {
    uint total;
    const uint begin = prefix_sum(bitCount(mask), slot, total);
    const uint end = begin + bitCount(mask);

    const uint column = workgroup_invocation() % p.columns;
    const uint rows_at_once = LOCAL_SIZE_X / p.columns;
    const uint own_row = workgroup_invocation() / p.columns;
    const uint size = p.column_sizes[column];
    const uvec2 size_divisor = uvec2(p.column_divisors[2u * column], p.column_divisors[2u * column + 1u]);
    const uvec2 step_divisor = uvec2(p.step_divisors[2u * column], p.step_divisors[2u * column + 1u]);
    const uint target = BYTE_OFFSET_COORDINATES / 4 + row * p.row_step + column * p.column_step;

    for (uint from = 0u; from < total; from += CAPACITY) {
        const uint count = min(total - from, CAPACITY);
        if (begin < from + count && end > from) {
            uint rest = mask, place = begin;
            while (rest != 0u) {
                if (place >= from && place < from + count) gathered[place - from] = first + uint(findLSB(rest));
                rest &= rest - 1u;
                ++place;
            }
        }
        barrier();
        if (own_row < rows_at_once) {
            for (uint i = own_row; i < count; i += rows_at_once) {
                const uint steps = quotient(gathered[i], step_divisor);
                coordinates[target + (from + i) * p.row_step] = steps - quotient(steps, size_divisor) * size;
            }
        }
        barrier();
    }
    return total;
}

void write_count(uint rows) {
    if (workgroup_invocation() == 0u) nonzero_count[BYTE_OFFSET_COUNT / 4] = rows;
}

#endif
