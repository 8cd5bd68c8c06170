// Host to device and back through staging memory: an upload ring whose copies travel with the next submit, and a
// double-buffered read-back.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "copy_threads.h"
#include "hazards.h"
#include "queue.h"

namespace dmlvk {

/// A command pool whose command buffers are re-recorded one by one.
class TransferPool {
  public:
    explicit TransferPool(LogicalDevice& device);
    ~TransferPool();
    TransferPool(const TransferPool&) = delete;
    TransferPool& operator=(const TransferPool&) = delete;

    VkCommandBuffer allocate();
    void begin(VkCommandBuffer commands);
    void end(VkCommandBuffer commands);

  private:
    LogicalDevice& device_;
    VkCommandPool handle_ = VK_NULL_HANDLE;
};

class UploadRing final : public PendingCommands {
  public:
    UploadRing(LogicalDevice& device, Queue& queue, Memory& memory, CopyThreads& copies);
    ~UploadRing() override = default;

    /// Returns once `data` has been copied into the ring; the device's copy runs with the next submit at the latest.
    void upload(const std::shared_ptr<DeviceBuffer>& target, uint64_t offset, const unsigned char* data, uint64_t bytes);
    /// Lets go of the ring space and the buffers of copies that are over.
    void collect();

    VkCommandBuffer close_pending() override;
    void pending_submitted(uint64_t value) override;

  private:
    struct Copy {
        std::shared_ptr<DeviceBuffer> target;
        VkBufferCopy region;
    };
    /// The copies of one submit.
    struct Batch {
        VkCommandBuffer commands = VK_NULL_HANDLE;
        uint64_t value = 0;
        uint64_t ring_end = 0;
        uint64_t bytes = 0;
        std::vector<Copy> copies;
    };

    uint64_t reserve(uint64_t bytes);
    void add(const std::shared_ptr<DeviceBuffer>& target, uint64_t position, uint64_t offset, uint64_t bytes);
    void open_batch();
    void collect_locked();

    LogicalDevice& device_;
    Queue& queue_;
    Memory& memory_;
    CopyThreads& copies_;
    std::mutex upload_mutex_;  // One upload at a time; taken before the queue's mutex. Guards ring_ and head_.
    std::unique_ptr<StagingBuffer> ring_;
    // Positions grow without end; the byte in the ring is the position modulo its size.
    uint64_t head_ = 0;
    // What follows is guarded by the queue's mutex.
    TransferPool pool_;
    uint64_t tail_ = 0;
    std::unique_ptr<Batch> pending_;
    std::deque<std::unique_ptr<Batch>> in_flight_;
    std::vector<std::unique_ptr<Batch>> free_;
};

class Downloader {
  public:
    Downloader(LogicalDevice& device, Queue& queue, Memory& memory, CopyThreads& copies);

    void download(const DeviceBuffer& source, uint64_t offset, unsigned char* out, uint64_t bytes);

  private:
    struct Slot {
        VkCommandBuffer commands = VK_NULL_HANDLE;
        uint64_t staged_at = 0;
        uint64_t value = 0;
    };
    void start(Slot& slot, uint64_t slot_begin, const DeviceBuffer& source, uint64_t offset, const unsigned char* out,
               uint64_t bytes);

    LogicalDevice& device_;
    Queue& queue_;
    Memory& memory_;
    CopyThreads& copies_;
    std::mutex mutex_;
    TransferPool pool_;
    std::unique_ptr<StagingBuffer> staging_;
    Slot slots_[2];
};

}  // namespace dmlvk
