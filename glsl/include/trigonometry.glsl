// The circular functions and their inverses in float32: sin, cos, tan, asin, acos, atan and atan2.
//
// An angle is reduced to within pi/4 of a multiple of pi/2, exactly however large it is: all bits of 2/pi that matter to a
// float32 are here. The functions of what is left, and the inverses, are odd polynomials, minimax fits made for these
// intervals. Results that are differences of pi/2 are summed in two parts.

#ifndef DMLVK_TRIGONOMETRY_GLSL
#define DMLVK_TRIGONOMETRY_GLSL

#include "math.glsl"

const float HALF_PI = 1.57079637;
const float HALF_PI_LOW = -4.371139e-8; // what HALF_PI lacks of pi/2
const float TWO_OVER_PI = 0.63661977;

// pi/2 in parts of 12 bits, whose products with an integer below 2^12 are exact, and a rest.
const float HALF_PI_1 = 1.5703125;
const float HALF_PI_2 = 4.837512969970703e-4;
const float HALF_PI_3 = 7.549533620476723e-8;
const float HALF_PI_4 = 2.563344e-12;

// x - n pi/2 for |x| < 6144 as r + low, exact to 2^-48.
void reduce_small(float x, out uint n, out float r, out float low) {
    precise float rounded = x * TWO_OVER_PI + ROUNDING;
    precise float whole = rounded - ROUNDING;
    precise float first = (x - whole * HALF_PI_1) - whole * HALF_PI_2; // exact
    precise float third = whole * HALF_PI_3;
    precise float sum = first - third;
    precise float lost = (first - sum) - third;
    precise float rest = lost - whole * HALF_PI_4;
    n = uint(rounded_bits(rounded));
    r = sum;
    low = rest;
}

// The same modulo 2 pi for any finite x >= 1, by integers (Payne and Hanek): x = s 2^(e - 31) for a 32-bit integer s. Of
// 2/pi only 96 bits matter: those before give multiples of 4 quadrants, those after less than 2^-62 of one.
void reduce_large(float x, out uint n, out float r, out float low) {
    const uint TWO_OVER_PI_BITS[7] =
        uint[](0u, 0xA2F9836Eu, 0x4E441529u, 0xFC2757D1u, 0xF534DDC0u, 0xDB629599u, 0x3C439041u);
    const uint bits = floatBitsToUint(x);
    const uint significand = (bits << 8) | 0x80000000u;
    const uint skipped = (bits >> 23) - 128u; // e - 1 bits, the 32 zeros among them
    const uint word = skipped >> 5;
    const uint shift = skipped & 31u;
    uint window[3];
    for (uint i = 0; i < 3; ++i)
        window[i] = (TWO_OVER_PI_BITS[word + i] << shift) | ((TWO_OVER_PI_BITS[word + i + 1] >> 1) >> (31u - shift));
    // The product's 96 low bits count 2^-94 quadrants; the last 32 serve for their carry only.
    uint high, middle, carry, unused;
    umulExtended(window[2], significand, carry, unused);
    umulExtended(window[1], significand, high, middle);
    middle = uaddCarry(middle, carry, carry);
    high += window[0] * significand + carry;
    // The nearest multiple of a quadrant, and the distance from it as a fraction of 64 bits.
    n = (high >> 30) + ((high >> 29) & 1u);
    const bool negative = ((high >> 29) & 1u) != 0u;
    high = (high << 2) | (middle >> 30);
    middle <<= 2;
    if (negative) {
        middle = ~middle + 1u;
        high = ~high + (middle == 0u ? 1u : 0u);
    }
    // Its 48 leading bits as two floats; no float32 is so close to a multiple of pi/2 that `high` is 0.
    const int zeros = 31 - findMSB(high);
    high = (high << zeros) | ((middle >> 1) >> (31 - zeros));
    middle <<= zeros;
    const float scale = (negative ? -1.0 : 1.0) * power_of_two(-24 - zeros);
    const float leading = float(high & 0xFFF00000u) * 0.00390625;
    precise float next = float((high >> 8) & 0xFFFu);
    precise float tail = float(((high & 0xFFu) << 8) | (middle >> 24)) * 1.52587890625e-5;
    precise float first = leading * HALF_PI_1; // exact
    precise float rest = next * HALF_PI_1 + ((leading + next) * (HALF_PI_2 + HALF_PI_3) + tail * HALF_PI);
    precise float sum = first + rest;
    precise float lost = rest - (sum - first);
    r = sum * scale;
    low = lost * scale;
}

void reduce_angle(float x, out uint n, out float r, out float low) {
    if (x < 6144.0) reduce_small(x, n, r, low);
    else reduce_large(x, n, r, low);
}

#if defined(T_IS_FLOAT16)
// x = r + n pi/2. Up to the largest float16 n has 16 bits, so that its products with parts of 8 bits are exact: r is good to
// 2^-17. It is -0 where x is, for the parts are positive and subtracted.
float reduce_half(float x, out uint n) {
    precise float sum = fma(x, TWO_OVER_PI, ROUNDING);
    precise float whole = sum - ROUNDING;
    n = floatBitsToUint(sum);
    precise float r = ((x - whole * 1.5703125) - whole * 4.825592041015625e-4) - whole * 1.2675908e-6;
    return r;
}

// The sine of x + quadrant pi/2.
float sine(float x, uint quadrant) {
    uint n;
    const float r = reduce_half(x, n);
    n += quadrant;
    precise float z = r * r;
    precise float sine = r * fma(fma(8.1645753e-3, z, -0.16663457), z, 1.0);
    precise float cosine = fma(fma(fma(-1.3597766e-3, z, 4.1656289e-2), z, -0.49999896), z, 1.0);
    const float result = (n & 1u) != 0u ? cosine : sine;
    return is_finite(x) ? uintBitsToFloat(floatBitsToUint(result) ^ ((n << 30) & 0x80000000u)) : NOT_A_NUMBER;
}

// Each function below makes NaN of the infinities and of NaN.

float sin_accurate(float x) { return sine(x, 0u); }

float cos_accurate(float x) { return sine(x, 1u); }

float tan_accurate(float x) {
    uint n;
    const float r = reduce_half(x, n);
    precise float z = r * r;
    precise float tangent = r * fma(fma(fma(fma(4.3453883e-2, z, 4.0968183e-2), z, 0.136218), z, 0.33313891), z, 1.0);
    precise float result = (n & 1u) != 0u ? -1.0 / tangent : tangent;
    return is_finite(x) ? result : NOT_A_NUMBER;
}
#else
// The sine of x + quadrant pi/2 for x >= 0, but for its sign: the sign bit of `flip`.
float sine(float x, uint quadrant, out uint flip) {
    uint n;
    float r, low;
    reduce_angle(x, n, r, low);
    n += quadrant;
    flip = (n & 2u) << 30;
    precise float z = r * r;
    precise float half_z = 0.5 * z;
    precise float correction = low - half_z * low; // low cos r
    precise float sine = r + (r * z * fma(fma(-1.9515482e-4, z, 8.332163e-3), z, -0.16666655) + correction);
    precise float leading = 1.0 - half_z;
    precise float lost = (1.0 - leading) - half_z;
    precise float cosine =
        leading + (lost + (z * z * fma(fma(2.4460929e-5, z, -1.3887592e-3), z, 4.1666653e-2) - r * low));
    return (n & 1u) != 0u ? cosine : sine;
}

// Each function below makes NaN of the infinities and of NaN.

float sin_accurate(float x) {
    uint flip;
    const uint size = floatBitsToUint(x) & 0x7FFFFFFFu;
    const float result = sine(uintBitsToFloat(size), 0u, flip);
    return size >= 0x7F800000u ? NOT_A_NUMBER
                               : uintBitsToFloat(floatBitsToUint(result) ^ flip ^ (floatBitsToUint(x) & 0x80000000u));
}

float cos_accurate(float x) {
    uint flip;
    const uint size = floatBitsToUint(x) & 0x7FFFFFFFu;
    const float result = sine(uintBitsToFloat(size), 1u, flip);
    return size >= 0x7F800000u ? NOT_A_NUMBER : uintBitsToFloat(floatBitsToUint(result) ^ flip);
}

float tan_accurate(float x) {
    const uint size = floatBitsToUint(x) & 0x7FFFFFFFu;
    uint n;
    float r, low;
    reduce_angle(uintBitsToFloat(size), n, r, low);
    precise float z = r * r;
    precise float q = fma(fma(fma(fma(fma(fma(4.3718414e-3, z, 9.9818593e-5), z, 1.0826391e-2), z, 2.1286501e-2), z,
                                  5.4058895e-2), z, 0.13332675), z, 0.3333335);
    precise float cubic = r * z * q;
    precise float tangent = r + (cubic + low * (1.0 + z));
    const float result = (n & 1u) != 0u ? -1.0 / tangent : tangent;
    return size >= 0x7F800000u ? NOT_A_NUMBER
                               : uintBitsToFloat(floatBitsToUint(result) ^ (floatBitsToUint(x) & 0x80000000u));
}
#endif

// (asin x - x) / x^3 of z = x^2 <= 1/4.
float asin_polynomial(float z) {
    return fma(fma(fma(fma(4.2093698e-2, z, 2.4226716e-2), z, 4.5459561e-2), z, 7.495399e-2), z, 0.16666749);
}

// asin sqrt(z) = high + low for z = (1 - |x|) / 2 <= 1/4, by which asin x and acos x go where |x| >= 1/2.
void asin_of_root(float z, out float high, out float low) {
    const float root = sqrt(z);
    const float upper = upper_half(root);
    precise float left = (z - upper * upper) / max(root + upper, 1e-10); // what `upper` lacks of the root
    precise float rest = left + root * (z * asin_polynomial(z));
    high = upper;
    low = rest;
}

// NaN where |x| > 1.
float asin_accurate(float x) {
    const uint size_bits = floatBitsToUint(x) & 0x7FFFFFFFu;
    const float size = uintBitsToFloat(size_bits);
    precise float square = size * size;
    precise float small = size + size * (square * asin_polynomial(square));
    float high, low;
    precise float half_rest = 0.5 - 0.5 * size; // exact
    asin_of_root(max(half_rest, 0.0), high, low);
    precise float leading = HALF_PI - 2.0 * high;
    precise float lost = (HALF_PI - leading) - 2.0 * high;
    precise float large = leading + (lost + (HALF_PI_LOW - 2.0 * low));
    return copy_sign(size_bits > 0x3F800000u ? NOT_A_NUMBER : size < 0.5 ? small : large, x);
}

// NaN where |x| > 1.
float acos_accurate(float x) {
    const uint size_bits = floatBitsToUint(x) & 0x7FFFFFFFu;
    const float size = uintBitsToFloat(size_bits);
    const bool is_small = size < 0.5;
    float high, low;
    precise float half_rest = 0.5 - 0.5 * size; // exact
    asin_of_root(max(half_rest, 0.0), high, low);
    precise float square = x * x;
    const float cubic = x * (square * asin_polynomial(square));
    // pi/2 - asin x, or half of it: pi/2 less the root's arc sine for negative x
    const float taken = is_small ? x : high;
    precise float leading = HALF_PI - taken;
    precise float lost = (HALF_PI - leading) - taken;
    precise float difference = leading + (lost + (HALF_PI_LOW - (is_small ? cubic : low)));
    precise float positive = 2.0 * (high + low);
    const float result = is_small ? difference : x < 0.0 ? 2.0 * difference : positive;
    return size_bits > 0x3F800000u ? NOT_A_NUMBER : result;
}

// atan(a / b) for 0 <= a <= b: atan c + atan((a - c b) / (b + c a)) for the nearest c of 0, 1/2 and 1.
float atan_of_ratio(float a, float b) {
    const bool is_small = a <= 0.4375 * b;
    const bool is_large = a > 0.6875 * b;
    const float c = is_small ? 0.0 : is_large ? 1.0 : 0.5;
    precise float dividend = a - c * b; // exact
    precise float divisor = b + c * a;
    precise float t = dividend / divisor;
    precise float z = t * t;
    precise float q = fma(fma(fma(fma(-5.8275472e-2, z, 0.10495082), z, -0.14230344), z, 0.19997793), z, -0.33333305);
    const float atan_c = is_small ? 0.0 : is_large ? 0.78539819 : 0.4636476;
    const float atan_c_low = is_small ? 0.0 : is_large ? -2.1855694e-8 : 5.0121588e-9;
    precise float result = atan_c + (t + (t * (z * q) + atan_c_low));
    return result;
}

float atan_accurate(float x) {
    const float size = abs(x);
    const bool is_large = size > 1.0;
    const float arc = atan_of_ratio(is_large ? 1.0 : size, is_large ? min(size, 1e30) : 1.0);
    precise float complement = HALF_PI - (arc - HALF_PI_LOW);
    return copy_sign(is_nan(x) ? x : is_large ? complement : arc, x);
}

// The angle of the point (x, y), as C's atan2: from -pi to pi, zeros and infinities by their signs, 0 or pi at the origin.
float atan2_accurate(float y, float x) {
    const float y_size = abs(y);
    const float x_size = abs(x);
    const bool steep = y_size > x_size;
    float a = steep ? x_size : y_size;
    float b = steep ? y_size : x_size;
    // Into the middle of the exponents, so that neither the division nor b + a / 2 leaves them.
    const float scale = b > 1e18 ? 5.421010862427522e-20 : b < 1e-18 ? 1.8446744073709552e19 : 1.0;
    a = is_infinite(a) ? 1.0 : is_infinite(b) ? 0.0 : a * scale;
    b = is_infinite(b) || floatBitsToUint(b) == 0u ? 1.0 : b * scale;
    precise float arc = atan_of_ratio(a, b);
    precise float complement = HALF_PI - (arc - HALF_PI_LOW);
    arc = steep ? complement : arc;
    precise float supplement = 2.0 * HALF_PI - (arc - 2.0 * HALF_PI_LOW);
    arc = floatBitsToUint(x) > 0x7FFFFFFFu ? supplement : arc;
    return copy_sign(is_nan(x) || is_nan(y) ? NOT_A_NUMBER : arc, y);
}

#endif
