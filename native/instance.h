// One VkInstance a process, created at the first use.
#pragma once

#include <string>
#include <vector>

#include "api.h"

namespace dmlvk {

struct Instance {
    GlobalTable global;
    InstanceTable vk;
    VkInstance handle = VK_NULL_HANDLE;
};

/// Thread-safe. DMLVK_VALIDATION=1 in the environment at the first call switches the Khronos validation layer on.
/// Throws NoDevice (no loader, loader older than Vulkan 1.3, layer asked for but not installed) or VulkanFailure; the
/// next call then tries again.
const Instance& instance();

/// What the validation layer has said, oldest first.
std::vector<std::string> validation_messages(bool clear);

}  // namespace dmlvk
