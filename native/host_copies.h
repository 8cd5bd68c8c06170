// Copies between memory of the host and ranges of the device that are recorded once, for runs that come again.
#pragma once

#include <memory>
#include <vector>

#include "command_list.h"

namespace dmlvk {

/// The ranges lie one after the other in staging memory that nothing else uses. Not for several threads at once.
class HostCopies {
  public:
    HostCopies(std::shared_ptr<Device> device, StagingBuffer::Direction direction, std::vector<BoundRange> ranges);
    ~HostCopies();
    HostCopies(const HostCopies&) = delete;
    HostCopies& operator=(const HostCopies&) = delete;

    /// Waits for the last submit of the copies. False when `timeout` nanoseconds ran out first.
    bool wait(uint64_t timeout) { return device_->queue.wait(value_, timeout); }
    /// Has the copies travel with the next submit; not before the last one is over.
    void defer() { value_ = device_->queue.defer(recorded_->commands); }

    /// The bytes of a range for the device, before `defer`.
    void put(size_t index, const void* data);
    /// Bytes of a range from the device, from `offset` on, after `wait`.
    void take(size_t index, uint64_t offset, void* out, uint64_t bytes);

  private:
    /// What the device uses while the copies run.
    struct Recorded {
        Recorded(Device& device, StagingBuffer::Direction direction, std::vector<BoundRange> ranges, uint64_t bytes);
        TransferPool pool;
        StagingBuffer staging;
        std::vector<BoundRange> ranges;
        VkCommandBuffer commands = VK_NULL_HANDLE;
    };

    const std::shared_ptr<Device> device_;
    std::vector<uint64_t> starts_;  // In the staging memory.
    std::shared_ptr<Recorded> recorded_;
    uint64_t value_ = 0;
};

}  // namespace dmlvk
