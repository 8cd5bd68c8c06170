// The device's one queue with its kept timeline semaphore: a submit creates nothing and allocates nothing.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "logical_device.h"
#include "submit_queue.h"

namespace dmlvk {

/// Commands that travel with the next submit, whoever makes it: the staged uploads.
class PendingCommands {
  public:
    virtual ~PendingCommands() = default;
    /// Called under the queue's mutex. The closed command buffer to submit first, VK_NULL_HANDLE when there is none.
    virtual VkCommandBuffer close_pending() = 0;
    /// Called under the queue's mutex once that command buffer is submitted, under this timeline value.
    virtual void pending_submitted(uint64_t value) noexcept = 0;
};

class Queue final : public SubmitQueue {
  public:
    explicit Queue(LogicalDevice& device);
    ~Queue() override;
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;

    void attach(PendingCommands* pending) { pending_ = pending; }

    uint64_t submit(VkCommandBuffer commands) override;
    /// Keeps commands for the next submit, before which they run. A wait for the returned value submits them.
    uint64_t defer(VkCommandBuffer commands);
    bool wait(uint64_t value, uint64_t timeout) override;

    /// Submits as above, for a caller that holds mutex(). VK_NULL_HANDLE submits the pending commands alone. With none
    /// pending either, nothing is submitted and the last value is returned.
    uint64_t submit_locked(VkCommandBuffer commands);
    /// Signals another timeline once everything submitted or deferred so far is over.
    void signal(VkSemaphore timeline, uint64_t value);
    /// Has everything submitted later wait, on the device, until another timeline has reached `value`.
    void wait_for(VkSemaphore timeline, uint64_t value);
    /// Submits what is pending. Returns the value that is reached when everything submitted so far is over.
    uint64_t flush();
    /// Waits for what has been submitted, without submitting more. False when `timeout` nanoseconds ran out first.
    bool settle(uint64_t timeout);
    /// For a caller that holds mutex(): whether commands are deferred that uploads must not overtake.
    bool has_deferred() const { return !deferred_.empty(); }
    /// Whether the work of that value is over. On a lost device it stays as it was found last: what may still be in use there
    /// is freed with the device.
    bool finished(uint64_t value);

    /// Guards the VkQueue and the pending commands. Never acquired by a thread that may then wait for the GIL.
    std::mutex& mutex() { return mutex_; }
    uint64_t submissions() const { return submissions_; }

  private:
    /// Another timeline with the value that it is to have; VK_NULL_HANDLE for none.
    struct Point {
        VkSemaphore timeline = VK_NULL_HANDLE;
        uint64_t value = 0;
    };
    /// Submits what is pending and deferred, and then `commands`, all of it after `before` and before `after`.
    uint64_t submit_between(VkCommandBuffer commands, Point before, Point after);
    void submit_deferred(uint64_t value);

    LogicalDevice& device_;
    PendingCommands* pending_ = nullptr;
    std::vector<VkCommandBuffer> deferred_;
    std::vector<VkCommandBuffer> batch_;  // Kept, so that a submit allocates nothing.
    std::mutex mutex_;
    VkSemaphore timeline_ = VK_NULL_HANDLE;
    uint64_t last_value_ = 0;
    std::atomic<uint64_t> reached_{0};
    std::atomic<uint64_t> submissions_{0};
    uint64_t poll_nanoseconds_;
};

}  // namespace dmlvk
