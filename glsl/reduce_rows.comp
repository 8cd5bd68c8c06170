// Reduces rows: TEAM neighbouring invocations share a row, or a chunk of one.
//
//   y[kept] = finish(the accumulator of x[kept, ...])        include/accumulator.glsl has the functions
//
// Bindings: x read; output, partials written (include/reduction.glsl).
// Variants: T, the data type; LANES, elements of an access: 1, or those of 16 bytes.
// Constants: those of reduction.glsl and team.glsl; UNITS, accesses that an invocation has in flight; ROW_RUNS, 1 where a row
//   has more than one dimension.
// Parameters: rows; elements of a row, and its units; chunks of a row, and the units of one; of the kept dimensions sizes, divisors, strides of x and output; of the row's the same, the
//   innermost size in units and its stride of x for a unit.
//
// A unit is LANES neighbours of a row, at a multiple of LANES in memory, so that it is one access. A row of one dimension may
// start anywhere: its first unit then begins before it. The first and the last unit, where they are not whole, are read
// element by element; of the others several are in flight, without a branch between them.
// A workgroup has LOCAL_SIZE_X / TEAM rows (or chunks); invocation i of a team takes units i, i + TEAM, i + 2 TEAM...
//
// Rules: "subgroup" and "workgroup" by the size of TEAM, "split" with SPLIT 1 where rows are too few to fill the device.

#define TOGETHER LANES
#include "reduction.glsl"
#include "team.glsl"

LANES_BUFFER(readonly, T, X, x)

uint x_start, output_index, shift;

void find_row(uint row) {
    x_start = 0;
    output_index = 0;
#define ADD_KEPT(dimension, coordinate)                          \
    x_start += (coordinate) * p.kept_x[dimension];               \
    output_index += (coordinate) * p.kept_output[dimension];
    FOR_EACH_COORDINATE_FAST(row, p.kept_rank, p.kept_sizes, p.kept_divisors, ADD_KEPT)
    shift = ROW_RUNS == 0u ? x_start % LANES : 0u;
}

// A unit that is whole.
void load_unit(uint unit, out T_MATH values[LANES]) {
    if (ROW_RUNS != 0u) {
        uint at = x_start;
#define ADD_ROW(dimension, coordinate) at += (coordinate) * p.row_x[dimension];
        FOR_EACH_COORDINATE_FAST(unit, p.row_rank, p.row_sizes, p.row_divisors, ADD_ROW)
        LOAD_LANES(T, values, X, x, MODE_GROUPS, at, 1)
    } else {
        LOAD_LANES(T, values, X, x, MODE_GROUPS, x_start + unit * p.row_x[0] - shift, 1)
    }
}

// Any unit of a row of one dimension.
void load_part(uint unit, out T_MATH values[LANES]) {
    const uint first = unit * LANES - shift; // of the first unit it may wrap around
    [[unroll]] for (uint i = 0; i < LANES; ++i)
        values[i] = T_MATH(ELEMENT(T, X, x, x_start + min(first + i, p.row_elements - 1u)));
    [[unroll]] for (uint i = 0; i < LANES; ++i)
        if (first + i >= p.row_elements) values[i] = neutral();
}

// The element of the unit that won.
uint winner(Accumulator best) {
    const uint unit = place_of(best.second);
    if (LANES == 1 || best.second == NOWHERE) return unit;
    T_MATH values[LANES];
    if (ROW_RUNS != 0u) load_unit(unit, values);
    else load_part(unit, values);
    const uint first = unit * LANES - shift;
    uint found = NOWHERE;
    [[unroll]] for (uint i = 0; i < LANES; ++i) {
        const bool equal = first + i < p.row_elements && order_bits(order_of(values[i])) == best.first;
        if (equal && (found == NOWHERE || p.decreasing != 0u)) found = first + i;
    }
    return found;
}

void main() {
    const uint invocation = workgroup_invocation();
    const uint member = invocation % TEAM;
    const uint task = linear_workgroup() * (LOCAL_SIZE_X / TEAM) + invocation / TEAM;
    // Past the last row everything but the writing happens to the last one, so that every invocation reaches the merging.
    const uint tasks = p.rows * p.chunks;
    const uint own = min(task, tasks - 1u);
    const uint row = own / p.chunks;
    const uint chunk = own - row * p.chunks;
    find_row(row);

    Accumulator all = empty();
    const uint begin = chunk * p.chunk_units;
    // A row that starts later than others in its first unit may have one unit more than they: p.row_units is the most.
    const uint own_units = ROW_RUNS == 0u ? (p.row_elements + shift - 1u) / LANES + 1u : p.row_units;
    const uint end = min(begin + p.chunk_units, own_units);
    const uint whole_begin = max(begin, min(shift, 1u));
    const uint whole_end = ROW_RUNS == 0u ? min(end, (p.row_elements + shift) / LANES) : end;
    uint unit = whole_begin + member;
    for (; unit + (UNITS - 1u) * TEAM < whole_end; unit += UNITS * TEAM) {
        T_MATH values[UNITS][LANES];
        [[unroll]] for (uint i = 0; i < UNITS; ++i) load_unit(unit + i * TEAM, values[i]);
        [[unroll]] for (uint i = 0; i < UNITS; ++i) update(all, values[i], place_of(unit + i * TEAM));
    }
    T_MATH values[LANES];
    for (; unit < whole_end; unit += TEAM) {
        load_unit(unit, values);
        update(all, values, place_of(unit));
    }
    const bool has_head = begin < whole_begin && member == 0u, has_tail = whole_end < end && member == TEAM - 1u;
    if (has_head || has_tail) {
        const uint edge = has_head ? begin : whole_end;
        load_part(edge, values);
        update(all, values, place_of(edge));
    }
    if (TEAM == 1u && has_head && has_tail) {
        load_part(whole_end, values);
        update(all, values, place_of(whole_end));
    }
    all = over_team(all);

    if (member != 0u || task >= tasks) return;
    if (is_argument()) all.second = place_of(winner(all));
    if (SPLIT != 0u) store_partial(task, all);
    else store_result(output_index, all);
}
