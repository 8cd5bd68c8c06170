#include "interface.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace dmlvk::ort {
namespace {

/// Puts the functions of a table into their members.
class Slots {
  public:
    Slots(const void* table, const char* name, uint32_t version)
        : table_(static_cast<void* const*>(table)), name_(name), version_(version) {
        if (table == nullptr) {
            throw std::runtime_error(std::string("this ONNX Runtime has no ") + name);
        }
    }

    template <typename Function>
    void take(Function& member, size_t slot, uint32_t since, const char* function) const {
        if (since > version_) {
            return;
        }
        if (table_[slot] == nullptr) {
            throw std::runtime_error(std::string("this ONNX Runtime lacks ") + name_ + "::" + function + ", which version 1." +
                                     std::to_string(since) + " has");
        }
        member = reinterpret_cast<Function>(table_[slot]);
    }

  private:
    void* const* table_;
    const char* name_;
    uint32_t version_;
};

}  // namespace

Interface negotiated(const OrtApiBase* base) {
    const std::string found = base->GetVersionString();
    const size_t point = found.find('.');
    const long minor = point == std::string::npos ? 0 : std::strtol(found.c_str() + point + 1, nullptr, 10);
    const std::string known = "1." + std::to_string(kOldest) + " and later";
    if (found.substr(0, point) != "1" || minor < static_cast<long>(kOldest)) {
        throw std::runtime_error("dmlvk's provider needs ONNX Runtime " + known + "; this is " + found);
    }
    Interface made;
    made.version = static_cast<uint32_t>(std::min(minor, static_cast<long>(kNewest)));
    const size_t last = found.find('.', point + 1);
    made.patch = last == std::string::npos ? 0 : static_cast<uint32_t>(std::strtoul(found.c_str() + last + 1, nullptr, 10));
    const void* api = base->GetApi(made.version);
    if (api == nullptr) {
        throw std::runtime_error("ONNX Runtime " + found + " no longer gives version " + std::to_string(made.version) +
                                 " of its interface, the newest one that this dmlvk knows: install a newer dmlvk");
    }
    const Slots slots(api, "OrtApi", made.version);
#define DMLVK_ORT_TAKE(slot, since, result, name, parameters) slots.take(made.api.name, slot, since, #name);
    DMLVK_ORT_API(DMLVK_ORT_TAKE)
#undef DMLVK_ORT_TAKE
    const Slots ep_slots(made.api.GetEpApi(), "OrtEpApi", made.version);
#define DMLVK_ORT_TAKE(slot, since, result, name, parameters) ep_slots.take(made.ep.name, slot, since, #name);
    DMLVK_ORT_EP_API(DMLVK_ORT_TAKE)
#undef DMLVK_ORT_TAKE
    const Slots editor_slots(made.api.GetModelEditorApi(), "OrtModelEditorApi", made.version);
#define DMLVK_ORT_TAKE(slot, since, result, name, parameters) editor_slots.take(made.model_editor.name, slot, since, #name);
    DMLVK_ORT_MODEL_EDITOR_API(DMLVK_ORT_TAKE)
#undef DMLVK_ORT_TAKE
    return made;
}

}  // namespace dmlvk::ort
