// The order of the tiles of a matrix.

#ifndef DMLVK_BANDS_GLSL
#define DMLVK_BANDS_GLSL

// The tile that workgroup `index` of a matrix takes, of so many along rows and columns: down bands of 8 tiles, so that those under
// way at a time share what they read.
uvec2 tile_in_bands(uint index, uint tiles_m, uint tiles_n) {
    const uint band = index / (8 * tiles_n);
    const uint height = min(8, tiles_m - band * 8);
    const uint rest = index - band * 8 * tiles_n;
    const uint n = rest / height;
    return uvec2(band * 8 + rest - n * height, n);
}

#endif
