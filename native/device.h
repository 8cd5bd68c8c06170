// A device as Python sees it: everything made on it lives in one place and is taken down in the right order.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernel.h"
#include "memory.h"
#include "pipeline_cache.h"
#include "queue.h"
#include "staging.h"

namespace dmlvk {

class Device : public std::enable_shared_from_this<Device> {
  public:
    /// Throws NoDevice when physical_devices() has no such index.
    Device(uint32_t index, const std::vector<std::string>& disabled, const std::string& cache_path);
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    std::shared_ptr<DeviceBuffer> allocate(uint64_t bytes);
    std::shared_ptr<Kernel> kernel(const KernelDescription& description);
    void upload(const std::shared_ptr<DeviceBuffer>& target, uint64_t offset, const unsigned char* data,
                uint64_t bytes);
    void download(const DeviceBuffer& source, uint64_t offset, unsigned char* out, uint64_t bytes);
    void wait_idle();
    MemoryStatistics memory_statistics();

    /// Keeps `resources` until the queue has finished `value`: what a command list dropped while running still uses.
    void bury(std::shared_ptr<void> resources, uint64_t value);
    /// Frees the objects that only finished work used.
    void collect();

    LogicalDevice logical;
    Memory memory;
    Queue queue;
    CopyThreads copies;
    UploadRing uploads;
    Downloader downloads;
    PipelineCache pipeline_cache;
    std::atomic<uint64_t> pipelines_created{0};
    std::atomic<uint64_t> dispatches{0};

  private:
    std::mutex graveyard_mutex_;
    std::vector<std::pair<uint64_t, std::shared_ptr<void>>> graveyard_;
};

}  // namespace dmlvk
