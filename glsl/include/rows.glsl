// What only moves bits: an output that lies in rows of contiguous units, each of which comes from somewhere.
//
// A unit is an element's bits, or several elements' where their places allow it. Before including this, a kernel defines
//   Row row_at(uint row)
// for the rows of the output, counted in the order of its outer dimensions; the type Row is in row.glsl. Unit j of a row is
// the input's unit source + j * p.x_step where first <= j < last, else the bits p.fill; it is the output's unit target + j *
// p.output_step. All that is modulo 2^32: a source may lie before the tensor if the units from first to last lie in it.
//
// An invocation moves ITEMS items, a workgroup's width apart, and loads all of them before it stores any, so that their loads
// overlap.
//
// Variants: ROWS and T, the unsigned type of a unit.
//   ROWS 1  An item is an aligned 16-byte word of the output: the two words of the input are loaded in which its bytes lie,
//           wherever they start, and shifted together. T is UINT8, UINT16 or UINT32, both steps are 1.
//           A word with the end of a row in it, or of what a row takes from the input, is put together from its pieces, which
//           takes several times as long: a workgroup does those together once the others are done, so that no invocation
//           waits for a neighbour that has one. H200, float16 images padded by 1: 35 us against 70.
//   ROWS 0  An item is a unit, any steps. T may have 64 or 128 bits, too.
// Constants: LOCAL_SIZE_X; ITEMS 1, at most MOST_ITEMS.
//   PACKED 1, with ROWS 1: the rows follow each other without a gap, so that a word may touch several; `target` is not read.
//   Where it is 0 a row may start at any unit, and what is not a whole word of it is written unit by unit.
// With ROWS 1 a kernel may also define the macro OUTSIDE_IS_FILL, a condition, and
//   uint source_outside(Row row, uint j)
// Where the condition is false, a unit j that is not between first and last is that unit of the input instead of the fill.
// With ROWS 0 a kernel may define the macro HAS_UNIT(unit): whether the input has such a unit. What comes from one that it does
// not have is not written.
// Parameters: count, of items (units, or words); units, of the output; inner_size and inner_divisor, units of a row; row_words
//   and row_words_divisor, words that a row may touch, where not PACKED; x_step, output_step; fill[2], the two halves of 64
//   bits that repeat.

#ifndef DMLVK_ROWS_GLSL
#define DMLVK_ROWS_GLSL

#include "row.glsl"


layout(set = 0, binding = BINDING_X, std430) readonly buffer XUnits { T x_units[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer OutputUnits { T output_units[]; };

// The invocation's item i, or the last one where it has none.
uint first_item() { return linear_workgroup() * gl_WorkGroupSize.x * ITEMS; }
uint item_offset(uint i) { return i * gl_WorkGroupSize.x + gl_LocalInvocationID.x; }
uint item_number(uint i) { return first_item() + min(item_offset(i), p.count - first_item() - 1u); }
bool has_item(uint i) { return item_offset(i) < p.count - first_item(); }
bool beyond_items() { return linear_workgroup() > (p.count - 1u) / (gl_WorkGroupSize.x * ITEMS); }

uint row_of_unit(uint unit) { return quotient(unit, uvec2(p.inner_divisor[0], p.inner_divisor[1])); }

#if ROWS
#ifndef OUTSIDE_IS_FILL
#define OUTSIDE_IS_FILL true
uint source_outside(Row row, uint j) { return 0u; }
#endif

layout(set = 0, binding = BINDING_X, std430) readonly buffer XWords { uvec4 x_words[]; };
layout(set = 0, binding = BINDING_OUTPUT, std430) writeonly buffer OutputWords { uvec4 output_words[]; };

const uint UNITS = WORD_BYTES / T_BYTES; // of a word
const uint BITS = 8u * T_BYTES;

uvec4 fill_word() { return uvec4(p.fill[0], p.fill[1], p.fill[0], p.fill[1]); }

// The 16 bytes from byte `shift` (0 to 15) on of two words that follow each other.
uvec4 shifted(uvec4 low, uvec4 high, uint shift) {
    if ((shift & 8u) != 0u) {
        low = uvec4(low.zw, high.xy);
        high = uvec4(high.zw, 0u, 0u);
    }
    if ((shift & 4u) != 0u) {
        low = uvec4(low.yzw, high.x);
        high.x = high.y;
    }
#if T_BYTES < 4
    const uint bits = (shift & 3u) * 8u;
    if (bits != 0u) low = low >> bits | uvec4(low.yzw, high.x) << (32u - bits);
#endif
    return low;
}

// -- words that lie in one row, and come from the input or not at all

const uint NOTHING = 0u, WHOLE = 1u, FILL = 2u, PIECES = 3u;

// Where a word goes, and where it comes from.
struct Word {
    uint kind;
    uint target; // of its unit 0
    uint byte;   // of the input
};

Word word_at(uint item) {
    uint number, before; // the row, and its unit that is the word's first one
    if (PACKED == 1u) {
        number = row_of_unit(item * UNITS);
        before = item * UNITS - number * p.inner_size;
    } else {
        number = quotient(item, uvec2(p.row_words_divisor[0], p.row_words_divisor[1]));
        before = (item - number * p.row_words) * UNITS;
    }
    const Row row = row_at(number);
    bool in_row = true;
    if (PACKED == 0u) {
        // Words are counted from the one in which the row begins.
        const uint missing = row.target % UNITS;
        if (before >= missing + p.inner_size) return Word(NOTHING, 0u, 0u);
        in_row = before >= missing;
        before -= missing;
    }
    in_row = in_row && p.inner_size - before >= UNITS && before < p.inner_size;
    Word word = Word(PIECES, PACKED == 1u ? item * UNITS : row.target + before, BYTE_OFFSET_X);
    if (in_row && row.first <= before && before < row.last && row.last - before >= UNITS) {
        word.kind = WHOLE;
        word.byte += (row.source + before) * T_BYTES;
    } else if (in_row && OUTSIDE_IS_FILL && (row.last <= before || row.first >= before + UNITS)) {
        word.kind = FILL;
    }
    return word;
}

// -- words in pieces

// Ones in the first `bytes` bytes (0 to 16) of a word.
uvec4 first_bytes(uint bytes) {
    const ivec4 own = clamp(int(bytes) - ivec4(0, 4, 8, 12), 0, 4);
    return mix((uvec4(1u) << uvec4(8 * own & 31)) - 1u, uvec4(0xFFFFFFFFu), equal(own, ivec4(4)));
}

// The part of a word that comes from one row.
struct Piece {
    uvec2 units;    // of the word, from the first one on and before the second one
    uint low, high; // the words of the input in which they lie
    uint shift;     // of the first of those, in bytes
};

// Of a row whose unit `before` is the word's first unit (or whose first unit is `missing` units behind it; one of the two is 0).
Piece piece_of(Row row, uint before, uint missing) {
    const uint begin = missing > 0u ? min(row.first, UNITS) + missing : max(row.first, before) - before;
    const uint end = missing > 0u ? min(row.last, UNITS) + missing : max(row.last, before) - before;
    Piece piece;
    piece.units = min(uvec2(begin, end), UNITS);
    // Where the word before or after holds nothing that is wanted, the other one is loaded in its place; and any, where
    // nothing is.
    const bool is_empty = piece.units.x >= piece.units.y;
    const uint byte = BYTE_OFFSET_X + (row.source + before - missing) * T_BYTES;
    piece.low = (is_empty ? BYTE_OFFSET_X : byte + piece.units.x * T_BYTES) / 16u;
    piece.high = (is_empty ? BYTE_OFFSET_X : byte + piece.units.y * T_BYTES - 1u) / 16u;
    piece.shift = byte % 16u;
    return piece;
}

uvec4 with_piece(uvec4 word, Piece piece, uvec4 low, uvec4 high) {
    if (piece.units.x >= piece.units.y) return word;
    const uvec4 wanted = first_bytes(piece.units.y * T_BYTES) & ~first_bytes(piece.units.x * T_BYTES);
    return (shifted(low, high, piece.shift) & wanted) | (word & ~wanted);
}

// The units of a row that are not in its piece, where they are not the fill.
uvec4 with_outside(uvec4 word, Row row, Piece piece, uint before, uint missing) {
    if (OUTSIDE_IS_FILL) return word;
    const uint parts = 4u / T_BYTES;
    [[unroll]] for (uint i = 0u; i < UNITS; ++i) {
        const uint j = i + before - missing;
        if ((i < piece.units.x || i >= piece.units.y) && i >= missing && j < p.inner_size) {
            const uint unit = uint(x_units[BYTE_OFFSET_X / T_BYTES + source_outside(row, j)]);
            word[i / parts] = bitfieldInsert(word[i / parts], unit, int(i % parts * BITS), int(BITS));
        }
    }
    return word;
}

// Writes a word's units from `begin` to `end`; its unit 0 is the output's unit `index`.
void store_word(uint index, uvec4 word, uint begin, uint end) {
    if (begin == 0u && end >= UNITS) {
        output_words[BYTE_OFFSET_OUTPUT / 16u + index / UNITS] = word;
        return;
    }
    const uint parts = 4u / T_BYTES;
    [[unroll]] for (uint i = 0u; i < UNITS; ++i)
        if (begin <= i && i < end)
            output_units[BYTE_OFFSET_OUTPUT / T_BYTES + index + i] =
                T(bitfieldExtract(word[i / parts], int(i % parts * BITS), int(BITS)));
}

void put_together(uint item) {
    if (PACKED == 1u) {
        const uint index = item * UNITS;
        uint number = row_of_unit(index);
        const uint before = index - number * p.inner_size, here = min(p.units - index, UNITS);
        // Most such words have the end of a row and the beginning of the next: what both give is loaded at once.
        uint missing = p.inner_size - before;
        const bool has_second = missing < here;
        const Row row = row_at(number);
        Row next = row;
        if (has_second) next = row_at(number + 1u);
        else next.last = 0u;
        const Piece piece = piece_of(row, before, 0u), next_piece = piece_of(next, 0u, min(missing, UNITS));
        const uvec4 low = x_words[piece.low], high = x_words[piece.high];
        const uvec4 next_low = x_words[next_piece.low], next_high = x_words[next_piece.high];
        uvec4 word = with_outside(with_piece(fill_word(), piece, low, high), row, piece, before, 0u);
        if (has_second) {
            word = with_outside(with_piece(word, next_piece, next_low, next_high), next, next_piece, 0u, missing);
            // Further rows, where a row is shorter than a word.
            for (missing += p.inner_size, ++number; missing < here; missing += p.inner_size) {
                const Row further = row_at(++number);
                const Piece own = piece_of(further, 0u, missing);
                word = with_outside(with_piece(word, own, x_words[own.low], x_words[own.high]), further, own, 0u, missing);
            }
        }
        store_word(index, word, 0u, here);
    } else {
        const uint number = quotient(item, uvec2(p.row_words_divisor[0], p.row_words_divisor[1]));
        const Row row = row_at(number);
        const uint skipped = row.target % UNITS, start = (item - number * p.row_words) * UNITS;
        const uint before = start == 0u ? 0u : start - skipped, missing = start == 0u ? skipped : 0u;
        const Piece piece = piece_of(row, before, missing);
        const uvec4 word = with_piece(fill_word(), piece, x_words[piece.low], x_words[piece.high]);
        store_word(
            row.target + before - missing, with_outside(word, row, piece, before, missing), missing,
            missing + p.inner_size - before);
    }
}

// The items that a workgroup leaves for the end, in any order: each writes bytes of its own.
shared uint left_over[gl_WorkGroupSize.x * ITEMS];
shared uint left_over_count;

void main() {
    if (beyond_items()) return;
    if (gl_LocalInvocationID.x == 0u) left_over_count = 0u;
    barrier();
    Word words[MOST_ITEMS];
    uvec4 low[MOST_ITEMS], high[MOST_ITEMS];
    [[unroll]] for (uint i = 0u; i < ITEMS; ++i) {
        words[i] = word_at(item_number(i));
        low[i] = x_words[words[i].byte / 16u];
        high[i] = x_words[(words[i].byte + (words[i].kind == WHOLE ? 15u : 0u)) / 16u];
    }
    [[unroll]] for (uint i = 0u; i < ITEMS; ++i) {
        if (!has_item(i)) continue;
        if (words[i].kind == WHOLE || words[i].kind == FILL) {
            const uvec4 word = words[i].kind == WHOLE ? shifted(low[i], high[i], words[i].byte % 16u) : fill_word();
            output_words[BYTE_OFFSET_OUTPUT / 16u + words[i].target / UNITS] = word;
        } else if (words[i].kind == PIECES) {
            left_over[atomicAdd(left_over_count, 1u)] = item_number(i);
        }
    }
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < left_over_count; i += gl_WorkGroupSize.x) put_together(left_over[i]);
}

#else

#ifndef HAS_UNIT
#define HAS_UNIT(unit) true
#endif

#if T_BYTES <= 4
uint fill_unit(uint j) { return p.fill[j & 1u]; }
#elif T_BYTES == 8
T fill_unit(uint j) { return uvec2(p.fill[0], p.fill[1]); }
#else
T fill_unit(uint j) { return uvec4(p.fill[0], p.fill[1], p.fill[0], p.fill[1]); }
#endif

void main() {
    if (beyond_items()) return;
    T_MATH units[MOST_ITEMS];
    uint targets[MOST_ITEMS];
    bool writes[MOST_ITEMS];
    [[unroll]] for (uint i = 0u; i < ITEMS; ++i) {
        const uint item = item_number(i), number = row_of_unit(item), j = item - number * p.inner_size;
        const Row row = row_at(number);
        targets[i] = row.target + j * p.output_step;
        const bool inside = row.first <= j && j < row.last;
        const uint source = row.source + j * p.x_step;
        writes[i] = has_item(i) && (!inside || HAS_UNIT(source));
        // Unit 0 of the input is always there.
        units[i] = T_MATH(x_units[BYTE_OFFSET_X / T_BYTES + (inside && HAS_UNIT(source) ? source : 0u)]);
        if (!inside) units[i] = fill_unit(j);
    }
    [[unroll]] for (uint i = 0u; i < ITEMS; ++i)
        if (writes[i]) output_units[BYTE_OFFSET_OUTPUT / T_BYTES + targets[i]] = T(units[i]);
}
#endif

#endif
