// Attention by cooperative matrices (VK_KHR_cooperative_matrix): float16 factors, float32 sums; see include/attention.glsl.
//
// A workgroup has TILE_ROWS rows of a head of keys, each of its subgroups SUB_ROWS of them, and walks that head's keys,
// TILE_KEYS at a time, as attention_tiles does: scores, peaks and weights of a tile, then sums of weighted values.
//
// A peak need not be the highest score, only near it: it is raised when a score is more than 8 above, so that weights stay
// below 2^8 in float16, and sums are brought to a new peak a few times only instead of with every tile.
//
// Where an element of a matrix lies among a subgroup's invocations is the device's secret.
// REDUCTIONS 0: scores go through shared memory, where a row is one invocation's (or that of SUBGROUP / SUB_ROWS
// neighbours), and come back as weights in float16, in the same place. The factors that bring sums to a new peak become a
// matrix by a load with a stride of 0, which repeats a column; being of the sums' own kind it has a row's factor wherever
// the sums have an element of that row.
// REDUCTIONS 1: VK_NV_cooperative_matrix2 finds the highest of a row in all its places, tells an element its row and
// column, and makes the weights a left factor where they are. Peaks and totals are matrices, too; totals are added up over
// rows at the end.
//
// Shared memory, in words of 8 float16 or 4 float32: a tile of keys, one of values, the scores of all rows (with REDUCTIONS
// in the tiles' place, at the end); queries, unless HOLD_QUERIES, which keeps them in matrices. Rows are padded by a word
// against bank conflicts. Values are on their way from memory, in registers, while scores are made, and the next keys while
// values are added, so that two barriers a tile are enough.
// Bindings: Q, K, V, BIAS, MASK, RELATIVE, LENGTHS, SINKS read, Y written; PARTIALS written instead where SPLIT, as by
// attention_tiles.
// Constants: LOCAL_SIZE_X invocations in subgroups of SUBGROUP; TILE_ROWS, SUB_ROWS, at most SUBGROUP; TILE_KEYS; HEAD,
// VALUE: head_size and value_size rounded up to whole matrices of MAT_M x MAT_N x MAT_K, the sizes that the device
// multiplies; HOLD_QUERIES.
// Grid: x over tiles of rows, y over (batch entry, head of keys), z over parts of the keys.
//
// Rows of Q, K, V and Y consist of aligned words, and no bias is added to them. What lies behind the last key counts as 0
// with a weight of 0.

#pragma use_vulkan_memory_model

#include "attention.glsl"

layout(set = 0, binding = BINDING_Q, std430) readonly buffer QWords { uvec4 q_words[]; };
layout(set = 0, binding = BINDING_K, std430) readonly buffer KWords { uvec4 k_words[]; };
layout(set = 0, binding = BINDING_V, std430) readonly buffer VWords { uvec4 v_words[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YWords { uvec4 y_words[]; };
layout(set = 0, binding = BINDING_PARTIALS, std430) writeonly buffer Partials { float partials[]; };
layout(set = 0, binding = BINDING_PARTIALS, std430) writeonly buffer PartialQuads { vec4 partial_quads[]; };

const uint HEAD_WORDS = HEAD / 8;
const uint VALUE_WORDS = VALUE / 8;
const uint HEAD_PITCH = HEAD_WORDS + 1;
const uint VALUE_PITCH = VALUE_WORDS + 1;
const uint SCORE_PITCH = TILE_KEYS / 4 + 1;
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
const uint QUERIES_SIZE = TILE_ROWS * HEAD_PITCH;
#if REDUCTIONS
const uint SCORES_AT = 0;
const uint WORK_SIZE = TILES_SIZE > SCORES_SIZE ? TILES_SIZE : SCORES_SIZE;
#else
const uint SCORES_AT = TILES_SIZE;
const uint WORK_SIZE = TILES_SIZE + SCORES_SIZE;
#endif
const uint QUERIES_AT = HOLD_QUERIES != 0 ? 0 : WORK_SIZE;
const uint MEMORY = HOLD_QUERIES == 0 ? WORK_SIZE + QUERIES_SIZE : QUERIES_SIZE > WORK_SIZE ? QUERIES_SIZE : WORK_SIZE;
shared uvec4 memory[MEMORY];
#if !REDUCTIONS
shared float row_numbers[TILE_ROWS];
#endif

const uint KEY_STAGED = (TILE_KEYS * HEAD_WORDS + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;
const uint VALUE_STAGED = (TILE_KEYS * VALUE_WORDS + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;
uvec4 staged_keys[KEY_STAGED];
uvec4 staged_values[VALUE_STAGED];

// Of scores, and of sums.
#define SCORES coopmat<float, gl_ScopeSubgroup, MAT_M, MAT_N, gl_MatrixUseAccumulator>
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, MAT_M, MAT_K, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, MAT_K, MAT_N, gl_MatrixUseB>

const float HEADROOM = 8.0; // of a score above its row's peak

Sequence sequence;
uint key_head;
uint own_first; // row of the subgroup's, of all rows
uint block_row; // of the matrix at hand, counted from there
uint block_key;

void subgroup_barrier() {
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
}

uint head_of(uint row) { return key_head * p.group + row % p.group; }

// The loads of a tile, without a branch: addresses are clamped, and what is behind the end becomes 0 later.
void fetch_keys(uint first_key) {
    [[unroll]] for (uint i = 0; i < KEY_STAGED; ++i) {
        const uint e = min(i * LOCAL_SIZE_X + gl_LocalInvocationIndex, TILE_KEYS * HEAD_WORDS - 1);
        const uint j = min(first_key + e / HEAD_WORDS, sequence.keys - 1);
        const uint d = min(8 * (e % HEAD_WORDS), p.head_size - 8);
        staged_keys[i] = k_words[(BYTE_OFFSET_K / T_BYTES + k_start(sequence, j, key_head) + d) / 8];
    }
}

void fetch_values(uint first_key) {
    [[unroll]] for (uint i = 0; i < VALUE_STAGED; ++i) {
        const uint e = min(i * LOCAL_SIZE_X + gl_LocalInvocationIndex, TILE_KEYS * VALUE_WORDS - 1);
        const uint j = min(first_key + e / VALUE_WORDS, sequence.keys - 1);
        const uint d = min(8 * (e % VALUE_WORDS), p.value_size - 8);
        staged_values[i] = v_words[(BYTE_OFFSET_V / T_BYTES + v_start(sequence, j, key_head) + d) / 8];
    }
}

void share_keys() {
    [[unroll]] for (uint i = 0; i < KEY_STAGED; ++i) {
        const uint e = i * LOCAL_SIZE_X + gl_LocalInvocationIndex;
        if (e >= TILE_KEYS * HEAD_WORDS) break;
        const uint word = e % HEAD_WORDS;
        memory[e / HEAD_WORDS * HEAD_PITCH + word] = 8 * word < p.head_size ? staged_keys[i] : uvec4(0);
    }
}

void share_values(uint first_key) {
    [[unroll]] for (uint i = 0; i < VALUE_STAGED; ++i) {
        const uint e = i * LOCAL_SIZE_X + gl_LocalInvocationIndex;
        if (e >= TILE_KEYS * VALUE_WORDS) break;
        const uint word = e % VALUE_WORDS;
        const bool there = first_key + e / VALUE_WORDS < sequence.keys;
        memory[VALUES_AT + e / VALUE_WORDS * VALUE_PITCH + word] = there ? staged_values[i] : uvec4(0);
    }
}

void share_queries(uint first_row, uint rows) {
    for (uint e = gl_LocalInvocationIndex; e < TILE_ROWS * HEAD_WORDS; e += LOCAL_SIZE_X) {
        const uint row = min(first_row + e / HEAD_WORDS, rows - 1);
        const uint d = 8 * (e % HEAD_WORDS);
        const uint start = BYTE_OFFSET_Q / T_BYTES + q_start(sequence, row / p.group, head_of(row));
        const uint element = start + min(d, p.head_size - 8);
        memory[QUERIES_AT + e / HEAD_WORDS * HEAD_PITCH + d / 8] = d < p.head_size ? q_words[element / 8] : uvec4(0);
    }
}

// The score of a row and a key in powers of 2.
float finished_score(uint row, uint j, float product) {
    const uint s = row / p.group;
    const bool seen = row < sequence.queries * p.group && j < keys_seen(sequence, s) && j >= first_seen(sequence, s);
    return seen ? LOG2_E * (scaled(product) + added(sequence, s, head_of(row), j)) : -INFINITY;
}

#if REDUCTIONS
float higher_of(const in float a, const in float b) { return max(a, b); }
float sum_of(const in float a, const in float b) { return a + b; }
float peak_of_sink(const in uint row, const in uint column, const in float unused) {
    return LOG2_E * first_peak(head_of(own_first + block_row + row));
}
float weight_of_sink(const in uint row, const in uint column, const in float unused) { return column == 0 ? 1.0 : 0.0; }
float finished_element(const in uint row, const in uint column, const in float product) {
    return finished_score(own_first + block_row + row, block_key + column, product);
}
#endif

void main() {
    const uint entry = gl_WorkGroupID.y / p.key_heads;
    key_head = gl_WorkGroupID.y - entry * p.key_heads;
    sequence = sequence_of(entry);
    const uint rows = sequence.queries * p.group;
    const uint first_row = gl_WorkGroupID.x * TILE_ROWS;
    if (first_row >= rows) return;
    const uint last_row = min(first_row + TILE_ROWS, rows) - 1;
    const uint part_keys = p.part_tiles * TILE_KEYS;
    const uint start_of_part = SPLIT != 0 ? gl_WorkGroupID.z * part_keys : 0;
    const uint start_key = max(start_of_part, first_seen(sequence, first_row / p.group) / TILE_KEYS * TILE_KEYS);
    const uint end_of_keys = keys_seen(sequence, last_row / p.group);
    const uint end_key = SPLIT != 0 ? min(end_of_keys, start_of_part + part_keys) : end_of_keys;
    const uint seen_by_all = keys_seen(sequence, first_row / p.group);
    const uint seen_from = first_seen(sequence, last_row / p.group);
    const bool first_part = SPLIT == 0 || gl_WorkGroupID.z == 0;
    const bool scores_are_products = CAPPED == 0 && HAS_RELATIVE == 0 && MASK_BOUNDS == MASK_BOUNDS_NONE && MASK_BOOLEAN == 0;
    const uint own_rows = gl_SubgroupID * SUB_ROWS; // of the tile
    own_first = first_row + own_rows;
    // Without rows a subgroup only helps to stage, where such are many: the branch costs 8 % of whole tiles. Where there are
    // barriers of a subgroup in between it goes through all the same, because lavapipe has them wait for the whole workgroup.
    const bool has_rows = REDUCTIONS == 0 || SPLIT == 0 || own_first < rows;
    const uint scores_at = SCORES_AT + own_rows * SCORE_PITCH;
    const float scale = p.scale * LOG2_E;

#if REDUCTIONS
    SCORES peaks[BLOCKS_M];
    SCORES totals[BLOCKS_M];
    [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) {
        peaks[m] = SCORES(-INFINITY);
        totals[m] = SCORES(0.0);
        if (HAS_SINKS != 0 && first_part) {
            block_row = m * MAT_M;
            coopMatPerElementNV(peaks[m], peaks[m], peak_of_sink);
            coopMatPerElementNV(totals[m], totals[m], weight_of_sink);
        }
    }
#else
    // The row whose weights this invocation makes, with its neighbours.
    const uint sharer = gl_SubgroupInvocationID % SHARERS;
    const uint own_row = own_rows + gl_SubgroupInvocationID / SHARERS;
    float peak = first_part ? LOG2_E * first_peak(head_of(first_row + own_row)) : -INFINITY;
    float total = first_part && sharer == 0 ? first_weights() : 0.0;
#endif

    share_queries(first_row, rows);
    barrier();
    LEFT queries[BLOCKS_M][BLOCKS_K];
    if (HOLD_QUERIES != 0) {
        [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m)
            [[unroll]] for (uint i = 0; i < BLOCKS_K; ++i)
                coopMatLoad(queries[m][i], memory, QUERIES_AT + (own_rows + m * MAT_M) * HEAD_PITCH + i * MAT_K / 8, HEAD_PITCH,
                            gl_CooperativeMatrixLayoutRowMajor);
        barrier();
    }
    SCORES sums[BLOCKS_M][BLOCKS_V];
    [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m)
        [[unroll]] for (uint n = 0; n < BLOCKS_V; ++n) sums[m][n] = SCORES(0.0);
    if (start_key < end_key) {
        fetch_keys(start_key);
        share_keys();
    }

    [[dont_unroll]] for (uint first_key = start_key; first_key < end_key; first_key += TILE_KEYS) {
        // Whether scores are products times a scale that does not change which is the highest.
        const bool plain = scores_are_products && scale >= 0.0 && first_key + TILE_KEYS <= seen_by_all &&
                           first_key >= seen_from;
        fetch_values(first_key);
        barrier();
        LEFT weights[BLOCKS_M][BLOCKS_W];
        bool raised = false;
        if (has_rows) {
            SCORES scores[BLOCKS_M][BLOCKS_N];
            [[unroll]] for (uint n = 0; n < BLOCKS_N; ++n) {
                [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) scores[m][n] = SCORES(0.0);
                [[unroll]] for (uint i = 0; i < BLOCKS_K; ++i) {
                    RIGHT keys;
                    coopMatLoad(keys, memory, n * MAT_N * HEAD_PITCH + i * MAT_K / 8, HEAD_PITCH,
                                gl_CooperativeMatrixLayoutColumnMajor);
                    [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) {
                        if (HOLD_QUERIES == 0)
                            coopMatLoad(queries[m][i], memory, QUERIES_AT + (own_rows + m * MAT_M) * HEAD_PITCH + i * MAT_K / 8,
                                        HEAD_PITCH, gl_CooperativeMatrixLayoutRowMajor);
                        scores[m][n] = coopMatMulAdd(queries[m][i], keys, scores[m][n]);
                    }
                }
            }
#if REDUCTIONS
            const float unfinished = plain ? scale : 1.0;
            SCORES highest[BLOCKS_M];
            [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) {
                [[unroll]] for (uint n = 0; n < BLOCKS_N; ++n) {
                    if (!plain) {
                        block_row = m * MAT_M;
                        block_key = first_key + n * MAT_N;
                        coopMatPerElementNV(scores[m][n], scores[m][n], finished_element);
                    }
                }
                highest[m] = scores[m][0];
                [[unroll]] for (uint n = 1; n < BLOCKS_N; ++n)
                    [[unroll]] for (uint e = 0; e < highest[m].length(); ++e)
                        highest[m][e] = max(highest[m][e], scores[m][n][e]);
                [[unroll]] for (uint e = 0; e < highest[m].length(); ++e) {
                    highest[m][e] *= unfinished;
                    raised = raised || highest[m][e] > peaks[m][e] + HEADROOM;
                }
            }
            if (subgroupOr(uint(raised)) != 0) {
                [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) {
                    SCORES all_highest;
                    coopMatReduceNV(all_highest, highest[m], gl_CooperativeMatrixReduceRowNV, higher_of);
                    [[unroll]] for (uint e = 0; e < all_highest.length(); ++e) {
                        const float higher = max(peaks[m][e], all_highest[e]);
                        const float factor = exp2(peaks[m][e] - subtracted(higher));
                        peaks[m][e] = higher;
                        totals[m][e] *= factor;
                        [[unroll]] for (uint n = 0; n < BLOCKS_V; ++n) sums[m][n][e] *= factor;
                    }
                }
            }
            [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m)
                [[unroll]] for (uint n = 0; n < BLOCKS_N; ++n) {
                    [[unroll]] for (uint e = 0; e < totals[m].length(); ++e) {
                        scores[m][n][e] = exp2(fma(scores[m][n][e], unfinished, -subtracted(peaks[m][e])));
                        totals[m][e] += scores[m][n][e];
                    }
                    weights[m][n] = LEFT(scores[m][n]);
                }
#else
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
                    finished[u][e] =
                        plain ? scale * product : finished_score(first_row + own_row, first_key + 8 * unit + e, product);
                    highest = max(highest, finished[u][e]);
                }
            }
            [[unroll]] for (uint distance = 1; distance < SHARERS; distance *= 2)
                highest = max(highest, subgroupShuffleXor(highest, distance));
            const float higher = highest > peak + HEADROOM ? highest : peak;
            const float base = subtracted(higher);
            const float factor = higher == peak ? 1.0 : exp2(peak - base);
            raised = subgroupOr(uint(higher != peak)) != 0;
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
#endif
        }
        share_values(first_key);
        barrier();
        if (first_key + TILE_KEYS < end_key) fetch_keys(first_key + TILE_KEYS);
        if (has_rows) {
#if !REDUCTIONS
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
                    coopMatLoad(values, memory, VALUES_AT + i * MAT_K * VALUE_PITCH + n * MAT_N / 8, VALUE_PITCH,
                                gl_CooperativeMatrixLayoutRowMajor);
                    [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m)
                        sums[m][n] = coopMatMulAdd(weights[m][i], values, sums[m][n]);
                }
        }
        share_keys();
    }

    SCORES shares[BLOCKS_M];
#if REDUCTIONS
    [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) {
        coopMatReduceNV(shares[m], totals[m], gl_CooperativeMatrixReduceRowNV, sum_of);
        if (SPLIT == 0)
            [[unroll]] for (uint e = 0; e < shares[m].length(); ++e) shares[m][e] = share(1.0, shares[m][e]);
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
    const uint part_rows = (gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y) * p.queries * p.group;
    if (SPLIT != 0) {
        const uint summaries = BYTE_OFFSET_PARTIALS / 4 + p.summaries;
#if REDUCTIONS
        [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) {
            const uint at = scores_at + m * MAT_M * SCORE_PITCH;
            coopMatStore(peaks[m], memory, at, SCORE_PITCH, gl_CooperativeMatrixLayoutRowMajor);
            coopMatStore(shares[m], memory, at + MAT_N / 4, SCORE_PITCH, gl_CooperativeMatrixLayoutRowMajor);
        }
        subgroup_barrier();
        const uint line = gl_SubgroupInvocationID;
        const bool summarizes = line < SUB_ROWS && own_first + line < rows;
        float peak = 0.0;
        float total = 0.0;
        if (summarizes) {
            peak = uintBitsToFloat(memory[scores_at + line * SCORE_PITCH].x);
            total = uintBitsToFloat(memory[scores_at + line * SCORE_PITCH + MAT_N / 4].x);
        }
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
    // Through the scores' place, TILE_KEYS columns at a time.
    [[unroll]] for (uint first = 0; first < VALUE; first += TILE_KEYS) {
        [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) {
            [[unroll]] for (uint n = first / MAT_N; n < (first + TILE_KEYS) / MAT_N && n < BLOCKS_V; ++n) {
                if (SPLIT == 0)
                    [[unroll]] for (uint e = 0; e < shares[m].length(); ++e) sums[m][n][e] *= shares[m][e];
                coopMatStore(sums[m][n], memory, scores_at + m * MAT_M * SCORE_PITCH + (n * MAT_N - first) / 4, SCORE_PITCH,
                             gl_CooperativeMatrixLayoutRowMajor);
            }
        }
        subgroup_barrier();
        for (uint e = gl_SubgroupInvocationID; e < SUB_ROWS * TILE_KEYS / 8; e += SUBGROUP) {
            const uint y_row = own_first + e / (TILE_KEYS / 8);
            const uint unit = e % (TILE_KEYS / 8);
            if (y_row >= rows || first + 8 * unit >= p.value_size) continue;
            const uint at = scores_at + e / (TILE_KEYS / 8) * SCORE_PITCH + 2 * unit;
            const vec4 low = uintBitsToFloat(memory[at]);
            const vec4 high = uintBitsToFloat(memory[at + 1]);
            if (SPLIT != 0) {
                const uint place = (part_rows + y_row) * p.value_size + first + 8 * unit;
                partial_quads[BYTE_OFFSET_PARTIALS / 16 + place / 4] = low;
                partial_quads[BYTE_OFFSET_PARTIALS / 16 + place / 4 + 1] = high;
                continue;
            }
            const uint element = y_start(sequence, y_row / p.group, head_of(y_row)) + first + 8 * unit;
            y_words[(BYTE_OFFSET_Y / T_BYTES + element) / 8] =
                uvec4(packHalf2x16(low.xy), packHalf2x16(low.zw), packHalf2x16(high.xy), packHalf2x16(high.zw));
        }
        subgroup_barrier();
    }
}
