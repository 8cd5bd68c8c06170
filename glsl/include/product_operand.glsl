// A strided matrix as an operand of product_tile.glsl: its share of a round's loads and where they go. Included once for
// each operand, after product_tile.glsl and quads.glsl, with these macros, which it undefines:
//   OPERAND(name)              the operand's own name: name##_a or name##_b
//   OPERAND_TILE               TILE_M or TILE_N
//   OPERAND_ALONG_K            a constant: whether neighbouring invocations read along the depth, which then has the smaller
//                              stride, or across it
//   OPERAND_VECTOR             a constant: whether four neighbours in that direction are one aligned access: their stride is
//                              1, and every other stride and every start a multiple of 4
//   OPERAND_QUAD(element)      the quad that begins with the element of this index, as a QUAD
//   OPERAND_ELEMENT(element)   one element, as a float
//   OPERAND_PUT, OPERAND_PUT_QUAD   put_a and put_a_quad, or those of b
//
// It gives, for OPERAND(name) = name##_a,
//   void begin_a(uint first, uint last, uint stride, uint stride_k)
//       before all rounds: the tile has rows first .. of the matrix (columns, of b), `stride` apart, but none past `last`,
//       which is read instead; depths are `stride_k` apart. Here it is computed, once, where each access begins
//   void fetch_a(uint start, uint last, uint stride, uint stride_k, uint first_k, uint last_k)
//       begins to load, from the matrix that starts at `start`: depths first_k ... What would lie past last_k may be read
//       from anywhere up to the last element of the matrix. So no load lies outside, and none is behind a branch (one for
//       whole tiles, without the limit, cost a quarter of the speed on an H200). With WHOLE_ROUNDS there is no limit.
//   void place_a(uint buffer_, uint left)
//       puts them into shared memory, zeros from depth `left` of the tile on. What stands for rows past the last is not used.

#define SHARE_ OPERAND(share)
#define COUNT_ OPERAND(count)
#define QUADS_ OPERAND(quads)
#define ELEMENTS_ OPERAND(elements)
#define TURNED_ OPERAND(turned)
#define BEGINS_ OPERAND(begins)

// An invocation's accesses, of quads or of elements; the last of some invocations may be too many, and is loaded for nothing.
const uint COUNT_ = OPERAND_TILE * TILE_K / (OPERAND_VECTOR != 0 ? 4 : 1);
const uint SHARE_ = (COUNT_ + INVOCATIONS - 1) / INVOCATIONS;
// Whether an invocation's accesses are whole blocks of four depths of four rows, which it can turn in its registers.
// (A product of conditions, because glslang takes no chain of && for a constant.)
const uint TURNED_ = OPERAND_VECTOR * OPERAND_ALONG_K * (COUNT_ % (4 * INVOCATIONS) == 0 ? 1 : 0);

QUAD QUADS_[OPERAND_VECTOR != 0 ? SHARE_ : 1];
float ELEMENTS_[OPERAND_VECTOR != 0 ? 1 : SHARE_];

// (depth, row or column) in the tile where access i begins.
uvec2 OPERAND(place_of)(uint i) {
    if (TURNED_ != 0) {
        const uint block = i / 4 * INVOCATIONS + invocation();
        return uvec2(block % (TILE_K / 4), block / (TILE_K / 4)) * 4 + uvec2(0, i % 4);
    }
    const uint e = min(i * INVOCATIONS + invocation(), COUNT_ - 1);
    const uint width = OPERAND_VECTOR != 0 ? 4 : 1;
    const uint line = (OPERAND_ALONG_K != 0 ? TILE_K : OPERAND_TILE) / width;
    const uvec2 place = uvec2(e % line * width, e / line);
    return OPERAND_ALONG_K != 0 ? place : place.yx;
}

// Where each access begins in the matrix, at depth 0 of a round.
uint BEGINS_[SHARE_];

void OPERAND(begin)(uint first, uint last, uint stride, uint stride_k) {
    [[unroll]] for (uint i = 0; i < SHARE_; ++i) {
        const uvec2 at = OPERAND(place_of)(i);
        uint m = min(first + at.y, last);
        // A quad may reach past the last row, but begins inside.
        if (OPERAND_VECTOR != 0 && OPERAND_ALONG_K == 0) m = m / 4 * 4;
        BEGINS_[i] = m * stride + at.x * stride_k;
    }
}

void OPERAND(fetch)(uint start, uint last, uint stride, uint stride_k, uint first_k, uint last_k) {
    // The last access of the matrix.
    if (OPERAND_VECTOR != 0 && OPERAND_ALONG_K != 0) last_k = last_k / 4 * 4;
    if (OPERAND_VECTOR != 0 && OPERAND_ALONG_K == 0) last = last / 4 * 4;
    const uint end = start + last * stride + last_k * stride_k;
    const uint begin = start + first_k * stride_k;
    [[unroll]] for (uint i = 0; i < SHARE_; ++i) {
        const uint at = begin + BEGINS_[i];
        if (OPERAND_VECTOR == 0) ELEMENTS_[i] = OPERAND_ELEMENT(WHOLE_ROUNDS != 0 ? at : min(at, end));
        else QUADS_[i] = OPERAND_QUAD(WHOLE_ROUNDS != 0 ? at : min(at, end));
    }
}

void OPERAND(place)(uint buffer_, uint left) {
    if (OPERAND_VECTOR == 0) {
        if (WHOLE_ROUNDS == 0 && left < TILE_K) {
            [[unroll]] for (uint i = 0; i < SHARE_; ++i)
                if (OPERAND(place_of)(i).x >= left) ELEMENTS_[i] = 0.0;
        }
        [[unroll]] for (uint i = 0; i < SHARE_; ++i) {
            const uvec2 at = OPERAND(place_of)(i);
            if (COUNT_ % INVOCATIONS == 0 || i * INVOCATIONS + invocation() < COUNT_)
                OPERAND_PUT(buffer_, at.x, at.y, ELEMENTS_[i]);
        }
    } else {
        vec4 values[SHARE_];
        [[unroll]] for (uint i = 0; i < SHARE_; ++i) values[i] = unpack_quad(QUADS_[i]);
        if (WHOLE_ROUNDS == 0 && left < TILE_K) {
            [[unroll]] for (uint i = 0; i < SHARE_; ++i) {
                const uint k = OPERAND(place_of)(i).x;
                [[unroll]] for (uint c = 0; c < 4; ++c)
                    if (k + (OPERAND_ALONG_K != 0 ? c : 0) >= left) values[i][c] = 0.0;
            }
        }
        if (TURNED_ != 0) {
            [[unroll]] for (uint i = 0; i < SHARE_; ++i) {
                const uvec2 at = OPERAND(place_of)(i / 4 * 4);
                const uint first = i / 4 * 4, c = i % 4;
                const vec4 turned = vec4(values[first][c], values[first + 1][c], values[first + 2][c], values[first + 3][c]);
                OPERAND_PUT_QUAD(buffer_, at.x + c, at.y, turned);
            }
            return;
        }
        [[unroll]] for (uint i = 0; i < SHARE_; ++i) {
            const uvec2 at = OPERAND(place_of)(i);
            if (COUNT_ % INVOCATIONS == 0 || i * INVOCATIONS + invocation() < COUNT_) {
                if (OPERAND_ALONG_K != 0) {
                    [[unroll]] for (uint c = 0; c < 4; ++c) OPERAND_PUT(buffer_, at.x + c, at.y, values[i][c]);
                } else {
                    OPERAND_PUT_QUAD(buffer_, at.x, at.y, values[i]);
                }
            }
        }
    }
}

#undef SHARE_
#undef COUNT_
#undef QUADS_
#undef ELEMENTS_
#undef TURNED_
#undef BEGINS_
#undef OPERAND
#undef OPERAND_TILE
#undef OPERAND_ALONG_K
#undef OPERAND_VECTOR
#undef OPERAND_QUAD
#undef OPERAND_ELEMENT
#undef OPERAND_PUT
#undef OPERAND_PUT_QUAD
