#include "queue.h"

#include <algorithm>
#include <chrono>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace dmlvk {
namespace {

using Clock = std::chrono::steady_clock;

// A thread that the driver has to wake loses 20 us to several 100 us, so a wait polls first: for longer than eight tokens of a language model of
// 8 billion weights take. While that was 5 ms, each eight tokens lost 0.1 to 0.4 ms, the more the longer they took (H200, 2026-11-28). A wait never
// yields meanwhile: beside a busy process Linux gives the processor back at the next tick of its clock, and a wait of 0.8 ms took 4.0. On a device
// that runs on this machine's own processors a polling thread takes a core from the work that it waits for.
constexpr uint64_t kPollNanoseconds = 25'000'000;
constexpr uint64_t kPollNanosecondsOnCpu = 5'000;

void relax() {
#if defined(__x86_64__) || defined(_M_X64)
    _mm_pause();
#endif
}

uint64_t nanoseconds_since(Clock::time_point start) {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

}  // namespace

Queue::Queue(LogicalDevice& device)
    : device_(device), poll_nanoseconds_(device.physical.type == "cpu" ? kPollNanosecondsOnCpu : kPollNanoseconds) {
    VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
    type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
    VkSemaphoreCreateInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type};
    device_.check(device_.vk.vkCreateSemaphore(device_.handle, &info, nullptr, &timeline_), "vkCreateSemaphore");
}

Queue::~Queue() {
    device_.vk.vkDestroySemaphore(device_.handle, timeline_, nullptr);
}

uint64_t Queue::submit(VkCommandBuffer commands) {
    std::lock_guard<std::mutex> lock(mutex_);
    return submit_locked(commands);
}

uint64_t Queue::defer(VkCommandBuffer commands) {
    std::lock_guard<std::mutex> lock(mutex_);
    device_.require_alive();
    deferred_.push_back(commands);
    return last_value_ + 1;
}

uint64_t Queue::submit_locked(VkCommandBuffer commands) {
    return submit_between(commands, {}, {});
}

void Queue::signal(VkSemaphore timeline, uint64_t value) {
    std::lock_guard<std::mutex> lock(mutex_);
    submit_between(VK_NULL_HANDLE, {}, {timeline, value});
}

void Queue::wait_for(VkSemaphore timeline, uint64_t value) {
    std::lock_guard<std::mutex> lock(mutex_);
    submit_locked(VK_NULL_HANDLE);  // What was asked for before is not to wait.
    submit_between(VK_NULL_HANDLE, {timeline, value}, {});
}

uint64_t Queue::submit_between(VkCommandBuffer commands, Point before, Point after) {
    device_.require_alive();
    batch_.clear();
    const VkCommandBuffer pending = pending_->close_pending();
    if (pending != VK_NULL_HANDLE) {
        batch_.push_back(pending);
    }
    batch_.insert(batch_.end(), deferred_.begin(), deferred_.end());
    if (commands != VK_NULL_HANDLE) {
        batch_.push_back(commands);
    }
    if (batch_.empty() && before.timeline == VK_NULL_HANDLE && after.timeline == VK_NULL_HANDLE) {
        return last_value_;
    }

    const uint64_t value = last_value_ + 1;
    VkTimelineSemaphoreSubmitInfo timeline{VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO};
    const VkSemaphore signalled[] = {timeline_, after.timeline};
    const uint64_t values[] = {value, after.value};
    timeline.signalSemaphoreValueCount = after.timeline != VK_NULL_HANDLE ? 2 : 1;
    timeline.pSignalSemaphoreValues = values;
    timeline.waitSemaphoreValueCount = before.timeline != VK_NULL_HANDLE ? 1 : 0;
    timeline.pWaitSemaphoreValues = &before.value;
    VkSubmitInfo info{VK_STRUCTURE_TYPE_SUBMIT_INFO, &timeline};
    info.commandBufferCount = static_cast<uint32_t>(batch_.size());
    info.pCommandBuffers = batch_.data();
    info.signalSemaphoreCount = timeline.signalSemaphoreValueCount;
    info.pSignalSemaphores = signalled;
    const VkPipelineStageFlags all = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    info.waitSemaphoreCount = timeline.waitSemaphoreValueCount;
    info.pWaitSemaphores = &before.timeline;
    info.pWaitDstStageMask = &all;
    device_.check(device_.vk.vkQueueSubmit(device_.queue, 1, &info, VK_NULL_HANDLE), "vkQueueSubmit");

    last_value_ = value;
    submissions_++;
    deferred_.clear();
    if (pending != VK_NULL_HANDLE) {
        pending_->pending_submitted(value);
    }
    return value;
}

bool Queue::wait(uint64_t value, uint64_t timeout) {
    if (reached_.load(std::memory_order_acquire) >= value) {
        return true;
    }
    submit_deferred(value);
    const Clock::time_point start = Clock::now();
    const uint64_t poll = std::min(timeout, poll_nanoseconds_);
    uint64_t spent = 0;
    do {
        device_.require_alive();
        if (finished(value)) {
            return true;
        }
        relax();
        spent = nanoseconds_since(start);
    } while (spent < poll);
    if (timeout <= spent) {
        return false;
    }

    VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
    info.semaphoreCount = 1;
    info.pSemaphores = &timeline_;
    info.pValues = &value;
    const uint64_t rest = timeout == UINT64_MAX ? UINT64_MAX : timeout - spent;
    const VkResult result = device_.vk.vkWaitSemaphores(device_.handle, &info, rest);
    device_.check(result, "vkWaitSemaphores");
    // Vulkan lets a driver end the wait with VK_SUCCESS where the device is lost; then the counter says so.
    return result == VK_SUCCESS && finished(value);
}

/// Submits what the value waits for, if nobody has done so.
void Queue::submit_deferred(uint64_t value) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (value > last_value_ && !deferred_.empty()) {
        submit_locked(VK_NULL_HANDLE);
    }
}

uint64_t Queue::flush() {
    return submit(VK_NULL_HANDLE);
}

bool Queue::settle(uint64_t timeout) {
    uint64_t last = 0;
    {
        std::lock_guard<std::mutex> lock(mutex_);
        last = last_value_;
    }
    return wait(last, timeout);
}

bool Queue::finished(uint64_t value) {
    if (reached_.load(std::memory_order_acquire) >= value) {
        return true;
    }
    if (device_.is_lost()) {
        return false;
    }
    uint64_t current = 0;
    device_.check(device_.vk.vkGetSemaphoreCounterValue(device_.handle, timeline_, &current),
                  "vkGetSemaphoreCounterValue");
    if (current == UINT64_MAX) {
        // No submit reaches this value. A driver sets it where the device is gone, so that nobody waits any longer.
        device_.check(VK_ERROR_DEVICE_LOST, "vkGetSemaphoreCounterValue");
    }
    // Several threads may store here; a smaller value only costs a later reader one more query.
    reached_.store(current, std::memory_order_release);
    return current >= value;
}

}  // namespace dmlvk
