// Reduces rows that lie side by side in memory: neighbouring elements belong to different rows.
//
//   y[kept] = finish(the accumulator of x[kept, ...])        include/accumulator.glsl has the functions
//
// Bindings: x read; output, partials written (include/reduction.glsl).
// Variants: T, the data type; LANES, neighbouring rows of an invocation, a column: 1, or those of a 16-byte access.
// Constants: those of reduction.glsl; COLUMNS of a workgroup, neighbours in memory; ROW_RUNS as in
//   reduce_rows.comp.
// Parameters: columns; elements of a row; chunks of a row, and the units of one; of the kept dimensions sizes, divisors,
//   strides of x and output, the innermost size and strides for a column; inner_size, the innermost size in rows;
//   output_step, from a row to the next one in it; of the row's dimensions sizes, divisors, strides of x.
//
// A unit is TOGETHER elements, one after the other, of each row of a column. A workgroup has COLUMNS columns and
// LOCAL_SIZE_X / COLUMNS invocations a column, columns fastest, so that neighbours read neighbours; the invocations of a column
// take its units in turns and merge what they have as a tree.
//
// Rules: "columns", and "columns_split" with SPLIT 1 where they are too few to fill the device.

#define TOGETHER (LANES > FEW_LANES ? FEW_TOGETHER : MANY_TOGETHER)
#include "reduction.glsl"

LANES_BUFFER(readonly, T, X, x)

#define MEMBERS (LOCAL_SIZE_X / COLUMNS)

shared uint parts[ACCUMULATOR_WORDS][COLUMN_INVOCATIONS];

uint x_start, output_index, rows_here, first_row;

void find_column(uint column) {
    x_start = 0;
    output_index = 0;
    uint inner = 0;
#define ADD_KEPT(dimension, coordinate)                          \
    x_start += (coordinate) * p.kept_x[dimension];               \
    output_index += (coordinate) * p.kept_output[dimension];     \
    if (uint(dimension) == p.kept_rank - 1u) inner = (coordinate);
    FOR_EACH_COORDINATE_FAST(column, p.kept_rank, p.kept_sizes, p.kept_divisors, ADD_KEPT)
    rows_here = min(p.inner_size - inner * LANES, LANES);
    first_row = (column / p.kept_sizes[p.kept_rank - 1u]) * p.inner_size + inner * LANES;
}

uint element_at(uint element) {
    uint at = x_start;
#define ADD_ROW(dimension, coordinate) at += (coordinate) * p.row_x[dimension];
    if (ROW_RUNS == 0u) {
        ADD_ROW(0, element)
    } else {
        FOR_EACH_COORDINATE_FAST(element, p.row_rank, p.row_sizes, p.row_divisors, ADD_ROW)
    }
    return at;
}

void load_unit(uint unit, out T_MATH values[TOGETHER][LANES]) {
    const uint first = unit * TOGETHER;
    if (rows_here == LANES && first + TOGETHER <= p.row_elements) { // all loads in flight, without a branch between them
        [[unroll]] for (uint e = 0; e < TOGETHER; ++e) {
            const uint at = element_at(first + e);
            LOAD_LANES(T, values[e], X, x, MODE_GROUPS, at, 1)
        }
        return;
    }
    [[unroll]] for (uint e = 0; e < TOGETHER; ++e) {
        const uint at = element_at(min(first + e, p.row_elements - 1u));
        [[unroll]] for (uint i = 0; i < LANES; ++i) values[e][i] = T_MATH(ELEMENT(T, X, x, at + min(i, rows_here - 1u)));
        if (first + e >= p.row_elements) {
            [[unroll]] for (int i = 0; i < LANES; ++i) values[e][i] = neutral();
        }
    }
}

// The element of the unit that won in a row of the column.
uint winner(Accumulator best, uint lane) {
    const uint unit = place_of(best.second);
    uint found = NOWHERE;
    for (uint e = 0; e < TOGETHER; ++e) {
        const uint element = unit * TOGETHER + e;
        if (element >= p.row_elements) break;
        const T_MATH value = T_MATH(ELEMENT(T, X, x, element_at(element) + lane));
        if (order_bits(order_of(value)) == best.first && (found == NOWHERE || p.decreasing != 0u)) found = element;
    }
    return found;
}

void main() {
    const uint in_column = gl_LocalInvocationIndex / COLUMNS;
    const uint blocks = (p.columns - 1u) / COLUMNS + 1u;
    const uint workgroup = linear_workgroup();
    if (workgroup >= blocks * p.chunks) return;
    const uint chunk = workgroup / blocks;
    const uint column = (workgroup - chunk * blocks) * COLUMNS + gl_LocalInvocationIndex % COLUMNS;
    // Past the last column everything but the writing happens to the last one, so that every invocation reaches the merging.
    find_column(min(column, p.columns - 1u));

    Accumulator all[LANES];
    [[unroll]] for (int i = 0; i < LANES; ++i) all[i] = empty();
    const uint end = min((chunk + 1u) * p.chunk_units, (p.row_elements - 1u) / TOGETHER + 1u);
    for (uint unit = chunk * p.chunk_units + in_column; unit < end; unit += MEMBERS) {
        T_MATH values[TOGETHER][LANES];
        load_unit(unit, values);
        [[unroll]] for (int i = 0; i < LANES; ++i) {
            T_MATH own[TOGETHER];
            [[unroll]] for (int e = 0; e < TOGETHER; ++e) own[e] = values[e][i];
            update(all[i], own, place_of(unit));
        }
    }
    [[unroll]] for (uint i = 0; i < LANES; ++i) {
        uint words[ACCUMULATOR_WORDS] = to_words(all[i]);
        [[unroll]] for (int w = 0; w < ACCUMULATOR_WORDS; ++w) parts[w][gl_LocalInvocationIndex] = words[w];
        for (uint distance = MEMBERS / 2u; distance > 0u; distance /= 2u) {
            barrier();
            if (in_column < distance) {
                [[unroll]] for (int w = 0; w < ACCUMULATOR_WORDS; ++w)
                    words[w] = parts[w][gl_LocalInvocationIndex + distance * COLUMNS];
                all[i] = merged(all[i], from_words(words));
                words = to_words(all[i]);
                [[unroll]] for (int w = 0; w < ACCUMULATOR_WORDS; ++w) parts[w][gl_LocalInvocationIndex] = words[w];
            }
        }
        barrier();
        if (in_column == 0u && column < p.columns && i < rows_here) {
            if (is_argument()) all[i].second = place_of(winner(all[i], i));
            if (SPLIT != 0u) store_partial((first_row + i) * p.chunks + chunk, all[i]);
            else store_result(output_index + i * p.output_step, all[i]);
        }
    }
}
