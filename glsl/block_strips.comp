// Products with weights in blocks by cooperative matrices, of few rows: float16 factors, float32 sums.
//
//   y[m, n] = activation(alpha * sum over k of a[m, k] * number (include/block_codes.glsl) of code k of column n + ...)
//
// Neither factor goes through shared memory, and no subgroup waits for another before its sums are finished. A workgroup has a strip
// of SUB_N columns, each of its DEEP subgroups a part of the depth of it. Where the elements of a matrix lie is known
// (include/matrix_fragments.glsl): an invocation fills them with what it has unpacked. It loads a chunk of a column at once. Its eight
// steps of multiplication take four codes of that each, so that the order of the depth is another one than in memory, for A as well.
//
// Weights are the left factor, though they are B: what an invocation has of a right one are elements of one line side by side, as it loads
// them of A, and needs no instruction to fill a matrix.
//
// Bindings, rounding and parameters: those of block_cooperative.comp; A is float16, whatever T, and its rows have whole words of 8.
// Constants: the format's; LOCAL_SIZE_X, DEEP subgroups of 32; TILE_M, rows of a tile, a multiple of 16; TILE_K, 128 for each subgroup;
// WHOLE_ROUNDS, whether that divides the depth; SUB_N, a multiple of 16; MAT_M, MAT_N, MAT_K, all 16; VECTOR_Y (1), HAS_C (1), ADDEND (0),
// the activation's id; PARTIAL (0).
// Variant ADDS: whether there is an addend beside C.
// Grid: linear over splits and tiles, the latter neighbours.

#pragma use_vulkan_memory_model

#define NO_SCALED_CLIP
#define HALF_ARITHMETIC

#include "tensor.glsl"
#include "gemm_quads.glsl"
#include "bands.glsl"
#include "block_codes.glsl"
#include "matrix_fragments.glsl"

layout(set = 0, binding = BINDING_A, std430) readonly buffer WordsA { uvec4 words_a[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Partials { vec4 partials[]; };

#define LEFT coopmat<float16_t, gl_ScopeSubgroup, MAT_M, MAT_K, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, MAT_K, MAT_N, gl_MatrixUseB>
#define SUMS coopmat<float, gl_ScopeSubgroup, MAT_M, MAT_N, gl_MatrixUseAccumulator>

const uint BLOCKS_M = TILE_M / MAT_N;
const uint BLOCKS_N = SUB_N / MAT_M;

// The finished sums of each subgroup, by rows of Y: SUB_N numbers and a word of padding.
const uint PITCH = SUB_N / 4 + 1;
shared vec4 tiles[DEEP * TILE_M * PITCH];

SUMS sums[BLOCKS_N][BLOCKS_M];

// Four invocations have neighbouring chunks of a column, in a round; eight columns are side by side.
const uint SHARERS = MAT_K / 4;
const uint ROUND = SHARERS * CHUNK;
const uint EACH = SUB_N / 8;
const uint BLOCKS_EACH = BLOCK < CHUNK ? CHUNK / BLOCK : 1;

uint first_m;
uint first_n;

// Codes as they lie in memory, with what makes numbers of them.
struct Raw {
    Chunk codes;
    ColumnBits bits[BLOCKS_EACH];
};

Raw raw[2][EACH];
uvec4 eights[2][BLOCKS_M][2];
uint lines[BLOCKS_M][2];

// The weights of a round that starts at k. Past the depth they are numbers, and A has zeros.
void fetch_b(out Raw next[EACH], uint k) {
    const uint chunk = min(k / CHUNK + gl_SubgroupInvocationID % SHARERS, p.chunks - 1);
    [[unroll]] for (uint c = 0; c < EACH; ++c) {
        const uint column = min(first_n + c * 8 + gl_SubgroupInvocationID / SHARERS, p.columns - 1);
        next[c].codes = load_chunk(column, chunk);
        [[unroll]] for (uint b = 0; b < BLOCKS_EACH; ++b)
            next[c].bits[b] = load_bits(column, min(chunk * CHUNK / BLOCK + b, p.blocks - 1));
    }
}

// Word `word` of the lines, of eight elements.
void fetch_a(out uvec4 next[BLOCKS_M][2], uint word) {
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i)
        [[unroll]] for (uint line = 0; line < 2; ++line) next[i][line] = words_a[lines[i][line] + word];
}

// Fills a matrix with four elements of each of two lines, words `first` and `first` + 1 of what they have.
#define FILL(matrix, lines, first)                                                     \
    [[unroll]] for (uint line = 0; line < 2; ++line)                                   \
        [[unroll]] for (uint pair = 0; pair < 2; ++pair) {                             \
            const f16vec2 both = unpackFloat2x16((lines)[line][(first) + pair]);       \
            matrix[fragment_element(line, pair, 0)] = both.x;                          \
            matrix[fragment_element(line, pair, 1)] = both.y;                          \
        }

// Multiplies a round that starts at k, and loads of A what comes after each step.
void multiply_round(Raw own[EACH], uint k) {
    const uint word = (k + gl_SubgroupInvocationID % SHARERS * CHUNK) / 8, words = p.depth / 8;
    [[unroll]] for (uint g = 0; g < GROUPS_OF_EIGHT; ++g) {
        const bool is_last = g + 1 == GROUPS_OF_EIGHT;
        const uint then = is_last ? word + TILE_K / 8 : word + g + 1;
        fetch_a(eights[(g + 1) % 2], WHOLE_ROUNDS != 0 && !is_last ? then : min(then, words - 1));
        uvec4 of_b[BLOCKS_N][2], of_a[BLOCKS_M][2];
        [[unroll]] for (uint c = 0; c < EACH; ++c)
            of_b[c / 2][c % 2] = rounded_numbers_of(eight_codes_of(own[c].codes, g, own[c].bits[g * BLOCKS_EACH / GROUPS_OF_EIGHT]));
        [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i)
            [[unroll]] for (uint line = 0; line < 2; ++line)
                of_a[i][line] = WHOLE_ROUNDS != 0 || word + g < words ? eights[g % 2][i][line] : uvec4(0);
        [[unroll]] for (uint first = 0; first < 4; first += 2) {
            RIGHT rows[BLOCKS_M];
            [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) {
                rows[i] = RIGHT(0);
                FILL(rows[i], of_a[i], first)
            }
            [[unroll]] for (uint j = 0; j < BLOCKS_N; ++j) {
                LEFT columns = LEFT(0);
                FILL(columns, of_b[j], first)
                [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) sums[j][i] = coopMatMulAdd(columns, rows[i], sums[j][i]);
            }
        }
    }
}

// Adds up the subgroup's rounds of the depth from `first` to before `last`. The conditions are the same for all subgroups, as
// the driver can see; and they keep it from moving the loads down to where their values are used.
void multiply(uint first, uint last) {
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i) {
        [[unroll]] for (uint j = 0; j < BLOCKS_N; ++j) sums[j][i] = SUMS(0);
        [[unroll]] for (uint line = 0; line < 2; ++line) {
            const uint m = first_m + i * MAT_N + 8 * line + gl_SubgroupInvocationID / SHARERS;
            lines[i][line] = BYTE_OFFSET_A / 16 + min(m, p.rows - 1) * p.a_strides[2] / 8;
        }
    }
    const uint own = gl_SubgroupID * ROUND;
    fetch_b(raw[0], first + own);
    fetch_b(raw[1], first + own + TILE_K);
    fetch_a(eights[0], min((first + own + gl_SubgroupInvocationID % SHARERS * CHUNK) / 8, p.depth / 8 - 1));
    for (uint k = first; k < last; k += 2 * TILE_K) {
        multiply_round(raw[0], k + own);
        if (k + 2 * TILE_K < last) fetch_b(raw[0], k + own + 2 * TILE_K);
        if (k + TILE_K < last) {
            multiply_round(raw[1], k + own + TILE_K);
            if (k + 3 * TILE_K < last) fetch_b(raw[1], k + own + 3 * TILE_K);
        }
    }
}

void main() {
    const uint tiles_m = (p.rows + TILE_M - 1) / TILE_M;
    const uint tiles_n = (p.columns + SUB_N - 1) / SUB_N;
    const uint split = linear_workgroup() / (tiles_m * tiles_n);
    if (split >= p.splits) return;
    const uvec2 tile = tile_in_bands(linear_workgroup() - split * tiles_m * tiles_n, tiles_m, tiles_n);
    first_m = tile.x * TILE_M;
    first_n = tile.y * SUB_N;
    const uint first = split * p.split_rounds * TILE_K;
    multiply(first, min(first + p.split_rounds * TILE_K, p.depth));

    // All at once: in a loop that is not unrolled sums would lie in memory from the first one on.
    [[unroll]] for (uint i = 0; i < BLOCKS_M; ++i)
        [[unroll]] for (uint j = 0; j < BLOCKS_N; ++j)
            coopMatStore(sums[j][i], tiles, (gl_SubgroupID * TILE_M + i * MAT_N) * PITCH + j * MAT_M / 4, PITCH,
                         gl_CooperativeMatrixLayoutColumnMajor);
    barrier();
    const uint quads = SUB_N / 4;
    for (uint e = gl_LocalInvocationIndex; e < TILE_M * quads; e += LOCAL_SIZE_X) {
        vec4 sum = vec4(0);
        [[unroll]] for (uint d = 0; d < DEEP; ++d) sum += tiles[(d * TILE_M + e / quads) * PITCH + e % quads];
        const uint m = first_m + e / quads, n = first_n + e % quads * 4;
        if (PARTIAL == 0) {
            store_quad(0, 0, m, n, sum);
        } else if (m < p.rows && n < p.columns) {
            const uint row = split * p.matrices * p.rows + m;
            partials[BYTE_OFFSET_Y / 16 + row * (p.partial_pitch / 4) + n / 4] = sum;
        }
    }
}
