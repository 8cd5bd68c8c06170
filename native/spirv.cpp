#include "spirv.h"

#include <stdexcept>
#include <unordered_map>

namespace dmlvk {
namespace {

// Numbers of the SPIR-V specification.
constexpr uint32_t kMagic = 0x07230203;
constexpr size_t kHeaderWords = 5;
constexpr uint32_t kOpExecutionMode = 16;
constexpr uint32_t kOpConstant = 43;
constexpr uint32_t kOpConstantComposite = 44;
constexpr uint32_t kOpSpecConstant = 50;
constexpr uint32_t kOpSpecConstantComposite = 51;
constexpr uint32_t kOpFunction = 54;
constexpr uint32_t kOpDecorate = 71;
constexpr uint32_t kOpExecutionModeId = 331;
constexpr uint32_t kModeLocalSize = 17;
constexpr uint32_t kModeLocalSizeId = 38;
constexpr uint32_t kDecorationSpecId = 1;
constexpr uint32_t kDecorationBuiltIn = 11;
constexpr uint32_t kBuiltInWorkgroupSize = 25;

}  // namespace

std::array<uint32_t, 3> local_size(const std::vector<uint32_t>& words,
                                   const std::vector<std::pair<uint32_t, uint32_t>>& constants) {
    if (words.size() < kHeaderWords || words[0] != kMagic) {
        throw std::invalid_argument("not a SPIR-V module");
    }
    const std::unordered_map<uint32_t, uint32_t> given(constants.begin(), constants.end());
    std::unordered_map<uint32_t, uint32_t> spec_ids;  // result id -> constant_id
    std::unordered_map<uint32_t, uint32_t> values;    // result id -> value
    std::array<uint32_t, 3> literal{};
    std::array<uint32_t, 3> ids{};
    uint32_t workgroup_size_id = 0;

    for (size_t at = kHeaderWords; at < words.size();) {
        const uint32_t length = words[at] >> 16;
        const uint32_t opcode = words[at] & 0xffff;
        if (length == 0 || length > words.size() - at) {
            throw std::invalid_argument("damaged SPIR-V: an instruction runs past the end");
        }
        const uint32_t* operands = &words[at + 1];
        const uint32_t count = length - 1;
        if (opcode == kOpFunction) {
            break;  // Everything of interest comes before the first function.
        }
        if (opcode == kOpExecutionMode && count == 5 && operands[1] == kModeLocalSize) {
            literal = {operands[2], operands[3], operands[4]};
        } else if (opcode == kOpExecutionModeId && count == 5 && operands[1] == kModeLocalSizeId) {
            ids = {operands[2], operands[3], operands[4]};
        } else if (opcode == kOpDecorate && count == 3 && operands[1] == kDecorationSpecId) {
            spec_ids[operands[0]] = operands[2];
        } else if (opcode == kOpDecorate && count == 3 && operands[1] == kDecorationBuiltIn &&
                   operands[2] == kBuiltInWorkgroupSize) {
            workgroup_size_id = operands[0];
        } else if ((opcode == kOpConstant || opcode == kOpSpecConstant) && count >= 3) {
            const auto spec = spec_ids.find(operands[1]);
            const auto replacement = spec == spec_ids.end() ? given.end() : given.find(spec->second);
            values[operands[1]] = replacement == given.end() ? operands[2] : replacement->second;
        } else if ((opcode == kOpConstantComposite || opcode == kOpSpecConstantComposite) && count == 5 &&
                   operands[1] == workgroup_size_id) {
            // The older way to state a specialised size; it overrules the execution mode.
            ids = {operands[2], operands[3], operands[4]};
        }
        at += length;
    }

    for (size_t i = 0; i < 3; i++) {
        if (ids[i] != 0) {
            literal[i] = values[ids[i]];
        }
        if (literal[i] == 0) {
            throw std::invalid_argument("the SPIR-V module states no workgroup size");
        }
    }
    return literal;
}

}  // namespace dmlvk
