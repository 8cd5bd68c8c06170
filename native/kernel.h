// A compute pipeline with its layouts.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
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
    /// Whether the driver keeps what executables() tells, which may cost time and memory.
    bool inspected = false;
};

/// What a driver tells of a program that it made of a pipeline.
struct Executable {
    struct Statistic {
        std::string name, description;
        std::variant<bool, int64_t, uint64_t, double> value;
    };
    /// A form of the program, such as its machine code; of text without the 0 at its end.
    struct Representation {
        std::string name, description, data;
        bool is_text;
    };

    std::string name, description;
    uint32_t subgroup_size;
    std::vector<Statistic> statistics;
    std::vector<Representation> representations;
};

class Kernel {
  public:
    /// Throws std::invalid_argument, naming the kernel, for what the device cannot do.
    Kernel(LogicalDevice& device, const PipelineCache& cache, const KernelDescription& description);
    ~Kernel();
    Kernel(const Kernel&) = delete;
    Kernel& operator=(const Kernel&) = delete;

    uint32_t bindings() const { return storage_buffers + (has_params ? 1 : 0); }
    /// The programs of an inspected kernel. Throws std::invalid_argument for one that is not.
    std::vector<Executable> executables() const;
    bool is_of(const LogicalDevice& device) const { return &device_ == &device; }

    const std::string name;
    const uint32_t storage_buffers;
    const bool has_params;
    const uint32_t push_bytes;
    VkDescriptorSetLayout set_layout = VK_NULL_HANDLE;
    VkPipelineLayout layout = VK_NULL_HANDLE;
    const bool inspected;
    VkPipeline pipeline = VK_NULL_HANDLE;

  private:
    void create(const PipelineCache& cache, const KernelDescription& description);
    void create_layouts();
    void destroy();

    LogicalDevice& device_;
};

}  // namespace dmlvk
