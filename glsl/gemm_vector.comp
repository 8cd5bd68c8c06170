// Products of a matrix with a few vectors (a product of few rows): bound by reading B once.
//
//   y = activation(alpha * sum over k of a[m, k] * b[k, n] + beta * c[m, n] + addend[m, n])
//
// Bindings: A, B, C, Addend, Y; see include/gemm.glsl. Where the columns, not the rows, are few, the host swaps the operands.
// Constants: ROWS (1), all rows of A; LOCAL_SIZE_X invocations, LANES (32, at least 2) of which share four columns and split
// their depth. ALONG_K (1): neighbouring invocations read neighbours along the depth (its stride in B is the smaller one),
// else neighbouring columns. UNROLL (2) blocks of B are in flight at a time. VECTOR_A (1): A's rows are read four depths at
// a time; VECTOR_B (1): so is B, in the direction of ALONG_K; VECTOR_Y (1); PARTIAL (0); HAS_C (1), ADDEND (0), the
// activation's id.
// Grid: linear over matrices, splits and groups of LOCAL_SIZE_X / LANES quads of columns.
//
// An invocation multiplies blocks of four depths by four columns: four accesses of B, one of each row of A. The lanes' sums
// meet in shared memory, two rows at a time, and are added in their order. With PARTIAL the depth is split into p.splits
// parts of p.split_rounds times 4 * LANES, whose sums go to temporary memory as gemm_tiled's do.
// Chosen where the rows are too few for tiles.

#include "tensor.glsl"
#include "gemm_quads.glsl"

const uint COLUMNS = LOCAL_SIZE_X / LANES;
// A lane's four sums lie PITCH_LANE vec4 from the next lane's and PITCH_COLUMN from the next columns': padded where
// neighbouring invocations are lanes, because later they are columns.
const uint PITCH_LANE = ALONG_K != 0 ? 1 : COLUMNS;
const uint PITCH_COLUMN = ALONG_K != 0 ? LANES + 1 : 1;
const uint SLOTS = LOCAL_SIZE_X + COLUMNS;

shared vec4 lane_sums[2 * SLOTS];

layout(set = 0, binding = BINDING_Y, std430) writeonly buffer Partials { vec4 partials[]; };

vec4 sums[ROWS];
uint a_start, b_start, n;

vec4 load_row(uint row, uint k) {
    const uint at = a_start + row * p.a_strides[2];
    if (VECTOR_A != 0) return unpack_quad(load_a_quad(at + k));
    vec4 values;
    [[unroll]] for (uint c = 0; c < 4; ++c) values[c] = load_a(at + min(k + c, p.depth - 1) * p.a_strides[3]);
    return values;
}

// Part i of the block of four depths from k on: ALONG_K, those depths of column n + i, else columns n .. n + 3 of depth
// k + i.
// Rows, columns and depths past the end read the last one.
vec4 load_block(uint k, uint i) {
    const uint column = min(n + (ALONG_K != 0 ? i : 0), p.columns - 1);
    const uint depth = ALONG_K != 0 ? min(k, (p.depth - 1) / 4 * 4) : min(k + i, p.depth - 1);
    if (VECTOR_B != 0) {
        const uint quad = ALONG_K != 0 ? depth + column * p.b_strides[3] : column / 4 * 4 + depth * p.b_strides[2];
        return unpack_quad(load_b_quad(b_start + quad));
    }
    vec4 values;
    [[unroll]] for (uint c = 0; c < 4; ++c) {
        const uint x = ALONG_K != 0 ? column : min(n + c, p.columns - 1);
        const uint z = ALONG_K != 0 ? min(k + c, p.depth - 1) : depth;
        values[c] = load_b(b_start + x * p.b_strides[3] + z * p.b_strides[2]);
    }
    return values;
}

// load_row and load_block with zeros for depths past the end.
bvec4 inside(uint k) { return lessThan(uvec4(k, k + 1, k + 2, k + 3), uvec4(p.depth)); }
vec4 inside_row(uint row, uint k) { return mix(vec4(0), load_row(row, min(k, (p.depth - 1) / 4 * 4)), inside(k)); }
vec4 inside_block(uint k, uint i) {
    return mix(vec4(0), load_block(k, i), ALONG_K != 0 ? inside(k) : bvec4(k + i < p.depth));
}

void multiply_block(uint row, vec4 values, vec4 block[4]) {
    if (ALONG_K != 0) {
        [[unroll]] for (uint i = 0; i < 4; ++i)
            [[unroll]] for (uint c = 0; c < 4; ++c) sums[row][i] = fma(values[c], block[i][c], sums[row][i]);
    } else {
        [[unroll]] for (uint c = 0; c < 4; ++c) sums[row] = fma(vec4(values[c]), block[c], sums[row]);
    }
}

void main() {
    const uint invocation = gl_LocalInvocationID.x;
    const uint lane = ALONG_K != 0 ? invocation % LANES : invocation / COLUMNS;
    const uint column = ALONG_K != 0 ? invocation / LANES : invocation % COLUMNS;
    const uint groups = ((p.columns + 3) / 4 + COLUMNS - 1) / COLUMNS;
    const uint part = linear_workgroup() / groups;
    const uint matrix = part / p.splits;
    const uint split = part - matrix * p.splits;
    if (matrix >= p.matrices) return;
    const uint outer = matrix / p.inner_batch;
    const uint inner = matrix - outer * p.inner_batch;
    const uint first_n = (linear_workgroup() - part * groups) * COLUMNS * 4;
    n = first_n + column * 4;
    a_start = matrix_start(outer, inner, p.a_strides);
    b_start = matrix_start(outer, inner, p.b_strides);

    [[unroll]] for (uint r = 0; r < ROWS; ++r) sums[r] = vec4(0);
    // In a round every lane has a block; whole rounds have all of it inside.
    const uint step = 4 * LANES;
    const uint end = min((split + 1) * p.split_rounds, (p.depth + step - 1) / step);
    const uint whole = min(end, p.depth / step);
    uint round = split * p.split_rounds;
    for (; round + UNROLL <= whole; round += UNROLL) {
        vec4 blocks[UNROLL][4];
        [[unroll]] for (uint u = 0; u < UNROLL; ++u)
            [[unroll]] for (uint i = 0; i < 4; ++i) blocks[u][i] = load_block((round + u) * step + lane * 4, i);
        [[unroll]] for (uint u = 0; u < UNROLL; ++u)
            [[unroll]] for (uint r = 0; r < ROWS; ++r)
                multiply_block(r, load_row(r, (round + u) * step + lane * 4), blocks[u]);
    }
    for (; round < end; ++round) {
        const uint k = round * step + lane * 4;
        if (k < p.depth) {
            vec4 block[4];
            [[unroll]] for (uint i = 0; i < 4; ++i) block[i] = inside_block(k, i);
            [[unroll]] for (uint r = 0; r < ROWS; ++r) multiply_block(r, inside_row(r, k), block);
        }
    }

    // (With one loop over the rows, the sums left the registers: half the speed with four rows on an H200.)
    [[unroll]] for (uint first = 0; first < ROWS; first += 2) {
        if (first > 0) barrier();
        [[unroll]] for (uint r = first; r < min(first + 2, ROWS); ++r)
            lane_sums[(r - first) * SLOTS + lane * PITCH_LANE + column * PITCH_COLUMN] = sums[r];
        barrier();
        // The first invocations add: one row of four columns each.
        const uint row = first + invocation / COLUMNS;
        if (invocation < 2 * COLUMNS && row < ROWS) {
            const uint at = invocation % COLUMNS;
            vec4 sum = vec4(0);
            for (uint i = 0; i < LANES; ++i) sum += lane_sums[(row - first) * SLOTS + i * PITCH_LANE + at * PITCH_COLUMN];
            if (PARTIAL == 0) {
                store_quad(outer, inner, row, first_n + at * 4, sum);
            } else if (first_n + at * 4 < p.columns) {
                const uint line = (split * p.matrices + matrix) * ROWS + row;
                partials[BYTE_OFFSET_Y / 16 + line * (p.partial_pitch / 4) + first_n / 4 + at] = sum;
            }
        }
    }
}
