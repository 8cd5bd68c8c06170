#include "logical_device.h"

#include "errors.h"

namespace dmlvk {
namespace {

FeatureSet without(FeatureSet features, const std::vector<std::string>& disabled) {
    for (const std::string& name : disabled) {
        features[feature_named(name)] = false;
    }
    // An extension that builds on another one goes with it, as Vulkan refuses it alone; full subgroups likewise.
    if (!features[Feature::cooperative_matrix]) {
        features[Feature::matrix_reductions] = false;
    }
    if (!features[Feature::subgroup_size_control]) {
        features[Feature::full_subgroups] = false;
    }
    return features;
}

std::vector<const char*> extensions_for(const PhysicalDevice& physical, const FeatureSet& features) {
    std::vector<const char*> names;
    const auto add = [&names](bool wanted, const char* name) {
        if (wanted) {
            names.push_back(name);
        }
    };
    add(features[Feature::memory_budget], VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    add(features[Feature::atomic_float], "VK_EXT_shader_atomic_float");
    add(features[Feature::cooperative_matrix], "VK_KHR_cooperative_matrix");
    const bool portable = physical.has_portable_reductions;
    add(features[Feature::matrix_reductions] && !portable, "VK_NV_cooperative_matrix2");
    add(features[Feature::matrix_reductions] && portable, VK_EXT_COOPERATIVE_MATRIX_MAINTENANCE_1_EXTENSION_NAME);
    add(features[Feature::bfloat16], "VK_KHR_shader_bfloat16");
    add(features[Feature::executable_properties], VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
    add(physical.has_pipeline_robustness, VK_EXT_PIPELINE_ROBUSTNESS_EXTENSION_NAME);
    add(features[Feature::external_memory], VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME);
    add(features[Feature::external_semaphores], VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME);
    // A device that lists this one (MoltenVK) must have it enabled.
    add(physical.has_extension("VK_KHR_portability_subset"), "VK_KHR_portability_subset");
    return names;
}

}  // namespace

LogicalDevice::LogicalDevice(const PhysicalDevice& physical, const std::vector<std::string>& disabled)
    : physical(physical), features(without(physical.features, disabled)) {
    const InstanceTable& instance_table = instance().vk;
    const std::vector<const char*> extensions = extensions_for(physical, features);

    FeatureChain reported(physical.extensions);
    query_features(physical.handle, reported);
    FeatureChain enabled(std::vector<std::string>(extensions.begin(), extensions.end()));
    select_features(reported, features, enabled);

    const float priority = 1.0F;
    VkDeviceQueueCreateInfo queue_info{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
    queue_info.queueFamilyIndex = physical.queue_family;
    queue_info.queueCount = 1;
    queue_info.pQueuePriorities = &priority;
    VkDeviceCreateInfo info{VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO};
    info.pNext = &enabled.core;
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queue_info;
    info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
    info.ppEnabledExtensionNames = extensions.data();
    dmlvk::check(instance_table.vkCreateDevice(physical.handle, &info, nullptr, &handle), "vkCreateDevice");
    try {
        vk = load_device(instance_table, handle);
    } catch (...) {
        const auto destroy = reinterpret_cast<PFN_vkDestroyDevice>(instance_table.vkGetDeviceProcAddr(handle, "vkDestroyDevice"));
        if (destroy != nullptr) {
            destroy(handle, nullptr);
        }
        throw;
    }
    vk.vkGetDeviceQueue(handle, physical.queue_family, 0, &queue);
}

LogicalDevice::~LogicalDevice() {
    vk.vkDestroyDevice(handle, nullptr);
}

void LogicalDevice::check(VkResult result, const char* call) {
    if (result >= 0) {
        return;
    }
    if (result == VK_ERROR_DEVICE_LOST) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (!is_lost_) {
            lost_call_ = call;
            is_lost_ = true;
        }
    }
    throw VulkanFailure(result, call);
}

void LogicalDevice::require_here() const {
    if (is_left_behind()) {
        throw WrongState(kForked);
    }
}

void LogicalDevice::require_alive() const {
    require_here();
    if (is_lost_) {
        throw VulkanFailure(VK_ERROR_DEVICE_LOST, lost(), "the device was lost in an earlier call");
    }
}

std::string LogicalDevice::lost() const {
    if (!is_lost_) {
        return "";
    }
    std::lock_guard<std::mutex> lock(mutex_);
    return lost_call_;
}

}  // namespace dmlvk
