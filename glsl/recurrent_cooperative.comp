// One step of a recurrent network of float16 by cooperative matrices (VK_KHR_cooperative_matrix), float32 sums: the states' product with R,
// the gates, the next states.
//
//   h' = cell(xw[t] + b, h R^T); see include/recurrent.glsl
//
// A state, which is float32, is multiplied as two numbers of float16: R has no more than float16, so the sums are as good as those of float32.
// The second is the rest that the first leaves, REST_SCALE times as large, because a driver may make 0 of the smallest numbers. It has sums of
// its own, which are left out where the first ones are infinite: there they are none.
//
// Bindings: as those of recurrent_step.comp, but R is float16. Parameters likewise: quads (16-byte words of a row of R), r_strides (those
// between directions and between rows, in such words).
// Constants: LOCAL_SIZE_X invocations in subgroups of SUBGROUP; ENTRIES (16) sequences and UNITS (8) units of a workgroup; MAT_M x MAT_N x MAT_K,
// the sizes that the device multiplies; DEPTH (256) terms at a time, whole matrices for each subgroup. ENTRIES is a multiple of MAT_M.
// Grid: x over blocks of UNITS units, y over blocks of ENTRIES sequences, z over directions.
//
// A workgroup has all gates of its units, the units of a gate side by side. Each subgroup multiplies its own share of the depth, and the
// subgroups' sums meet in shared memory, where the factors were. The first factors and what the gates need besides are on their way before
// anything is waited for, and further factors while others are multiplied. H200 (driver 580, 2026-11-30), an LSTM of 512 units, 16 sequences,
// us a step: 5.5, of which 2.0 pass between dispatches that wait for each other, and the functions take 0.6. R straight from memory to
// matrices took 1.4 longer, twice as many terms on their way 0.9.
// A row of R consists of aligned words, and so do the rows of STATE; states are finite in float16, or infinite.

#pragma use_vulkan_memory_model

#include "recurrent.glsl"

layout(set = 0, binding = BINDING_XW, std430) readonly buffer Xw { float xw[]; };
layout(set = 0, binding = BINDING_R, std430) readonly buffer R { uvec4 r[]; };
layout(set = 0, binding = BINDING_STATE, std430) buffer StateQuads { vec4 state_quads[]; };

const uint SUBGROUPS = LOCAL_SIZE_X / SUBGROUP;
const uint COLUMNS = (GATES * UNITS + MAT_N - 1) / MAT_N * MAT_N;
const uint BLOCKS_M = ENTRIES / MAT_M;
const uint BLOCKS_N = COLUMNS / MAT_N;
const uint BLOCKS_K = DEPTH / MAT_K / SUBGROUPS; // of a subgroup
const uint WORDS = DEPTH / 8;
const uint PITCH = WORDS + 1; // against bank conflicts
const uint REST_AT = ENTRIES * PITCH;
const uint R_AT = 2 * REST_AT;
const uint FACTORS = R_AT + COLUMNS * PITCH;
const uint SUMS_PITCH = COLUMNS / 4 + 1;
const uint SUMS = SUBGROUPS * ENTRIES * SUMS_PITCH;
// Words of 8 float16, or of 4 float32.
shared uvec4 memory[FACTORS > SUMS ? FACTORS : SUMS];

const uint H_STAGED = (ENTRIES * WORDS + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;
const uint R_STAGED = (COLUMNS * WORDS + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;
vec4 staged_h[H_STAGED][2];
uvec4 staged_r[R_STAGED];

#define ACCUMULATOR coopmat<float, gl_ScopeSubgroup, MAT_M, MAT_N, gl_MatrixUseAccumulator>
#define LEFT coopmat<float16_t, gl_ScopeSubgroup, MAT_M, MAT_K, gl_MatrixUseA>
#define RIGHT coopmat<float16_t, gl_ScopeSubgroup, MAT_K, MAT_N, gl_MatrixUseB>
ACCUMULATOR sums[BLOCKS_M][BLOCKS_N], rests[BLOCKS_M][BLOCKS_N];

// Words from `first` on; past the end of a row its last one.
void fetch(uint first) {
    [[unroll]] for (uint i = 0; i < R_STAGED; ++i) {
        const uint place = gl_LocalInvocationIndex + i * LOCAL_SIZE_X;
        const uint column = min(place / WORDS, GATES * UNITS - 1);
        const uint index = min(gl_WorkGroupID.x * UNITS + column % UNITS, p.hidden - 1);
        const uint row = (FIRST_GATE + column / UNITS) * p.hidden + index;
        const uint start = BYTE_OFFSET_R / 16 + gl_WorkGroupID.z * p.r_strides[0] + row * p.r_strides[1];
        staged_r[i] = r[start + min(first + place % WORDS, p.quads - 1)];
    }
    [[unroll]] for (uint i = 0; i < H_STAGED; ++i) {
        const uint place = gl_LocalInvocationIndex + i * LOCAL_SIZE_X;
        const uint entry = min(gl_WorkGroupID.y * ENTRIES + min(place / WORDS, ENTRIES - 1), p.batch - 1);
        const uint start = state_at(p.vector, Unit(gl_WorkGroupID.z, entry, 0)) / 4 + 2 * min(first + place % WORDS, p.quads - 1);
        staged_h[i][0] = state_quads[start];
        staged_h[i][1] = state_quads[start + 1];
    }
}

// The first bits of two numbers, as many as float16 has, and what they leave, scaled.
uvec2 parted(vec2 x) {
    const uvec2 bits = floatBitsToUint(x);
    const vec2 near = uintBitsToFloat(mix(uvec2(0), bits & FIRST_BITS, greaterThanEqual(bits & SIZE_BITS, uvec2(LEAST_NORMAL))));
    return uvec2(packHalf2x16(near), packHalf2x16(REST_SCALE * (x - near)));
}

void share_factors(uint first) {
    [[unroll]] for (uint i = 0; i < R_STAGED; ++i) {
        const uint place = gl_LocalInvocationIndex + i * LOCAL_SIZE_X;
        if (COLUMNS * WORDS % LOCAL_SIZE_X != 0 && place >= COLUMNS * WORDS) continue;
        memory[R_AT + place / WORDS * PITCH + place % WORDS] = first + place % WORDS < p.quads ? staged_r[i] : uvec4(0);
    }
    [[unroll]] for (uint i = 0; i < H_STAGED; ++i) {
        const uint place = gl_LocalInvocationIndex + i * LOCAL_SIZE_X;
        if (ENTRIES * WORDS % LOCAL_SIZE_X != 0 && place >= ENTRIES * WORDS) continue;
        const vec4 low = staged_h[i][0], high = staged_h[i][1];
        const bool inside = first + place % WORDS < p.quads;
        const uvec2 pairs[] = {parted(low.xy), parted(low.zw), parted(high.xy), parted(high.zw)};
        const uint at = place / WORDS * PITCH + place % WORDS;
        memory[at] = inside ? uvec4(pairs[0].x, pairs[1].x, pairs[2].x, pairs[3].x) : uvec4(0);
        memory[REST_AT + at] = inside ? uvec4(pairs[0].y, pairs[1].y, pairs[2].y, pairs[3].y) : uvec4(0);
    }
}

void multiply() {
    [[unroll]] for (uint k = 0; k < BLOCKS_K; ++k) {
        const uint word = (gl_SubgroupID * BLOCKS_K + k) * MAT_K / 8;
        LEFT near[BLOCKS_M], rest[BLOCKS_M];
        [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) {
            coopMatLoad(near[m], memory, m * MAT_M * PITCH + word, PITCH, gl_CooperativeMatrixLayoutRowMajor);
            coopMatLoad(rest[m], memory, REST_AT + m * MAT_M * PITCH + word, PITCH, gl_CooperativeMatrixLayoutRowMajor);
        }
        [[unroll]] for (uint n = 0; n < BLOCKS_N; ++n) {
            RIGHT weights;
            coopMatLoad(weights, memory, R_AT + n * MAT_N * PITCH + word, PITCH, gl_CooperativeMatrixLayoutColumnMajor);
            [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m) {
                sums[m][n] = coopMatMulAdd(near[m], weights, sums[m][n]);
                rests[m][n] = coopMatMulAdd(rest[m], weights, rests[m][n]);
            }
        }
    }
}

const uint ITEMS = ENTRIES * UNITS;
const uint OWN_ITEMS = (ITEMS + LOCAL_SIZE_X - 1) / LOCAL_SIZE_X;

// The unit and sequence of an invocation's item; past the last one, the last one.
Unit unit_of(uint item) {
    const uint index = gl_WorkGroupID.x * UNITS + item % UNITS;
    const uint entry = gl_WorkGroupID.y * ENTRIES + min(item / UNITS, ENTRIES - 1);
    return Unit(gl_WorkGroupID.z, min(entry, p.batch - 1), min(index, p.hidden - 1));
}

void main() {
    fetch(0);
    float inputs[OWN_ITEMS][MOST_GATES], cells[OWN_ITEMS], states[OWN_ITEMS];
    [[unroll]] for (uint i = 0; i < OWN_ITEMS; ++i) {
        const Unit unit = unit_of(gl_LocalInvocationIndex + i * LOCAL_SIZE_X);
        const Step at = step_of(unit, p.step);
        const uint row = ((unit.direction * p.steps + at.position) * p.batch + unit.entry) * ALL_GATES;
        [[unroll]] for (uint g = 0; g < MOST_GATES; ++g)
            if (g >= FIRST_GATE && g < FIRST_GATE + GATES)
                inputs[i][g] = biased(unit, g, xw[BYTE_OFFSET_XW / 4 + (row + g) * p.hidden + unit.index]);
        cells[i] = HAS_CELL != 0 ? state[state_at(p.cell, unit)] : 0.0;
        states[i] = state[state_at(p.previous, unit)];
    }
    [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m)
        [[unroll]] for (uint n = 0; n < BLOCKS_N; ++n) sums[m][n] = rests[m][n] = ACCUMULATOR(0.0);
    [[dont_unroll]] for (uint first = 0; first < p.quads; first += WORDS) {
        if (first != 0) barrier();
        share_factors(first);
        barrier();
        if (first + WORDS < p.quads) fetch(first + WORDS);
        multiply();
    }
    barrier();
    [[unroll]] for (uint m = 0; m < BLOCKS_M; ++m)
        [[unroll]] for (uint n = 0; n < BLOCKS_N; ++n) {
            [[unroll]] for (uint e = 0; e < rests[m][n].length(); ++e)
                sums[m][n][e] += is_infinite(sums[m][n][e]) ? 0.0 : rests[m][n][e] / REST_SCALE;
            coopMatStore(sums[m][n], memory, (gl_SubgroupID * ENTRIES + m * MAT_M) * SUMS_PITCH + n * MAT_N / 4, SUMS_PITCH,
                         gl_CooperativeMatrixLayoutRowMajor);
        }
    barrier();
    [[unroll]] for (uint i = 0; i < OWN_ITEMS; ++i) {
        const uint item = gl_LocalInvocationIndex + i * LOCAL_SIZE_X;
        const uint index = gl_WorkGroupID.x * UNITS + item % UNITS;
        const uint entry = item / UNITS;
        if (item >= ITEMS || index >= p.hidden || gl_WorkGroupID.y * ENTRIES + entry >= p.batch) break;
        float totals[MOST_GATES];
        [[unroll]] for (uint g = 0; g < MOST_GATES; ++g) {
            if (g < FIRST_GATE || g >= FIRST_GATE + GATES) continue;
            const uint column = (g - FIRST_GATE) * UNITS + item % UNITS;
            float total = 0.0;
            [[unroll]] for (uint s = 0; s < SUBGROUPS; ++s)
                total += uintBitsToFloat(memory[(s * ENTRIES + entry) * SUMS_PITCH + column / 4][column % 4]);
            totals[g] = total;
        }
        const Unit unit = unit_of(item);
        const Step at = step_of(unit, p.step);
        float cell = cells[i];
        state[state_at(p.next, unit)] = advance(CELL, unit, at, states[i], cell, inputs[i], reset_bias(unit), totals);
        if (HAS_CELL != 0) state[state_at(p.cell, unit)] = cell;
    }
}
