// y = x at the places that indices name (Gather, GatherElements, GatherNd1).
//
// A row of the output comes from one place of the input: strides times the row's coordinates, where the input shares
// dimensions with the output, and a clamped index times a stride for each input dimension that the indices stand for.
//   Gather          y[a, i, b] = x[a, index(i), b]         rows b, a tuple of one index
//   GatherElements  y[a, k, b] = x[a, index(a, k, b), b]   rows of one element
//   GatherNd1       y[b, i, c] = x[b, index(b, i, :), c]   rows c, tuples of up to eight
//
// Bindings: indices, as 32-bit words; x; output. Variants, constants and parameters of the rows: include/rows.glsl. Units of
// x and of the output may hold several elements.
// An input that no binding holds is bound in windows, one a dispatch: each writes what comes from its own.
// Constants: WINDOWED 0, whether x is a window; RANK of the rows; TUPLE 1, indices that name a place; INDEX_WORDS, INDEX_SIGNED (include/index.glsl).
// Parameters: sizes of the index space of the rows and what divides by them; for a step in each of its dimensions
//   x_strides and output_strides, in units, and index_strides, in words; index_step, words from an index of a tuple to the
//   next; of each dimension of the input that is indexed, chosen_sizes and chosen_strides, in units; window, its first unit of
//   the input and how many it has.
//
// The rule "rows" where rows are contiguous in the input and in the output, "units" for any strides.

#include "index.glsl"
#include "row.glsl"
#include "tensor.glsl"

layout(set = 0, binding = BINDING_INDICES, std430) readonly buffer Indices { uint index_words[]; };

#define HAS_UNIT(unit) (WINDOWED == 0u || (unit) < p.window[1])

Row row_at(uint row) {
    uint source = 0u, target = 0u, word = BYTE_OFFSET_INDICES / 4u;
#define VISIT(dimension, coordinate)                       \
    source += (coordinate) * p.x_strides[dimension];       \
    target += (coordinate) * p.output_strides[dimension];  \
    word += (coordinate) * p.index_strides[dimension];
    FOR_EACH_COORDINATE_FAST(row, RANK, p.sizes, p.divisors, VISIT)
    [[unroll]] for (uint i = 0u; i < TUPLE; ++i) {
        const uint high = INDEX_WORDS == 2u ? index_words[word + 1u] : 0u;
        source += clamp_index(index_words[word], high, p.chosen_sizes[i]) * p.chosen_strides[i];
        word += p.index_step;
    }
    return Row(WINDOWED == 0u ? source : source - p.window[0], 0u, p.inner_size, target);
}

#include "rows.glsl"
