// The special functions in float64, for which GLSL has none: those of math.glsl, trigonometry.glsl, hyperbolic.glsl and
// power.glsl, by the same names, which C calls overloads. math.glsl includes this where T is FLOAT64.
//
// They build on add, multiply, divide, square root and bit casts, as those of float32 do, and propagate NaN and reach their
// limits in the same way. Polynomials are near-minimax fits to 2^-57 and better, made for these intervals in 50 digits. No
// product counts on a fused multiply-add, which devices may round twice: where a product must be exact, its factors are
// halves of 26 bits. Errors, as far as results are normal numbers (a device may take others for 0): exp and log 1 ULP, sin,
// cos, asin, acos, atan and power 2, tan, tanh, sinh, cosh, asinh, acosh, atanh, sigmoid, softplus and erf 4, gelu 6.

#ifndef DMLVK_MATH64_GLSL
#define DMLVK_MATH64_GLSL

const uint64_t SIGN_OF_DOUBLE = uint64_t(1) << 63;
const uint64_t INFINITE_DOUBLE = uint64_t(0x7FF) << 52; // the bits of infinity
const uint64_t SIGNIFICAND_OF_DOUBLE = (uint64_t(1) << 52) - uint64_t(1);

uint64_t size_bits(double x) { return doubleBitsToUint64(x) & ~SIGN_OF_DOUBLE; }
bool is_negative(double x) { return (doubleBitsToUint64(x) & SIGN_OF_DOUBLE) != uint64_t(0); }
bool is_nan(double x) { return size_bits(x) > INFINITE_DOUBLE; }
bool is_finite(double x) { return size_bits(x) < INFINITE_DOUBLE; }
bool is_infinite(double x) { return size_bits(x) == INFINITE_DOUBLE; }
bool is_zero(double x) { return size_bits(x) == uint64_t(0); }

double finite_or_zero(double value) { return is_finite(value) ? value : 0.0LF; }

precise double divide(double a, double b) { return a / b; }

double copy_sign(double magnitude, double sign_from) {
    return uint64BitsToDouble(size_bits(magnitude) | (doubleBitsToUint64(sign_from) & SIGN_OF_DOUBLE));
}

// A whole number, exact below 2^53.
double whole_double(uint64_t x) {
    const uvec2 halves = unpackUint2x32(x);
    return double(halves.y) * 4294967296.0LF + double(halves.x);
}

// 2^n for n in [-1022, 1023].
double two_to(int n) { return packDouble2x32(uvec2(0u, uint(n + 1023) << 20)); }

// The upper 26 significant bits, which square exactly.
double upper_half(double x) { return uint64BitsToDouble(doubleBitsToUint64(x) & ~uint64_t(0x7FFFFFF)); }

// a + b, and what rounding has kept out of it (Knuth). That is NaN where the sum is infinite.
void two_sum(double a, double b, out double sum, out double lost) {
    precise const double total = a + b;
    precise const double of_b = total - a;
    precise const double of_a = total - of_b;
    precise const double rest = (a - of_a) + (b - of_b);
    sum = total;
    lost = rest;
}

// -- exponentials

// ln 2 in two parts: the first has 32 significant bits, so that products with an integer below 2^21 are exact.
const double LN2_64_HIGH = 0.6931471803691238LF;
const double LN2_64_LOW = 1.9082149292705877e-10LF;
const double LOG2_E_64 = 1.4426950408889634LF;

// x + ROUNDING_64 has the nearest integer to x in its low bits, for |x| < 2^31.
const double ROUNDING_64 = 6755399441055744.0LF;

// The nearest integer to x, for |x| < 2^31, as both types.
double nearest(double x, out int n) {
    precise double sum = x + ROUNDING_64;
    precise double whole = sum - ROUNDING_64;
    n = int(unpackDouble2x32(sum).x);
    return whole;
}

// e^r - 1 for |r| <= ln(2) / 2.
double expm1_reduced(double r) {
    precise double q = 2.0914686968086876e-9LF;
    q = q * r + 2.5105217004720745e-8LF;
    q = q * r + 2.75572736431103e-7LF;
    q = q * r + 2.7557255400206422e-6LF;
    q = q * r + 2.4801587325547743e-5LF;
    q = q * r + 1.9841269874820627e-4LF;
    q = q * r + 1.3888888888883748e-3LF;
    q = q * r + 8.333333333326136e-3LF;
    q = q * r + 0.04166666666666667LF;
    q = q * r + 0.1666666666666667LF;
    q = q * r + 0.5LF;
    precise double result = r + (r * r) * q;
    return result;
}

// x - n ln 2, the nearest n to x / ln 2.
double reduce_exponent(double x, out int n) {
    const double whole = nearest(x * LOG2_E_64, n);
    precise double high = x - whole * LN2_64_HIGH; // exact
    precise double r = high - whole * LN2_64_LOW;
    return r;
}

// e^(x + low) 2^shift for |x| < 1400, a small correction `low` that x is too coarse to hold, and shift 0 or -1.
double exp_scaled(double x, double low, int shift) {
    int n;
    precise double r = reduce_exponent(x, n) + low;
    // The scale is applied in two steps, because it may be beyond the largest or below the smallest normal.
    n += shift;
    const int half_n = n >> 1;
    precise double result = (1.0LF + expm1_reduced(r)) * two_to(half_n) * two_to(n - half_n);
    return result;
}

double exp_accurate(double x) { return x > 710.0LF ? INFINITY : x < -746.0LF ? 0.0 : exp_scaled(x, 0.0LF, 0); }

// (e^x - 1) / 2 for x in [-38, 710].
double half_expm1(double x) {
    int n;
    const double r = reduce_exponent(x, n);
    const double half_scale = two_to(n - 1);
    precise double result = expm1_reduced(r) * half_scale + (half_scale - 0.5LF);
    return result;
}

double expm1(double x) { return is_nan(x) ? x : 2.0LF * half_expm1(clamp(x, -38.0LF, 710.0LF)); }

// -- logarithms

// ln(2^e * (1 + f)) for f in [sqrt(1/2) - 1, sqrt(2) - 1], by the series in s = f / (2 + f).
double log_reduced(double f, double e) {
    precise double s = f / (2.0LF + f);
    precise double z = s * s;
    precise double q = 0.13088034850927555LF;
    q = q * z + 0.13268638369266825LF;
    q = q * z + 0.15386244737621665LF;
    q = q * z + 0.18181795547521137LF;
    q = q * z + 0.22222222392581045LF;
    q = q * z + 0.28571428570799784LF;
    q = q * z + 0.40000000000000885LF;
    q = q * z + 0.6666666666666666LF;
    precise double half_square = 0.5LF * f * f;
    precise double result = e * LN2_64_HIGH - ((half_square - (s * (half_square + z * q) + e * LN2_64_LOW)) - f);
    return result;
}

// Splits positive x = 2^e * m with m in [sqrt(1/2), sqrt(2)). A subnormal goes by its multiple of 2^-1074.
double split_exponent(double x, out double e) {
    const uint64_t SQRT_HALF = uint64_t(0x3FE6A09EUL) << 32 | uint64_t(0x667F3BCDUL);
    uint64_t bits = doubleBitsToUint64(x);
    const bool subnormal = bits <= SIGNIFICAND_OF_DOUBLE;
    if (subnormal) bits = doubleBitsToUint64(whole_double(bits));
    bits += (uint64_t(0x3FF) << 52) - SQRT_HALF;
    e = double(int(bits >> 52) - (subnormal ? 1023 + 1074 : 1023));
    return uint64BitsToDouble((bits & SIGNIFICAND_OF_DOUBLE) + SQRT_HALF);
}

double log_accurate(double x) {
    double e;
    const double m = split_exponent(x, e);
    const double result = log_reduced(m - 1.0LF, e);
    return size_bits(x) == uint64_t(0)                    ? -INFINITY
           : doubleBitsToUint64(x) > INFINITE_DOUBLE      ? NOT_A_NUMBER
           : is_infinite(x)                               ? x
                                                          : result;
}

// ln(u + low) for finite normal u > 0 and a small correction.
double log_sum(double u, double low) {
    double e;
    const double m = split_exponent(u, e);
    precise double f = (m - 1.0LF) + low * two_to(-int(clamp(e, -1000.0LF, 1000.0LF)));
    return log_reduced(f, e);
}

// ln(1 + x) for x >= 0.
double log1p_positive(double x) {
    precise double u = 1.0LF + x;
    precise double lost = x < 1.0LF ? x - (u - 1.0LF) : 1.0LF - (u - x); // what rounding took from u
    return is_nan(x) || is_infinite(x) ? x : u < 1.4142135623730951LF ? log_reduced(x, 0.0LF) : log_sum(u, lost);
}

// -- activations

double tanh_accurate(double x) {
    const double t = half_expm1(2.0LF * min(abs(x), 19.0625LF));
    precise double result = min(t / (t + 1.0LF), 1.0LF);
    return copy_sign(is_nan(x) ? x : result, x);
}

double sigmoid(double x) {
    precise double result = 1.0LF / (1.0LF + exp_accurate(-x));
    return result;
}

double softplus(double x) {
    precise double result = max(x, 0.0LF) + log1p_positive(exp_accurate(-abs(x)));
    return is_nan(x) ? x : result;
}

// e^(u^2) erfc(u) for u in [0, 28]: a polynomial in (u - 3.75) / (u + 3.75), over 1 + 2 u (Shepherd and Laframboise).
double scaled_erfc(double u) {
    precise double y = (u - 3.75LF) / (u + 3.75LF);
    const double COEFFICIENTS[24] = double[](
        -9.749977861841957e-10LF, -4.999295226477826e-9LF, 2.0400958765405564e-10LF, 4.0773822695438946e-8LF,
        1.8148051418292806e-8LF, -2.630076084593476e-7LF, -5.361966556540493e-8LF, 1.7557572419630805e-6LF,
        -9.750133129744938e-7LF, -1.1446444882750146e-5LF, 2.2384550628489278e-5LF, 5.164990829645606e-5LF,
        -2.901540974049676e-4LF, 2.937134832205404e-4LF, 1.7556258454484944e-3LF, -9.746579532336114e-3LF,
        0.02836227742075386LF, -0.058693398591761654LF, 0.09230432116021522LF, -0.10880393014165805LF,
        0.08227673849015113LF, 3.5854154854629045e-3LF, -0.14024059858554702LF, 1.2375126308378275LF);
    precise double q = COEFFICIENTS[0];
    [[unroll]] for (int i = 1; i < 24; ++i) q = q * y + COEFFICIENTS[i];
    precise double result = q / (1.0LF + 2.0LF * u);
    return result;
}

// e^(factor t^2) for a power of two as the factor, the square kept in two parts.
double exp_of_square(double t, double factor) {
    const double high = upper_half(t);
    precise double square = high * high;
    precise double square_low = (t - high) * (t + high);
    return exp_scaled(factor * square, factor * square_low, 0);
}

double erf(double x) {
    precise double s = x * x;
    precise double q = -1.4620256114391553e-7LF;
    q = q * s + 1.6371164552892836e-6LF;
    q = q * s - 1.4923000283850108e-5LF;
    q = q * s + 1.2055286128871108e-4LF;
    q = q * s - 8.548326509718547e-4LF;
    q = q * s + 5.223977622008845e-3LF;
    q = q * s - 0.026866170644999358LF;
    q = q * s + 0.11283791670954868LF;
    q = q * s - 0.3761263890318375LF;
    q = q * s + 0.1283791670955126LF;
    precise double small = x + x * q;
    const double t = min(abs(x), 6.0LF);
    precise double large = 1.0LF - exp_of_square(t, -1.0LF) * scaled_erfc(t);
    return abs(x) >= 0.5LF ? copy_sign(large, x) : small; // NaN is small
}

double gelu(double x) {
    precise double positive = 0.5LF * abs(x) + 0.5LF * x; // max(x, 0) that keeps NaN; exact
    const double t = min(abs(x), 38.0LF);
    const double tail = exp_of_square(t, -0.5LF) * scaled_erfc(t * 0.7071067811865476LF);
    precise double result = positive - 0.5LF * t * tail;
    return result;
}

// -- the circular functions

const double HALF_PI_64 = 1.5707963267948966LF;
const double HALF_PI_64_LOW = 6.123233995736766e-17LF; // what HALF_PI_64 lacks of pi/2

// x - n pi/2 for |x| < 10^6 as r + low: pi/2 in three parts of 33 bits, whose products with n are exact, and a rest.
void reduce_small(double x, out uint n, out double r, out double low) {
    int nearest_n;
    const double whole = nearest(x * 0.6366197723675814LF, nearest_n);
    precise double first = x - whole * 1.5707963267341256LF; // exact
    double second, third, lost, more;
    two_sum(first, -(whole * 6.077100506303966e-11LF), second, lost);
    two_sum(second, -(whole * 2.0222662487111665e-21LF), third, more);
    precise double rest = (lost + more) - whole * 8.4784276603689e-32LF;
    precise double sum = third + rest;
    precise double left = rest - (sum - third);
    n = uint(nearest_n);
    r = sum;
    low = left;
}

// The same modulo 2 pi for any finite x >= 10^6, by integers (Payne and Hanek): x = m 2^e for a 53-bit integer m. Of 2/pi only
// 192 bits matter: those before give multiples of 4 quadrants, those after less than 2^-137 of one.
void reduce_large(double x, out uint n, out double r, out double low) {
    const uint TWO_OVER_PI_BITS[40] = uint[](
        0u, 0u, 0xA2F9836Eu, 0x4E441529u, 0xFC2757D1u, 0xF534DDC0u, 0xDB629599u, 0x3C439041u, 0xFE5163ABu, 0xDEBBC561u,
        0xB7246E3Au, 0x424DD2E0u, 0x06492EEAu, 0x09D1921Cu, 0xFE1DEB1Cu, 0xB129A73Eu, 0xE88235F5u, 0x2EBB4484u, 0xE99C7026u,
        0xB45F7E41u, 0x3991D639u, 0x835339F4u, 0x9C845F8Bu, 0xBDF9283Bu, 0x1FF897FFu, 0xDE05980Fu, 0xEF2F118Bu, 0x5A0A6D1Fu,
        0x6D367ECFu, 0x27CB09B7u, 0x4F463F66u, 0x9E5FEA2Du, 0x7527BAC7u, 0xEBE5F17Bu, 0x3D0739F7u, 0x8A5292EAu, 0x6BFB5FB1u,
        0x1F8D5D08u, 0x56033046u, 0xFC7B6BABu);
    const uint64_t WORD = uint64_t(0xFFFFFFFFu);
    const uint64_t bits = doubleBitsToUint64(x);
    const uint64_t m = (bits & SIGNIFICAND_OF_DOUBLE) | uint64_t(1) << 52;
    const uint skipped = uint(bits >> 52) - 1013u; // the 64 zeros among them
    const uint word = skipped >> 5, shift = skipped & 31u;
    // The product's 192 low bits, from the last word on.
    const uint64_t m_low = m & WORD, m_high = m >> 32;
    uint product[6];
    uint64_t carry_low = uint64_t(0), carry_high = uint64_t(0), before = uint64_t(0);
    [[unroll]] for (int i = 5; i >= 0; --i) {
        const uint next = word + uint(i) + 1u < 40u ? TWO_OVER_PI_BITS[word + uint(i) + 1u] : 0u;
        const uint64_t part = uint64_t((TWO_OVER_PI_BITS[word + uint(i)] << shift) | ((next >> 1) >> (31u - shift)));
        const uint64_t lower = part * m_low + carry_low;
        carry_low = lower >> 32;
        const uint64_t sum = (lower & WORD) + before * m_high + carry_high;
        carry_high = sum >> 32;
        product[i] = uint(sum & WORD);
        before = part;
    }
    // The nearest multiple of a quadrant, and the distance from it as a fraction of 128 bits.
    uint64_t high = uint64_t(product[0]) << 34 | uint64_t(product[1]) << 2 | uint64_t(product[2] >> 30);
    uint64_t middle = uint64_t(product[2]) << 34 | uint64_t(product[3]) << 2 | uint64_t(product[4] >> 30);
    const bool negative = (high >> 63) != uint64_t(0);
    n = (product[0] >> 30) + uint(negative);
    if (negative) {
        middle = ~middle + uint64_t(1);
        high = ~high + uint64_t(middle == uint64_t(0) ? 1 : 0);
    }
    // Its 106 leading bits as two doubles; no double is so close to a multiple of pi/2 that `high` is 0.
    const uvec2 halves = unpackUint2x32(high);
    const int zeros = halves.y != 0u ? 31 - findMSB(halves.y) : 63 - findMSB(halves.x);
    if (zeros > 0) {
        high = high << zeros | middle >> (64 - zeros);
        middle <<= zeros;
    }
    const double scale = (negative ? -1.0LF : 1.0LF) * two_to(-53 - zeros);
    const double leading = whole_double(high >> 11);
    const double next = whole_double((high & uint64_t(0x7FF)) << 42 | middle >> 22) * two_to(-53);
    // leading * pi/2 and what rounding takes from it, by halves.
    const double upper = upper_half(leading), pi_upper = upper_half(HALF_PI_64);
    precise double lower = leading - upper;
    precise double pi_lower = HALF_PI_64 - pi_upper;
    precise double whole = leading * HALF_PI_64;
    precise double rest = ((upper * pi_upper - whole) + upper * pi_lower + lower * pi_upper) + lower * pi_lower;
    rest += leading * HALF_PI_64_LOW + next * HALF_PI_64;
    precise double sum = whole + rest;
    precise double left = rest - (sum - whole);
    r = sum * scale;
    low = left * scale;
}

// The sine and the cosine of x - n pi/2 for x >= 0.
void sine_and_cosine(double x, out uint n, out double sine, out double cosine) {
    double r, low;
    if (x < 1e6LF) reduce_small(x, n, r, low);
    else reduce_large(x, n, r, low);
    precise double z = r * r;
    precise double half_z = 0.5LF * z;
    precise double s = -7.586636882825159e-13LF;
    s = s * z + 1.6058530596645953e-10LF;
    s = s * z - 2.50521062259944e-8LF;
    s = s * z + 2.755731921932058e-6LF;
    s = s * z - 1.984126984126504e-4LF;
    s = s * z + 8.333333333333331e-3LF;
    s = s * z - 0.16666666666666666LF;
    precise double of_sine = r + (r * z * s + (low - half_z * low)); // low cos r
    precise double c = 4.745838412531023e-14LF;
    c = c * z - 1.1470460319209511e-11LF;
    c = c * z + 2.0876755787492604e-9LF;
    c = c * z - 2.755731922139249e-7LF;
    c = c * z + 2.4801587301584632e-5LF;
    c = c * z - 1.3888888888888887e-3LF;
    c = c * z + 0.041666666666666664LF;
    precise double leading = 1.0LF - half_z;
    precise double lost = (1.0LF - leading) - half_z;
    precise double of_cosine = leading + (lost + (z * z * c - r * low));
    sine = of_sine;
    cosine = of_cosine;
}

// Each function below makes NaN of the infinities and of NaN.

double sin_accurate(double x) {
    uint n;
    double s, c;
    sine_and_cosine(abs(x), n, s, c);
    const double result = (n & 1u) != 0u ? c : s;
    const bool flips = ((n & 2u) != 0u) != is_negative(x);
    return !is_finite(x) ? NOT_A_NUMBER : flips ? -result : result;
}

double cos_accurate(double x) {
    uint n;
    double s, c;
    sine_and_cosine(abs(x), n, s, c);
    const double result = (n & 1u) != 0u ? s : c;
    return !is_finite(x) ? NOT_A_NUMBER : (n + 1u & 2u) != 0u ? -result : result;
}

double tan_accurate(double x) {
    uint n;
    double s, c;
    sine_and_cosine(abs(x), n, s, c);
    precise double result = (n & 1u) != 0u ? -c / s : s / c;
    return !is_finite(x) ? NOT_A_NUMBER : is_negative(x) ? -result : result;
}

// (asin x - x) / x^3 of z = x^2 <= 1/4.
double asin_polynomial(double z) {
    precise double q = 0.02963502626354855LF;
    q = q * z - 0.019277545928584557LF;
    q = q * z + 0.019579201619744684LF;
    q = q * z + 3.0350071727267623e-3LF;
    q = q * z + 9.322101501082774e-3LF;
    q = q * z + 9.62140274734483e-3LF;
    q = q * z + 0.011566511821890942LF;
    q = q * z + 0.013963775787848137LF;
    q = q * z + 0.017352816768546473LF;
    q = q * z + 0.022372157435623815LF;
    q = q * z + 0.030381944475693704LF;
    q = q * z + 0.04464285714255019LF;
    q = q * z + 0.07500000000000119LF;
    q = q * z + 0.16666666666666666LF;
    return q;
}

// asin sqrt(z) = high + low for z = (1 - |x|) / 2 <= 1/4, by which asin x and acos x go where |x| >= 1/2.
void asin_of_root(double z, out double high, out double low) {
    const double root = sqrt(z);
    const double upper = upper_half(root);
    precise double left = (z - upper * upper) / max(root + upper, 1e-100LF); // what `upper` lacks of the root
    precise double rest = left + root * (z * asin_polynomial(z));
    high = upper;
    low = rest;
}

double asin_accurate(double x) {
    const double size = abs(x);
    precise double square = size * size;
    precise double small = size + size * (square * asin_polynomial(square));
    double high, low;
    precise double half_rest = 0.5LF - 0.5LF * size; // exact
    asin_of_root(max(half_rest, 0.0LF), high, low);
    precise double leading = HALF_PI_64 - 2.0LF * high;
    precise double lost = (HALF_PI_64 - leading) - 2.0LF * high;
    precise double large = leading + (lost + (HALF_PI_64_LOW - 2.0LF * low));
    const double result = size < 0.5LF ? small : large;
    return copy_sign(size <= 1.0LF ? result : NOT_A_NUMBER, x);
}

double acos_accurate(double x) {
    const double size = abs(x);
    const bool is_small = size < 0.5LF;
    double high, low;
    precise double half_rest = 0.5LF - 0.5LF * size; // exact
    asin_of_root(max(half_rest, 0.0LF), high, low);
    precise double square = x * x;
    const double cubic = x * (square * asin_polynomial(square));
    // pi/2 - asin x, or half of it: pi/2 less the root's arc sine for negative x
    const double taken = is_small ? x : high;
    precise double leading = HALF_PI_64 - taken;
    precise double lost = (HALF_PI_64 - leading) - taken;
    precise double difference = leading + (lost + (HALF_PI_64_LOW - (is_small ? cubic : low)));
    precise double positive = 2.0LF * (high + low);
    const double result = is_small ? difference : x < 0.0LF ? 2.0LF * difference : positive;
    return size <= 1.0LF ? result : NOT_A_NUMBER;
}

// atan(a / b) for 0 <= a <= b: atan c + atan((a - c b) / (b + c a)) for the nearest c of 0, 1/2 and 1.
double atan_of_ratio(double a, double b) {
    const bool is_small = a <= 0.4375LF * b;
    const bool is_large = a > 0.6875LF * b;
    const double c = is_small ? 0.0LF : is_large ? 1.0LF : 0.5LF;
    precise double dividend = a - c * b; // exact
    precise double divisor = b + c * a;
    precise double t = dividend / divisor;
    precise double z = t * t;
    precise double q = 0.014766871594831716LF;
    q = q * z - 0.033121776641729314LF;
    q = q * z + 0.04491983392875039LF;
    q = q * z - 0.052166122327185115LF;
    q = q * z + 0.05876936226535485LF;
    q = q * z - 0.06666240930258646LF;
    q = q * z + 0.07692285493171186LF;
    q = q * z - 0.09090908353219823LF;
    q = q * z + 0.11111111096591583LF;
    q = q * z - 0.14285714285566195LF;
    q = q * z + 0.19999999999999407LF;
    q = q * z - 0.3333333333333333LF;
    const double atan_c = is_small ? 0.0LF : is_large ? 0.7853981633974483LF : 0.4636476090008061LF;
    const double atan_c_low = is_small ? 0.0LF : is_large ? 3.061616997868383e-17LF : 2.2698777452961687e-17LF;
    precise double result = atan_c + (t + (t * (z * q) + atan_c_low));
    return result;
}

double atan_accurate(double x) {
    const double size = abs(x);
    const bool is_large = size > 1.0LF;
    const double arc = atan_of_ratio(is_large ? 1.0LF : size, is_large ? min(size, 1e300LF) : 1.0LF);
    precise double complement = HALF_PI_64 - (arc - HALF_PI_64_LOW);
    return copy_sign(is_nan(x) ? x : is_large ? complement : arc, x);
}

double atan2_accurate(double y, double x) {
    const double y_size = abs(y);
    const double x_size = abs(x);
    const bool steep = y_size > x_size;
    double a = steep ? x_size : y_size;
    double b = steep ? y_size : x_size;
    // Into the middle of the exponents, so that neither the division nor b + a / 2 leaves them.
    const double scale = b > 1e150LF ? two_to(-600) : b < 1e-150LF ? two_to(600) : 1.0LF;
    a = is_infinite(a) ? 1.0LF : is_infinite(b) ? 0.0LF : a * scale;
    b = is_infinite(b) || b == 0.0LF ? 1.0LF : b * scale;
    precise double arc = atan_of_ratio(a, b);
    precise double complement = HALF_PI_64 - (arc - HALF_PI_64_LOW);
    arc = steep ? complement : arc;
    precise double supplement = 2.0LF * HALF_PI_64 - (arc - 2.0LF * HALF_PI_64_LOW);
    arc = is_negative(x) ? supplement : arc;
    return copy_sign(is_nan(x) || is_nan(y) ? NOT_A_NUMBER : arc, y);
}

// -- the hyperbolic functions

// (E + E / (E + 1)) / 2 for E = e^|x| - 1; of a large |x| half of e^|x|.
double sinh_accurate(double x) {
    const double size = abs(x);
    const double half_e = half_expm1(min(size, 40.0LF));
    precise double small = half_e + half_e / (2.0LF * half_e + 1.0LF);
    const double large = exp_scaled(min(size, 720.0LF), 0.0LF, -1);
    return copy_sign(is_nan(x) ? x : size < 40.0LF ? small : large, x);
}

double cosh_accurate(double x) {
    const double half_e = exp_scaled(min(abs(x), 720.0LF), 0.0LF, -1);
    precise double result = half_e + 0.25LF / half_e;
    return is_nan(x) ? x : result;
}

// From there on x^2 + 1 and x^2 - 1 are x^2 as far as the logarithm of x + sqrt(x^2 +- 1) shows it.
const double SQUARE_ALONE_64 = 134217728.0LF;

// ln(2 x) for finite x >= 1.
double log_of_double(double x) {
    double e;
    const double m = split_exponent(x, e);
    return log_reduced(m - 1.0LF, e + 1.0LF);
}

// ln(1 + (t + t^2 / (1 + sqrt(t^2 + 1)))) for t = |x|.
double asinh_accurate(double x) {
    const double size = abs(x);
    const double t = min(size, SQUARE_ALONE_64);
    precise double square = t * t;
    precise double beyond = t + square / (1.0LF + sqrt(square + 1.0LF));
    const double result = size < SQUARE_ALONE_64 ? log1p_positive(beyond) : log_of_double(size);
    return copy_sign(is_nan(x) || is_infinite(x) ? x : result, x);
}

// ln(1 + (t + sqrt(t (t + 2)))) for t = x - 1; NaN below 1.
double acosh_accurate(double x) {
    precise double t = min(x, SQUARE_ALONE_64) - 1.0LF;
    precise double root = sqrt(max(t * (t + 2.0LF), 0.0LF));
    const double result = x >= SQUARE_ALONE_64 ? log_of_double(x) : log1p_positive(root + t);
    return is_nan(x) ? x : x < 1.0LF ? NOT_A_NUMBER : is_infinite(x) ? x : result;
}

// ln(1 + 2 t / (1 - t)) / 2 for t = |x|, the quotient written so that little of t is lost: infinite at 1, NaN beyond.
double atanh_accurate(double x) {
    const double t = abs(x);
    const double rest = max(1.0LF - t, 1e-100LF);
    precise double beyond = t < 0.5LF ? 2.0LF * t + 2.0LF * t * (t / rest) : 2.0LF * (t / rest);
    const double large = 0.5LF * log1p_positive(beyond);
    return copy_sign(t < 1.0LF ? large : t == 1.0LF ? INFINITY : NOT_A_NUMBER, x);
}

// -- powers

// log2 x = high + low for positive finite x, as good as 63 bits of it; high is the sum rounded. See power.glsl.
void log2_sum(double x, out double high, out double low) {
    double e;
    const double m = split_exponent(x, e);
    const double c = m < 0.86LF ? 0.75LF : m > 1.12LF ? 1.25LF : 1.0LF;
    const double log2_c_high = m < 0.86LF ? -0.4150374992786965LF : m > 1.12LF ? 0.32192809488697094LF : 0.0LF;
    const double log2_c_low = m < 0.86LF ? -1.4733181985781966e-13LF : m > 1.12LF ? 3.914087556296025e-13LF : 0.0LF;
    precise double dividend = m - c;
    precise double divisor = m + c;
    const double divisor_high = upper_half(divisor);
    precise double divisor_low = (divisor - divisor_high) + (m >= c ? c - (divisor - m) : m - (divisor - c));
    const double s_high = upper_half(dividend / divisor);
    precise double s_low = ((dividend - s_high * divisor_high) - s_high * divisor_low) / divisor;
    const double SCALE_HIGH = 2.885390043258667LF;
    const double SCALE_LOW = 3.851925982253235e-8LF;
    precise double s = s_high + s_low;
    precise double z = s * s;
    precise double q = 0.06787406935202107LF;
    q = q * z + 0.07691341316764919LF;
    q = q * z + 0.09090912919067605LF;
    q = q * z + 0.11111111103332551LF;
    q = q * z + 0.1428571428572181LF;
    q = q * z + 0.19999999999999998LF;
    q = q * z + 0.3333333333333333LF;
    precise double rest = s_low + s * (z * q);
    precise double whole = e + log2_c_high; // exact
    precise double leading = s_high * SCALE_HIGH; // exact, and smaller than a whole that is not 0
    precise double sum = whole + leading;
    precise double lost = leading - (sum - whole);
    precise double trailing = (s_high * SCALE_LOW + rest * (SCALE_HIGH + SCALE_LOW)) + (log2_c_low + lost);
    precise double total = sum + trailing;
    precise double left = trailing - (total - sum);
    high = total;
    low = left;
}

// 2^(high + low) for a small correction `low`; 0 and infinity where the result is beyond the type.
double exp2_sum(double high, double low) {
    const double bounded = clamp(high, -1100.0LF, 1030.0LF);
    int n;
    precise double r = bounded - nearest(bounded, n); // exact
    const double LN2_UPPER = 0.6931471675634384LF;
    const double LN2_REST = 1.2996506893889889e-8LF;
    const double r_high = upper_half(r);
    precise double leading = r_high * LN2_UPPER; // exact
    precise double q = 2.5725099252888687e-11LF;
    q = q * r + 4.4549643712692967e-10LF;
    q = q * r + 7.054899947032901e-9LF;
    q = q * r + 1.0178062426976924e-7LF;
    q = q * r + 1.3215486802919256e-6LF;
    q = q * r + 1.525273382986708e-5LF;
    q = q * r + 1.5403530393375903e-4LF;
    q = q * r + 1.3333558146416916e-3LF;
    q = q * r + 9.618129107628479e-3LF;
    q = q * r + 0.0555041086648216LF;
    q = q * r + 0.24022650695910072LF;
    precise double trailing = ((r - r_high) * LN2_UPPER + r * LN2_REST) + r * r * q;
    precise double sum = 1.0LF + leading;
    precise double lost = leading - (sum - 1.0LF);
    precise double mantissa = sum + (trailing + lost + low * (0.6931471805599453LF * (sum + trailing)));
    const int half_n = n >> 1;
    precise double result = mantissa * two_to(half_n) * two_to(n - half_n);
    return high > 1025.0LF ? INFINITY : high < -1076.0LF ? 0.0LF : result;
}

// C's pow; see power.glsl.
double power(double x, double y) {
    const uint64_t x_size = size_bits(x), y_size = size_bits(y);
    const bool y_negative = is_negative(y);
    // From 2^53 on every double is an even integer; below 1 only 0 is an integer.
    const double y_magnitude = abs(y);
    const bool y_large = y_magnitude >= 9007199254740992.0LF;
    const bool is_integer = y_size < INFINITE_DOUBLE && (y_large || floor(y_magnitude) == y_magnitude) || is_infinite(y);
    const double half_y = 0.5LF * y_magnitude;
    const bool negative = is_negative(x) && is_integer && !y_large && floor(half_y) != half_y;

    double log_high, log_low;
    log2_sum(x_size == uint64_t(0) || x_size >= INFINITE_DOUBLE ? 1.0LF : abs(x), log_high, log_low);
    const double y_high = upper_half(y);
    precise double y_low = y - y_high;
    const double log_upper = upper_half(log_high);
    precise double log_rest = log_high - log_upper;
    precise double product = y * log_high;
    precise double product_low =
        ((y_high * log_upper - product) + y_high * log_rest + y_low * log_upper) + (y_low * log_rest + y * log_low);
    // Where the product is infinite or far out, what it lost is of no use.
    double magnitude = exp2_sum(product, abs(product) < 1100.0LF ? product_low : 0.0LF);

    const bool one = abs(x) == 1.0LF;
    const bool finite = x_size < INFINITE_DOUBLE;
    if (x_size == uint64_t(0) || !finite) magnitude = (x_size == uint64_t(0)) == y_negative ? INFINITY : 0.0LF;
    if (one || y_size == uint64_t(0)) magnitude = 1.0LF;
    if (is_negative(x) && !is_integer && finite && x_size != uint64_t(0)) magnitude = NOT_A_NUMBER;
    const bool unordered = is_nan(x) || is_nan(y);
    if (unordered && y_size != uint64_t(0) && !(one && !is_negative(x))) magnitude = NOT_A_NUMBER;
    return negative ? -magnitude : magnitude;
}

precise double constant_power(double x, double y) { return y == 2.0LF ? x * x : power(x, y); }

#endif
