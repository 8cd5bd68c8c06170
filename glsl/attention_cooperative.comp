// Attention by cooperative matrices (VK_KHR_cooperative_matrix): float16 factors, float32 sums; see include/attention.glsl.
//
// A workgroup has TILE_ROWS rows of a head of keys, each of its subgroups SUB_ROWS of them, and walks that head's keys,
// TILE_KEYS at a time, as attention_tiles does: scores, peaks and weights of a tile, then sums of weighted values.
//
// Where an element of a matrix lies among a subgroup's invocations is the device's secret.
// IN_PLACE 0: scores go through shared memory, where a row is one invocation's (or that of SUBGROUP / SUB_ROWS
// neighbours), and come back as weights in float16, in the same place. A peak need not be the highest score, only near it:
// it is raised when a score is more than 8 above, so that weights stay below 2^8 in float16, and sums are brought to a new
// peak a few times only instead of with every tile. The factors that do so become a matrix by a load with a stride of 0,
// which repeats a column; being of the sums' own kind it has a row's factor wherever the sums have an element of that row.
// IN_PLACE 1: scores stay where they are. VK_NV_cooperative_matrix2 tells an element its row and column, and makes weights a
// left factor. With FRAGMENTS elements lie as include/matrix_fragments.glsl has them, for which the device was asked: an
// invocation has those of two rows, whose starts and totals are two numbers. Without, the extension finds the highest of a row in
// all its places, and starts and totals are matrices, too. H200 (driver 580, 2026-11-30), us with FRAGMENTS and without: 32 heads
// of 4096 rows of 128 elements 839 and 1,025, 32 of 2048 of 80 141 and 162, 64 of 2048 of 64 218 and 235. With elements finished one
// by one, which needs no such extension, the first takes 3.8 ms: the driver then keeps matrices in memory.
// A row's start is minus its peak, in powers of 2, so that a weight is one multiply-add and one exp2, and only TOGETHER columns
// of matrices of scores live at a time. The peak is that of the first tile where a row sees a key that no mask puts far below
// all others, found before any value is added: H200, 32 heads of 4096 rows of 128 814 us so, 865 where the loop looks for it.
// Later weights may be too large for float16: then a total is, too, and the workgroup begins again, with the highest of all
// scores. A test of each tile would take registers and time: without FRAGMENTS 1,185 us without it, 1,297 with.
//
// Shared memory, in words of 8 float16 or 4 float32: SETS of a tile of keys and one of values, the scores of all rows (with
// IN_PLACE in the tiles' place, at the end); the bias of scores; the columns of queries behind the first HELD, which stay in
// matrices. Rows are padded by a word against bank conflicts.
// With one set, values and the next keys are on their way from memory, in registers, while scores are made; values come to
// their place before they are added, and the next keys while they are. With two, the next tile comes to the other set as this
// one begins, and the one after it is on its way until then: one barrier a tile, not two. The bias of the next tile is on its way
// as this one begins, or, with two blocks of rows a subgroup, which has no registers for it until then, while values are added
// (with IN_PLACE 0 that of a tile as this begins). H200, 96 heads of 512 rows of 64 elements, each with a bias of its own, in tiles
// of 64 rows and 32 keys 44.2 us so, 51.7 with the bias asked for while values are added.
// Bindings: Q, K, V, BIAS, MASK, RELATIVE, LENGTHS, SINKS read, Y written; PARTIALS written instead where SPLIT, as by
// attention_tiles.
// Constants: LOCAL_SIZE_X invocations in subgroups of SUBGROUP; TILE_ROWS, SUB_ROWS, at most SUBGROUP; TILE_KEYS; HEAD,
// VALUE: head_size and value_size rounded up to whole matrices of MAT_M x MAT_N x MAT_K, the sizes that the device
// multiplies; HELD, whole matrices of columns; TOGETHER, which divides TILE_KEYS / MAT_N; SETS, 1 or 2; WHOLE, where
// head sizes are whole matrices; RELATIVE_WORDS, where rows of RELATIVE consist of aligned words; PLAIN, where scores, but for
// RELATIVE, are products times the scale; SPLIT.
// Grid: x over tiles of rows, y over (batch entry, head of keys), z over parts of the keys.
//
// Rows of Q, K, V and Y consist of aligned words, no BIAS is added to them, and sequences are padded. Behind the last key a tile has
// it again, with a weight of 0.

#pragma use_vulkan_memory_model

#include "attention.glsl"
#include "matrix_fragments.glsl"

layout(set = 0, binding = BINDING_Q, std430) readonly buffer QWords { uvec4 q_words[]; };
layout(set = 0, binding = BINDING_K, std430) readonly buffer KWords { uvec4 k_words[]; };
layout(set = 0, binding = BINDING_V, std430) readonly buffer VWords { uvec4 v_words[]; };
layout(set = 0, binding = BINDING_RELATIVE, std430) readonly buffer RelativeWords { uvec4 relative_words[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YWords { uvec4 y_words[]; };
layout(set = 0, binding = BINDING_PARTIALS, std430) writeonly buffer Partials { float partials[]; };
layout(set = 0, binding = BINDING_PARTIALS, std430) writeonly buffer PartialQuads { vec4 partial_quads[]; };

const uint HEAD_WORDS = HEAD / 8;
const uint VALUE_WORDS = VALUE / 8;
const uint HEAD_PITCH = HEAD_WORDS + 1;
const uint HELD_BLOCKS = HELD / MAT_K;
const uint REST_WORDS = (HEAD - HELD) / 8; // of a row of queries, in shared memory
const uint REST_PITCH = REST_WORDS + 1;
const uint VALUE_PITCH = VALUE_WORDS + 1;
#if IN_PLACE
const uint SCORE_COLUMNS = TILE_KEYS < 32 ? TILE_KEYS : 32; // that pass through shared memory at once
#else
const uint SCORE_COLUMNS = TILE_KEYS;
#endif
const uint SCORE_PITCH = SCORE_COLUMNS / 4 + 1;
const uint BLOCKS_M = SUB_ROWS / MAT_M;
const uint BLOCKS_K = HEAD / MAT_K;
const uint BLOCKS_N = TILE_KEYS / MAT_N;
const uint BLOCKS_W = TILE_KEYS / MAT_K;
const uint BLOCKS_V = VALUE / MAT_N;
const uint SHARERS = SUBGROUP / SUB_ROWS;    // invocations of a row
const uint UNITS = TILE_KEYS / 8 / SHARERS;  // groups of 8 keys that each has

const uint VALUES_AT = TILE_KEYS * HEAD_PITCH;
const uint TILES_SIZE = VALUES_AT + TILE_KEYS * VALUE_PITCH;
const uint SCORES_SIZE = TILE_ROWS * SCORE_PITCH;
const uint BIAS_PITCH = TILE_KEYS / 8 + 1;
const uint BIAS_SIZE = HAS_RELATIVE != 0 ? TILE_ROWS * BIAS_PITCH : 0;
const uint REST_SIZE = REST_WORDS != 0 ? TILE_ROWS * REST_PITCH : 0;
#if IN_PLACE
const uint SCORES_AT = 0;
const uint WORK_SIZE = SETS * TILES_SIZE > SCORES_SIZE ? SETS * TILES_SIZE : SCORES_SIZE;
#else
const uint SCORES_AT = SETS * TILES_SIZE;
const uint WORK_SIZE = SETS * TILES_SIZE + SCORES_SIZE;
#endif
const uint BIAS_AT = WORK_SIZE;
const uint REST_AT = BIAS_AT + BIAS_SIZE;
const uint MEMORY = REST_AT + REST_SIZE;
// Matrices of queries on their way to registers lie where tiles will, as many of a row at once as there is room for.
const uint PASSING = (WORK_SIZE / TILE_ROWS - 1) / (MAT_K / 8);
const uint PASSING_BLOCKS = PASSING < HELD_BLOCKS ? PASSING : HELD_BLOCKS;
const uint PASSING_PITCH = PASSING_BLOCKS * MAT_K / 8 + 1;
shared uvec4 memory[MEMORY];
#if IN_PLACE
const uint ANSWER_AT = HEAD_WORDS; // the word that pads a tile's first row
#else
shared float row_numbers[TILE_ROWS];
#endif

const uint KEY_TILE = TILE_KEYS * HEAD_WORDS;
const uint VALUE_TILE = TILE_KEYS * VALUE_WORDS;
const uint KEY_STAGED = (KEY_TILE + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;
const uint VALUE_STAGED = (VALUE_TILE + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;
// The words of a tile that an invocation brings: their rows, where they stand in memory but for these, and where in shared
// memory.
uint key_rows[KEY_STAGED];
uint key_words[KEY_STAGED];
uint key_places[KEY_STAGED];
uint value_rows[VALUE_STAGED];
uint value_words[VALUE_STAGED];
uint value_places[VALUE_STAGED];
uint set_at = 0; // the tile's set
uvec4 staged_keys[KEY_STAGED];
uvec4 staged_values[VALUE_STAGED];
const uint QUERY_STAGED = (TILE_ROWS * HEAD_WORDS + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;
const uint BIAS_WORDS = TILE_KEYS / 8;
const uint BIAS_STAGED = (SUB_ROWS * BIAS_WORDS + SUBGROUP - 1) / SUBGROUP;
const bool EARLY_BIAS = IN_PLACE == 0 || BLOCKS_M == 1; // asked for as a tile begins
uvec4 staged_bias[BIAS_STAGED];
uint bias_places[BIAS_STAGED]; // where their rows start, in elements

// Of scores, and of sums.
#define SCORES coopmat<float, gl_ScopeSubgroup, MAT_M, MAT_N, gl_MatrixUseAccumulator>
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, MAT_M, MAT_K, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, MAT_K, MAT_N, gl_MatrixUseB>

const float HEADROOM = 8.0; // of a score above its row's peak
#if IN_PLACE
#define HALVES coopmat<float16_t, gl_ScopeSubgroup, MAT_M, MAT_N, gl_MatrixUseAccumulator>
const float MOST_WEIGHT = 65504.0;
const float MASKED = 4096.0;    // below 0, in powers of 2: no peak to keep, but one that a mask made
const float NO_PEAK = 1.25e-38; // as a start: a number that no score gives
// Whether a row may see nothing to take a peak from in the first tile, but something later.
const bool LATE_PEAKS = MASK_BOUNDS != MASK_BOUNDS_NONE || MASK_BOOLEAN != 0 || HAS_RELATIVE != 0 || WINDOWED != 0;
#if FRAGMENTS
// Numbers of the rows of a matrix that an invocation has elements of, and which of them is that of an element's row.
#define ROW_NUMBERS vec2
#define ROW_OF(e) ((e) / FRAGMENT_LINE)
#else
#define ROW_NUMBERS SCORES
#define ROW_OF(e) (e)
#endif
ROW_NUMBERS starts[BLOCKS_M];
ROW_NUMBERS totals[BLOCKS_M];
SCORES scores[BLOCKS_M][TOGETHER];
bool peaks_missing;
float unit; // of products, in powers of 2
#endif
LEFT queries[BLOCKS_M][BLOCKS_K];
LEFT weights[BLOCKS_M][BLOCKS_W];
SCORES sums[BLOCKS_M][BLOCKS_V];

Sequence sequence;
uint key_head;
uint own_first; // row of the subgroup's, of all rows
uint own_rows;  // where these start in the tile
uint start_key; // of those that the workgroup's rows see
uint end_key;
uint seen_by_all; // the end of those that all of them do
uint seen_from;   // and the first
bool has_rows;    // the subgroup
uint scores_at;   // where its scores start in shared memory
#if !IN_PLACE
uint own_row; // whose weights this invocation makes, with its neighbours,
uint sharer;  // of which it is this one
float peak;
float total;
#endif

void subgroup_barrier() {
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}

// A condition of the whole subgroup, as one that its compiler knows to be that. NVIDIA's driver makes wrong code of matrices
// in branches that it cannot prove uniform: H100, driver 580.159, other bits in one of 12 runs. Nor may `inside` be such an OR in
// each round: the last tile then counted as inside in three of 136 combinations of shapes and heads.
bool in_subgroup(bool condition) { return subgroupOr(uint(condition)) != 0; }

uint head_of(uint row) { return key_head * GROUP + row % GROUP; }

// The row of a word of a tile, and its place in it. `words`: of a row; `tile`: of all.
uvec2 staged_place(uint i, uint words, uint tile) {
    if (LOCAL_SIZE_X % words == 0 && tile % LOCAL_SIZE_X == 0) {
        const uint row = gl_LocalInvocationIndex / words;
        return uvec2(row + i * (LOCAL_SIZE_X / words), gl_LocalInvocationIndex - row * words);
    }
    const uint e = min(i * LOCAL_SIZE_X + gl_LocalInvocationIndex, tile - 1);
    return uvec2(e / words, e % words);
}

// Once, and not for each tile: H200 (driver 580, 2026-11-30), 16 heads of 4096 rows of 80 elements 308 us so, 409 the other way.
void place_tiles() {
    const uint keys_at = BYTE_OFFSET_K / 16 + k_start(sequence, 0, key_head) / 8;
    const uint values_at = BYTE_OFFSET_V / 16 + v_start(sequence, 0, key_head) / 8;
    [[unroll]] for (uint i = 0; i < KEY_STAGED; ++i) {
        const uvec2 place = staged_place(i, HEAD_WORDS, KEY_TILE);
        key_rows[i] = place.x;
        key_words[i] = keys_at + (WHOLE != 0 ? place.y : min(place.y, p.head_size / 8 - 1));
        key_places[i] = place.x * HEAD_PITCH + place.y;
    }
    [[unroll]] for (uint i = 0; i < VALUE_STAGED; ++i) {
        const uvec2 place = staged_place(i, VALUE_WORDS, VALUE_TILE);
        value_rows[i] = place.x;
        value_words[i] = values_at + (WHOLE != 0 ? place.y : min(place.y, p.value_size / 8 - 1));
        value_places[i] = VALUES_AT + place.x * VALUE_PITCH + place.y;
    }
}

// The loads of a tile, without a branch: a row behind the end is the last one, whose weight is 0 there.
void fetch_keys(uint first_key) {
    [[unroll]] for (uint i = 0; i < KEY_STAGED; ++i) {
        const uint j = min(first_key + key_rows[i], sequence.keys - 1);
        staged_keys[i] = k_words[key_words[i] + j * (p.k_strides[1] / 8)];
    }
}

void fetch_values(uint first_key) {
    [[unroll]] for (uint i = 0; i < VALUE_STAGED; ++i) {
        const uint j = min(first_key + value_rows[i], sequence.keys - 1);
        staged_values[i] = v_words[value_words[i] + j * (p.v_strides[1] / 8)];
    }
}

bool is_staged(uint i, uint tile) { return (i + 1) * LOCAL_SIZE_X <= tile || i * LOCAL_SIZE_X + gl_LocalInvocationIndex < tile; }

void share_keys() {
    [[unroll]] for (uint i = 0; i < KEY_STAGED; ++i)
        if (is_staged(i, KEY_TILE))
            memory[set_at + key_places[i]] =
                WHOLE != 0 || 8 * (key_places[i] - key_rows[i] * HEAD_PITCH) < p.head_size ? staged_keys[i] : uvec4(0);
}

void share_values() {
    [[unroll]] for (uint i = 0; i < VALUE_STAGED; ++i)
        if (is_staged(i, VALUE_TILE)) memory[set_at + value_places[i]] = staged_values[i];
}

// The queries: what stays in shared memory, and what becomes matrices.
void take_queries(uint first_row, uint rows) {
    uvec4 staged[QUERY_STAGED];
    [[unroll]] for (uint i = 0; i < QUERY_STAGED; ++i) {
        const uint e = min(i * LOCAL_SIZE_X + gl_LocalInvocationIndex, TILE_ROWS * HEAD_WORDS - 1);
        const uint row = min(first_row + e / HEAD_WORDS, rows - 1);
        const uint start = BYTE_OFFSET_Q / T_BYTES + q_start(sequence, row / GROUP, head_of(row));
        staged[i] = q_words[(start + min(8 * (e % HEAD_WORDS), p.head_size - 8)) / 8];
    }
    [[unroll]] for (uint i = 0; i < QUERY_STAGED; ++i) {
        const uint word = (i * LOCAL_SIZE_X + gl_LocalInvocationIndex) % HEAD_WORDS;
        if (8 * word >= p.head_size) staged[i] = uvec4(0);
    }
    [[unroll]] for (uint first = 0; first < HELD_BLOCKS; first += PASSING_BLOCKS) {
        const uint first_word = first * MAT_K / 8;
        if (first != 0) barrier();
        [[unroll]] for (uint i = 0; i < QUERY_STAGED; ++i) {
            const uint e = i * LOCAL_SIZE_X + gl_LocalInvocationIndex;
            const uint word = e % HEAD_WORDS - first_word;
            if (e < TILE_ROWS * HEAD_WORDS && word < PASSING_PITCH - 1)
                memory[e / HEAD_WORDS * PASSING_PITCH + word] = staged[i];
        }
        barrier();
        [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m)
            [[unroll]] for (uint b = 0; b < PASSING_BLOCKS && first + b < HELD_BLOCKS; ++b)
                coopMatLoad(queries[m][first + b], memory, (own_rows + m * MAT_M) * PASSING_PITCH + b * MAT_K / 8,
                            PASSING_PITCH, gl_CooperativeMatrixLayoutRowMajor);
    }
    if (REST_WORDS != 0)
        [[unroll]] for (uint i = 0; i < QUERY_STAGED; ++i) {
            const uint e = i * LOCAL_SIZE_X + gl_LocalInvocationIndex;
            const uint word = e % HEAD_WORDS;
            if (e < TILE_ROWS * HEAD_WORDS && word >= HELD / 8)
                memory[REST_AT + e / HEAD_WORDS * REST_PITCH + word - HELD / 8] = staged[i];
        }
    barrier();
}

// The subgroup's rows of the bias, a tile of keys. Places behind an end are clamped, and count for nothing.
void place_bias(uint rows) {
    [[unroll]] for (uint i = 0; i < BIAS_STAGED; ++i) {
        const uint e = i * SUBGROUP + gl_SubgroupInvocationID;
        const uint row = min(own_first + e / BIAS_WORDS, rows - 1);
        bias_places[i] = BYTE_OFFSET_RELATIVE / T_BYTES + sequence.entry * p.relative_strides[0] +
                         head_of(row) * p.relative_strides[1] + row / GROUP * p.relative_strides[2];
    }
}

void fetch_bias(uint first_key) {
    [[unroll]] for (uint i = 0; i < BIAS_STAGED; ++i) {
        const uint key = first_key + 8 * ((i * SUBGROUP + gl_SubgroupInvocationID) % BIAS_WORDS);
        if (RELATIVE_WORDS != 0) {
            staged_bias[i] = relative_words[(bias_places[i] + min(key, p.keys - 8)) / 8];
        } else {
            [[unroll]] for (uint e = 0; e < 8; e += 2) {
                f16vec2 pair;
                pair.x = relative[bias_places[i] + min(key + e, p.keys - 1) * p.relative_strides[3]];
                pair.y = relative[bias_places[i] + min(key + e + 1, p.keys - 1) * p.relative_strides[3]];
                staged_bias[i][e / 2] = packFloat2x16(pair);
            }
        }
    }
}

void share_bias() {
    [[unroll]] for (uint i = 0; i < BIAS_STAGED; ++i) {
        const uint e = i * SUBGROUP + gl_SubgroupInvocationID;
        if (e < SUB_ROWS * BIAS_WORDS)
            memory[BIAS_AT + (own_rows + e / BIAS_WORDS) * BIAS_PITCH + e % BIAS_WORDS] = staged_bias[i];
    }
}

// The keys that a row sees: the first, and how many. A row behind the end is the last one once more, and is not written.
uvec2 seen_keys(uint row) {
    const uint s = min(row / GROUP, sequence.queries - 1);
    const uint from = first_seen(sequence, s);
    return uvec2(from, max(keys_seen(sequence, s), from) - from);
}

// Asks for what is on its way as the first tile begins.
void fetch_first() {
    fetch_keys(start_key);
    if (SETS == 2) fetch_values(start_key);
    if (IN_PLACE != 0 && HAS_RELATIVE != 0) fetch_bias(start_key);
}

// Asks for all of a tile of keys and values, if there is one.
void fetch_tile(uint first_key) {
    if (first_key >= end_key) return;
    fetch_keys(first_key);
    fetch_values(first_key);
}

// The score of a row and a key in powers of 2, but for the bias. Places behind an end are clamped: none of them counts.
float finished_score(uint row, uint j, float product) {
    const uint s = min(row / GROUP, sequence.queries - 1);
    return LOG2_E * (scaled(product) + filtered(sequence, s, head_of(row), min(j, sequence.keys - 1)));
}

#if IN_PLACE
float start_of_sink(const in uint row, const in uint column, const in float unused, const in uint first_row) {
    const float peak = first_peak(head_of(first_row + row));
    return is_infinite(peak) && peak < 0.0 ? NO_PEAK : -LOG2_E * peak;
}
float weight_of_sink(const in uint row, const in uint column, const in float unused, const in uint first_row) {
    const float peak = first_peak(head_of(first_row + row));
    return is_infinite(peak) && peak < 0.0 || column != 0 ? 0.0 : 1.0;
}
float finished_element(const in uint row, const in uint column, const in float product, const in uint first_row,
                       const in uint first_key) {
    return finished_score(first_row + row, first_key + column, product);
}
float seen_element(const in uint row, const in uint column, const in float score, const in uint first_row,
                   const in uint first_key) {
    const uvec2 seen = seen_keys(first_row + row);
    return mix(-INFINITY, score, first_key + column - seen.x < seen.y);
}

// Of numbers that the invocations of a row have of it: the highest, and the sum.
#if FRAGMENTS
vec2 row_highest(vec2 numbers) {
    numbers = max(numbers, subgroupShuffleXor(numbers, 1));
    return max(numbers, subgroupShuffleXor(numbers, 2));
}
vec2 row_sum(vec2 numbers) {
    numbers += subgroupShuffleXor(numbers, 1);
    return numbers + subgroupShuffleXor(numbers, 2);
}
#else
float higher_of(const in float a, const in float b) { return max(a, b); }
float sum_of(const in float a, const in float b) { return a + b; }
SCORES row_highest(SCORES numbers) {
    SCORES found;
    coopMatReduceNV(found, numbers, gl_CooperativeMatrixReduceRowNV, higher_of);
    return found;
}
SCORES row_sum(SCORES numbers) {
    SCORES found;
    coopMatReduceNV(found, numbers, gl_CooperativeMatrixReduceRowNV, sum_of);
    return found;
}
#endif

// Whether a condition holds for any invocation of the workgroup. A barrier is needed before the next question.
bool in_workgroup(bool condition) {
    if (gl_LocalInvocationIndex == 0) memory[ANSWER_AT].x = 0;
    barrier();
    if (condition) memory[ANSWER_AT].x = 1;
    barrier();
    return in_subgroup(memory[ANSWER_AT].x != 0);
}

// Makes TOGETHER columns of matrices of scores, less the peaks, in powers of 2.
void make_scores(uint first_key, uint first_block, bool inside) {
    [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m)
        [[unroll]] for (uint n = 0; n < TOGETHER; ++n) scores[m][n] = SCORES(0.0);
    [[unroll]] for (uint i = 0; i < BLOCKS_K; ++i) {
        if (i >= HELD_BLOCKS)
            [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m)
                coopMatLoad(queries[m][i], memory,
                            REST_AT + (own_rows + m * MAT_M) * REST_PITCH + (i - HELD_BLOCKS) * MAT_K / 8, REST_PITCH,
                            gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint n = 0; n < TOGETHER; ++n) {
            RIGHT keys;
            coopMatLoad(keys, memory, set_at + (first_block + n) * MAT_N * HEAD_PITCH + i * MAT_K / 8, HEAD_PITCH,
                        gl_CooperativeMatrixLayoutColumnMajor);
            [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) scores[m][n] = coopMatMulAdd(queries[m][i], keys, scores[m][n]);
        }
    }
    [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m)
        [[unroll]] for (uint n = 0; n < TOGETHER; ++n) {
            const uint block_row = own_first + m * MAT_M;
            const uint block_key = first_key + (first_block + n) * MAT_N;
            if (PLAIN == 0) {
                coopMatPerElementNV(scores[m][n], scores[m][n], finished_element, block_row, block_key);
                [[unroll]] for (uint e = 0; e < scores[m][n].length(); ++e) scores[m][n][e] += starts[m][ROW_OF(e)];
            } else {
                [[unroll]] for (uint e = 0; e < scores[m][n].length(); ++e)
                    scores[m][n][e] = fma(scores[m][n][e], unit, starts[m][ROW_OF(e)]);
            }
            if (HAS_RELATIVE != 0) {
                HALVES halves;
                coopMatLoad(halves, memory,
                            BIAS_AT + (own_rows + m * MAT_M) * BIAS_PITCH + (first_block + n) * MAT_N / 8, BIAS_PITCH,
                            gl_CooperativeMatrixLayoutRowMajor);
                const SCORES biases = SCORES(halves);
                [[unroll]] for (uint e = 0; e < biases.length(); ++e)
                    scores[m][n][e] = fma(LOG2_E, biases[e], scores[m][n][e]);
            }
            if (!inside)
                coopMatPerElementNV(scores[m][n], scores[m][n], seen_element, block_row, block_key);
        }
}

// Brings the peaks to the highest scores of a tile where these are higher. No value has been added yet.
void raise_peaks(uint first_key, bool inside) {
    ROW_NUMBERS highest[BLOCKS_M];
    [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) highest[m] = ROW_NUMBERS(-INFINITY);
    [[unroll]] for (uint first = 0; first < BLOCKS_N; first += TOGETHER) {
        make_scores(first_key, first, inside);
        [[unroll]] for (uint n = 0; n < TOGETHER; ++n)
            [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m)
                [[unroll]] for (uint e = 0; e < scores[m][n].length(); ++e)
                    highest[m][ROW_OF(e)] = max(highest[m][ROW_OF(e)], scores[m][n][e]);
    }
    peaks_missing = false;
    [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) {
        highest[m] = row_highest(highest[m]);
        [[unroll]] for (uint i = 0; i < highest[m].length(); ++i) {
            const float before = starts[m][i];
            const bool none = before == NO_PEAK;
            const bool seen = highest[m][i] > -INFINITY;
            float after = none ? -highest[m][i] : min(before - highest[m][i], before);
            if (!seen) after = before;
            totals[m][i] *= none || !seen ? 1.0 : exp2(after - before);
            peaks_missing = peaks_missing || none && !seen || after > MASKED;
            starts[m][i] = after;
        }
    }
}

// Makes the weights of a tile, which may be too large for float16.
void weigh(uint first_key, bool inside) {
    [[unroll]] for (uint first = 0; first < BLOCKS_N; first += TOGETHER) {
        make_scores(first_key, first, inside);
        [[unroll]] for (uint n = 0; n < TOGETHER; ++n)
            [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) {
                [[unroll]] for (uint e = 0; e < scores[m][n].length(); ++e) {
                    const float weight = exp2(scores[m][n][e]);
                    scores[m][n][e] = weight;
                    totals[m][ROW_OF(e)] += weight;
                }
                weights[m][first + n] = LEFT(scores[m][n]);
            }
    }
}

#endif

// Brings the first tile to shared memory, and asks for the second where that is early.
void share_first() {
    if (start_key < end_key) {
        share_keys();
        if (SETS == 2) share_values();
        if (IN_PLACE != 0 && HAS_RELATIVE != 0) share_bias();
    }
    if (SETS == 2) fetch_tile(start_key + TILE_KEYS);
}

#if IN_PLACE
// Starts and totals without a key.
void begin_peaks(bool first_part) {
    [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) {
        starts[m] = ROW_NUMBERS(NO_PEAK);
        totals[m] = ROW_NUMBERS(0.0);
        if (HAS_SINKS != 0 && first_part) {
            SCORES sinks = SCORES(0.0);
            coopMatPerElementNV(sinks, sinks, start_of_sink, own_first + m * MAT_M);
            [[unroll]] for (uint e = 0; e < sinks.length(); ++e) starts[m][ROW_OF(e)] = sinks[e];
            coopMatPerElementNV(sinks, sinks, weight_of_sink, own_first + m * MAT_M);
            [[unroll]] for (uint e = 0; e < sinks.length(); ++e) totals[m][ROW_OF(e)] += sinks[e];
        }
    }
}

// Raises the peaks to the highest scores of the first tile, and of those behind it while a row may lack one, or of all of them.
// Shared memory has the first tile, before and after.
void find_peaks(bool of_all) {
    uint first_key = start_key;
    [[dont_unroll]] while (true) {
        barrier();
        if (has_rows) raise_peaks(first_key, first_key + TILE_KEYS <= seen_by_all && first_key >= seen_from);
        first_key += TILE_KEYS;
        if (!of_all && !(LATE_PEAKS && in_workgroup(has_rows && peaks_missing)) || first_key >= end_key) break;
        barrier();
        fetch_keys(first_key);
        if (HAS_RELATIVE != 0) fetch_bias(first_key);
        share_keys();
        if (HAS_RELATIVE != 0) share_bias();
    }
    if (first_key > start_key + TILE_KEYS) {
        barrier();
        fetch_first();
        share_first();
    }
}

// Whether a weight of the invocation's may have been infinite, or a row had a key but no peak.
bool are_weights_wrong() {
    bool wrong = false;
    [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m)
        [[unroll]] for (uint i = 0; i < totals[m].length(); ++i)
            wrong = wrong || totals[m][i] > (starts[m][i] == NO_PEAK ? 0.0 : MOST_WEIGHT);
    return wrong;
}
#endif

// Walks the keys, and adds their values to the sums of the rows. Shared memory has the first tile.
void add_values() {
    [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m)
        [[unroll]] for (uint n = 0; n < BLOCKS_V; ++n) sums[m][n] = SCORES(0.0);
    [[dont_unroll]] for (uint first_key = start_key; first_key < end_key; first_key += TILE_KEYS) {
        const bool inside = first_key + TILE_KEYS <= seen_by_all && first_key >= seen_from;
        const uint next_key = first_key + TILE_KEYS;
        if (SETS == 1) {
            fetch_values(first_key);
            if (next_key < end_key) fetch_keys(next_key);
        }
        if (EARLY_BIAS && HAS_RELATIVE != 0) fetch_bias(IN_PLACE != 0 ? next_key : first_key);
        barrier();
        if (SETS == 2 && next_key < end_key) {
            set_at = TILES_SIZE - set_at;
            share_keys();
            share_values();
            set_at = TILES_SIZE - set_at;
            fetch_tile(next_key + TILE_KEYS);
        }
#if IN_PLACE
        if (has_rows) {
            // Two copies: without the test in each block of scores the first is faster.
            if (inside) weigh(first_key, true);
            else weigh(first_key, false);
            if (!EARLY_BIAS && HAS_RELATIVE != 0) fetch_bias(next_key);
        }
#else
        const uint first_row = own_first - own_rows;
        const float scale = p.scale * LOG2_E;
        const uvec2 seen = seen_keys(first_row + own_row);
        bool raised = false;
        if (has_rows) {
            SCORES scores[BLOCKS_M][BLOCKS_N];
            [[unroll]] for (uint n = 0; n < BLOCKS_N; ++n) {
                [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) scores[m][n] = SCORES(0.0);
                [[unroll]] for (uint i = 0; i < BLOCKS_K; ++i) {
                    RIGHT keys;
                    coopMatLoad(keys, memory, set_at + n * MAT_N * HEAD_PITCH + i * MAT_K / 8, HEAD_PITCH,
                                gl_CooperativeMatrixLayoutColumnMajor);
                    [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) {
                        if (i >= HELD_BLOCKS)
                            coopMatLoad(queries[m][i], memory,
                                        REST_AT + (own_rows + m * MAT_M) * REST_PITCH + (i - HELD_BLOCKS) * MAT_K / 8, REST_PITCH,
                                        gl_CooperativeMatrixLayoutRowMajor);
                        scores[m][n] = coopMatMulAdd(queries[m][i], keys, scores[m][n]);
                    }
                }
            }
            if (HAS_RELATIVE != 0) share_bias();
            [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m)
                [[unroll]] for (uint n = 0; n < BLOCKS_N; ++n)
                    coopMatStore(scores[m][n], memory, scores_at + m * MAT_M * SCORE_PITCH + n * MAT_N / 4, SCORE_PITCH,
                                 gl_CooperativeMatrixLayoutRowMajor);
            subgroup_barrier();
            float finished[UNITS][8];
            float highest = -INFINITY;
            [[unroll]] for (uint u = 0; u < UNITS; ++u) {
                const uint unit = u * SHARERS + sharer;
                [[unroll]] for (uint e = 0; e < 8; ++e) {
                    const uint word = memory[SCORES_AT + own_row * SCORE_PITCH + 2 * unit + e / 4][e % 4];
                    const float product = uintBitsToFloat(word);
                    const uint j = first_key + 8 * unit + e;
                    finished[u][e] = PLAIN != 0 ? scale * product : finished_score(first_row + own_row, j, product);
                    if (HAS_RELATIVE != 0) {
                        const uint pair = memory[BIAS_AT + own_row * BIAS_PITCH + unit][e / 2];
                        finished[u][e] = fma(LOG2_E, unpackHalf2x16(pair)[e % 2], finished[u][e]);
                    }
                    if (!inside && j - seen.x >= seen.y) finished[u][e] = -INFINITY;
                    highest = max(highest, finished[u][e]);
                }
            }
            [[unroll]] for (uint distance = 1; distance < SHARERS; distance *= 2)
                highest = max(highest, subgroupShuffleXor(highest, distance));
            const float higher = highest > peak + HEADROOM ? highest : peak;
            const float base = subtracted(higher);
            const float factor = higher == peak ? 1.0 : exp2(peak - base);
            raised = in_subgroup(higher != peak);
            peak = higher;
            total *= factor;
            // Every element of a row is read before any is overwritten.
            subgroup_barrier();
            [[unroll]] for (uint u = 0; u < UNITS; ++u) {
                uvec4 word;
                [[unroll]] for (uint e = 0; e < 8; e += 2) {
                    const vec2 pair = exp2(vec2(finished[u][e], finished[u][e + 1]) - base);
                    total += pair.x + pair.y;
                    word[e / 2] = packHalf2x16(pair);
                }
                memory[SCORES_AT + own_row * SCORE_PITCH + u * SHARERS + sharer] = word;
            }
            if (sharer == 0) row_numbers[own_row] = factor;
        }
#endif
        if (SETS == 1) {
            share_values();
            barrier();
            share_keys();
        }
        if (has_rows) {
#if !IN_PLACE
            if (raised) {
                [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) {
                    SCORES factors;
                    coopMatLoad(factors, row_numbers, own_rows + m * MAT_M, 0, gl_CooperativeMatrixLayoutColumnMajor);
                    [[unroll]] for (uint n = 0; n < BLOCKS_V; ++n)
                        [[unroll]] for (uint e = 0; e < factors.length(); ++e) sums[m][n][e] *= factors[e];
                }
            }
            [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m)
                [[unroll]] for (uint i = 0; i < BLOCKS_W; ++i)
                    coopMatLoad(weights[m][i], memory, scores_at + m * MAT_M * SCORE_PITCH + i * MAT_K / 8, SCORE_PITCH,
                                gl_CooperativeMatrixLayoutRowMajor);
#endif
            [[unroll]] for (uint i = 0; i < BLOCKS_W; ++i)
                [[unroll]] for (uint n = 0; n < BLOCKS_V; ++n) {
                    RIGHT values;
                    coopMatLoad(values, memory, set_at + VALUES_AT + i * MAT_K * VALUE_PITCH + n * MAT_N / 8, VALUE_PITCH,
                                gl_CooperativeMatrixLayoutRowMajor);
                    [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m)
                        sums[m][n] = coopMatMulAdd(weights[m][i], values, sums[m][n]);
                }
#if IN_PLACE
            if (HAS_RELATIVE != 0) {
                subgroup_barrier();
                share_bias();
            }
#endif
        }
        if (SETS == 2) set_at = TILES_SIZE - set_at;
    }
}

void main() {
    const uvec2 own = own_tile();
    const uint entry = own.y / p.key_heads;
    key_head = own.y - entry * p.key_heads;
    sequence = sequence_of(entry);
    const uint rows = sequence.queries * GROUP;
    const uint first_row = own.x * TILE_ROWS;
    if (first_row >= rows) return;
    const uint last_row = min(first_row + TILE_ROWS, rows) - 1;
    const uint part_keys = p.part_tiles * TILE_KEYS;
    const uint start_of_part = SPLIT != 0 ? gl_WorkGroupID.z * part_keys : 0;
    start_key = max(start_of_part, first_seen(sequence, first_row / GROUP) / TILE_KEYS * TILE_KEYS);
    const uint end_of_keys = keys_seen(sequence, last_row / GROUP);
    end_key = SPLIT != 0 ? min(end_of_keys, start_of_part + part_keys) : end_of_keys;
    const bool first_part = SPLIT == 0 || gl_WorkGroupID.z == 0;
    seen_by_all = keys_seen(sequence, first_row / GROUP);
    seen_from = first_seen(sequence, last_row / GROUP);
#if IN_PLACE
    // Known to be the subgroup's, as with in_subgroup. Without lengths, which are in memory, the compiler knows that itself,
    // and heads of 80 take 125 us instead of 224 (H100, 16 heads of 2048 rows).
    if (LENGTHS != LENGTHS_NONE) {
        start_key = subgroupMax(start_key);
        end_key = subgroupMax(end_key);
        seen_by_all = subgroupMin(seen_by_all);
        seen_from = subgroupMax(seen_from);
    }
#endif
    own_rows = gl_SubgroupID * SUB_ROWS;
    own_first = first_row + own_rows;
    // Without rows a subgroup only helps to stage, where such are many: the branch costs 8 % of whole tiles. Where there are
    // barriers of a subgroup in between it goes through all the same, because lavapipe has them wait for the whole workgroup.
    has_rows = IN_PLACE == 0 || SPLIT == 0 || in_subgroup(own_first < rows);
    scores_at = SCORES_AT + own_rows * SCORE_PITCH;

    place_tiles();
    if (HAS_RELATIVE != 0) place_bias(rows);
    if (start_key < end_key) fetch_first();
    take_queries(first_row, rows);
#if IN_PLACE
    unit = p.scale * LOG2_E;
    bool of_all = false;
    [[dont_unroll]] while (true) {
        share_first();
        begin_peaks(first_part);
        if (start_key < end_key) find_peaks(of_all);
        add_values();
        if (of_all || !in_workgroup(are_weights_wrong())) break;
        of_all = true;
        if (start_key < end_key) fetch_first();
    }
#else
    sharer = gl_SubgroupInvocationID % SHARERS;
    own_row = own_rows + gl_SubgroupInvocationID / SHARERS;
    peak = first_part ? LOG2_E * first_peak(head_of(first_row + own_row)) : -INFINITY;
    total = first_part && sharer == 0 ? first_weights() : 0.0;
    share_first();
    add_values();
#endif

    SCORES shares[BLOCKS_M];
#if IN_PLACE
    [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) {
        totals[m] = row_sum(totals[m]);
        if (SPLIT == 0)
            [[unroll]] for (uint i = 0; i < totals[m].length(); ++i) totals[m][i] = share(1.0, totals[m][i]);
        [[unroll]] for (uint e = 0; e < shares[m].length(); ++e) shares[m][e] = totals[m][ROW_OF(e)];
    }
    barrier(); // the tiles' place is used anew
#else
    [[unroll]] for (uint distance = 1; distance < SHARERS; distance *= 2) total += subgroupShuffleXor(total, distance);
    subgroup_barrier();
    if (sharer == 0) row_numbers[own_row] = share(1.0, total);
    subgroup_barrier();
    [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m)
        coopMatLoad(shares[m], row_numbers, own_rows + m * MAT_M, 0, gl_CooperativeMatrixLayoutColumnMajor);
#endif
    if (!has_rows) return;
    const uint part_rows = (gl_WorkGroupID.z * gl_NumWorkGroups.y + own.y) * p.queries * GROUP;
    if (SPLIT != 0) {
        const uint summaries = BYTE_OFFSET_PARTIALS / 4 + p.summaries;
#if IN_PLACE
        const uint line = gl_SubgroupInvocationID;
        const bool summarizes = line < SUB_ROWS && own_first + line < rows;
        // One after the other through the same place, because a row of it may be no wider than one matrix.
        [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) {
            // Where no key was seen there is no peak, either.
            SCORES peaks;
            [[unroll]] for (uint e = 0; e < peaks.length(); ++e) {
                const float start = starts[m][ROW_OF(e)];
                peaks[e] = start == NO_PEAK ? -INFINITY : -start;
            }
            coopMatStore(peaks, memory, scores_at + m * MAT_M * SCORE_PITCH, SCORE_PITCH, gl_CooperativeMatrixLayoutRowMajor);
        }
        subgroup_barrier();
        const float peak = summarizes ? uintBitsToFloat(memory[scores_at + line * SCORE_PITCH].x) : 0.0;
        subgroup_barrier();
        [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m)
            coopMatStore(shares[m], memory, scores_at + m * MAT_M * SCORE_PITCH, SCORE_PITCH, gl_CooperativeMatrixLayoutRowMajor);
        subgroup_barrier();
        const float total = summarizes ? uintBitsToFloat(memory[scores_at + line * SCORE_PITCH].x) : 0.0;
        subgroup_barrier();
#else
        const uint line = own_row - own_rows;
        const bool summarizes = sharer == 0 && own_first + line < rows;
#endif
        if (summarizes) {
            partials[summaries + 2 * (part_rows + own_first + line)] = peak * LN2;
            partials[summaries + 2 * (part_rows + own_first + line) + 1] = total;
        }
    }
    // Through the scores' place, SCORE_COLUMNS columns at a time.
    [[unroll]] for (uint first = 0; first < VALUE; first += SCORE_COLUMNS) {
        [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) {
            [[unroll]] for (uint n = first / MAT_N; n < (first + SCORE_COLUMNS) / MAT_N && n < BLOCKS_V; ++n) {
                if (SPLIT == 0)
                    [[unroll]] for (uint e = 0; e < shares[m].length(); ++e) sums[m][n][e] *= shares[m][e];
                coopMatStore(sums[m][n], memory, scores_at + m * MAT_M * SCORE_PITCH + (n * MAT_N - first) / 4, SCORE_PITCH,
                             gl_CooperativeMatrixLayoutRowMajor);
            }
        }
        subgroup_barrier();
        for (uint e = gl_SubgroupInvocationID; e < SUB_ROWS * SCORE_COLUMNS / 8; e += SUBGROUP) {
            const uint y_row = own_first + e / (SCORE_COLUMNS / 8);
            const uint unit = e % (SCORE_COLUMNS / 8);
            if (y_row >= rows || first + 8 * unit >= p.value_size) continue;
            const uint at = scores_at + e / (SCORE_COLUMNS / 8) * SCORE_PITCH + 2 * unit;
            const vec4 low = uintBitsToFloat(memory[at]);
            const vec4 high = uintBitsToFloat(memory[at + 1]);
            if (SPLIT != 0) {
                const uint place = (part_rows + y_row) * p.value_size + first + 8 * unit;
                partial_quads[BYTE_OFFSET_PARTIALS / 16 + place / 4] = low;
                partial_quads[BYTE_OFFSET_PARTIALS / 16 + place / 4 + 1] = high;
                continue;
            }
            const uint element = y_start(sequence, y_row / GROUP, head_of(y_row)) + first + 8 * unit;
            y_words[(BYTE_OFFSET_Y / T_BYTES + element) / 8] =
                uvec4(packHalf2x16(low.xy), packHalf2x16(low.zw), packHalf2x16(high.xy), packHalf2x16(high.zw));
        }
        subgroup_barrier();
    }
}
