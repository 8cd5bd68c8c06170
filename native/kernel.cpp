#include "kernel.h"

#include <cstring>
#include <stdexcept>

#include "spirv.h"

namespace dmlvk {
namespace {

[[noreturn]] void refuse(const KernelDescription& kernel, const std::string& reason) {
    throw std::invalid_argument("kernel " + kernel.name + ": " + reason);
}

void require_at_most(const KernelDescription& kernel, const char* what, uint64_t value, uint64_t limit) {
    if (value > limit) {
        refuse(kernel, std::string(what) + " " + std::to_string(value) + " exceeds " + std::to_string(limit));
    }
}

std::array<uint32_t, 3> read_local_size(const KernelDescription& kernel) {
    try {
        return local_size(kernel.spirv, kernel.constants);
    } catch (const std::invalid_argument& error) {
        refuse(kernel, error.what());
    }
}

void require_supported(const LogicalDevice& device, const KernelDescription& kernel,
                       const std::array<uint32_t, 3>& local) {
    const PhysicalDevice& physical = device.physical;
    const VkPhysicalDeviceLimits& limits = physical.limits;
    if (kernel.inspected && !device.features[Feature::executable_properties]) {
        refuse(kernel, "inspected needs the feature executable_properties");
    }
    require_at_most(kernel, "push_bytes", kernel.push_bytes, kMaxPushBytes);
    if (kernel.push_bytes % 4 != 0) {
        refuse(kernel, "push_bytes " + std::to_string(kernel.push_bytes) + " is no multiple of 4");
    }
    require_at_most(kernel, "storage_buffers", kernel.storage_buffers, limits.maxPerStageDescriptorStorageBuffers);
    require_at_most(kernel, "workgroup invocations", uint64_t{local[0]} * local[1] * local[2],
                    limits.maxComputeWorkGroupInvocations);
    for (size_t axis = 0; axis < 3; axis++) {
        require_at_most(kernel, "workgroup size", local[axis], limits.maxComputeWorkGroupSize[axis]);
    }
    if (kernel.subgroup_size != 0) {
        if (!device.features[Feature::subgroup_size_control]) {
            refuse(kernel, "subgroup_size needs the feature subgroup_size_control");
        }
        const bool power_of_two = (kernel.subgroup_size & (kernel.subgroup_size - 1)) == 0;
        if (!power_of_two || kernel.subgroup_size < physical.min_subgroup_size ||
            kernel.subgroup_size > physical.max_subgroup_size) {
            refuse(kernel, "subgroup_size " + std::to_string(kernel.subgroup_size) + " is not a power of two from " +
                               std::to_string(physical.min_subgroup_size) + " to " +
                               std::to_string(physical.max_subgroup_size));
        }
        require_at_most(kernel, "workgroup invocations", uint64_t{local[0]} * local[1] * local[2],
                        uint64_t{kernel.subgroup_size} * physical.max_workgroup_subgroups);
    }
}

}  // namespace

Kernel::Kernel(LogicalDevice& device, const PipelineCache& cache, const KernelDescription& description)
    : name(description.name),
      storage_buffers(description.storage_buffers),
      has_params(description.has_params),
      push_bytes(description.push_bytes),
      inspected(description.inspected),
      device_(device) {
    device_.require_alive();
    try {
        create(cache, description);
    } catch (...) {
        destroy();
        throw;
    }
}

Kernel::~Kernel() {
    destroy();
}

void Kernel::create(const PipelineCache& cache, const KernelDescription& description) {
    const std::array<uint32_t, 3> local = read_local_size(description);
    require_supported(device_, description, local);
    create_layouts();

    std::vector<VkSpecializationMapEntry> entries;
    std::vector<uint32_t> values;
    for (const auto& [id, value] : description.constants) {
        entries.push_back({id, static_cast<uint32_t>(values.size() * sizeof(uint32_t)), sizeof(uint32_t)});
        values.push_back(value);
    }
    VkSpecializationInfo specialization{};
    specialization.mapEntryCount = static_cast<uint32_t>(entries.size());
    specialization.pMapEntries = entries.data();
    specialization.dataSize = values.size() * sizeof(uint32_t);
    specialization.pData = values.data();

    VkShaderModuleCreateInfo module_info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
    module_info.codeSize = description.spirv.size() * sizeof(uint32_t);
    module_info.pCode = description.spirv.data();
    VkShaderModule module = VK_NULL_HANDLE;
    device_.check(device_.vk.vkCreateShaderModule(device_.handle, &module_info, nullptr, &module),
                  "vkCreateShaderModule");

    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo required_size{
        VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO};
    required_size.requiredSubgroupSize = description.subgroup_size;
    VkComputePipelineCreateInfo info{VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
    info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
    info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
    info.stage.module = module;
    info.stage.pName = "main";
    info.stage.pSpecializationInfo = &specialization;
    info.layout = layout;
    // No kernel reads or writes past its ranges, but some drivers check each access even where robustBufferAccess is off, unless
    // a pipeline asks them not to.
    VkPipelineRobustnessCreateInfoEXT robustness{VK_STRUCTURE_TYPE_PIPELINE_ROBUSTNESS_CREATE_INFO_EXT};
    robustness.storageBuffers = VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DISABLED_EXT;
    robustness.uniformBuffers = VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DISABLED_EXT;
    if (device_.physical.has_pipeline_robustness) {
        info.pNext = &robustness;
    }
    if (inspected) {
        info.flags = VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR | VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
    }
    if (description.subgroup_size != 0) {
        info.stage.pNext = &required_size;
        // Vulkan allows the flag only where the workgroup's rows fill whole subgroups.
        if (device_.features[Feature::full_subgroups] && local[0] % description.subgroup_size == 0) {
            info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
        }
    }
    const VkResult result =
        device_.vk.vkCreateComputePipelines(device_.handle, cache.handle, 1, &info, nullptr, &pipeline);
    device_.vk.vkDestroyShaderModule(device_.handle, module, nullptr);
    device_.check(result, ("vkCreateComputePipelines for kernel " + name).c_str());
}

/// Vulkan leaves a handle undefined where it fails to make it, so that members take only those that were made.
void Kernel::create_layouts() {
    std::vector<VkDescriptorSetLayoutBinding> slots;
    for (uint32_t i = 0; i < bindings(); i++) {
        const bool is_params = i == storage_buffers;
        slots.push_back({i, is_params ? VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER : VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 1,
                         VK_SHADER_STAGE_COMPUTE_BIT, nullptr});
    }
    VkDescriptorSetLayoutCreateInfo set_info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO};
    set_info.bindingCount = bindings();
    set_info.pBindings = slots.data();
    VkDescriptorSetLayout made_set = VK_NULL_HANDLE;
    device_.check(device_.vk.vkCreateDescriptorSetLayout(device_.handle, &set_info, nullptr, &made_set),
                  "vkCreateDescriptorSetLayout");
    set_layout = made_set;

    const VkPushConstantRange push{VK_SHADER_STAGE_COMPUTE_BIT, 0, push_bytes};
    VkPipelineLayoutCreateInfo info{VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
    info.setLayoutCount = 1;
    info.pSetLayouts = &set_layout;
    info.pushConstantRangeCount = push_bytes > 0 ? 1 : 0;
    info.pPushConstantRanges = &push;
    VkPipelineLayout made = VK_NULL_HANDLE;
    device_.check(device_.vk.vkCreatePipelineLayout(device_.handle, &info, nullptr, &made), "vkCreatePipelineLayout");
    layout = made;
}

namespace {

constexpr const char* kRepresentations = "vkGetPipelineExecutableInternalRepresentationsKHR";

std::variant<bool, int64_t, uint64_t, double> value_of(const VkPipelineExecutableStatisticKHR& statistic) {
    switch (statistic.format) {
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR: return statistic.value.b32 == VK_TRUE;
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR: return statistic.value.i64;
        case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_FLOAT64_KHR: return statistic.value.f64;
        default: return statistic.value.u64;
    }
}

/// All that a query gives which is asked for a count first: query(&count, entries or null).
template <typename T, typename Query>
std::vector<T> all_of(LogicalDevice& device, VkStructureType type, const char* call, Query&& query) {
    uint32_t count = 0;
    device.check(query(&count, static_cast<T*>(nullptr)), call);
    T blank{};
    blank.sType = type;
    std::vector<T> found(count, blank);
    device.check(query(&count, found.data()), call);
    found.resize(count);
    return found;
}

}  // namespace

std::vector<Executable> Kernel::executables() const {
    if (!inspected) {
        throw std::invalid_argument("kernel " + name + ": was not created to be inspected");
    }
    device_.require_alive();
    VkPipelineInfoKHR own{VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR};
    own.pipeline = pipeline;
    const auto programs = all_of<VkPipelineExecutablePropertiesKHR>(
        device_, VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR, "vkGetPipelineExecutablePropertiesKHR",
        [&](uint32_t* count, auto* found) {
            return device_.vk.vkGetPipelineExecutablePropertiesKHR(device_.handle, &own, count, found);
        });
    std::vector<Executable> result;
    for (uint32_t i = 0; i < programs.size(); i++) {
        VkPipelineExecutableInfoKHR which{VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR};
        which.pipeline = pipeline;
        which.executableIndex = i;
        Executable program{programs[i].name, programs[i].description, programs[i].subgroupSize, {}, {}};
        for (const auto& statistic : all_of<VkPipelineExecutableStatisticKHR>(
                 device_, VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR, "vkGetPipelineExecutableStatisticsKHR",
                 [&](uint32_t* count, auto* found) {
                     return device_.vk.vkGetPipelineExecutableStatisticsKHR(device_.handle, &which, count, found);
                 })) {
            program.statistics.push_back({statistic.name, statistic.description, value_of(statistic)});
        }
        // Sizes first, then the same entries with memory of those sizes.
        auto forms = all_of<VkPipelineExecutableInternalRepresentationKHR>(
            device_, VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR, kRepresentations,
            [&](uint32_t* count, auto* found) {
                return device_.vk.vkGetPipelineExecutableInternalRepresentationsKHR(device_.handle, &which, count, found);
            });
        std::vector<std::string> bytes;
        for (const auto& form : forms) {
            bytes.emplace_back(form.dataSize, '\0');
        }
        for (size_t form = 0; form < forms.size(); form++) {
            forms[form].pData = bytes[form].data();
        }
        uint32_t count = static_cast<uint32_t>(forms.size());
        device_.check(
            device_.vk.vkGetPipelineExecutableInternalRepresentationsKHR(device_.handle, &which, &count, forms.data()),
            kRepresentations);
        for (size_t form = 0; form < count; form++) {
            const bool is_text = forms[form].isText == VK_TRUE;
            bytes[form].resize(is_text ? std::strlen(bytes[form].c_str()) : forms[form].dataSize);
            program.representations.push_back({forms[form].name, forms[form].description, bytes[form], is_text});
        }
        result.push_back(std::move(program));
    }
    return result;
}

void Kernel::destroy() {
    if (device_.is_left_behind()) {
        return;
    }
    device_.vk.vkDestroyPipeline(device_.handle, pipeline, nullptr);
    device_.vk.vkDestroyPipelineLayout(device_.handle, layout, nullptr);
    device_.vk.vkDestroyDescriptorSetLayout(device_.handle, set_layout, nullptr);
}

}  // namespace dmlvk
