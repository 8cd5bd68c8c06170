// What the Vulkan devices of this machine report, and dmlvk's names for the optional features among it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "instance.h"

namespace dmlvk {

enum class Feature : uint32_t {
    float16,
    int8,
    int16,
    int64,
    float64,
    storage16,
    storage8,
    subgroup_size_control,
    full_subgroups,
    subgroup_arithmetic,
    subgroup_shuffle,
    cooperative_matrix,
    matrix_reductions,
    bfloat16,
    integer_dot_product,
    memory_budget,
    buffer_device_address,
    vulkan_memory_model,
    atomic_float,
    executable_properties,
    external_memory,
    external_semaphores,
};

constexpr std::array kFeatureNames = {
    "float16",
    "int8",
    "int16",
    "int64",
    "float64",
    "storage16",
    "storage8",
    "subgroup_size_control",
    "full_subgroups",
    "subgroup_arithmetic",
    "subgroup_shuffle",
    "cooperative_matrix",
    "matrix_reductions",
    "bfloat16",
    "integer_dot_product",
    "memory_budget",
    "buffer_device_address",
    "vulkan_memory_model",
    "atomic_float",
    "executable_properties",
    "external_memory",
    "external_semaphores",
};

class FeatureSet {
  public:
    bool operator[](Feature feature) const { return on_[static_cast<size_t>(feature)]; }
    bool& operator[](Feature feature) { return on_[static_cast<size_t>(feature)]; }
    bool at(size_t index) const { return on_[index]; }

  private:
    std::array<bool, kFeatureNames.size()> on_{};
};

/// The feature of that name. Throws std::invalid_argument for a name that kFeatureNames lacks.
Feature feature_named(const std::string& name);

/// Every structure of the features query, linked into one chain: filled by a query, or to be handed to vkCreateDevice.
/// Structures of extensions are linked only where the device has the extension, as Vulkan demands.
class FeatureChain {
  public:
    /// Links an all-false chain for a device with these extensions.
    explicit FeatureChain(const std::vector<std::string>& extensions);
    FeatureChain(const FeatureChain&) = delete;
    FeatureChain& operator=(const FeatureChain&) = delete;

    VkPhysicalDeviceFeatures2 core{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
    VkPhysicalDeviceVulkan11Features vulkan11{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES};
    VkPhysicalDeviceVulkan12Features vulkan12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkPhysicalDeviceVulkan13Features vulkan13{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES};
    VkPhysicalDeviceShaderAtomicFloatFeaturesEXT atomic_float{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_ATOMIC_FLOAT_FEATURES_EXT};
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR cooperative_matrix{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};
    VkPhysicalDeviceCooperativeMatrix2FeaturesNV cooperative_matrix2{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_2_FEATURES_NV};
    VkPhysicalDeviceCooperativeMatrixMaintenance1FeaturesEXT matrix_maintenance1{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_MAINTENANCE_1_FEATURES_EXT};
    VkPhysicalDeviceShaderBfloat16FeaturesKHR bfloat16{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR};
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR executable_properties{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR};
    VkPhysicalDevicePipelineRobustnessFeaturesEXT pipeline_robustness{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_ROBUSTNESS_FEATURES_EXT};
};

struct CooperativeMatrixShape {
    uint32_t m, n, k;
    std::string a_type, b_type, c_type, result_type;
    bool saturating;
    std::string scope;
};

struct PhysicalDevice {
    VkPhysicalDevice handle = VK_NULL_HANDLE;
    uint32_t index = 0;
    std::string name;
    std::string uuid;
    std::string driver;
    uint32_t driver_version = 0;
    uint32_t vendor_id = 0;
    uint32_t device_id = 0;
    std::string type;
    uint32_t api_version = 0;
    uint64_t memory_bytes = 0;
    /// The largest device-local heap: one allocation cannot be larger.
    uint64_t largest_heap = 0;
    uint32_t queue_family = 0;
    uint32_t timestamp_bits = 0;
    std::vector<std::string> extensions;
    FeatureSet features;
    /// Whether matrix_reductions, if there are any, are those of VK_EXT_cooperative_matrix_maintenance1 and not NVIDIA's.
    bool has_portable_reductions = false;
    /// Whether a pipeline can say whether its accesses are checked; see Kernel.
    bool has_pipeline_robustness = false;
    VkPhysicalDeviceLimits limits{};
    uint8_t pipeline_cache_uuid[VK_UUID_SIZE]{};
    uint32_t subgroup_size = 0;
    uint32_t min_subgroup_size = 0;
    uint32_t max_subgroup_size = 0;
    uint32_t max_workgroup_subgroups = 0;
    VkShaderStageFlags required_subgroup_size_stages = 0;
    uint64_t max_allocation_size = 0;
    uint64_t max_buffer_size = 0;
    VkSubgroupFeatureFlags subgroup_operations = 0;  // in compute shaders
    std::vector<CooperativeMatrixShape> cooperative_matrices;
    /// What extensions tell of the processors that workgroups run on; 0 where none does.
    uint32_t processors = 0;
    uint32_t processor_subgroups = 0;  // that one processor holds at once

    bool has_extension(const char* extension) const;
    /// The limits by Vulkan's member names, in the specification's order. A member that is an array has an entry for each of
    /// its elements. At the end are "processors" and "processorSubgroups", where an extension tells them.
    std::vector<std::pair<std::string, std::variant<uint64_t, double>>> named_limits() const;
};

/// Vulkan 1.3 devices with a compute queue, in the loader's order, read once for the process. Throws NoDevice without a
/// loader or driver; an empty list means drivers whose devices are all too old.
const std::vector<PhysicalDevice>& physical_devices();

/// Switches on in `enabled` what `reported` offers, every feature of `wanted` and what dmlvk itself always needs.
void select_features(const FeatureChain& reported, const FeatureSet& wanted, FeatureChain& enabled);

/// Fills `chain` with what the device reports.
void query_features(VkPhysicalDevice device, FeatureChain& chain);

}  // namespace dmlvk
