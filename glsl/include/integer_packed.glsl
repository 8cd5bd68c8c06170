// What the kernels share that multiply packed operands (integer_pack.comp): their addresses, and zero points as corrections.
//
// Packed numbers are a' = a - shift with a shift of 0, or 128 of UINT8, and zero points likewise, so differences are the same.
// With x' and w' of a row and a column, over the `terms` of a sum, padded ones included:
//   sum of (x' - zx) (w' - zw) = sum of x' w' - zw * sum of x' - zx * sum of w' + terms * zx * zw
// Outside of the input x' is zx.
//
// Bindings beyond those of integer.glsl: x and w, packed; x_sums and w_sums, the sums of their lines' tiles of 128 bytes.
// Constants: HAS_X_SUMS, HAS_W_SUMS: whether the other operand's zero points may differ from 0.
// Parameters: words of a line; input_lines, the lines of x in a group; tiles of a line.

#ifndef DMLVK_INTEGER_PACKED_GLSL
#define DMLVK_INTEGER_PACKED_GLSL

#include "integer.glsl"

layout(set = 0, binding = BINDING_X, std430) readonly buffer X { uvec4 x_words[]; };
layout(set = 0, binding = BINDING_W, std430) readonly buffer W { uvec4 w_words[]; };
layout(set = 0, binding = BINDING_X_SUMS, std430) readonly buffer XSums { int x_sums[]; };
layout(set = 0, binding = BINDING_W_SUMS, std430) readonly buffer WSums { int w_sums[]; };

int shifted_x_zero_point(uint row) { return number(x_zero_point(row), X_SIGNED) - (X_SIGNED != 0 ? 0 : 128); }

int shifted_w_zero_point(Group group, uint column) {
    return number(w_zero_point(group, column), W_SIGNED) - (W_SIGNED != 0 ? 0 : 128);
}

// The line of x that a pixel meets under a tap; any line, and false, where that is outside of the input.
bool x_line(uvec3 pixel, uvec2 tap, out uint line) {
    uvec2 at;
    const bool inside = source_position(pixel, tap, at);
    line = inside ? (pixel.x * p.input_sizes[0] + at.x) * p.input_sizes[1] + at.y : 0u;
    return inside;
}

uint w_line(uint column, uvec2 tap) { return (column * p.window[0] + tap.x) * p.window[1] + tap.y; }

// A tap is a step of the depth: the next one, H slowest.
uvec2 next_tap(uvec2 tap) { return tap.y + 1 < p.window[1] ? uvec2(tap.x, tap.y + 1) : uvec2(tap.x + 1, 0); }

uint x_word(uint group, uint line, uint word) {
    return BYTE_OFFSET_X / 16 + (group * p.input_lines + line) * p.words + word;
}

uint w_word(uint group, uint line, uint word) {
    return BYTE_OFFSET_W / 16 + (group * p.columns * p.window[0] * p.window[1] + line) * p.words + word;
}

// 16 times the zero point: what a word outside of the input holds.
uvec4 splat(int number) { return uvec4((uint(number) & 0xFFu) * 0x01010101u); }

int sum_of_row(uint group, uint row) {
    int sum = 0;
    if (HAS_X_SUMS != 0) {
        const uvec3 pixel = pixel_of(row);
        const int outside = 16 * int(p.words) * shifted_x_zero_point(row);
        for (uvec2 tap = uvec2(0); tap.x < p.window[0]; tap = next_tap(tap)) {
            uint line;
            if (!x_line(pixel, tap, line)) {
                sum += outside;
                continue;
            }
            for (uint i = 0; i < p.tiles; ++i) sum += x_sums[BYTE_OFFSET_X_SUMS / 4 + (group * p.tiles + i) * p.input_lines + line];
        }
    }
    return sum;
}

int sum_of_column(uint group, uint column) {
    int sum = 0;
    if (HAS_W_SUMS != 0) {
        const uint lines = p.columns * p.window[0] * p.window[1];
        for (uvec2 tap = uvec2(0); tap.x < p.window[0]; tap = next_tap(tap))
            for (uint i = 0; i < p.tiles; ++i)
                sum += w_sums[BYTE_OFFSET_W_SUMS / 4 + (group * p.tiles + i) * lines + w_line(column, tap)];
    }
    return sum;
}

// The sum of differences from the sum of products of packed numbers, those of its row and those of its column.
int corrected(int sum, int x_zero, int w_zero, int of_row, int of_column) {
    // Where no sums are made, the other operand's zero points are 0.
    const int x = HAS_W_SUMS != 0 ? x_zero : 0, w = HAS_X_SUMS != 0 ? w_zero : 0;
    const int terms = int(16 * p.words * p.window[0] * p.window[1]);
    return sum - w * of_row - x * of_column + terms * x * w;
}

#endif
