// The accumulator of a reduction: what is known of a set of elements, for every function, in two registers.
//
//   FUNCTION            first                                    second
//   SUM and its kin     the sum                                  what rounding has kept out of it
//   LOG_SUM_EXP         the largest element                      the others' powers: log_sum_exp.glsl
//   MULTIPLY            the product                              -
//   MAX, MIN            the extreme element, as an order         -
//   ARGMAX, ARGMIN      the same                                 its place: smaller is better
//   RANGE, floats       the largest of them and 0, as an order   the least of them and 0, as an order downwards
//
//   empty()                       of no element; merging it changes nothing
//   update(accumulator, values, place)    takes in TOGETHER elements of one row, whose place is one
//   merged(a, b)                  of two sets together
//   finish(accumulator)           the result, of the arithmetic type
//   to_words, from_words          ACCUMULATOR_WORDS 32-bit words and back
//
// Before including: TOGETHER. Constant: FUNCTION (REDUCE_FUNCTION_*, or RANGE). Parameters: decreasing (ARG*: 1 takes the last
// of equal elements instead of the first); divisor, the number of elements, for AVERAGE.

#ifndef DMLVK_ACCUMULATOR_GLSL
#define DMLVK_ACCUMULATOR_GLSL

#include "math.glsl"
#include "order.glsl"
#if T_IS_FLOAT
#include "log_sum_exp.glsl"
#endif

#if T_BYTES == 8
#define FIRST uint64_t
#else
#define FIRST uint
#endif
#if defined(T_IS_FLOAT64)
#define SECOND uint64_t
#define ACCUMULATOR_WORDS (2 * T_BYTES / 4)
#else
#define SECOND uint
#define ACCUMULATOR_WORDS (2 + T_BYTES / 8)
#endif

struct Accumulator {
    FIRST first;
    SECOND second;
};

#if ACCUMULATOR_WORDS == 4
uint[4] to_words(Accumulator a) {
    const uvec2 first = unpackUint2x32(a.first), second = unpackUint2x32(a.second);
    return uint[4](first.x, first.y, second.x, second.y);
}
Accumulator from_words(uint words[4]) {
    return Accumulator(packUint2x32(uvec2(words[0], words[1])), packUint2x32(uvec2(words[2], words[3])));
}
#elif ACCUMULATOR_WORDS == 3
uint[3] to_words(Accumulator a) {
    const uvec2 first = unpackUint2x32(a.first);
    return uint[3](first.x, first.y, a.second);
}
Accumulator from_words(uint words[3]) { return Accumulator(packUint2x32(uvec2(words[0], words[1])), words[2]); }
#else
uint[2] to_words(Accumulator a) { return uint[2](a.first, a.second); }
Accumulator from_words(uint words[2]) { return Accumulator(words[0], words[1]); }
#endif

// RANGE is both ends at once, for other operators: not a DML_REDUCE_FUNCTION.

const uint NOWHERE = 0xFFFFFFFFu; // the place of no element, later than every other

bool is_function(uint function) { return FUNCTION == function; }
bool is_argument() { return is_function(REDUCE_FUNCTION_ARGMAX) || is_function(REDUCE_FUNCTION_ARGMIN); }
bool is_extreme() { return is_argument() || is_function(REDUCE_FUNCTION_MAX) || is_function(REDUCE_FUNCTION_MIN); }
bool is_product() { return is_function(REDUCE_FUNCTION_MULTIPLY); }
bool is_range() { return is_function(RANGE); }
bool is_log_sum_exp() { return is_function(REDUCE_FUNCTION_LOG_SUM_EXP); }
bool is_least() { return is_function(REDUCE_FUNCTION_MIN) || is_function(REDUCE_FUNCTION_ARGMIN); }

#if defined(T_IS_FLOAT64)
uint64_t to_bits(double value) { return doubleBitsToUint64(value); }
double from_bits(uint64_t bits) { return uint64BitsToDouble(bits); }
FIRST order_bits(ORDER key) { return uint64_t(key); }
#elif T_IS_FLOAT
uint to_bits(float value) { return floatBitsToUint(value); }
T_MATH from_bits(FIRST bits) { return uintBitsToFloat(bits); }
FIRST order_bits(ORDER key) { return uint(key); }
#else
FIRST to_bits(T_MATH value) { return FIRST(value); }
T_MATH from_bits(FIRST bits) { return T_MATH(bits); }
FIRST order_bits(ORDER key) { return FIRST(key); }
#endif
ORDER bits_order(FIRST bits) { return ORDER(bits); }

ORDER order_of(T_MATH x) {
    const ORDER key = is_least() ? order_down(x) : order_up(x);
    return is_argument() ? order_of_zeros(key) : key;
}

#if T_IS_FLOAT
// The orders of the largest of several elements and, downwards, of the least; of NaN both. NaN is looked for once, in the
// result: an order is two operations then, and what finds the largest and the least two more.
void orders_of_all(REAL values[TOGETHER], out ORDER up, out ORDER down) {
    ORDER most = order_of_bits(to_bits(values[0])), least = most;
    [[unroll]] for (int i = 1; i < TOGETHER; ++i) {
        const ORDER key = order_of_bits(to_bits(values[i]));
        most = max(most, key);
        least = min(least, key);
    }
    const bool has_nan = most > INFINITE_ORDER || least < ~INFINITE_ORDER;
    up = has_nan ? NAN_ORDER : most;
    down = has_nan ? NAN_ORDER : ~least;
}
#endif

// The largest order of several elements.
ORDER order_of_all(T_MATH values[TOGETHER]) {
#if T_IS_FLOAT
    ORDER up, down;
    orders_of_all(values, up, down);
    const ORDER key = is_least() ? down : up;
    return is_argument() ? order_of_zeros(key) : key;
#else
    ORDER most = order_of(values[0]);
    [[unroll]] for (int i = 1; i < TOGETHER; ++i) most = max(most, order_of(values[i]));
    return most;
#endif
}

// An element that changes no accumulator (of ARG* it may stand beside real elements of the same access only).
T_MATH neutral() {
#if T_IS_FLOAT
    if (is_extreme() || is_log_sum_exp()) return is_least() ? INFINITY : -INFINITY;
#else
    if (is_extreme()) return is_least() ? from_order_down(LEAST_ORDER) : from_order_up(LEAST_ORDER);
#endif
    return T_MATH(is_product() ? 1 : 0);
}

Accumulator empty() {
    if (is_extreme()) return Accumulator(order_bits(LEAST_ORDER), SECOND(NOWHERE));
#if T_IS_FLOAT
    if (is_range()) return Accumulator(order_bits(order_up(0.0)), order_bits(order_down(0.0)));
#endif
    return Accumulator(to_bits(neutral()), SECOND(0));
}

T_MATH mapped(T_MATH x) {
    if (is_function(REDUCE_FUNCTION_L1)) {
#if T_IS_FLOAT
        return copy_sign(x, T_MATH(1));
#elif T_IS_SIGNED
        return x < 0 ? -x : x;
#endif
    }
    if (is_function(REDUCE_FUNCTION_L2) || is_function(REDUCE_FUNCTION_SUM_SQUARE)) return x * x;
    return x;
}

#if T_IS_FLOAT
// a + b, and what rounding has kept out of it (Knuth). That is NaN where the sum is infinite; finish() leaves it out then.
void two_sum(float a, float b, out float sum, out float lost) {
    precise const float total = a + b;
    precise const float of_b = total - a;
    precise const float of_a = total - of_b;
    precise const float rest = (a - of_a) + (b - of_b);
    sum = total;
    lost = rest;
}
#endif

void add(inout Accumulator a, T_MATH value, SECOND lost_before) {
#if T_IS_FLOAT
    REAL sum, lost;
    two_sum(from_bits(a.first), value, sum, lost);
    a = Accumulator(to_bits(sum), to_bits(from_bits(a.second) + from_bits(lost_before) + lost));
#else
    a.first += FIRST(value);
#endif
}

// Whether an extreme element beats another one.
bool beats(Accumulator a, Accumulator b) {
    const ORDER of_a = bits_order(a.first), of_b = bits_order(b.first);
    return of_a > of_b || is_argument() && of_a == of_b && a.second < b.second;
}

Accumulator merged(Accumulator a, Accumulator b) {
    if (is_extreme()) return beats(b, a) ? b : a;
    if (is_product()) return Accumulator(to_bits(from_bits(a.first) * from_bits(b.first)), SECOND(0));
#if T_IS_FLOAT
    if (is_range()) {
        const ORDER up = max(bits_order(a.first), bits_order(b.first));
        const ORDER down = max(bits_order(a.second), bits_order(b.second));
        return Accumulator(order_bits(up), order_bits(down));
    }
    if (is_log_sum_exp()) {
        const LogSumExp both = merged(LogSumExp(from_bits(a.first), from_bits(a.second)),
                                      LogSumExp(from_bits(b.first), from_bits(b.second)));
        return Accumulator(to_bits(both.largest), to_bits(both.others));
    }
#endif
    add(a, from_bits(b.first), b.second);
    return a;
}

void update(inout Accumulator a, T_MATH values[TOGETHER], uint place) {
    if (is_extreme()) {
        a = merged(a, Accumulator(order_bits(order_of_all(values)), SECOND(place)));
    } else if (is_product()) {
        T_MATH product = values[0];
        [[unroll]] for (int i = 1; i < TOGETHER; ++i) product *= values[i];
        a.first = to_bits(from_bits(a.first) * product);
#if T_IS_FLOAT
    } else if (is_range()) {
        ORDER up, down;
        orders_of_all(values, up, down);
        a = merged(a, Accumulator(order_bits(up), order_bits(down)));
    } else if (is_log_sum_exp()) {
        LogSumExp own = LogSumExp(from_bits(a.first), from_bits(a.second));
        update(own, values);
        a = Accumulator(to_bits(own.largest), to_bits(own.others));
#endif
    } else {
        T_MATH sum = mapped(values[0]);
        [[unroll]] for (int i = 1; i < TOGETHER; ++i) sum += mapped(values[i]);
        add(a, sum, SECOND(0));
    }
}

// Places count upwards from the element that is to win among equals. The inverse is the same.
uint place_of(SECOND place) {
    const uint number = uint(place);
    return p.decreasing != 0u ? NOWHERE - 1u - number : number;
}

T_MATH finish(Accumulator a) {
    if (is_extreme()) return is_least() ? from_order_down(bits_order(a.first)) : from_order_up(bits_order(a.first));
#if T_IS_FLOAT
    if (is_log_sum_exp()) return logarithm(LogSumExp(from_bits(a.first), from_bits(a.second)));
    if (is_product()) return from_bits(a.first);
    const REAL lost = from_bits(a.second);
    const REAL sum = from_bits(a.first) + (is_finite(lost) ? lost : 0.0);
    if (is_function(REDUCE_FUNCTION_AVERAGE)) return sum / REAL(p.divisor);
    if (is_function(REDUCE_FUNCTION_L2)) return sqrt(sum);
    if (is_function(REDUCE_FUNCTION_LOG_SUM)) return log_accurate(sum);
    return sum;
#else
    return from_bits(a.first);
#endif
}

#endif
