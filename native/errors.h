// The failures that C++ throws besides std::invalid_argument (which Python sees as ValueError).
#pragma once

#include <exception>
#include <string>
#include <utility>

#include <vulkan/vulkan.h>

namespace dmlvk {

/// A Vulkan call that returned an error. Python sees dmlvk.spec.errors.vulkan_error(result, call, detail).
class VulkanFailure : public std::exception {
  public:
    VulkanFailure(VkResult result, std::string call, std::string detail = "");
    const char* what() const noexcept override { return message_.c_str(); }

    VkResult result;
    std::string call;
    std::string detail;

  private:
    std::string message_;
};

/// No loader, no layer or no such device. Python sees dmlvk.spec.errors.NoDeviceError(message).
class NoDevice : public std::exception {
  public:
    explicit NoDevice(std::string message) : message_(std::move(message)) {}
    const char* what() const noexcept override { return message_.c_str(); }

  private:
    std::string message_;
};

/// A call that comes at the wrong time, such as in a forked child. Python sees dmlvk.spec.errors.StateError(message).
class WrongState : public std::exception {
  public:
    explicit WrongState(std::string message) : message_(std::move(message)) {}
    const char* what() const noexcept override { return message_.c_str(); }

  private:
    std::string message_;
};

/// The device has not finished in the time that Device.wait_timeout allows. Python sees
/// dmlvk.spec.errors.WaitTimeoutError(seconds).
class WaitTimeout : public std::exception {
  public:
    explicit WaitTimeout(double seconds) : seconds(seconds) {}
    const char* what() const noexcept override { return "the device has not finished in time"; }

    double seconds;
};

/// The result's name in the Vulkan specification, or its number when it has none here.
std::string result_name(VkResult result);

/// Throws VulkanFailure for every negative result. Positive ones (VK_TIMEOUT, VK_NOT_READY, VK_INCOMPLETE) are answers.
inline void check(VkResult result, const char* call) {
    if (result < 0) {
        throw VulkanFailure(result, call);
    }
}

}  // namespace dmlvk
