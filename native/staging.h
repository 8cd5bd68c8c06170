// Host to device and back through staging memory: an upload ring whose copies travel with the next submit, and read-backs in
// chunks of which some are under way at once. Nothing here waits with a mutex held, nor longer than it is told.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "copy_threads.h"
#include "hazards.h"
#include "queue.h"

namespace dmlvk {

/// A command pool whose command buffers can be re-recorded one by one.
class TransferPool {
  public:
    explicit TransferPool(LogicalDevice& device);
    ~TransferPool();
    TransferPool(const TransferPool&) = delete;
    TransferPool& operator=(const TransferPool&) = delete;

    enum class Use { once, again };
    VkCommandBuffer allocate();
    void begin(VkCommandBuffer commands, Use use = Use::once);
    void end(VkCommandBuffer commands);

  private:
    LogicalDevice& device_;
    VkCommandPool handle_ = VK_NULL_HANDLE;
};

/// Bytes of the host that are still to be uploaded.
struct Upload {
    std::shared_ptr<DeviceBuffer> target;
    uint64_t offset;
    const unsigned char* data;
    uint64_t bytes;
};

class UploadRing final : public PendingCommands {
  public:
    UploadRing(LogicalDevice& device, Queue& queue, Memory& memory, CopyThreads& copies);
    ~UploadRing() override = default;

    /// True once all of `rest` has been copied into the ring; the device's copies run with the next submit at the latest.
    /// False when `timeout` nanoseconds ran out before there was room: then `rest` is what is left.
    bool upload(Upload& rest, uint64_t timeout);
    /// Lets go of the ring space and the buffers of copies that are over.
    void collect();
    /// Uploads so far, those of others included that pass by the ring.
    uint64_t count() const { return count_; }
    void count_others(uint64_t uploads) { count_ += uploads; }

    VkCommandBuffer close_pending() override;
    void pending_submitted(uint64_t value) noexcept override;

  private:
    struct Copy {
        std::shared_ptr<DeviceBuffer> target;
        VkBufferCopy region;
        bool ordered;  // After the copies before it.
    };
    /// The copies of one submit. They are recorded when it comes, so that after a failure they can be recorded again.
    struct Batch {
        VkCommandBuffer commands = VK_NULL_HANDLE;
        uint64_t value = 0;
        uint64_t ring_end = 0;
        uint64_t bytes = 0;
        HazardTracker hazards;
        bool hazards_known = true;  // Whether the tracker says what the copies do: not after a failure in between.
        std::vector<Copy> copies;
    };

    /// The position of room for some bytes. Else nothing, and the value of the submit that makes some.
    std::optional<uint64_t> reserve(uint64_t bytes, uint64_t& oldest);
    void add(const std::shared_ptr<DeviceBuffer>& target, uint64_t position, uint64_t offset, uint64_t bytes);
    void open_batch();
    void collect_locked();

    std::atomic<uint64_t> count_{0};
    LogicalDevice& device_;
    Queue& queue_;
    Memory& memory_;
    CopyThreads& copies_;
    std::mutex upload_mutex_;  // One copy into the ring at a time; taken before the queue's mutex. Guards ring_ and head_.
    std::unique_ptr<StagingBuffer> ring_;
    // Positions grow without end; the byte in the ring is the position modulo its size.
    uint64_t head_ = 0;
    // What follows is guarded by the queue's mutex. A batch goes from list to list, which allocates nothing.
    TransferPool pool_;
    uint64_t tail_ = 0;
    std::list<Batch> pending_;  // One at most.
    std::list<Batch> in_flight_;
    std::list<Batch> free_;
};

/// Reads for the host. Each has staging memory of its own for as long as it takes.
class Downloader {
    static constexpr uint64_t kSlots = 4;  // Chunks that are under way at once.
    struct Slot {
        VkCommandBuffer commands = VK_NULL_HANDLE;
        uint64_t staged_at = 0;
        uint64_t value = 0;
        std::shared_ptr<DeviceBuffer> source;  // As long as the copy may run.
    };
    struct Stage {
        explicit Stage(LogicalDevice& device);
        TransferPool pool;
        std::unique_ptr<StagingBuffer> staging;
        Slot slots[kSlots];
    };

  public:
    Downloader(LogicalDevice& device, Queue& queue, Memory& memory, CopyThreads& copies);
    /// Lets go of the buffers whose copies are over, of reads that were given up.
    void collect();
    /// Reads so far, those of others included.
    uint64_t count() const { return count_; }
    void count_others(uint64_t reads) { count_ += reads; }

    /// Bytes of a buffer on their way to the host. One that is given up leaves copies that run to a later one.
    class Download {
      public:
        Download(Downloader& downloader, std::shared_ptr<DeviceBuffer> source, uint64_t offset, unsigned char* out,
                 uint64_t bytes);
        ~Download();
        Download(const Download&) = delete;
        Download& operator=(const Download&) = delete;

        /// Bytes of which `begin` asks for all.
        static uint64_t most_at_once();
        /// Asks for as many of the next bytes as are under way at once, behind everything submitted before. False when `timeout`
        /// nanoseconds ran out first.
        bool begin(uint64_t timeout);
        /// True once all bytes are in `out`, false when `timeout` nanoseconds ran out first.
        bool advance(uint64_t timeout);

      private:
        /// Waits for the slot's copy, and lets go of its source.
        bool settle(Slot& slot, uint64_t timeout);
        void start(Slot& slot, uint64_t chunk);
        uint64_t size_of(uint64_t chunk) const;

        Downloader& owner_;
        const std::shared_ptr<DeviceBuffer> source_;
        const uint64_t offset_;
        unsigned char* const out_;
        const uint64_t bytes_;
        const uint64_t chunks_;
        uint64_t started_ = 0;
        uint64_t taken_ = 0;
        std::list<Stage> stage_;  // One, lent by the downloader.
    };

  private:
    std::atomic<uint64_t> count_{0};
    LogicalDevice& device_;
    Queue& queue_;
    Memory& memory_;
    CopyThreads& copies_;
    std::mutex mutex_;  // Guards free_.
    std::list<Stage> free_;
};

}  // namespace dmlvk
