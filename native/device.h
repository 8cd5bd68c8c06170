// A device as Python sees it: everything made on it lives in one place and is taken down in the right order.
#pragma once

#include <atomic>
#include <limits>
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

/// A timeline semaphore that other interfaces may import. Goes with the device, after all work that names it.
class SharedTimeline {
  public:
    /// Throws std::invalid_argument where the device cannot export any.
    explicit SharedTimeline(LogicalDevice& device);
    ~SharedTimeline();
    SharedTimeline(const SharedTimeline&) = delete;
    SharedTimeline& operator=(const SharedTimeline&) = delete;

    /// A new file descriptor, which its caller closes or gives away.
    int export_semaphore();

    VkSemaphore handle = VK_NULL_HANDLE;

  private:
    LogicalDevice& device_;
};

class Device : public std::enable_shared_from_this<Device> {
  public:
    /// Throws NoDevice when physical_devices() has no such index, and WrongState in a forked child.
    ///
    /// The last owner waits for what runs, but not long: a device whose work goes on is destroyed when another is opened, or
    /// let go of, after that. That of a process's parent is not destroyed at all.
    static std::shared_ptr<Device> open(uint32_t index, const std::vector<std::string>& disabled,
                                        const std::string& cache_path);
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    /// Throws VulkanFailure(VK_ERROR_OUT_OF_DEVICE_MEMORY) where there is no room, at least before collect().
    std::shared_ptr<DeviceBuffer> allocate(uint64_t bytes, uint32_t purpose, bool exported);
    std::shared_ptr<Kernel> kernel(const KernelDescription& description);
    MemoryStatistics memory_statistics();

    /// Makes room for one more grave, so that bury() cannot fail. One for each command list.
    void reserve_grave();
    /// Gives that room back.
    void release_grave() noexcept;
    /// Keeps `resources` until the queue has finished `value`: what a command list dropped while running still uses. Takes
    /// the room of one grave.
    void bury(std::shared_ptr<void> resources, uint64_t value) noexcept;
    /// Frees the objects that only finished work used.
    void collect();
    /// A timeline that lives as long as the device.
    SharedTimeline& new_timeline();

    LogicalDevice logical;
    Memory memory;
    Queue queue;
    CopyThreads copies;
    UploadRing uploads;
    Downloader downloads;
    PipelineCache pipeline_cache;
    std::atomic<uint64_t> pipelines_created{0};
    std::atomic<uint64_t> dispatches{0};
    /// The most seconds that one wait may take.
    std::atomic<double> wait_timeout{std::numeric_limits<double>::infinity()};

  private:
    Device(uint32_t index, const std::vector<std::string>& disabled, const std::string& cache_path);
    static void retire(Device* device) noexcept;
    /// Destroys retired devices on which nothing runs any more.
    static void destroy_settled() noexcept;
    bool settled(uint64_t timeout) noexcept;

    std::mutex graveyard_mutex_;
    std::vector<std::pair<uint64_t, std::shared_ptr<void>>> graveyard_;
    size_t reserved_graves_ = 0;
    std::mutex timelines_mutex_;
    std::vector<std::unique_ptr<SharedTimeline>> timelines_;
};

}  // namespace dmlvk
