// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3, 2011).
//
//   block(counter, key): ten rounds of (c0, c1, c2, c3) -> (high(M1 c2) ^ c1 ^ k0, low(M1 c2), high(M0 c0) ^ c3 ^ k1,
//   low(M0 c0)), the key growing by (W0, W1) from round to round

#ifndef DMLVK_PHILOX_GLSL
#define DMLVK_PHILOX_GLSL

// counter + blocks, modulo 2^128.
uvec4 moved_on(uvec4 counter, uint blocks) {
    uint carry;
    counter.x = uaddCarry(counter.x, blocks, carry);
    counter.y = uaddCarry(counter.y, carry, carry);
    counter.z = uaddCarry(counter.z, carry, carry);
    counter.w += carry;
    return counter;
}

uvec4 random_block(uvec4 counter, uvec2 key) {
    [[unroll]] for (int round = 0; round < 10; ++round) {
        uvec2 high, low;
        umulExtended(counter.xz, uvec2(0xD2511F53u, 0xCD9E8D57u), high, low);
        counter = uvec4(high.y ^ counter.y ^ key.x, low.y, high.x ^ counter.w ^ key.y, low.x);
        key += uvec2(0x9E3779B9u, 0xBB67AE85u);
    }
    return counter;
}

#endif
