// What the kernels of normalizer.glsl share: where rows lie, who has which elements, and merging what is known of a row.
//
// A row is one index into the kept dimensions and all of the reduced ones, the last of which is fastest. Elements move in
// units, of which a row has p.row_units:
//   UNIT 0  one element, anywhere
//   UNIT 1  a 16-byte word of consecutive elements of a row
//   UNIT 2  a 16-byte word of elements of as many rows, which lie side by side: a group of ROWS rows
//   UNIT 3  a 16-byte word of memory in which consecutive elements of a row lie, which starts anywhere: the first and the last
//           one may hold others' elements, which take no part. The rows of X and Y start at the same place of a word.
// Steps, and the last size of the kept (UNIT 2) or the reduced dimensions (UNIT 1), are in units; those of the kept ones with
// UNIT 3 in elements, and p.row_elements is how many a row has. p.groups counts groups.
//
// LANES invocations share a group of rows, COLUMNS groups are neighbours: a workgroup's invocations are numbered with the
// column fastest, then the lane. COLUMNS is 1 where rows are contiguous and neighbours read along them; it is more where rows
// lie side by side and neighbours read across them. Lane i has units i, i + LANES, i + 2 LANES... of a tile, UNITS of each lane.
//
// Constants: LOCAL_SIZE_X, LANES, COLUMNS, UNITS (all powers of two), ROW_RUNS (1 where a row has more than one dimension),
// MERGED (entries of shared memory: those of all rows for each subgroup, or for each run of COLUMNS where that is longer),
// PACKED (1 where a tile is held as it lies in memory, which takes half of the registers for float16 with UNIT 1 and 3 and
// measures each element a second time), SHELF (the first units of each lane that are held in shared memory instead of registers, with
// UNIT 3 and PACKED, where a tile is a whole row), and those of normalizer.glsl. UNITS may be any number where a tile is a whole row.
// Bindings: X read, Y written; both may be the same bytes.

#ifndef DMLVK_ROW_TILES_GLSL
#define DMLVK_ROW_TILES_GLSL

#include "dtype.glsl"
#include "normalizer.glsl"
#include "subgroups.glsl"
#include "tensor.glsl"

#if UNIT == 0
#define UNIT_ELEMENTS 1
#define UNIT_BYTES T_BYTES
layout(set = 0, binding = BINDING_X, std430) readonly buffer X { T x_units[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { T y_units[]; };
#else
#define UNIT_ELEMENTS T_PER_WORD
#define UNIT_BYTES WORD_BYTES
layout(set = 0, binding = BINDING_X, std430) readonly buffer X { uvec4 x_units[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Y { uvec4 y_units[]; };
#endif

#if UNIT == 2
#define ROWS T_PER_WORD
#else
#define ROWS 1
#endif
// The row of its group, and the place in its row, that an element of a unit has.
#define ROW_OF(element) (ROWS == 1 ? 0 : (element))
#if UNIT == 3
uint shift; // elements of the first word before the row
#define PLACE_OF(unit, element) ((unit) * UNIT_ELEMENTS + (element) - shift)
#define IS_OWN(unit, element) (PLACE_OF(unit, element) < p.row_elements)
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YElements { T y_elements[]; };
#else
#define PLACE_OF(unit, element) (ROWS == 1 ? (unit) * UNIT_ELEMENTS + (element) : (unit))
#define IS_OWN(unit, element) true
#endif

#define TILE (LANES * UNITS)
#define TEAM (LANES * COLUMNS) // neighbouring invocations that merge with each other
#define GROUPS_OF_WORKGROUP (LOCAL_SIZE_X / LANES)

uint column() { return workgroup_invocation() % COLUMNS; }
uint lane() { return workgroup_invocation() / COLUMNS % LANES; }

// The invocation's group, of those that its workgroup has from this one on.
uint group_from(uint first) { return first + workgroup_invocation() / TEAM * COLUMNS + column(); }

uint x_start;
uint y_start;

void find_group(uint group) {
#if UNIT == 3
    x_start = 0;
    y_start = 0;
#else
    x_start = BYTE_OFFSET_X / UNIT_BYTES;
    y_start = BYTE_OFFSET_Y / UNIT_BYTES;
#endif
#define ADD_KEPT(dimension, coordinate)                 \
    x_start += (coordinate) * p.kept_x[dimension];      \
    y_start += (coordinate) * p.kept_y[dimension];
    FOR_EACH_COORDINATE_FAST(group, p.kept_rank, p.kept_sizes, p.kept_divisors, ADD_KEPT)
#if UNIT == 3
    shift = x_start % UNIT_ELEMENTS;
    x_start = BYTE_OFFSET_X / UNIT_BYTES + x_start / UNIT_ELEMENTS;
    y_start = BYTE_OFFSET_Y / UNIT_BYTES + y_start / UNIT_ELEMENTS;
#endif
}

// Where a unit of the row lies, from its start: in x and y.
uvec2 unit_at(uint unit) {
    uvec2 at = uvec2(0);
#define ADD_ROW(dimension, coordinate) at += (coordinate) * uvec2(p.row_x[dimension], p.row_y[dimension]);
    if (ROW_RUNS == 0) {
        ADD_ROW(0, unit)
    } else {
        FOR_EACH_COORDINATE_FAST(unit, p.row_rank, p.row_sizes, p.row_divisors, ADD_ROW)
    }
    return at;
}

// The last unit in which the row has an element.
uint last_unit() {
#if UNIT == 3
    return (shift + p.row_elements - 1u) / UNIT_ELEMENTS;
#else
    return p.row_units - 1u;
#endif
}

// A tile: UNITS units of each lane, in `held` or, with PACKED, in `words`, but for the first SHELF of them, in `shelf`; taken(i) is then where
// in `held` the elements of one are.
#if defined(T_IS_FLOAT16) && (UNIT == 1 || UNIT == 3)
#define MAY_BE_PACKED
#define IS_PACKED (PACKED != 0)
#else
#define IS_PACKED false
#endif
float held[IS_PACKED ? 1 : UNITS][UNIT_ELEMENTS];
#ifdef MAY_BE_PACKED
uvec4 words[IS_PACKED ? UNITS : 1];
#endif
#if defined(MAY_BE_PACKED) && UNIT == 3
#define HAS_SHELF
#define ON_SHELF SHELF
shared uvec4 shelf[SHELF > 0 ? SHELF * LOCAL_SIZE_X : 1];
#define SHELF_AT(i) shelf[(i) * LOCAL_SIZE_X + workgroup_invocation()]
#else
#define ON_SHELF 0u
#endif

uint taken(uint i, const bool is_shelved) {
#ifdef HAS_SHELF
    if (is_shelved) {
        unpack_word(SHELF_AT(i), held[0]);
        return 0;
    }
#endif
#ifdef MAY_BE_PACKED
    if (IS_PACKED) {
        unpack_word(words[i], held[0]);
        return 0;
    }
#endif
    return i;
}

// DO(i, whether it is on the shelf) for all units of a tile. What is in registers must be unrolled; the others would only take more of them.
#define FOR_EACH_UNIT(DO)                                                     \
    [[dont_unroll]] for (uint i_ = 0; i_ < ON_SHELF; ++i_) { DO(i_, true) }   \
    [[unroll]] for (uint i_ = ON_SHELF; i_ < UNITS; ++i_) { DO(i_, false) }

uint held_unit(uint first, uint i) { return first + i * LANES + lane(); }

// Makes what is held in place `at` nothing where it is no element of the row: past its end or, with UNIT 3, before its start.
void clear_others(uint unit, uint at) {
#if UNIT == 3
    if (unit > 0 && unit < last_unit()) return;
    [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j)
        if (!IS_OWN(unit, j)) held[at][j] = nothing();
#else
    if (unit < p.row_units) return;
    [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j) held[at][j] = nothing();
#endif
}

#ifdef MAY_BE_PACKED
// The word of a unit with nothing in the place of others' elements.
uvec4 own_elements(uint unit, uvec4 word) {
    if (unit > 0 && unit < last_unit()) return word;
    unpack_word(word, held[0]);
    clear_others(unit, 0);
    return pack_word(held[0]);
}
#endif

// Words past the row's end are its last one again: without a branch all loads are under way before the first is waited for. Not
// so single elements, and words of float32 side by side, of which there may be so many that they spill.
void load_tile(uint first) {
    const uint last = last_unit();
#if UNIT == 0 || (UNIT == 2 && !defined(T_IS_FLOAT16))
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        const uint unit = held_unit(first, i);
        [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j) held[i][j] = nothing();
        if (unit <= last) {
            const uint at = x_start + unit_at(unit).x;
#if UNIT == 0
            held[i][0] = float(x_units[at]);
#else
            unpack_word(x_units[at], held[i]);
#endif
        }
    }
    return;
#elif defined(T_IS_FLOAT16)
#ifdef HAS_SHELF
    uvec4 first_words[SHELF > 0 ? SHELF : 1];
    [[unroll]] for (uint i = 0; i < SHELF; ++i) first_words[i] = x_units[x_start + unit_at(min(held_unit(first, i), last)).x];
    [[unroll]] for (uint i = 0; i < SHELF; ++i) SHELF_AT(i) = own_elements(held_unit(first, i), first_words[i]);
    if (SHELF > 0) barrier(); // else all loads would be under way at once, with a register for each
#endif
    uvec4 loaded[IS_PACKED ? 1 : UNITS];
    [[unroll]] for (uint i = ON_SHELF; i < UNITS; ++i) {
        const uvec4 word = x_units[x_start + unit_at(min(held_unit(first, i), last)).x];
#ifdef MAY_BE_PACKED
        if (IS_PACKED) words[i] = word;
#endif
        if (!IS_PACKED) loaded[i] = word;
    }
    [[unroll]] for (uint i = 0; i < UNITS; ++i)
        if (!IS_PACKED) unpack_word(loaded[i], held[i]);
#else
    // A word needs no unpacking, and words beside their elements would take registers that spill.
    [[unroll]] for (uint i = 0; i < UNITS; ++i)
        unpack_word(x_units[x_start + unit_at(min(held_unit(first, i), last)).x], held[i]);
#endif
    [[unroll]] for (uint i = ON_SHELF; i < UNITS; ++i) {
        const uint unit = held_unit(first, i);
        if (!IS_PACKED) clear_others(unit, i);
#ifdef MAY_BE_PACKED
        else words[i] = own_elements(unit, words[i]);
#endif
    }
}

// Whether any lane has a unit of the row in this place, so that others need not compute with nothing.
bool in_row(uint first, uint i) { return i == 0 || first + i * LANES < p.row_units; }

// The peaks of rows with a tile more.
void raise_peaks(uint first, inout Summary rows[ROWS]) {
    int peaks[ROWS];
    float largest[ROWS];
    [[unroll]] for (int r = 0; r < ROWS; ++r) {
        peaks[r] = rows[r].peak;
        largest[r] = -INFINITY;
    }
#define RAISE(i, is_shelved)                                                       \
    if (!in_row(first, i)) continue;                                               \
    const uint at = taken(i, is_shelved);                                          \
    [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j) {                           \
        const int r = ROW_OF(j);                                                   \
        if (IS_LP || IS_HARDMAX) peaks[r] = max(peaks[r], peak_of(held[at][j]));   \
        else largest[r] = max(largest[r], held[at][j]);                            \
    }
    FOR_EACH_UNIT(RAISE)
    [[unroll]] for (int r = 0; r < ROWS; ++r)
        rows[r] = rescaled(rows[r], IS_LP || IS_HARDMAX ? peaks[r] : max(peaks[r], order_up(largest[r])));
}

// Adds a tile to what is known of its rows, whose peaks it does not exceed. Leaves it measured, unless it is packed.
void add_tile(uint first, inout Summary rows[ROWS]) {
    Scale scales[ROWS];
    vec2 sums[ROWS];
    [[unroll]] for (int r = 0; r < ROWS; ++r) {
        scales[r] = scale_of(rows[r].peak);
        sums[r] = vec2(0);
    }
#define ADD(i, is_shelved)                                                                                \
    if (!in_row(first, i)) continue;                                                                      \
    const uint at = taken(i, is_shelved);                                                                 \
    [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j) {                                                  \
        const int r = ROW_OF(j);                                                                          \
        if (!IS_HARDMAX) sums[r] += measure(held[at][j], scales[r]);                                      \
        else if (peak_of(held[at][j]) == rows[r].peak && IS_OWN(held_unit(first, i), j))                  \
            rows[r].first = max(rows[r].first, int(~PLACE_OF(held_unit(first, i), j)));                   \
    }
    FOR_EACH_UNIT(ADD)
    [[unroll]] for (int r = 0; r < ROWS; ++r) rows[r].sums += corrected(sums[r], scales[r]);
}

// Measures a loaded tile, where that has not been done yet.
void measure_tile(uint first, Result results[ROWS]) {
    if (IS_PACKED) return;
    [[unroll]] for (uint i = 0; i < UNITS; ++i) {
        if (!in_row(first, i)) continue;
        [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j) measure(held[i][j], results[ROW_OF(j)].scale);
    }
}

void store_unit(uint at, uint unit, uint last, Result results[ROWS]) {
    if (IS_PACKED)
        [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j) measure(held[at][j], results[ROW_OF(j)].scale);
    const uint to = y_start + unit_at(unit).y;
    [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j) held[at][j] = finished(held[at][j], PLACE_OF(unit, j), results[ROW_OF(j)]);
#if UNIT == 0
    y_units[to] = T(held[at][0]);
#else
#if UNIT == 3
    if (unit == 0 || unit == last) {
        [[unroll]] for (int j = 0; j < UNIT_ELEMENTS; ++j)
            if (IS_OWN(unit, j)) y_elements[to * UNIT_ELEMENTS + j] = T(held[at][j]);
        return;
    }
#endif
    y_units[to] = pack_word(held[at]);
#endif
}

void store_tile(uint first, Result results[ROWS]) {
    const uint last = last_unit();
#define STORE(i, is_shelved) \
    if (held_unit(first, i) <= last) store_unit(taken(i, is_shelved), held_unit(first, i), last, results);
    FOR_EACH_UNIT(STORE)
}

// -- merging over the lanes of a row: by shuffles within a subgroup, through shared memory between subgroups. Every
// invocation of the workgroup must call, and each gets the row's. The order of additions depends on the subgroup size and on
// nothing else, so a device gives the same bits every time.

shared int merged_peaks[MERGED];
shared int merged_places[MERGED];
shared float merged_sums[2][MERGED];

// Runs of invocations of which each column has one entry in shared memory, and those of a team.
uint run() { return max(gl_SubgroupSize, COLUMNS); }
uint runs_of_team() { return TEAM / run(); }
uint entry_of(uint a_run, int row) { return (a_run * COLUMNS + column()) * ROWS + row; }

// OWN[r], of a TYPE, becomes MERGE over all lanes; SHARED is what it passes through. Entries are merged by eights, because a
// long sum of one after the other would gather rounding errors.
#define OVER_LANES(TYPE, OWN, SHARED, NOTHING, MERGE)                                                                  \
    {                                                                                                                  \
        for (uint distance_ = COLUMNS; distance_ < min(TEAM, gl_SubgroupSize); distance_ *= 2)                         \
            [[unroll]] for (int r_ = 0; r_ < ROWS; ++r_)                                                               \
                OWN[r_] = MERGE(OWN[r_], subgroupShuffleXor(OWN[r_], distance_));                                      \
        if (LANES > 1 && TEAM > gl_SubgroupSize) {                                                                    \
            const uint own_run_ = workgroup_invocation() / run();                                                      \
            const uint first_run_ = own_run_ / runs_of_team() * runs_of_team();                                        \
            const uint readers_ = run() / COLUMNS;                                                                     \
            const uint reader_ = workgroup_invocation() % run() / COLUMNS;                                             \
            if (reader_ == 0)                                                                                          \
                [[unroll]] for (int r_ = 0; r_ < ROWS; ++r_) SHARED[entry_of(own_run_, r_)] = OWN[r_];                 \
            barrier();                                                                                                 \
            [[unroll]] for (int r_ = 0; r_ < ROWS; ++r_) {                                                             \
                OWN[r_] = NOTHING;                                                                                     \
                for (uint i_ = reader_ % runs_of_team(); i_ < runs_of_team(); i_ += 8 * readers_) {                    \
                    TYPE eight_ = NOTHING;                                                                             \
                    for (uint k_ = i_; k_ < min(i_ + 8 * readers_, runs_of_team()); k_ += readers_)                    \
                        eight_ = MERGE(eight_, SHARED[entry_of(first_run_ + k_, r_)]);                                 \
                    OWN[r_] = MERGE(OWN[r_], eight_);                                                                  \
                }                                                                                                      \
            }                                                                                                          \
            for (uint distance_ = COLUMNS; distance_ < min(runs_of_team() * COLUMNS, gl_SubgroupSize); distance_ *= 2) \
                [[unroll]] for (int r_ = 0; r_ < ROWS; ++r_)                                                           \
                    OWN[r_] = MERGE(OWN[r_], subgroupShuffleXor(OWN[r_], distance_));                                  \
        }                                                                                                              \
    }
#define SUM_OF(a, b) ((a) + (b))

void sums_over_lanes(inout Summary rows[ROWS], int component) {
    float sums[ROWS];
    [[unroll]] for (int r = 0; r < ROWS; ++r) sums[r] = rows[r].sums[component];
    OVER_LANES(float, sums, merged_sums[component], 0.0, SUM_OF)
    [[unroll]] for (int r = 0; r < ROWS; ++r) rows[r].sums[component] = sums[r];
}

// Merges what the lanes know of a row relative to one peak, the row's.
void shares_over_lanes(inout Summary rows[ROWS]) {
    if (IS_HARDMAX) {
        int places[ROWS];
        [[unroll]] for (int r = 0; r < ROWS; ++r) places[r] = rows[r].first;
        OVER_LANES(int, places, merged_places, NOWHERE, max)
        [[unroll]] for (int r = 0; r < ROWS; ++r) rows[r].first = places[r];
    } else {
        sums_over_lanes(rows, 0);
        if (IS_LOG_SOFTMAX) sums_over_lanes(rows, 1);
    }
}

// Finds the row's peak from those of the lanes, and makes what each lane knows relative to it.
void peaks_over_lanes(inout Summary rows[ROWS]) {
    int peaks[ROWS];
    [[unroll]] for (int r = 0; r < ROWS; ++r) peaks[r] = rows[r].peak;
    OVER_LANES(int, peaks, merged_peaks, NO_PEAK, max)
    [[unroll]] for (int r = 0; r < ROWS; ++r) rows[r] = rescaled(rows[r], peaks[r]);
}

#endif
