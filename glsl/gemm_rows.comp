// Matrix product, several rows of four columns in each invocation's registers.
//
//   y = activation(alpha * sum over k of a[m, k] * b[k, n] + beta * c[m, n] + addend[m, n])
//
// Variants: the types; W, that of 64 bits.
// Bindings: A, B, C, Addend, Y; see include/gemm.glsl. Constants: ROWS (8) rows an invocation, of which SHARERS (8) invocations read those
// of A together, at most the subgroup size; ALONG_K (0), VECTOR_A, VECTOR_B (1), see include/gemm_blocks.glsl; VECTOR_Y (1); HAS_C (1) and
// C_LINES (0), what of C is one number: C_LINES_ROWS, a row, C_LINES_COLUMNS, a column; ADDEND (0), the activation's id.
// Grid: x over quads of columns, y over blocks of ROWS rows, z over the batch.
//
// Each value of B is read once for ROWS products. All invocations of a workgroup need the same values of A: each reads those of one row
// and the subgroup passes them round. A CPU's read is a loop over the lanes, even where all of them read the same, and one of 64 bits
// takes no longer than one of 32: so reads and writes are of 64 bits wherever they can be. Chosen on CPUs.

// The number of C that the next output is finished with.
float own_c;
#define OWN_C own_c

#include "tensor.glsl"
#include "gemm_quads.glsl"

layout(set = 0, binding = BINDING_A, std430) readonly buffer AWords { W a_words[]; };
layout(set = 0, binding = BINDING_B, std430) readonly buffer BWords { W b_words[]; };
layout(set = 0, binding = BINDING_Y, std430) writeonly buffer YWords { W y_words[]; };
#ifdef W_IS_UINT64
#define PAIR(word) unpackUint2x32(word)
#define WORD(pair) packUint2x32(pair)
#else
#define PAIR(word) word
#define WORD(pair) pair
#endif
#if T_BYTES == 2
#define QUAD_OF(words, at) unpack_quad(PAIR(words[(at) / 4]))
#else
#define QUAD_OF(words, at) uintBitsToFloat(uvec4(PAIR(words[(at) / 2]), PAIR(words[(at) / 2 + 1])))
#endif
#define A_QUAD(element) QUAD_OF(a_words, BYTE_OFFSET_A / T_BYTES + (element))
#define B_QUAD(element) QUAD_OF(b_words, BYTE_OFFSET_B / T_BYTES + (element))

const uint HALVES = 1;
const uint LANE_ROWS = ROWS / SHARERS;
vec4 sums[ROWS];
uint a_start, b_start;
#include "gemm_blocks.glsl"

// The columns n to n + 3 of the row of Y that starts at an element.
void store_values(uint row, uint n, vec4 values) {
    if (VECTOR_Y == 0) {
        [[unroll]] for (uint c = 0; c < 4; ++c)
            if (n + c < p.columns) y[BYTE_OFFSET_Y / R_BYTES + row + (n + c) * p.y_strides[3]] = RESULT(values[c]);
        return;
    }
    const uint at = (BYTE_OFFSET_Y / R_BYTES + row + n) * R_BYTES / 8;
#if R_BYTES == 2
    y_words[at] = WORD(pack_results(values));
#else
    y_words[at] = WORD(floatBitsToUint(values.xy));
    y_words[at + 1] = WORD(floatBitsToUint(values.zw));
#endif
}

void main() {
    // Past the last column everything but the writing happens to the last quad, because subgroups must stay whole.
    const uint n = min(gl_GlobalInvocationID.x, (p.columns - 1) / 4) * 4;
    const uint first = gl_WorkGroupID.y * ROWS;
    const uint outer = gl_WorkGroupID.z / p.inner_batch;
    const uint inner = gl_WorkGroupID.z - outer * p.inner_batch;
    a_start = matrix_start(outer, inner, p.a_strides);
    b_start = matrix_start(outer, inner, p.b_strides);
    [[unroll]] for (uint r = 0; r < ROWS; ++r) sums[r] = vec4(0);
    for (uint k = 0; k < p.depth; k += 4) {
        vec4 rows[LANE_ROWS];
        [[unroll]] for (uint j = 0; j < LANE_ROWS; ++j)
            rows[j] = load_row(min(first + j * SHARERS + gl_SubgroupInvocationID % SHARERS, p.rows - 1), k);
        vec4 block[4];
        [[unroll]] for (uint i = 0; i < 4; ++i) block[i] = load_block(n, k, i);
        if (k + 4 > p.depth) {
            [[unroll]] for (uint j = 0; j < LANE_ROWS; ++j) rows[j] = mix(vec4(0), rows[j], inside(k));
            [[unroll]] for (uint i = 0; i < 4; ++i) block[i] = inside_part(block[i], k, i);
        }
        [[unroll]] for (uint r = 0; r < ROWS; ++r) multiply_block(r, subgroupShuffle(rows[r / SHARERS], r % SHARERS), block);
    }

    const uint c_start = matrix_start(outer, inner, p.c_strides);
    float c_of_rows[ROWS];
    vec4 c_of_columns = vec4(0);
    if (HAS_C != 0 && C_LINES == C_LINES_ROWS) {
        float own[LANE_ROWS];
        [[unroll]] for (uint j = 0; j < LANE_ROWS; ++j)
            own[j] = load_c(c_start + min(first + j * SHARERS + gl_SubgroupInvocationID % SHARERS, p.rows - 1) * p.c_strides[2]);
        [[unroll]] for (uint r = 0; r < ROWS; ++r) c_of_rows[r] = subgroupShuffle(own[r / SHARERS], r % SHARERS);
    }
    if (HAS_C != 0 && C_LINES == C_LINES_COLUMNS)
        [[unroll]] for (uint c = 0; c < 4; ++c) c_of_columns[c] = load_c(c_start + min(n + c, p.columns - 1) * p.c_strides[3]);
    if (4 * gl_GlobalInvocationID.x >= p.columns) return;
    [[unroll]] for (uint r = 0; r < ROWS; ++r) {
        const uint m = first + r;
        if (m >= p.rows) return;
        vec4 values;
        [[unroll]] for (uint c = 0; c < 4; ++c) {
            if (HAS_C != 0) {
                if (C_LINES == C_LINES_ROWS) own_c = c_of_rows[r];
                else if (C_LINES == C_LINES_COLUMNS) own_c = c_of_columns[c];
                else own_c = load_c(c_start + m * p.c_strides[2] + min(n + c, p.columns - 1) * p.c_strides[3]);
            }
            values[c] = finished(outer, inner, m, min(n + c, p.columns - 1), sums[r][c]);
        }
        store_values(matrix_start(outer, inner, p.y_strides) + m * p.y_strides[2], n, values);
    }
}
