// The VkPipelineCache of a device and its file.
#pragma once

#include <string>

#include "logical_device.h"

namespace dmlvk {

class PipelineCache {
  public:
    /// Reads `path` ("" for none). A file that is absent, damaged or of another device or driver counts as empty.
    PipelineCache(LogicalDevice& device, std::string path);
    ~PipelineCache();
    PipelineCache(const PipelineCache&) = delete;
    PipelineCache& operator=(const PipelineCache&) = delete;

    /// Replaces the file in one step, so that other processes see the old one or the new one. Does nothing
    /// without a path, or where the cache has not grown since it was read or saved.
    /// Throws std::system_error when the file cannot be written.
    void save();

    VkPipelineCache handle = VK_NULL_HANDLE;

  private:
    LogicalDevice& device_;
    std::string path_;
    size_t saved_bytes_ = 0;
};

}  // namespace dmlvk
