// Integers of 64 bits without the device's: two words, the low one first.
//
//   uvec2 wide_sum(uvec2 sum, int term)                  a signed sum
//   float wide_float(uvec2 value)                        of a signed number, rounded to nearest even
//   uvec2 wide_quotient(uint a, uint b, uint divisor)    a * b / divisor and what remains; the quotient fits 32 bits

#ifndef DMLVK_WIDE_GLSL
#define DMLVK_WIDE_GLSL

uvec2 wide_sum(uvec2 sum, int term) {
    uint carry;
    sum.x = uaddCarry(sum.x, uint(term), carry);
    sum.y += carry + uint(term >> 31);
    return sum;
}

float wide_float(uvec2 value) {
    if (value.y == uint(int(value.x) >> 31)) return float(int(value.x));
    const bool negative = int(value.y) < 0;
    if (negative) value = uvec2(~value.x + 1u, ~value.y + uint(value.x == 0u));
    // The leading 31 bits, the last of which also stands for all that follow: enough to round by.
    const int shift = findMSB(value.y) + 2;
    const uint leading = value.y << (32 - shift) | value.x >> shift;
    const uint rest = value.x & ((1u << shift) - 1u);
    const float magnitude = float(int(leading | uint(rest != 0u))) * float(1u << shift);
    return negative ? -magnitude : magnitude;
}

uvec2 wide_quotient(uint a, uint b, uint divisor) {
    uvec2 product;
    umulExtended(a, b, product.y, product.x);
    if (product.y == 0u) return uvec2(product.x / divisor, product.x % divisor);
    // Long division, a bit at a time: the high word is less than the divisor, for the quotient fits.
    uint quotient = 0u, rest = product.y;
    for (int i = 31; i >= 0; --i) {
        const bool carry = (rest >> 31) != 0u;
        rest = rest << 1 | (product.x >> i & 1u);
        const bool fits = carry || rest >= divisor;
        if (fits) rest -= divisor;
        quotient = quotient << 1 | uint(fits);
    }
    return uvec2(quotient, rest);
}

#endif
