#include "device.h"

#include <algorithm>
#include <stdexcept>

#include "errors.h"

namespace dmlvk {
namespace {

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

std::shared_ptr<DeviceBuffer> Device::allocate(uint64_t bytes) {
    if (bytes == 0) {
        throw std::invalid_argument("allocate: nbytes must be positive");
    }
    try {
        return std::make_shared<DeviceBuffer>(memory, bytes);
    } catch (const VulkanFailure& failure) {
        if (failure.result != VK_ERROR_OUT_OF_DEVICE_MEMORY) {
            throw;
        }
    }
    // Memory ran out, but dropped objects may give some back once the running work ends.
    wait_idle();
    return std::make_shared<DeviceBuffer>(memory, bytes);
}

std::shared_ptr<Kernel> Device::kernel(const KernelDescription& description) {
    auto made = std::make_shared<Kernel>(logical, pipeline_cache, description);
    pipelines_created++;
    return made;
}

void Device::upload(const std::shared_ptr<DeviceBuffer>& target, uint64_t offset, const unsigned char* data,
                    uint64_t bytes) {
    target->require_range(offset, bytes, "upload");
    uploads.upload(target, offset, data, bytes);
}

void Device::download(const DeviceBuffer& source, uint64_t offset, unsigned char* out, uint64_t bytes) {
    source.require_range(offset, bytes, "download");
    if (bytes > 0) {
        downloads.download(source, offset, out, bytes);
    }
}

void Device::wait_idle() {
    queue.wait(queue.flush(), UINT64_MAX);
    collect();
}

MemoryStatistics Device::memory_statistics() {
    collect();
    return memory.statistics();
}

void Device::bury(std::shared_ptr<void> resources, uint64_t value) {
    std::lock_guard<std::mutex> lock(graveyard_mutex_);
    graveyard_.emplace_back(value, std::move(resources));
}

void Device::collect() {
    uploads.collect();
    std::lock_guard<std::mutex> lock(graveyard_mutex_);
    const auto running = std::partition(graveyard_.begin(), graveyard_.end(),
                                        [this](const auto& grave) { return !queue.finished(grave.first); });
    graveyard_.erase(running, graveyard_.end());
}

}  // namespace dmlvk
