// A compute pipeline with its layouts.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "logical_device.h"
#include "pipeline_cache.h"

namespace dmlvk {

/// The smallest push constant space that Vulkan promises.
constexpr uint32_t kMaxPushBytes = 128;

struct KernelDescription {
    std::string name;
    std::vector<uint32_t> spirv;
    uint32_t storage_buffers = 0;
    bool has_params = false;
    uint32_t push_bytes = 0;
    std::vector<std::pair<uint32_t, uint32_t>> constants;
    uint32_t subgroup_size = 0;
};

class Kernel {
  public:
    /// Throws std::invalid_argument, naming the kernel, for what the device cannot do.
    Kernel(LogicalDevice& device, const PipelineCache& cache, const KernelDescription& description);
    ~Kernel();
    Kernel(const Kernel&) = delete;
    Kernel& operator=(const Kernel&) = delete;

    uint32_t bindings() const { return storage_buffers + (has_params ? 1 : 0); }
    bool is_of(const LogicalDevice& device) const { return &device_ == &device; }

    const std::string name;
    const uint32_t storage_buffers;
    const bool has_params;
    const uint32_t push_bytes;
    VkDescriptorSetLayout set_layout = VK_NULL_HANDLE;
    VkPipelineLayout layout = VK_NULL_HANDLE;
    VkPipeline pipeline = VK_NULL_HANDLE;

  private:
    void create(const PipelineCache& cache, const KernelDescription& description);
    void create_layouts();
    void destroy();

    LogicalDevice& device_;
};

}  // namespace dmlvk
