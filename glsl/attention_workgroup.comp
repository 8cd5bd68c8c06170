// Attention by matrices of a whole workgroup (VK_NV_cooperative_matrix2): float16 factors, float32 sums; see include/attention.glsl.
//
// A workgroup has TILE_ROWS rows of a query head and walks its head's keys, TILE_KEYS at a time: scores, their weights as a left factor
// where they are, sums of weighted values. The driver shares matrices out among the invocations and brings tiles through
// shared memory, by instructions that no shader has otherwise.
//
// A row's peak is the highest score of the first tile. Scores begin as minus that, counted in products, so that a weight is one
// multiplication and one exp2. What is the same in a whole row, the start and the total of its weights, is a narrow matrix: a product with a
// constant makes a start of each score and a total of weights, and takes a half or a quarter of the registers that matrices of scores would.
// Weights of later tiles may be too large for float16: then a total is infinite, and the workgroup begins again, with the
// highest of all scores.
//
// The driver asks for a tile where it is needed and waits for it. So each invocation asks for a word of some sectors of the next keys before
// that, and uses them after it: what they bring is in the processor's cache when the driver asks.
//
// Bindings: Q, K, V, LENGTHS read, Y written.
// Constants: LOCAL_SIZE_X; TILE_ROWS, TILE_KEYS; HEAD, VALUE, the head sizes; NARROW, the fewest columns of a matrix.
// Grid: x over tiles of rows, y over (batch entry, query head).
//
// Rows of Q, K, V and Y consist of aligned words of 16 bytes; scores are products times a scale that is not tiny, and every row sees the first key.

#pragma use_vulkan_memory_model

#include "attention.glsl"

#define MATRIX(type, rows, columns, use) coopmat<type, gl_ScopeWorkgroup, rows, columns, gl_MatrixUse##use>
#define QUERIES MATRIX(float16_t, TILE_ROWS, HEAD, A)
#define KEYS MATRIX(float16_t, HEAD, TILE_KEYS, B)
#define SCORES MATRIX(float, TILE_ROWS, TILE_KEYS, Accumulator)
#define WEIGHTS MATRIX(float16_t, TILE_ROWS, TILE_KEYS, A)
#define VALUES MATRIX(float16_t, TILE_KEYS, VALUE, B)
#define SUMS MATRIX(float, TILE_ROWS, VALUE, Accumulator)
#define HALVES MATRIX(float16_t, TILE_ROWS, VALUE, Accumulator)
// A number of each row, in NARROW columns.
#define NUMBERS MATRIX(float, TILE_ROWS, NARROW, Accumulator)
#define NUMBERS_LEFT MATRIX(float16_t, TILE_ROWS, NARROW, A)
#define NARROW_TOP MATRIX(float16_t, NARROW, TILE_KEYS, B)
#define NARROW_SIDE MATRIX(float16_t, TILE_KEYS, NARROW, B)
// Zeros behind the last row: the driver tests each element, and reads and writes one at a time. Inner tiles have neither: H200 (driver 580,
// 2026-11-29), 64 heads of 2048 rows and 128 keys of 128, us so and with every tile of queries and of the output bounded: 66 and 103.
#define BOUNDED tensorLayoutNV<2, gl_CooperativeMatrixClampModeConstantNV>
#define INNER tensorLayoutNV<2>
#define LAYOUT(kind, rows, columns, step) setTensorLayoutStrideNV(setTensorLayoutDimensionNV(kind, rows, columns), (step) & ~7u, 1)
#define TURNED tensorViewNV<2, false, 1, 0>

shared bool has_infinite; // a row's total

Sequence sequence;

layout(set = 0, binding = BINDING_K, std430) readonly buffer KeyWords { uint key_words[]; };
// The sectors of a key, of 32 bytes, and those that an invocation asks a word of.
const uint SECTORS = HEAD * T_BYTES / 32;
const uint SECTORS_EACH = (TILE_KEYS * SECTORS + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;
uint asked[SECTORS_EACH];
uint all_asked = 0;

// Asks for TILE_KEYS keys from `first` on, as far as there are any.
void ask_for_keys(uint k_at, uint first) {
    [[unroll]] for (uint e = 0; e < SECTORS_EACH; ++e) {
        const uint index = e * LOCAL_SIZE_X + gl_LocalInvocationIndex;
        const uint row = k_at + min(first + index / SECTORS, sequence.keys - 1) * (p.k_strides[1] & ~7u);
        asked[e] = key_words[row / 2 + index % SECTORS * 8];
    }
}

// What starts are counted in, as factors of float16. They reach 2e9; of such scores a float32 tells only those apart that differ by 100.
const float START_UNIT = 32768.0;

float higher_of(const in float a, const in float b) { return max(a, b); }

// A product where its row sees the key. Each row sees one more than the row before it; rows behind the last query have no place in the
// output. Without a branch, as it is asked of each element.
float seen_element(const in uint row, const in uint column, const in float product, const in int seen_by_first) {
    return int(column) - int(row) < seen_by_first ? product : -INFINITY;
}
// The same in a tile that has `keys` keys of the sequence's.
float counted_element(const in uint row, const in uint column, const in float product, const in int seen_by_first, const in int keys) {
    return int(column) < min(seen_by_first + int(row), keys) ? product : -INFINITY;
}

// The start of a row with this peak as two numbers of float16 that add up to it, its first bits and what they leave; 0 without a peak.
float part_of_start(const in uint row, const in uint column, const in float peak) {
    const float start = peak > -INFINITY ? -peak / START_UNIT : 0.0;
    const float high = uintBitsToFloat(floatBitsToUint(start) & FIRST_BITS);
    return column == 0 ? high : column == 1 ? start - high : 0.0;
}

// Adds the values of keys, times the weights that their scores make.
#define ADD_VALUES(scores, layout)                                                                        \
    {                                                                                                     \
        [[unroll]] for (uint e = 0; e < scores.length(); ++e) scores[e] = exp2(scores[e] * unit);         \
        const WEIGHTS weights = WEIGHTS(scores);                                                          \
        VALUES values;                                                                                    \
        coopMatLoadTensorNV(values, v, v_at, sliceTensorLayoutNV(layout, first_key, TILE_KEYS, 0, VALUE)); \
        sums = coopMatMulAdd(weights, values, sums);                                                      \
        totals = coopMatMulAdd(weights, ones, totals);                                                    \
    }
#define LOAD_KEYS(keys, layout) \
    coopMatLoadTensorNV(keys, k, k_at, sliceTensorLayoutNV(layout, first_key, TILE_KEYS, 0, HEAD), turned)
#define MAKE_SCORES(layout)                                        \
    KEYS keys;                                                     \
    LOAD_KEYS(keys, layout);                                       \
    SCORES scores = coopMatMulAdd(starts, units, SCORES(0.0));     \
    scores = coopMatMulAdd(queries, keys, scores);
#define COUNT_KEYS \
    coopMatPerElementNV(scores, scores, counted_element, seen_by_first - int(first_key), int(sequence.keys - first_key));
#define KEEP_HIGHEST [[unroll]] for (uint e = 0; e < scores.length(); ++e) highest[e] = max(highest[e], scores[e]);

void main() {
    const uint heads = p.key_heads * GROUP;
    const uvec2 own = own_tile();
    const uint entry = own.y / heads;
    const uint head = own.y - entry * heads;
    const uint key_head = head / GROUP;
    sequence = sequence_of(entry);
    const uint first_row = own.x * TILE_ROWS;
    if (first_row >= sequence.queries) return;
    uint end_key = keys_seen(sequence, min(first_row + TILE_ROWS, sequence.queries) - 1);
    uint seen_by_all = keys_seen(sequence, first_row);
    uint all_keys = sequence.keys;
    // Known to be the subgroup's, as matrices in a branch need it: see attention_cooperative.comp.
    if (LENGTHS != LENGTHS_NONE) {
        end_key = subgroupMax(end_key);
        seen_by_all = subgroupMin(seen_by_all);
        all_keys = subgroupMin(all_keys);
    }

    // Whole words, of which the compiler learns so.
    const uint q_at = BYTE_OFFSET_Q / T_BYTES + q_start(sequence, 0, head) & ~7u;
    const uint k_at = BYTE_OFFSET_K / T_BYTES + k_start(sequence, 0, key_head) & ~7u;
    const uint v_at = BYTE_OFFSET_V / T_BYTES + v_start(sequence, 0, key_head) & ~7u;
    const uint y_at = BYTE_OFFSET_Y / T_BYTES + y_start(sequence, 0, head) & ~7u;
    INNER inner = createTensorLayoutNV(2);
    BOUNDED bounded = createTensorLayoutNV(2, gl_CooperativeMatrixClampModeConstantNV);
    INNER query_rows = LAYOUT(inner, sequence.queries, HEAD, p.q_strides[1]);
    INNER key_rows = LAYOUT(inner, sequence.keys, HEAD, p.k_strides[1]);
    INNER value_rows = LAYOUT(inner, sequence.keys, VALUE, p.v_strides[1]);
    INNER y_rows = LAYOUT(inner, sequence.queries, VALUE, p.y_strides[1]);
    BOUNDED last_queries = LAYOUT(bounded, sequence.queries, HEAD, p.q_strides[1]);
    BOUNDED last_keys = LAYOUT(bounded, sequence.keys, HEAD, p.k_strides[1]);
    BOUNDED last_values = LAYOUT(bounded, sequence.keys, VALUE, p.v_strides[1]);
    BOUNDED last_y = LAYOUT(bounded, sequence.queries, VALUE, p.y_strides[1]);
    TURNED turned = createTensorViewNV(2, false, 1, 0);

    const float unit = p.scale * LOG2_E;
    QUERIES queries;
    if (gl_LocalInvocationIndex == 0) has_infinite = false;
    const bool is_whole = first_row + TILE_ROWS <= sequence.queries;
    if (is_whole) coopMatLoadTensorNV(queries, q, q_at, sliceTensorLayoutNV(query_rows, first_row, TILE_ROWS, 0, HEAD));
    else coopMatLoadTensorNV(queries, q, q_at, sliceTensorLayoutNV(last_queries, first_row, TILE_ROWS, 0, HEAD));
    const NARROW_SIDE ones = NARROW_SIDE(float16_t(1.0));
    const NARROW_TOP units = NARROW_TOP(float16_t(START_UNIT));
    SUMS sums;
    NUMBERS totals;
    // What the tile's first row would see of keys without an end.
    const bool sees_later = LENGTHS == LENGTHS_NONE || p.both_ways != 0;
    const int seen_by_first = sees_later ? 1 << 30 : int(sequence.end + first_row + 1) - int(sequence.queries);
    bool sees_all = false;
    [[dont_unroll]] while (true) {
        NUMBERS_LEFT starts;
        {
            SCORES highest = SCORES(-INFINITY);
            const uint end = sees_all ? end_key : min(TILE_KEYS, end_key);
            uint first_key = 0;
            [[dont_unroll]] for (; first_key + TILE_KEYS <= min(end, seen_by_all); first_key += TILE_KEYS) {
                KEYS keys;
                LOAD_KEYS(keys, key_rows);
                const SCORES scores = coopMatMulAdd(queries, keys, SCORES(0.0));
                KEEP_HIGHEST
            }
            [[dont_unroll]] for (; first_key < end; first_key += TILE_KEYS) {
                KEYS keys;
                LOAD_KEYS(keys, last_keys);
                SCORES scores = coopMatMulAdd(queries, keys, SCORES(0.0));
                COUNT_KEYS
                KEEP_HIGHEST
            }
            NUMBERS peaks;
            coopMatReduceNV(peaks, highest, gl_CooperativeMatrixReduceRowNV, higher_of);
            coopMatPerElementNV(peaks, peaks, part_of_start);
            starts = NUMBERS_LEFT(peaks);
        }
        sums = SUMS(0.0);
        totals = NUMBERS(0.0);
        uint first_key = 0;
        [[dont_unroll]] for (; first_key + TILE_KEYS <= seen_by_all; first_key += TILE_KEYS) {
            ask_for_keys(k_at, first_key + TILE_KEYS);
            MAKE_SCORES(key_rows)
            ADD_VALUES(scores, value_rows)
            [[unroll]] for (uint e = 0; e < SECTORS_EACH; ++e) all_asked ^= asked[e];
        }
        if (LENGTHS != LENGTHS_NONE)
            [[dont_unroll]] for (; first_key < end_key && first_key + TILE_KEYS <= all_keys; first_key += TILE_KEYS) {
                ask_for_keys(k_at, first_key + TILE_KEYS);
                MAKE_SCORES(key_rows)
                coopMatPerElementNV(scores, scores, seen_element, seen_by_first - int(first_key));
                ADD_VALUES(scores, value_rows)
                [[unroll]] for (uint e = 0; e < SECTORS_EACH; ++e) all_asked ^= asked[e];
            }
        [[dont_unroll]] for (; first_key < end_key; first_key += TILE_KEYS) {
            MAKE_SCORES(last_keys)
            COUNT_KEYS
            ADD_VALUES(scores, last_values)
        }
        if (sees_all) break;
        bool is_large = false;
        [[unroll]] for (uint e = 0; e < totals.length(); ++e) is_large = is_large || !(totals[e] < INFINITY);
        barrier();
        if (is_large) has_infinite = true;
        barrier();
        if (subgroupOr(uint(has_infinite)) == 0) break;
        sees_all = true;
    }

    if (all_asked == 0 && p.scale < 0.0) has_infinite = true; // never: what is asked for must seem to be used
    SUMS shares;
    coopMatReduceNV(shares, totals, gl_CooperativeMatrixReduceRowNV, higher_of);
    [[unroll]] for (uint e = 0; e < sums.length(); ++e) sums[e] = share(sums[e], shares[e]);
    HALVES halves = HALVES(sums);
    if (is_whole) coopMatStoreTensorNV(halves, y, y_at, sliceTensorLayoutNV(y_rows, first_row, TILE_ROWS, 0, VALUE));
    else coopMatStoreTensorNV(halves, y, y_at, sliceTensorLayoutNV(last_y, first_row, TILE_ROWS, 0, VALUE));
}
