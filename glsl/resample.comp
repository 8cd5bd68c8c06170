// Resampling of any dimensions by any factors: y[o] = the element nearest to x(o), or the average of those around it.
//
//   x(o) = (o - output offset) / scale - input offset along each dimension; see spec/ops/resample.py (Resample3)
//
// Bindings: X, Y. Constants and parameters: see include/resample.glsl; also
//   CORNERS   elements averaged around a position, those of the columns' own two not counted: 2 for each mapped dimension
//   COLUMNS   1 where the lanes of an item have a column each, because their dimension is mapped
//   UNITS     items of an invocation, 1 or 2, unit_size elements apart along the innermost dimension, at one position
// Variants: T; LANES, the neighbours along the innermost dimension that are an item.
// Grid: x folded into y, over `count` invocations of the index space `sizes`, the innermost in items.
//
// Rules: "shared" where the innermost dimension is not mapped (channels of NHWC: an item has one position and one set of
// weights), "groups" where it is (COLUMNS 1: an item has one row around it, each lane its own columns), and "elements" with
// LANES 1. Neighbours read the same elements from the cache; a 16-byte group needs its index arithmetic once.

#include "resample.glsl"

const int OUTER = int(RANK) - int(COLUMNS); // dimensions that corners count


uint innermost;

#define VISIT(d, coordinate)                                                                  \
    if (int(d) < OUTER && is_mapped(d)) surround(d, coordinate);                              \
    else if (int(d) < OUTER) x_base += (coordinate) * p.x_strides[d];                         \
    y_base += (coordinate) * p.y_strides[d];                                                  \
    if (int(d) == int(RANK) - 1) innermost = (coordinate);

void columns_item() {
    const int d = int(RANK) - 1;
    uint low[LANES], high[LANES];
    float low_weight[LANES], high_weight[LANES];
    Position at = position_of(d, innermost * LANES);
    [[unroll]] for (int l = 0; l < LANES; ++l) {
        if (LINEAR == 1u) {
            const Pair pair = pair_of(d, at);
            low[l] = pair.low * p.x_strides[d];
            high[l] = pair.high * p.x_strides[d];
            low_weight[l] = pair.low_weight;
            high_weight[l] = pair.high_weight;
        } else {
            low[l] = clamp_input(d, at.whole) * p.x_strides[d];
        }
        advance(d, at);
    }
    float sums[LANES];
    [[unroll]] for (int l = 0; l < LANES; ++l) sums[l] = 0.0;
    T_MATH values[LANES];
    FOR_EACH_CORNER(c) {
        const Corner row = corner(c, OUTER);
        [[unroll]] for (int l = 0; l < LANES; ++l) {
            const T_MATH first = T_MATH(ELEMENT(T, X, x, row.at + low[l]));
            if (LINEAR == 0u) {
                values[l] = first;
                continue;
            }
            const T_MATH second = T_MATH(ELEMENT(T, X, x, row.at + high[l]));
            const float average = low_weight[l] * float(first) + high_weight[l] * float(second);
            sums[l] += row.weight * average;
        }
    }
    if (LINEAR == 1u) {
        [[unroll]] for (int l = 0; l < LANES; ++l) values[l] = result_of(sums[l]);
    }
    const uint lanes = min(p.inner_size - innermost * LANES, LANES);
    STORE_Y(y_base, lanes, values)
}

void shared_items() {
    float sums[MOST_UNITS][LANES];
    T_MATH values[MOST_UNITS][LANES];
    [[unroll]] for (uint u = 0; u < UNITS; ++u) {
        [[unroll]] for (int l = 0; l < LANES; ++l) sums[u][l] = 0.0;
    }
    FOR_EACH_CORNER(c) {
        const Corner here = corner(c, OUTER);
        [[unroll]] for (uint u = 0; u < UNITS; ++u) {
            LOAD_LANES(T, values[u], X, x, X_MODE, here.at + u * p.unit_size * p.x_step, p.x_step)
            if (LINEAR == 1u) {
                [[unroll]] for (int l = 0; l < LANES; ++l) sums[u][l] += here.weight * float(values[u][l]);
            }
        }
    }
    [[unroll]] for (uint u = 0; u < UNITS; ++u) {
        if (LINEAR == 1u) {
            [[unroll]] for (int l = 0; l < LANES; ++l) values[u][l] = result_of(sums[u][l]);
        }
        STORE_LANES(T, Y, y, Y_MODE, y_base + u * p.unit_size * p.y_step, p.y_step, values[u])
    }
}

// An item at a row's end, of fewer lanes than LANES.
void shared_rest(uint lanes) {
    for (uint l = 0; l < lanes; ++l) {
        float sum = 0.0;
        T_MATH value;
        FOR_EACH_CORNER(c) {
            const Corner here = corner(c, OUTER);
            value = T_MATH(ELEMENT(T, X, x, here.at + l * p.x_step));
            if (LINEAR == 1u) sum += here.weight * float(value);
        }
        ELEMENT(T, Y, y, y_base + l * p.y_step) = T(LINEAR == 1u ? result_of(sum) : value);
    }
}

void main() {
    if (beyond(p.count)) return;
    x_base = 0u;
    y_base = 0u;
    FOR_EACH_COORDINATE_FAST(linear_invocation(), RANK, p.sizes, p.divisors, VISIT)
    if (COLUMNS == 1u) {
        columns_item();
    } else {
        const uint lanes = min(p.inner_size - innermost * LANES, LANES); // fewer only where UNITS is 1
        if (LANES == 1 || lanes == LANES) shared_items();
        else shared_rest(lanes);
    }
}
