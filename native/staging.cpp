#include "staging.h"

#include <algorithm>

#include "barriers.h"

namespace dmlvk {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kRingBytes = 32 * kMiB;
// A large upload is cut into chunks so that the host fills one while the device copies another.
constexpr uint64_t kUploadChunk = 4 * kMiB;
constexpr uint64_t kFlushBytes = 8 * kMiB;
constexpr uint64_t kDownloadChunk = 8 * kMiB;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kCopyAlignment = 64;

uint64_t round_up(uint64_t value, uint64_t step) {
    return (value + step - 1) / step * step;
}

}  // namespace

TransferPool::TransferPool(LogicalDevice& device) : device_(device) {
    VkCommandPoolCreateInfo info{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    info.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT | VK_COMMAND_POOL_CREATE_TRANSIENT_BIT;
    info.queueFamilyIndex = device.physical.queue_family;
    device_.check(device_.vk.vkCreateCommandPool(device_.handle, &info, nullptr, &handle_), "vkCreateCommandPool");
}

TransferPool::~TransferPool() {
    device_.vk.vkDestroyCommandPool(device_.handle, handle_, nullptr);
}

VkCommandBuffer TransferPool::allocate() {
    VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
    info.commandPool = handle_;
    info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
    info.commandBufferCount = 1;
    VkCommandBuffer commands = VK_NULL_HANDLE;
    device_.check(device_.vk.vkAllocateCommandBuffers(device_.handle, &info, &commands), "vkAllocateCommandBuffers");
    return commands;
}

void TransferPool::begin(VkCommandBuffer commands) {
    VkCommandBufferBeginInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
    device_.check(device_.vk.vkBeginCommandBuffer(commands, &info), "vkBeginCommandBuffer");
}

void TransferPool::end(VkCommandBuffer commands) {
    device_.check(device_.vk.vkEndCommandBuffer(commands), "vkEndCommandBuffer");
}

UploadRing::UploadRing(LogicalDevice& device, Queue& queue, Memory& memory, CopyThreads& copies)
    : device_(device), queue_(queue), memory_(memory), copies_(copies), pool_(device) {}

void UploadRing::upload(const std::shared_ptr<DeviceBuffer>& target, uint64_t offset, const unsigned char* data,
                        uint64_t bytes) {
    std::lock_guard<std::mutex> lock(upload_mutex_);
    device_.require_alive();
    if (ring_ == nullptr) {
        ring_ = std::make_unique<StagingBuffer>(memory_, kRingBytes, StagingBuffer::Direction::upload);
    }
    while (bytes > 0) {
        const uint64_t chunk = std::min(bytes, kUploadChunk);
        const uint64_t position = reserve(chunk);
        copies_.copy(ring_->mapped + position % kRingBytes, data, chunk);
        add(target, position, offset, chunk);
        data += chunk;
        offset += chunk;
        bytes -= chunk;
    }
}

/// Waits for room, which is taken once its copy is added: a failure leaves the ring as it was. A chunk lies in one piece,
/// so the ring's last bytes may stay unused.
uint64_t UploadRing::reserve(uint64_t bytes) {
    uint64_t position = round_up(head_, kCopyAlignment);
    if (position % kRingBytes + bytes > kRingBytes) {
        position = round_up(position, kRingBytes);
    }
    for (;;) {
        uint64_t oldest = 0;
        {
            std::lock_guard<std::mutex> lock(queue_.mutex());
            collect_locked();
            if (position + bytes - tail_ <= kRingBytes) {
                return position;
            }
            // What has taken the room is pending or in flight.
            if (in_flight_.empty()) {
                queue_.submit_locked(VK_NULL_HANDLE);
            }
            oldest = in_flight_.front()->value;
        }
        queue_.wait(oldest, UINT64_MAX);
    }
}

void UploadRing::add(const std::shared_ptr<DeviceBuffer>& target, uint64_t position, uint64_t offset, uint64_t bytes) {
    std::lock_guard<std::mutex> lock(queue_.mutex());
    if (queue_.has_deferred()) {
        // Deferred lists go first.
        queue_.submit_locked(VK_NULL_HANDLE);
    }
    if (pending_ == nullptr) {
        open_batch();
    }
    pending_->copies.push_back({target, {position % kRingBytes, offset, bytes}});
    pending_->bytes += bytes;
    pending_->ring_end = head_ = position + bytes;
    if (pending_->bytes >= kFlushBytes) {
        queue_.submit_locked(VK_NULL_HANDLE);
    }
}

void UploadRing::open_batch() {
    collect_locked();
    if (free_.empty()) {
        auto batch = std::make_unique<Batch>();
        batch->commands = pool_.allocate();
        pending_ = std::move(batch);
    } else {
        pending_ = std::move(free_.back());
        free_.pop_back();
    }
}

/// Records all copies, here and not one by one, so that after a failure the next submit does it anew.
VkCommandBuffer UploadRing::close_pending() {
    if (pending_ == nullptr) {
        return VK_NULL_HANDLE;
    }
    const VkCommandBuffer commands = pending_->commands;
    pool_.begin(commands);
    // Earlier submits may still read or write the targets.
    record_work_barrier(device_.vk, commands);
    HazardTracker hazards;
    for (const auto& [target, region] : pending_->copies) {
        const std::vector<Access> written{{target.get(), region.dstOffset, region.dstOffset + region.size, true}};
        if (hazards.conflicts(written)) {
            record_work_barrier(device_.vk, commands);
            hazards.clear();
        }
        hazards.add(written);
        device_.vk.vkCmdCopyBuffer(commands, ring_->handle, target->handle, 1, &region);
    }
    pool_.end(commands);
    return commands;
}

void UploadRing::pending_submitted(uint64_t value) {
    pending_->value = value;
    in_flight_.push_back(std::move(pending_));
}

void UploadRing::collect() {
    std::lock_guard<std::mutex> lock(queue_.mutex());
    collect_locked();
}

void UploadRing::collect_locked() {
    while (!in_flight_.empty() && queue_.finished(in_flight_.front()->value)) {
        std::unique_ptr<Batch> batch = std::move(in_flight_.front());
        in_flight_.pop_front();
        tail_ = batch->ring_end;
        batch->copies.clear();
        batch->bytes = 0;
        free_.push_back(std::move(batch));
    }
}

Downloader::Downloader(LogicalDevice& device, Queue& queue, Memory& memory, CopyThreads& copies)
    : device_(device), queue_(queue), memory_(memory), copies_(copies), pool_(device) {
    for (Slot& slot : slots_) {
        slot.commands = pool_.allocate();
    }
}

void Downloader::download(const DeviceBuffer& source, uint64_t offset, unsigned char* out, uint64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t slot_bytes = kDownloadChunk + kPage;
    if (staging_ == nullptr) {
        staging_ = std::make_unique<StagingBuffer>(memory_, 2 * slot_bytes, StagingBuffer::Direction::download);
    }
    const uint64_t chunks = (bytes + kDownloadChunk - 1) / kDownloadChunk;
    const auto begin_chunk = [&](uint64_t chunk) {
        const uint64_t at = chunk * kDownloadChunk;
        start(slots_[chunk % 2], chunk % 2 * slot_bytes, source, offset + at, out + at,
              std::min(kDownloadChunk, bytes - at));
    };
    begin_chunk(0);
    for (uint64_t chunk = 0; chunk < chunks; chunk++) {
        if (chunk + 1 < chunks) {
            begin_chunk(chunk + 1);
        }
        const Slot& slot = slots_[chunk % 2];
        queue_.wait(slot.value, UINT64_MAX);
        const uint64_t at = chunk * kDownloadChunk;
        const uint64_t size = std::min(kDownloadChunk, bytes - at);
        staging_->invalidate(slot.staged_at, size);
        copies_.copy(out + at, staging_->mapped + slot.staged_at, size);
    }
}

void Downloader::start(Slot& slot, uint64_t slot_begin, const DeviceBuffer& source, uint64_t offset,
                       const unsigned char* out, uint64_t bytes) {
    // The copy is over already, unless a failed download left it under way.
    queue_.wait(slot.value, UINT64_MAX);
    // A processor takes a load for dependent on an earlier store when their addresses agree in the low 12 bits, and
    // stalls: memcpy then runs at a tenth of its speed. Staging half a page away from the target avoids it.
    const auto staged = reinterpret_cast<uintptr_t>(staging_->mapped + slot_begin);
    const auto target = reinterpret_cast<uintptr_t>(out);
    slot.staged_at = slot_begin + (target + kPage / 2 - staged) % kPage / kCopyAlignment * kCopyAlignment;

    pool_.begin(slot.commands);
    record_work_barrier(device_.vk, slot.commands);
    const VkBufferCopy region{offset, slot.staged_at, bytes};
    device_.vk.vkCmdCopyBuffer(slot.commands, source.handle, staging_->handle, 1, &region);
    record_host_barrier(device_.vk, slot.commands);
    pool_.end(slot.commands);
    slot.value = queue_.submit(slot.commands);
}

}  // namespace dmlvk
