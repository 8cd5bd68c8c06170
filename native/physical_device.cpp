#include "physical_device.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "errors.h"

namespace dmlvk {
namespace {

std::vector<std::string> read_extensions(const InstanceTable& vk, VkPhysicalDevice device) {
    uint32_t count = 0;
    check(vk.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr),
          "vkEnumerateDeviceExtensionProperties");
    std::vector<VkExtensionProperties> properties(count);
    check(vk.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, properties.data()),
          "vkEnumerateDeviceExtensionProperties");
    std::vector<std::string> names;
    for (const VkExtensionProperties& property : properties) {
        names.emplace_back(property.extensionName);
    }
    return names;
}

bool contains(const std::vector<std::string>& names, const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

std::string uuid_text(const uint8_t* bytes) {
    std::string text;
    for (size_t i = 0; i < VK_UUID_SIZE; i++) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
        text += (i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "") + std::string(digits);
    }
    return text;
}

std::string type_text(VkPhysicalDeviceType type) {
    switch (type) {
        case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return "discrete";
        case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return "integrated";
        case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return "virtual";
        case VK_PHYSICAL_DEVICE_TYPE_CPU: return "cpu";
        default: return "other";
    }
}

std::string component_text(int64_t type) {
    switch (type) {
        case 0: return "float16";
        case 1: return "float32";
        case 2: return "float64";
        case 3: return "int8";
        case 4: return "int16";
        case 5: return "int32";
        case 6: return "int64";
        case 7: return "uint8";
        case 8: return "uint16";
        case 9: return "uint32";
        case 10: return "uint64";
        case 1000141000: return "bfloat16";
        case 1000491000: return "int8_packed";
        case 1000491001: return "uint8_packed";
        case 1000491002: return "float8_e4m3";
        case 1000491003: return "float8_e5m2";
        default: return "VkComponentTypeKHR " + std::to_string(type);
    }
}

std::string scope_text(int64_t scope) {
    switch (scope) {
        case 1: return "device";
        case 2: return "workgroup";
        case 3: return "subgroup";
        case 5: return "queue_family";
        default: return "VkScopeKHR " + std::to_string(scope);
    }
}

std::vector<CooperativeMatrixShape> read_cooperative_matrices(const InstanceTable& vk, VkPhysicalDevice device) {
    const auto query = vk.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR;
    if (query == nullptr) {
        return {};
    }
    uint32_t count = 0;
    check(query(device, &count, nullptr), "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    VkCooperativeMatrixPropertiesKHR blank{};
    blank.sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
    std::vector<VkCooperativeMatrixPropertiesKHR> properties(count, blank);
    check(query(device, &count, properties.data()), "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    std::vector<CooperativeMatrixShape> shapes;
    for (const VkCooperativeMatrixPropertiesKHR& p : properties) {
        shapes.push_back({p.MSize, p.NSize, p.KSize, component_text(p.AType), component_text(p.BType),
                          component_text(p.CType), component_text(p.ResultType), p.saturatingAccumulation == VK_TRUE,
                          scope_text(p.scope)});
    }
    return shapes;
}

/// Whether other interfaces in this process may have memory of a buffer, as a file descriptor.
bool exports_memory(const InstanceTable& vk, const PhysicalDevice& device) {
    VkPhysicalDeviceExternalBufferInfo asked{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_BUFFER_INFO};
    asked.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT |
                  VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    asked.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
    VkExternalBufferProperties found{VK_STRUCTURE_TYPE_EXTERNAL_BUFFER_PROPERTIES};
    vk.vkGetPhysicalDeviceExternalBufferProperties(device.handle, &asked, &found);
    return (found.externalMemoryProperties.externalMemoryFeatures & VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT) != 0;
}

/// Whether they may have a timeline semaphore.
bool exports_semaphores(const InstanceTable& vk, const PhysicalDevice& device) {
    VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
    type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
    VkPhysicalDeviceExternalSemaphoreInfo asked{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_SEMAPHORE_INFO, &type};
    asked.handleType = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT;
    VkExternalSemaphoreProperties found{VK_STRUCTURE_TYPE_EXTERNAL_SEMAPHORE_PROPERTIES};
    vk.vkGetPhysicalDeviceExternalSemaphoreProperties(device.handle, &asked, &found);
    return (found.externalSemaphoreFeatures & VK_EXTERNAL_SEMAPHORE_FEATURE_EXPORTABLE_BIT) != 0;
}

/// Whether an extension's structure has all that matrix_reductions stands for.
template <typename Features>
bool has_reductions(const Features& features) {
    return features.cooperativeMatrixReductions && features.cooperativeMatrixConversions &&
           features.cooperativeMatrixPerElementOperations;
}

template <typename Features>
void take_reductions(const Features& reported, Features& enabled) {
    enabled.cooperativeMatrixReductions = reported.cooperativeMatrixReductions;
    enabled.cooperativeMatrixConversions = reported.cooperativeMatrixConversions;
    enabled.cooperativeMatrixPerElementOperations = reported.cooperativeMatrixPerElementOperations;
}

FeatureSet reported_features(const InstanceTable& vk, const FeatureChain& chain, const PhysicalDevice& device) {
    const std::vector<std::string>& extensions = device.extensions;
    FeatureSet set;
    set[Feature::float16] = chain.vulkan12.shaderFloat16;
    set[Feature::int8] = chain.vulkan12.shaderInt8;
    set[Feature::int16] = chain.core.features.shaderInt16;
    set[Feature::int64] = chain.core.features.shaderInt64;
    set[Feature::float64] = chain.core.features.shaderFloat64;
    set[Feature::storage16] = chain.vulkan11.storageBuffer16BitAccess;
    set[Feature::storage8] = chain.vulkan12.storageBuffer8BitAccess;
    // Every Vulkan 1.3 device has the feature, but it need not let compute shaders require a size: MoltenVK does not.
    set[Feature::subgroup_size_control] = chain.vulkan13.subgroupSizeControl &&
                                          (device.required_subgroup_size_stages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
    set[Feature::full_subgroups] = chain.vulkan13.computeFullSubgroups;
    // These two need no switching on: every shader may use what the device can do in subgroups.
    set[Feature::subgroup_arithmetic] = (device.subgroup_operations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT) != 0;
    set[Feature::subgroup_shuffle] = (device.subgroup_operations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT) != 0;
    set[Feature::cooperative_matrix] = chain.cooperative_matrix.cooperativeMatrix;
    set[Feature::matrix_reductions] =
        has_reductions(chain.cooperative_matrix2) || has_reductions(chain.matrix_maintenance1);
    set[Feature::bfloat16] = chain.bfloat16.shaderBFloat16Type;
    set[Feature::integer_dot_product] = chain.vulkan13.shaderIntegerDotProduct;
    set[Feature::memory_budget] = contains(extensions, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    set[Feature::buffer_device_address] = chain.vulkan12.bufferDeviceAddress;
    set[Feature::vulkan_memory_model] = chain.vulkan12.vulkanMemoryModel;
    set[Feature::atomic_float] = chain.atomic_float.shaderBufferFloat32AtomicAdd;
    set[Feature::executable_properties] = chain.executable_properties.pipelineExecutableInfo;
    set[Feature::external_memory] =
        contains(extensions, VK_KHR_EXTERNAL_MEMORY_FD_EXTENSION_NAME) && exports_memory(vk, device);
    set[Feature::external_semaphores] =
        contains(extensions, VK_KHR_EXTERNAL_SEMAPHORE_FD_EXTENSION_NAME) && exports_semaphores(vk, device);
    return set;
}

void read_memory(const InstanceTable& vk, PhysicalDevice& device) {
    VkPhysicalDeviceMemoryProperties memory;
    vk.vkGetPhysicalDeviceMemoryProperties(device.handle, &memory);
    for (uint32_t i = 0; i < memory.memoryHeapCount; i++) {
        if ((memory.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0) {
            device.memory_bytes += memory.memoryHeaps[i].size;
            device.largest_heap = std::max(device.largest_heap, uint64_t{memory.memoryHeaps[i].size});
        }
    }
}

void read_properties(const InstanceTable& vk, PhysicalDevice& device) {
    VkPhysicalDeviceProperties2 core{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    VkPhysicalDeviceVulkan11Properties vulkan11{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES};
    VkPhysicalDeviceVulkan12Properties vulkan12{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES};
    VkPhysicalDeviceVulkan13Properties vulkan13{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES};
    core.pNext = &vulkan11;
    vulkan11.pNext = &vulkan12;
    vulkan12.pNext = &vulkan13;
    vk.vkGetPhysicalDeviceProperties2(device.handle, &core);

    device.name = core.properties.deviceName;
    device.uuid = uuid_text(vulkan11.deviceUUID);
    device.driver = std::string(vulkan12.driverName) + " " + vulkan12.driverInfo;
    device.driver_version = core.properties.driverVersion;
    device.vendor_id = core.properties.vendorID;
    device.device_id = core.properties.deviceID;
    device.type = type_text(core.properties.deviceType);
    device.api_version = core.properties.apiVersion;
    device.limits = core.properties.limits;
    std::copy(std::begin(core.properties.pipelineCacheUUID), std::end(core.properties.pipelineCacheUUID),
              std::begin(device.pipeline_cache_uuid));
    device.subgroup_size = vulkan11.subgroupSize;
    if ((vulkan11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0) {
        device.subgroup_operations = vulkan11.subgroupSupportedOperations;
    }
    device.min_subgroup_size = vulkan13.minSubgroupSize;
    device.max_subgroup_size = vulkan13.maxSubgroupSize;
    device.max_workgroup_subgroups = vulkan13.maxComputeWorkgroupSubgroups;
    device.required_subgroup_size_stages = vulkan13.requiredSubgroupSizeStages;
    device.max_allocation_size = vulkan11.maxMemoryAllocationSize;
    device.max_buffer_size = vulkan13.maxBufferSize;
}

/// How many processors there are and what each holds, from the vendors' extensions. A structure is linked only where the
/// device has its extension.
void read_processors(const InstanceTable& vk, PhysicalDevice& device) {
    VkPhysicalDeviceProperties2 core{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nvidia{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV};
    VkPhysicalDeviceShaderCorePropertiesAMD amd{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD};
    VkPhysicalDeviceShaderCoreProperties2AMD amd2{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_2_AMD};
    VkPhysicalDeviceShaderCoreBuiltinsPropertiesARM arm{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_BUILTINS_PROPERTIES_ARM};
    const auto link = [&](const char* extension, auto& structure) {
        if (contains(device.extensions, extension)) {
            structure.pNext = core.pNext;
            core.pNext = &structure;
        }
    };
    link(VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME, nvidia);
    link(VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME, amd);
    link(VK_AMD_SHADER_CORE_PROPERTIES_2_EXTENSION_NAME, amd2);
    link(VK_ARM_SHADER_CORE_BUILTINS_EXTENSION_NAME, arm);
    if (core.pNext == nullptr) {
        return;
    }
    vk.vkGetPhysicalDeviceProperties2(device.handle, &core);
    // Structures that are not linked are still 0. Some of AMD's units may be switched off: the second extension tells.
    const uint32_t units = amd.shaderEngineCount * amd.shaderArraysPerEngineCount * amd.computeUnitsPerShaderArray;
    const uint32_t active = amd2.activeComputeUnitCount != 0 ? amd2.activeComputeUnitCount : units;
    device.processors = std::max({nvidia.shaderSMCount, active, arm.shaderCoreCount});
    device.processor_subgroups =
        std::max({nvidia.shaderWarpsPerSM, amd.simdPerComputeUnit * amd.wavefrontsPerSimd, arm.shaderWarpsPerCore});
}

/// Finds a queue family that computes, one without graphics where there is one: on an NVIDIA H200 a launch takes 11.8 us
/// there, and 13.8 us on the family that draws as well. False when no family computes.
bool read_queue_family(const InstanceTable& vk, PhysicalDevice& device) {
    uint32_t count = 0;
    vk.vkGetPhysicalDeviceQueueFamilyProperties(device.handle, &count, nullptr);
    std::vector<VkQueueFamilyProperties> families(count);
    vk.vkGetPhysicalDeviceQueueFamilyProperties(device.handle, &count, families.data());
    const auto choose = [&](VkQueueFlags unwanted) {
        for (uint32_t i = 0; i < count; i++) {
            if ((families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) != 0 && (families[i].queueFlags & unwanted) == 0) {
                device.queue_family = i;
                device.timestamp_bits = families[i].timestampValidBits;
                return true;
            }
        }
        return false;
    };
    return choose(VK_QUEUE_GRAPHICS_BIT) || choose(0);
}

std::vector<PhysicalDevice> read_devices() {
    const Instance& owner = instance();
    uint32_t count = 0;
    check(owner.vk.vkEnumeratePhysicalDevices(owner.handle, &count, nullptr), "vkEnumeratePhysicalDevices");
    std::vector<VkPhysicalDevice> handles(count);
    check(owner.vk.vkEnumeratePhysicalDevices(owner.handle, &count, handles.data()), "vkEnumeratePhysicalDevices");
    handles.resize(count);  // A device may have gone meanwhile.

    std::vector<PhysicalDevice> devices;
    for (VkPhysicalDevice handle : handles) {
        VkPhysicalDeviceProperties basic;
        owner.vk.vkGetPhysicalDeviceProperties(handle, &basic);
        PhysicalDevice device;
        device.handle = handle;
        // This is asked first: the rest is read through structures that an older device must not be shown.
        if (basic.apiVersion < VK_API_VERSION_1_3 || !read_queue_family(owner.vk, device)) {
            continue;
        }
        device.index = static_cast<uint32_t>(devices.size());
        device.extensions = read_extensions(owner.vk, handle);
        read_properties(owner.vk, device);
        read_processors(owner.vk, device);
        read_memory(owner.vk, device);
        FeatureChain reported(device.extensions);
        query_features(handle, reported);
        device.features = reported_features(owner.vk, reported, device);
        device.has_portable_reductions = !has_reductions(reported.cooperative_matrix2);
        device.has_pipeline_robustness = reported.pipeline_robustness.pipelineRobustness == VK_TRUE;
        if (device.features[Feature::cooperative_matrix]) {
            device.cooperative_matrices = read_cooperative_matrices(owner.vk, handle);
        }
        devices.push_back(std::move(device));
    }
    return devices;
}

}  // namespace

Feature feature_named(const std::string& name) {
    for (size_t i = 0; i < kFeatureNames.size(); i++) {
        if (name == kFeatureNames[i]) {
            return static_cast<Feature>(i);
        }
    }
    throw std::invalid_argument("disable: '" + name + "' is no feature name");
}

FeatureChain::FeatureChain(const std::vector<std::string>& extensions) {
    void** tail = &core.pNext;
    const auto link = [&tail](auto& structure) {
        *tail = &structure;
        tail = &structure.pNext;
    };
    link(vulkan11);
    link(vulkan12);
    link(vulkan13);
    if (contains(extensions, "VK_EXT_shader_atomic_float")) {
        link(atomic_float);
    }
    if (contains(extensions, "VK_KHR_cooperative_matrix")) {
        link(cooperative_matrix);
    }
    if (contains(extensions, "VK_NV_cooperative_matrix2")) {
        link(cooperative_matrix2);
    }
    if (contains(extensions, VK_EXT_COOPERATIVE_MATRIX_MAINTENANCE_1_EXTENSION_NAME)) {
        link(matrix_maintenance1);
    }
    if (contains(extensions, "VK_KHR_shader_bfloat16")) {
        link(bfloat16);
    }
    if (contains(extensions, VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME)) {
        link(executable_properties);
    }
    if (contains(extensions, VK_EXT_PIPELINE_ROBUSTNESS_EXTENSION_NAME)) {
        link(pipeline_robustness);
    }
}

void query_features(VkPhysicalDevice device, FeatureChain& chain) {
    instance().vk.vkGetPhysicalDeviceFeatures2(device, &chain.core);
}

void select_features(const FeatureChain& reported, const FeatureSet& wanted, FeatureChain& enabled) {
    // dmlvk needs these. Every Vulkan 1.3 device offers all of them but scalarBlockLayout.
    enabled.vulkan12.timelineSemaphore = VK_TRUE;
    enabled.vulkan12.uniformBufferStandardLayout = VK_TRUE;
    enabled.vulkan12.shaderSubgroupExtendedTypes = VK_TRUE;
    enabled.vulkan12.scalarBlockLayout = reported.vulkan12.scalarBlockLayout;
    enabled.vulkan13.synchronization2 = VK_TRUE;
    enabled.vulkan13.maintenance4 = VK_TRUE;

    enabled.vulkan12.shaderFloat16 = wanted[Feature::float16];
    enabled.vulkan12.shaderInt8 = wanted[Feature::int8];
    enabled.core.features.shaderInt16 = wanted[Feature::int16];
    enabled.core.features.shaderInt64 = wanted[Feature::int64];
    enabled.core.features.shaderFloat64 = wanted[Feature::float64];
    enabled.vulkan11.storageBuffer16BitAccess = wanted[Feature::storage16];
    enabled.vulkan12.storageBuffer8BitAccess = wanted[Feature::storage8];
    enabled.vulkan13.subgroupSizeControl = wanted[Feature::subgroup_size_control];
    enabled.vulkan13.computeFullSubgroups = wanted[Feature::full_subgroups];
    enabled.cooperative_matrix.cooperativeMatrix = wanted[Feature::cooperative_matrix];
    if (wanted[Feature::matrix_reductions]) {
        // Of the two structures the one that is not linked is left alone by Vulkan.
        take_reductions(reported.cooperative_matrix2, enabled.cooperative_matrix2);
        take_reductions(reported.matrix_maintenance1, enabled.matrix_maintenance1);
    }
    if (wanted[Feature::bfloat16]) {
        enabled.bfloat16.shaderBFloat16Type = VK_TRUE;
        enabled.bfloat16.shaderBFloat16DotProduct = reported.bfloat16.shaderBFloat16DotProduct;
        enabled.bfloat16.shaderBFloat16CooperativeMatrix =
            wanted[Feature::cooperative_matrix] ? reported.bfloat16.shaderBFloat16CooperativeMatrix : VK_FALSE;
    }
    enabled.vulkan13.shaderIntegerDotProduct = wanted[Feature::integer_dot_product];
    enabled.vulkan12.bufferDeviceAddress = wanted[Feature::buffer_device_address];
    if (wanted[Feature::vulkan_memory_model]) {
        enabled.vulkan12.vulkanMemoryModel = VK_TRUE;
        enabled.vulkan12.vulkanMemoryModelDeviceScope = reported.vulkan12.vulkanMemoryModelDeviceScope;
    }
    if (wanted[Feature::atomic_float]) {
        enabled.atomic_float.shaderBufferFloat32AtomicAdd = VK_TRUE;
        enabled.atomic_float.shaderBufferFloat32Atomics = reported.atomic_float.shaderBufferFloat32Atomics;
    }
    enabled.pipeline_robustness.pipelineRobustness = reported.pipeline_robustness.pipelineRobustness;
    enabled.executable_properties.pipelineExecutableInfo = wanted[Feature::executable_properties];
}

bool PhysicalDevice::has_extension(const char* extension) const {
    return contains(extensions, extension);
}

std::vector<std::pair<std::string, std::variant<uint64_t, double>>> PhysicalDevice::named_limits() const {
    std::vector<std::pair<std::string, std::variant<uint64_t, double>>> named;
    const auto add = [&named](std::string name, uint64_t value) { named.emplace_back(std::move(name), value); };
#define DMLVK_LIMIT(member) add(#member, limits.member);
#define DMLVK_LIMIT3(member)                                   \
    for (size_t i = 0; i < 3; i++) {                           \
        add(#member + std::to_string(i), limits.member[i]); \
    }
    DMLVK_LIMIT(maxUniformBufferRange)
    DMLVK_LIMIT(maxStorageBufferRange)
    DMLVK_LIMIT(maxPushConstantsSize)
    DMLVK_LIMIT(maxMemoryAllocationCount)
    DMLVK_LIMIT(bufferImageGranularity)
    DMLVK_LIMIT(maxBoundDescriptorSets)
    DMLVK_LIMIT(maxPerStageDescriptorUniformBuffers)
    DMLVK_LIMIT(maxPerStageDescriptorStorageBuffers)
    DMLVK_LIMIT(maxPerStageResources)
    DMLVK_LIMIT(maxDescriptorSetUniformBuffers)
    DMLVK_LIMIT(maxDescriptorSetStorageBuffers)
    DMLVK_LIMIT(maxComputeSharedMemorySize)
    DMLVK_LIMIT3(maxComputeWorkGroupCount)
    DMLVK_LIMIT(maxComputeWorkGroupInvocations)
    DMLVK_LIMIT3(maxComputeWorkGroupSize)
    DMLVK_LIMIT(minMemoryMapAlignment)
    DMLVK_LIMIT(minUniformBufferOffsetAlignment)
    DMLVK_LIMIT(minStorageBufferOffsetAlignment)
    DMLVK_LIMIT(timestampComputeAndGraphics)
    named.emplace_back("timestampPeriod", double{limits.timestampPeriod});
    add("timestampValidBits", timestamp_bits);
    DMLVK_LIMIT(optimalBufferCopyOffsetAlignment)
    DMLVK_LIMIT(nonCoherentAtomSize)
#undef DMLVK_LIMIT
#undef DMLVK_LIMIT3
    add("subgroupSize", subgroup_size);
    add("minSubgroupSize", min_subgroup_size);
    add("maxSubgroupSize", max_subgroup_size);
    add("maxComputeWorkgroupSubgroups", max_workgroup_subgroups);
    add("maxMemoryAllocationSize", max_allocation_size);
    add("maxBufferSize", max_buffer_size);
    if (processors != 0) {
        add("processors", processors);
    }
    if (processor_subgroups != 0) {
        add("processorSubgroups", processor_subgroups);
    }
    return named;
}

const std::vector<PhysicalDevice>& physical_devices() {
    static const auto* devices = new std::vector<PhysicalDevice>(read_devices());
    return *devices;
}

}  // namespace dmlvk
