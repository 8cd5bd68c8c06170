// The one thing that has to be read out of a SPIR-V module: its workgroup size under the given constants.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace dmlvk {

/// The local size of the module's entry point. `words` is a whole module; `constants` are (constant_id, 32-bit pattern).
/// Throws std::invalid_argument when the words are no SPIR-V or state no local size.
std::array<uint32_t, 3> local_size(const std::vector<uint32_t>& words,
                                   const std::vector<std::pair<uint32_t, uint32_t>>& constants);

}  // namespace dmlvk
