#include "host_copies.h"

#include "barriers.h"

namespace dmlvk {
namespace {

constexpr uint64_t kAlignment = 64;

}  // namespace

HostCopies::Recorded::Recorded(Device& device, StagingBuffer::Direction direction, std::vector<BoundRange> given,
                               uint64_t bytes)
    : pool(device.logical), staging(device.memory, bytes, direction), ranges(std::move(given)), commands(pool.allocate()) {}

HostCopies::HostCopies(std::shared_ptr<Device> device, StagingBuffer::Direction direction, std::vector<BoundRange> ranges)
    : device_(std::move(device)) {
    uint64_t bytes = 0;
    for (const BoundRange& range : ranges) {
        starts_.push_back(bytes);
        bytes += (range.bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
    recorded_ = std::make_shared<Recorded>(*device_, direction, std::move(ranges), bytes);
    const DeviceTable& vk = device_->logical.vk;
    const VkCommandBuffer commands = recorded_->commands;
    recorded_->pool.begin(commands, TransferPool::Use::again);
    record_work_barrier(vk, commands);
    for (size_t i = 0; i < starts_.size(); i++) {
        const BoundRange& range = recorded_->ranges[i];
        const VkBuffer staged = recorded_->staging.handle;
        const bool up = direction != StagingBuffer::Direction::download;
        const VkBufferCopy region{up ? starts_[i] : range.offset, up ? range.offset : starts_[i], range.bytes};
        vk.vkCmdCopyBuffer(commands, up ? staged : range.buffer->handle, up ? range.buffer->handle : staged, 1, &region);
    }
    if (direction == StagingBuffer::Direction::download) {
        record_host_barrier(vk, commands);
    }
    recorded_->pool.end(commands);
    device_->reserve_grave();
}

HostCopies::~HostCopies() {
    if (device_->logical.is_left_behind()) {
        new std::shared_ptr<Recorded>(std::move(recorded_));  // For good: freeing it is for the process that made it.
        return;
    }
    bool finished = false;
    try {
        finished = device_->queue.finished(value_);
    } catch (const std::exception&) {
        // Nobody knows, so they may run.
    }
    if (finished) {
        device_->release_grave();
    } else {
        device_->bury(std::move(recorded_), value_);
    }
}

void HostCopies::put(size_t index, const void* data) {
    device_->copies.copy(recorded_->staging.mapped + starts_[index], static_cast<const unsigned char*>(data),
                         recorded_->ranges[index].bytes);
}

void HostCopies::take(size_t index, uint64_t offset, void* out, uint64_t bytes) {
    const uint64_t start = starts_[index] + offset;
    recorded_->staging.invalidate(start, bytes);
    device_->copies.copy(static_cast<unsigned char*>(out), recorded_->staging.mapped + start, bytes);
}

}  // namespace dmlvk
