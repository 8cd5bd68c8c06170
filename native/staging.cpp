#include "staging.h"

#include <algorithm>
#include <chrono>

#include "barriers.h"

namespace dmlvk {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kRingBytes = 32 * kMiB;
// A large upload is cut into chunks so that the host fills one while the device copies another.
constexpr uint64_t kUploadChunk = 4 * kMiB;
constexpr uint64_t kFlushBytes = 8 * kMiB;
// A download is cut into chunks so that the host copies one out of staging memory while the device copies others into it. Beside
// an H100, 4 MB take 0.18 ms and 9 MB 0.34; in chunks of 8 MiB 0.25 to 0.36 and 0.53 to 0.58, of 1 MiB 0.22 and 0.46. Of 17 MB
// and more it makes no difference.
constexpr uint64_t kDownloadChunk = 2 * kMiB;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kSlotBytes = kDownloadChunk + kPage;
constexpr uint64_t kCopyAlignment = 64;

/// The time at which a wait of several parts must end.
class Deadline {
  public:
    explicit Deadline(uint64_t nanoseconds) : end_(Clock::now() + std::chrono::nanoseconds(nanoseconds)) {}
    uint64_t left() const {
        const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(end_ - Clock::now()).count();
        return left > 0 ? static_cast<uint64_t>(left) : 0;
    }

  private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point end_;
};

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

void TransferPool::begin(VkCommandBuffer commands, Use use) {
    VkCommandBufferBeginInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    info.flags = use == Use::once ? VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT : 0;
    device_.check(device_.vk.vkBeginCommandBuffer(commands, &info), "vkBeginCommandBuffer");
}

void TransferPool::end(VkCommandBuffer commands) {
    device_.check(device_.vk.vkEndCommandBuffer(commands), "vkEndCommandBuffer");
}

UploadRing::UploadRing(LogicalDevice& device, Queue& queue, Memory& memory, CopyThreads& copies)
    : device_(device), queue_(queue), memory_(memory), copies_(copies), pool_(device) {}

bool UploadRing::upload(Upload& rest, uint64_t timeout) {
    const Deadline deadline(timeout);
    while (rest.bytes > 0) {
        const uint64_t chunk = std::min(rest.bytes, kUploadChunk);
        uint64_t oldest = 0;
        {
            std::lock_guard<std::mutex> lock(upload_mutex_);
            device_.require_alive();
            if (ring_ == nullptr) {
                ring_ = std::make_unique<StagingBuffer>(memory_, kRingBytes, StagingBuffer::Direction::upload);
            }
            if (const std::optional<uint64_t> position = reserve(chunk, oldest)) {
                copies_.copy(ring_->mapped + *position % kRingBytes, rest.data, chunk);
                add(rest.target, *position, rest.offset, chunk);
                rest.data += chunk;
                rest.offset += chunk;
                rest.bytes -= chunk;
                continue;
            }
        }
        if (!queue_.wait(oldest, deadline.left())) {
            return false;
        }
    }
    count_++;
    return true;
}

/// A chunk lies in one piece, so the ring's last bytes may stay unused.
std::optional<uint64_t> UploadRing::reserve(uint64_t bytes, uint64_t& oldest) {
    uint64_t position = round_up(head_, kCopyAlignment);
    if (position % kRingBytes + bytes > kRingBytes) {
        position = round_up(position, kRingBytes);
    }
    std::lock_guard<std::mutex> lock(queue_.mutex());
    collect_locked();
    if (in_flight_.empty() && pending_.empty()) {
        // All of the ring is free. Its beginning is in the caches, and a process that uploads little and often keeps no more
        // of it resident.
        tail_ = position = round_up(head_, kRingBytes);
    }
    if (position + bytes - tail_ <= kRingBytes) {
        return position;
    }
    if (in_flight_.empty()) {
        queue_.submit_locked(VK_NULL_HANDLE);
    }
    if (in_flight_.empty()) {  // Nothing is under way, so that all of the ring is free.
        tail_ = position;
        return position;
    }
    oldest = in_flight_.front().value;
    return std::nullopt;
}

void UploadRing::add(const std::shared_ptr<DeviceBuffer>& target, uint64_t position, uint64_t offset, uint64_t bytes) {
    std::lock_guard<std::mutex> lock(queue_.mutex());
    if (queue_.has_deferred()) {
        queue_.submit_locked(VK_NULL_HANDLE);  // They go first.
    }
    if (pending_.empty()) {
        open_batch();
    }
    Batch& batch = pending_.front();
    const std::vector<Access> written{{target.get(), offset, offset + bytes, true}};
    const bool ordered = !batch.hazards_known || batch.hazards.conflicts(written);
    batch.hazards_known = false;
    if (ordered) {
        batch.hazards.clear();
    }
    batch.hazards.add(written);
    batch.copies.push_back({target, VkBufferCopy{position % kRingBytes, offset, bytes}, ordered});
    batch.hazards_known = true;
    batch.ring_end = position + bytes;
    batch.bytes += bytes;
    head_ = position + bytes;
    if (batch.bytes >= kFlushBytes) {
        queue_.submit_locked(VK_NULL_HANDLE);
    }
}

void UploadRing::open_batch() {
    collect_locked();
    if (free_.empty()) {
        std::list<Batch> made(1);
        made.front().commands = pool_.allocate();
        free_.splice(free_.end(), made);
    }
    pending_.splice(pending_.end(), free_, free_.begin());
}

VkCommandBuffer UploadRing::close_pending() {
    if (pending_.empty() || pending_.front().copies.empty()) {
        return VK_NULL_HANDLE;
    }
    const Batch& batch = pending_.front();
    pool_.begin(batch.commands);
    // Earlier submits may still read or write the targets.
    record_work_barrier(device_.vk, batch.commands);
    for (const Copy& copy : batch.copies) {
        if (copy.ordered) {
            record_work_barrier(device_.vk, batch.commands);
        }
        device_.vk.vkCmdCopyBuffer(batch.commands, ring_->handle, copy.target->handle, 1, &copy.region);
    }
    pool_.end(batch.commands);
    return batch.commands;
}

void UploadRing::pending_submitted(uint64_t value) noexcept {
    pending_.front().value = value;
    in_flight_.splice(in_flight_.end(), pending_);
}

void UploadRing::collect() {
    std::lock_guard<std::mutex> lock(queue_.mutex());
    collect_locked();
}

void UploadRing::collect_locked() {
    while (!in_flight_.empty() && queue_.finished(in_flight_.front().value)) {
        Batch& batch = in_flight_.front();
        tail_ = batch.ring_end;
        // The tracker forgets the buffers' addresses as well: a later buffer may get the same one.
        batch.hazards = HazardTracker();
        batch.hazards_known = true;
        batch.copies.clear();
        batch.bytes = 0;
        free_.splice(free_.end(), in_flight_, in_flight_.begin());
    }
}

Downloader::Stage::Stage(LogicalDevice& device) : pool(device) {
    for (Slot& slot : slots) {
        slot.commands = pool.allocate();
    }
}

Downloader::Downloader(LogicalDevice& device, Queue& queue, Memory& memory, CopyThreads& copies)
    : device_(device), queue_(queue), memory_(memory), copies_(copies) {}

void Downloader::collect() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (Stage& stage : free_) {
        for (Slot& slot : stage.slots) {
            if (slot.source != nullptr && queue_.finished(slot.value)) {
                slot.source.reset();
            }
        }
    }
}

Downloader::Download::Download(Downloader& downloader, std::shared_ptr<DeviceBuffer> source, uint64_t offset,
                               unsigned char* out, uint64_t bytes)
    : owner_(downloader),
      source_(std::move(source)),
      offset_(offset),
      out_(out),
      bytes_(bytes),
      chunks_((bytes + kDownloadChunk - 1) / kDownloadChunk) {
    owner_.device_.require_alive();
    owner_.count_++;
    std::lock_guard<std::mutex> lock(owner_.mutex_);
    if (owner_.free_.empty()) {
        stage_.emplace_back(owner_.device_);
        stage_.front().staging =
            std::make_unique<StagingBuffer>(owner_.memory_, kSlots * kSlotBytes, StagingBuffer::Direction::download);
    } else {
        stage_.splice(stage_.end(), owner_.free_, owner_.free_.begin());
    }
}

Downloader::Download::~Download() {
    std::lock_guard<std::mutex> lock(owner_.mutex_);
    owner_.free_.splice(owner_.free_.begin(), stage_);
}

uint64_t Downloader::Download::most_at_once() {
    return kSlots * kDownloadChunk;
}

bool Downloader::Download::begin(uint64_t timeout) {
    const Deadline deadline(timeout);
    while (started_ < std::min(chunks_, taken_ + kSlots)) {
        Slot& slot = stage_.front().slots[started_ % kSlots];
        // The copy is over already, unless a download that was given up left it under way.
        if (!settle(slot, deadline.left())) {
            return false;
        }
        start(slot, started_);
        started_++;
    }
    return true;
}

bool Downloader::Download::advance(uint64_t timeout) {
    const Deadline deadline(timeout);
    Stage& stage = stage_.front();
    while (taken_ < chunks_) {
        if (!begin(deadline.left())) {
            return false;
        }
        Slot& slot = stage.slots[taken_ % kSlots];
        if (!settle(slot, deadline.left())) {
            return false;
        }
        stage.staging->invalidate(slot.staged_at, size_of(taken_));
        owner_.copies_.copy(out_ + taken_ * kDownloadChunk, stage.staging->mapped + slot.staged_at, size_of(taken_));
        taken_++;
    }
    return true;
}

uint64_t Downloader::Download::size_of(uint64_t chunk) const {
    return std::min(kDownloadChunk, bytes_ - chunk * kDownloadChunk);
}

bool Downloader::Download::settle(Slot& slot, uint64_t timeout) {
    if (!owner_.queue_.wait(slot.value, timeout)) {
        return false;
    }
    slot.source.reset();
    return true;
}

void Downloader::Download::start(Slot& slot, uint64_t chunk) {
    Stage& stage = stage_.front();
    const uint64_t begin = chunk * kDownloadChunk;
    const uint64_t slot_begin = chunk % kSlots * kSlotBytes;
    // A processor takes a load for dependent on an earlier store when their addresses agree in the low 12 bits, and
    // stalls: memcpy then runs at a tenth of its speed. Staging half a page away from the target avoids it.
    const auto staged = reinterpret_cast<uintptr_t>(stage.staging->mapped + slot_begin);
    const auto target = reinterpret_cast<uintptr_t>(out_ + begin);
    slot.staged_at = slot_begin + (target + kPage / 2 - staged) % kPage / kCopyAlignment * kCopyAlignment;

    stage.pool.begin(slot.commands);
    record_work_barrier(owner_.device_.vk, slot.commands);
    const VkBufferCopy region{offset_ + begin, slot.staged_at, size_of(chunk)};
    owner_.device_.vk.vkCmdCopyBuffer(slot.commands, source_->handle, stage.staging->handle, 1, &region);
    record_host_barrier(owner_.device_.vk, slot.commands);
    stage.pool.end(slot.commands);
    slot.source = source_;
    slot.value = owner_.queue_.submit(slot.commands);
}

}  // namespace dmlvk
