// Running sums and products of rows that lie apart in memory: LANES neighbouring invocations walk a row together.
//
//   y[i] = x[0] + ... + x[i]      exclusive: y[i] = x[0] + ... + x[i - 1]; PRODUCT: products; reverse: from the end
//
// Formulas, bindings and phases: include/scan.glsl. Constants of its own: LANES, a power of two that divides LOCAL_SIZE_X;
// UNITS, how many units a lane holds of a tile of LANES * UNITS.
// The row's invocations of one subgroup hold a run of the tile; unit u of them all lies side by side, so that they read and
// write whole cache lines. Three levels: inside a unit, over the subgroup by shuffles for each u, over the row's subgroups
// through shared memory. Then the tile's total joins what is carried to the next tile.
// Grid: folded into x and y; a workgroup has LOCAL_SIZE_X / LANES rows of one chunk, chunks fastest.
// Chosen unless neighbours in memory are different rows. One read and one write of each byte; chunks read twice.

#include "scan.glsl"
#include "subgroups.glsl"

shared Part subgroup_parts[2][MOST_SUBGROUPS];

Part held[UNITS][UNIT_ELEMENTS]; // each with all before it in its unit
Part offsets[UNITS];             // all before the unit in the tile; on the way there, up to its end in the subgroup

// Scans the tile from `first` on and appends its total to `running`; `slot` alternates.
void scan_tile(uint first, uint end, uint lane, uint slot, bool stores, inout Running running) {
    const uint width = min(LANES, gl_SubgroupSize);
    const uint place = lane % width;
    const uint neighbours = gl_SubgroupInvocationID - place; // the first of the subgroup's invocations with this row
    const uint own = first + lane / width * width * UNITS + place;

    UNIT units[UNITS];
    [[unroll]] for (uint u = 0; u < UNITS; ++u)
        if (own + u * width < end) units[u] = load_unit(own + u * width);

    [[unroll]] for (uint u = 0; u < UNITS; ++u) {
        T_MATH values[UNIT_ELEMENTS];
        Part part = identity();
        if (own + u * width < end) {
            unpack_unit(units[u], values);
            [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j) {
                part = j == 0 ? part_of(values[j]) : join(part, part_of(values[j]));
                held[u][j] = part;
            }
        }
        offsets[u] = normalized(part);
    }
    for (uint distance = 1; distance < width; distance *= 2) {
        [[unroll]] for (uint u = 0; u < UNITS; ++u) {
            const Part before = shuffle(offsets[u], neighbours + (place >= distance ? place - distance : place));
            if (place >= distance) offsets[u] = combine(before, offsets[u]);
        }
    }
    Part total = identity();
    [[unroll]] for (uint u = 0; u < UNITS; ++u) {
        const Part before = shuffle(offsets[u], neighbours + (place > 0 ? place - 1 : 0));
        const Part last = shuffle(offsets[u], neighbours + width - 1);
        offsets[u] = place > 0 ? combine(total, before) : total;
        total = combine(total, last);
    }
    if (LANES > width) {
        const uint index = workgroup_invocation() / width;
        if (place == 0) subgroup_parts[slot][index] = total;
        barrier();
        const uint before_own = lane / width;
        Part before = identity();
        total = identity();
        for (uint i = 0; i < LANES / width; ++i) {
            if (i == before_own) before = total;
            total = combine(total, subgroup_parts[slot][index - before_own + i]);
        }
        [[unroll]] for (uint u = 0; u < UNITS; ++u) offsets[u] = combine(before, offsets[u]);
    }
    if (PHASE != PHASE_TOTALS && stores) {
        [[unroll]] for (uint u = 0; u < UNITS; ++u) {
            if (own + u * width < end) {
                T_MATH values[UNIT_ELEMENTS];
                [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j) {
                    Part prefix = join(offsets[u], held[u][j]);
                    if (p.exclusive != 0u) prefix = j == 0 ? offsets[u] : join(offsets[u], held[u][max(j - 1, 0)]);
                    values[j] = finished(running, prefix);
                }
                store_unit(own + u * width, values);
            }
        }
    }
    append(running, total);
}

void main() {
    const uint invocation = workgroup_invocation();
    const uint lane = invocation % LANES;
    const uint workgroup = linear_workgroup();
    const uint chunk = PHASE == PHASE_WHOLE ? 0 : workgroup % p.chunks;
    const uint group = PHASE == PHASE_WHOLE ? workgroup : workgroup / p.chunks;
    const uint wanted = group * (LOCAL_SIZE_X / LANES) + invocation / LANES;
    // Past the last row everything but the writing happens to the last one, so that every invocation reaches the barriers.
    const uint row = min(wanted, p.rows - 1);
    find_row(row);
    Running running = before_chunk(row, chunk);
    const uint first = chunk * p.chunk_units;
    const uint end = min(first + p.chunk_units, p.units);
    uint slot = 0;
    for (uint at = first; at < end; at += LANES * UNITS) {
        scan_tile(at, end, lane, slot, wanted < p.rows, running);
        slot ^= 1;
    }
    if (PHASE == PHASE_TOTALS && lane == 0 && wanted < p.rows) leave_total(row, chunk, running);
}
