// How the keys that a step of attention sees are shared out among parts: as evenly as whole tiles of p.part_keys allow, so that
// few keys are few parts and a long cache keeps all of them busy.
//
// Needs the parameters part_keys, the keys of the smallest part; keys, rows of the cache; window, 0 for none; new_keys; and what
// attention_lengths.glsl needs.

#ifndef DMLVK_ATTENTION_PARTS_GLSL
#define DMLVK_ATTENTION_PARTS_GLSL

#include "attention_lengths.glsl"

// The keys that queries see of which so many stand before the new rows: from x to y.
uvec2 keys_of_parts(uint before) {
    const uint first_end = min(before + 1, p.keys); // those that the first query sees
    return uvec2(p.window != 0 && first_end > p.window ? first_end - p.window : 0u, min(before + p.new_keys, p.keys));
}

// The keys of each part but the last.
uint keys_of_part(uint keys, uint parts) {
    const uint tiles = (keys + p.part_keys - 1) / p.part_keys;
    return (tiles + parts - 1) / parts * p.part_keys;
}

#endif
