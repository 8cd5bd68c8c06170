// Winograd's F(4x4, 3x3): 16 outputs of a 3x3 window of step 1 from 36 products instead of 144.
//
//   y = A^T [(G w G^T) * (B^T d B)] A   with d the 6x6 inputs that a 4x4 block of outputs reads (Lavin and Gray, 2015)
//
// The products of all channels are 36 matrix products, one a place (i, j) of the 6x6 block. Needs convolution.glsl's
// parameters and those of the winograd rows of the manifest. A transformed tensor is float32, one matrix a group and place:
//   element = (group * 36 + place) * p.matrix + channel in the group * p.channel_step + block * p.block_step
// Blocks are those of the images from p.first_image on, {image, row of blocks, column of blocks}.

#ifndef DMLVK_WINOGRAD_GLSL
#define DMLVK_WINOGRAD_GLSL

// One line of each transform: B^T d, G w and A^T m, for the points 0, 2/3, -2/3, 3/2, -3/2 and infinity. With the usual ones
// (0, 1, -1, 2, -2) rounding errors are 5 times as large; with these they are those of plain sums.
const float P = 2.0 / 3.0, Q = 1.5; // P * Q = 1
const float SQUARES = P * P + Q * Q;

void window_line(inout float d[6]) {
    const float even_p = fma(-Q * Q, d[2], d[4]), odd_p = fma(P, d[3], -Q * d[1]);
    const float even_q = fma(-P * P, d[2], d[4]), odd_q = fma(Q, d[3], -P * d[1]);
    const float first = fma(-SQUARES, d[2], d[0] + d[4]), last = fma(-SQUARES, d[3], d[1] + d[5]);
    d = float[6](first, even_p + odd_p, even_p - odd_p, even_q + odd_q, even_q - odd_q, last);
}

float[6] filter_line(float w[3]) {
    const float even_p = fma(P * P, w[2], w[0]), even_q = fma(Q * Q, w[2], w[0]);
    const float scale_p = -81.0 / 130.0, scale_q = 8.0 / 65.0;
    return float[6](w[0], fma(P, w[1], even_p) * scale_p, fma(-P, w[1], even_p) * scale_p,
        fma(Q, w[1], even_q) * scale_q, fma(-Q, w[1], even_q) * scale_q, w[2]);
}

float[4] output_line(float m[6]) {
    const float even_p = m[1] + m[2], odd_p = m[1] - m[2], even_q = m[3] + m[4], odd_q = m[3] - m[4];
    return float[4](m[0] + even_p + even_q, fma(P, odd_p, Q * odd_q), fma(P * P, even_p, Q * Q * even_q),
        fma(P * P * P, odd_p, fma(Q * Q * Q, odd_q, m[5])));
}

// The block and the channel, of all groups, of a linear index. Neighbours are blocks, or channels where CHANNELS is 1.
void split_place(uint index, uint channels, out uint channel, out uint block) {
    const uint size = CHANNELS == 1 ? channels : p.blocks;
    const uint outer = index / size;
    const uint inner = index - outer * size;
    channel = CHANNELS == 1 ? inner : outer;
    block = CHANNELS == 1 ? outer : inner;
}

// The image of a block and its first output position {H, W}.
void split_block(uint block, out uint image, out uvec2 position) {
    const uint row = block / p.block_columns;
    const uint outer = row / p.block_rows;
    image = p.first_image + outer;
    position = uvec2(row - outer * p.block_rows, block - row * p.block_columns) * 4;
}

uint transformed(uint group, uint channel, uint block) {
    return group * PLACES * p.matrix + channel * p.channel_step + block * p.block_step;
}

#endif
