// Integers in the order of a data type's numbers, for the data type macro T. Comparing floats themselves would take subnormal
// numbers for 0 on devices that flush them, and would lose NaN.
//
//   ORDER             the integer's type: int for floats, int64_t for doubles, the arithmetic type for integers
//   order_up(x)       larger for larger x; -0 below 0; NaN above everything
//   order_down(x)     larger for smaller x; NaN above everything
//   from_order_up, from_order_down    back: the same bits, but one NaN for all
//   order_of_zeros(k) an order as well in which -0 and 0 are equal, made from one of the others
//   LEAST_ORDER       no number's order is below this

#ifndef DMLVK_ORDER_GLSL
#define DMLVK_ORDER_GLSL

#include "math.glsl"

#if defined(T_IS_FLOAT64)
#define ORDER int64_t
#define LEAST_ORDER (-NAN_ORDER - int64_t(1))
const int64_t INFINITE_ORDER = int64_t(INFINITE_DOUBLE); // upwards; that of -infinity is ~INFINITE_ORDER
const int64_t NAN_ORDER = int64_t(~SIGN_OF_DOUBLE);      // as a double's bits a NaN, too

int64_t order_of_bits(uint64_t bits) { return int64_t(bits ^ (uint64_t(int64_t(bits) >> 63) & ~SIGN_OF_DOUBLE)); }
ORDER order_up(double x) { return is_nan(x) ? NAN_ORDER : order_of_bits(doubleBitsToUint64(x)); }
ORDER order_down(double x) { return is_nan(x) ? NAN_ORDER : ~order_of_bits(doubleBitsToUint64(x)); }
double from_order_up(ORDER key) { return uint64BitsToDouble(uint64_t(order_of_bits(uint64_t(key)))); }
double from_order_down(ORDER key) { return key == NAN_ORDER ? from_order_up(key) : from_order_up(~key); }
ORDER order_of_zeros(ORDER key) { return key == int64_t(-1) ? int64_t(0) : key; }
#elif T_IS_FLOAT
#define ORDER int
#define LEAST_ORDER (-0x7FFFFFFF - 1)
const int NAN_ORDER = 0x7FFFFFFF;      // as a float's bits a NaN, too
const int INFINITE_ORDER = 0x7F800000; // upwards; that of -infinity is ~INFINITE_ORDER


int order_of_bits(uint bits) { return int(bits ^ (uint(int(bits) >> 31) & 0x7FFFFFFFu)); }
bool is_nan_bits(uint bits) { return (bits & 0x7FFFFFFFu) > 0x7F800000u; }
ORDER order_up(float x) {
    const uint bits = floatBitsToUint(x);
    return is_nan_bits(bits) ? NAN_ORDER : order_of_bits(bits);
}
ORDER order_down(float x) {
    const uint bits = floatBitsToUint(x);
    return is_nan_bits(bits) ? NAN_ORDER : ~order_of_bits(bits);
}
float from_order_up(ORDER key) { return uintBitsToFloat(uint(order_of_bits(uint(key)))); }
float from_order_down(ORDER key) { return key == NAN_ORDER ? uintBitsToFloat(uint(NAN_ORDER)) : from_order_up(~key); }
// -0 is -1 upwards and 0 downwards, 0 the other of the two.
ORDER order_of_zeros(ORDER key) { return key == -1 ? 0 : key; }
#else
#define ORDER T_MATH
#if T_IS_SIGNED
#define LEAST_ORDER (-(T_MATH(1) << (8 * T_BYTES - 2)) * 2)
#else
#define LEAST_ORDER T_MATH(0)
#endif
ORDER order_up(T_MATH x) { return x; }
ORDER order_down(T_MATH x) { return ~x; }
T_MATH from_order_up(ORDER key) { return key; }
T_MATH from_order_down(ORDER key) { return ~key; }
ORDER order_of_zeros(ORDER key) { return key; }
#endif

#endif
