// The VkDevice with its function table and its health: what queue, memory, staging and kernels are made on.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "fork.h"
#include "physical_device.h"

namespace dmlvk {

class LogicalDevice {
  public:
    /// Every reported feature is switched on, `disabled` excepted.
    LogicalDevice(const PhysicalDevice& physical, const std::vector<std::string>& disabled);
    ~LogicalDevice();
    LogicalDevice(const LogicalDevice&) = delete;
    LogicalDevice& operator=(const LogicalDevice&) = delete;

    /// Like dmlvk::check; also notes a lost device.
    void check(VkResult result, const char* call);
    /// Throws VulkanFailure(VK_ERROR_DEVICE_LOST) naming the call that found the device lost, and WrongState in a forked
    /// child of the process that opened it.
    void require_alive() const;
    void require_here() const;
    /// Whether this is a forked child. Then nothing of the device may be called, nor freed.
    bool is_left_behind() const { return forks() != opened_after_; }
    /// The call that reported VK_ERROR_DEVICE_LOST, "" while there was none.
    std::string lost() const;
    bool is_lost() const { return is_lost_; }

    const PhysicalDevice& physical;
    FeatureSet features;
    VkDevice handle = VK_NULL_HANDLE;
    DeviceTable vk;
    VkQueue queue = VK_NULL_HANDLE;

  private:
    const uint64_t opened_after_ = forks();
    std::atomic<bool> is_lost_{false};
    mutable std::mutex mutex_;
    std::string lost_call_;
};

}  // namespace dmlvk
