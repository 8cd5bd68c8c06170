#include "device.h"

#include <algorithm>
#include <stdexcept>

#include "errors.h"

namespace dmlvk {
namespace {

constexpr uint64_t kCloseNanoseconds = 1'000'000'000;

/// Devices that nobody has any more, and on which work goes on. Never freed: they are there until the process ends.
struct Retired {
    std::mutex mutex;
    std::vector<Device*> devices;
};

Retired& retired_devices() {
    static Retired* retired = new Retired;
    return *retired;
}

const PhysicalDevice& physical_device(uint32_t index) {
    const std::vector<PhysicalDevice>& devices = physical_devices();
    if (index >= devices.size()) {
        throw NoDevice("no Vulkan 1.3 device " + std::to_string(index) + ": there are " +
                       std::to_string(devices.size()));
    }
    return devices[index];
}

}  // namespace

Device::Device(uint32_t index, const std::vector<std::string>& disabled, const std::string& cache_path)
    : logical(physical_device(index), disabled),
      memory(logical),
      queue(logical),
      uploads(logical, queue, memory, copies),
      downloads(logical, queue, memory, copies),
      pipeline_cache(logical, cache_path) {
    queue.attach(&uploads);
}

Device::~Device() {
    // A lost device answers at once, and nothing runs on it any more. So the result does not matter here.
    logical.vk.vkDeviceWaitIdle(logical.handle);
    graveyard_.clear();
}

std::shared_ptr<Device> Device::open(uint32_t index, const std::vector<std::string>& disabled,
                                     const std::string& cache_path) {
    require_no_fork();
    destroy_settled();
    return std::shared_ptr<Device>(new Device(index, disabled, cache_path), &Device::retire);
}

void Device::retire(Device* device) noexcept {
    if (device->logical.is_left_behind()) {
        return;
    }
    destroy_settled();
    if (device->settled(kCloseNanoseconds)) {
        delete device;
        return;
    }
    try {
        Retired& retired = retired_devices();
        std::lock_guard<std::mutex> lock(retired.mutex);
        retired.devices.push_back(device);
    } catch (const std::exception&) {
        // No room to note it: it stays as long as the process.
    }
}

/// Whether nothing runs on the device, or ever will.
bool Device::settled(uint64_t timeout) noexcept {
    try {
        return queue.settle(timeout);
    } catch (const std::exception&) {
        return logical.is_lost();
    }
}

void Device::destroy_settled() noexcept {
    Retired& retired = retired_devices();
    std::lock_guard<std::mutex> lock(retired.mutex);
    const auto running = std::partition(retired.devices.begin(), retired.devices.end(),
                                        [](Device* device) { return !device->settled(0); });
    for (auto device = running; device != retired.devices.end(); ++device) {
        delete *device;
    }
    retired.devices.erase(running, retired.devices.end());
}

SharedTimeline::SharedTimeline(LogicalDevice& device) : device_(device) {
    device.require_alive();
    if (!device.features[Feature::external_semaphores]) {
        throw std::invalid_argument("shared_timeline: external_semaphores is off");
    }
    VkExportSemaphoreCreateInfo exported{VK_STRUCTURE_TYPE_EXPORT_SEMAPHORE_CREATE_INFO};
    exported.handleTypes = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT;
    VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, &exported};
    type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
    VkSemaphoreCreateInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type};
    device.check(device.vk.vkCreateSemaphore(device.handle, &info, nullptr, &handle), "vkCreateSemaphore");
}

SharedTimeline::~SharedTimeline() {
    device_.vk.vkDestroySemaphore(device_.handle, handle, nullptr);
}

int SharedTimeline::export_semaphore() {
    device_.require_alive();
    VkSemaphoreGetFdInfoKHR info{VK_STRUCTURE_TYPE_SEMAPHORE_GET_FD_INFO_KHR};
    info.semaphore = handle;
    info.handleType = VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT;
    int descriptor = -1;
    device_.check(device_.vk.vkGetSemaphoreFdKHR(device_.handle, &info, &descriptor), "vkGetSemaphoreFdKHR");
    return descriptor;
}

SharedTimeline& Device::new_timeline() {
    auto made = std::make_unique<SharedTimeline>(logical);
    std::lock_guard<std::mutex> lock(timelines_mutex_);
    timelines_.push_back(std::move(made));
    return *timelines_.back();
}

std::shared_ptr<DeviceBuffer> Device::allocate(uint64_t bytes, uint32_t purpose, bool exported) {
    if (bytes == 0) {
        throw std::invalid_argument("allocate: nbytes must be positive");
    }
    if (purpose >= kPurposes) {
        throw std::invalid_argument("allocate: there is no purpose " + std::to_string(purpose));
    }
    return std::make_shared<DeviceBuffer>(memory, bytes, purpose, exported);
}

std::shared_ptr<Kernel> Device::kernel(const KernelDescription& description) {
    auto made = std::make_shared<Kernel>(logical, pipeline_cache, description);
    pipelines_created++;
    return made;
}

MemoryStatistics Device::memory_statistics() {
    collect();
    return memory.statistics();
}

void Device::reserve_grave() {
    std::lock_guard<std::mutex> lock(graveyard_mutex_);
    const size_t needed = graveyard_.size() + reserved_graves_ + 1;
    if (needed > graveyard_.capacity()) {
        graveyard_.reserve(2 * needed);
    }
    reserved_graves_++;
}

void Device::release_grave() noexcept {
    std::lock_guard<std::mutex> lock(graveyard_mutex_);
    reserved_graves_--;
}

void Device::bury(std::shared_ptr<void> resources, uint64_t value) noexcept {
    std::lock_guard<std::mutex> lock(graveyard_mutex_);
    reserved_graves_--;
    graveyard_.emplace_back(value, std::move(resources));
}

void Device::collect() {
    uploads.collect();
    downloads.collect();
    std::lock_guard<std::mutex> lock(graveyard_mutex_);
    // finished() may throw: then all stay. What it says of a value holds for those that are asked for later, too.
    const auto running = std::partition(graveyard_.begin(), graveyard_.end(),
                                        [this](const auto& grave) { return !queue.finished(grave.first); });
    graveyard_.erase(running, graveyard_.end());
}

}  // namespace dmlvk
