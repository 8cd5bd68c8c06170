#include "memory.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "errors.h"
#include "vma.h"

namespace dmlvk {

DeviceBuffer::DeviceBuffer(Memory& memory, uint64_t size, uint32_t purpose, bool exported)
    : size(size), memory_(memory), purpose_(purpose), exported_(exported) {
    LogicalDevice& device = memory.device_;
    device.require_alive();
    if (exported && !device.features[Feature::external_memory]) {
        throw std::invalid_argument("allocate: external_memory is off");
    }
    const PhysicalDevice& physical = device.physical;
    // Vulkan forbids asking for more than these limits, so this gives the answer that a driver would give. A driver may be
    // asked for more than maxMemoryAllocationSize: NVIDIA states 4 GiB and grants more.
    const uint64_t most = std::min(physical.max_buffer_size, physical.largest_heap);
    if (size > most || whole_words(size) > most) {
        throw VulkanFailure(VK_ERROR_OUT_OF_DEVICE_MEMORY, "vmaCreateBuffer",
                            std::to_string(size) + " bytes, the device's largest buffer is " + std::to_string(most));
    }
    VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
    info.size = whole_words(size);
    info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT |
                 VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    if (device.features[Feature::buffer_device_address]) {
        info.usage |= VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    }
    VmaAllocationCreateInfo placement{};
    placement.requiredFlags = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    VkExternalMemoryBufferCreateInfo external{VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO};
    external.handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
    const char* const call = exported ? "vmaCreateDedicatedBuffer" : "vmaCreateBuffer";
    VkResult result = VK_SUCCESS;
    if (exported) {
        info.pNext = &external;
        VkExportMemoryAllocateInfo chain{VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO};
        chain.handleTypes = external.handleTypes;
        result = vmaCreateDedicatedBuffer(memory.allocator_, &info, &placement, &chain, &handle, &allocation_, nullptr);
    } else {
        result = vmaCreateBuffer(memory.allocator_, &info, &placement, &handle, &allocation_, nullptr);
    }
    if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY) {
        throw VulkanFailure(result, call, std::to_string(size) + " bytes");
    }
    device.check(result, call);
    memory.count(size, purpose);
}

DeviceBuffer::~DeviceBuffer() {
    if (memory_.device_.is_left_behind()) {
        return;
    }
    vmaDestroyBuffer(memory_.allocator_, handle, allocation_);
    memory_.live_ -= size;
    memory_.live_by_purpose_[purpose_] -= size;
}

std::pair<int, uint64_t> DeviceBuffer::export_memory() const {
    LogicalDevice& device = memory_.device_;
    device.require_alive();
    if (!exported_) {
        throw std::invalid_argument("export_memory: the buffer was not allocated to be exported");
    }
    VmaAllocationInfo2 allocated{};
    vmaGetAllocationInfo2(memory_.allocator_, allocation_, &allocated);
    VkMemoryGetFdInfoKHR info{VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR};
    info.memory = allocated.allocationInfo.deviceMemory;
    info.handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT;
    int descriptor = -1;
    device.check(device.vk.vkGetMemoryFdKHR(device.handle, &info, &descriptor), "vkGetMemoryFdKHR");
    return {descriptor, allocated.blockSize};
}

void DeviceBuffer::require_range(uint64_t offset, uint64_t bytes, const char* what) const {
    if (offset > size || bytes > size - offset) {
        throw std::invalid_argument(std::string(what) + ": bytes " + std::to_string(offset) + " + " +
                                    std::to_string(bytes) + " end past the buffer's " + std::to_string(size));
    }
}

StagingBuffer::StagingBuffer(Memory& memory, uint64_t size, Direction direction) : size(size), memory_(memory) {
    VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
    info.size = size;
    VmaAllocationCreateInfo placement{};
    placement.flags = VMA_ALLOCATION_CREATE_MAPPED_BIT | VMA_ALLOCATION_CREATE_DEDICATED_MEMORY_BIT;
    placement.usage = VMA_MEMORY_USAGE_AUTO_PREFER_HOST;
    if (direction == Direction::upload_at_device) {
        info.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT;
        placement.usage = VMA_MEMORY_USAGE_UNKNOWN;  // The flags alone decide.
        placement.requiredFlags = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
        placement.preferredFlags = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    } else if (direction == Direction::upload) {
        info.usage = VK_BUFFER_USAGE_TRANSFER_SRC_BIT;
        placement.flags |= VMA_ALLOCATION_CREATE_HOST_ACCESS_SEQUENTIAL_WRITE_BIT;
        placement.requiredFlags = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    } else {
        // Random access asks for a cached type: some drivers list an uncached one first, and reading that is 20 times
        // slower.
        info.usage = VK_BUFFER_USAGE_TRANSFER_DST_BIT;
        placement.flags |= VMA_ALLOCATION_CREATE_HOST_ACCESS_RANDOM_BIT;
        placement.requiredFlags = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
        placement.preferredFlags = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    }
    VmaAllocationInfo allocated;
    memory.device_.check(
        vmaCreateBuffer(memory.allocator_, &info, &placement, &handle, &allocation_, &allocated), "vmaCreateBuffer");
    mapped = static_cast<unsigned char*>(allocated.pMappedData);
    memory.staging_ += size;
}

StagingBuffer::~StagingBuffer() {
    vmaDestroyBuffer(memory_.allocator_, handle, allocation_);
    memory_.staging_ -= size;
}

void StagingBuffer::invalidate(uint64_t offset, uint64_t bytes) {
    memory_.device_.check(vmaInvalidateAllocation(memory_.allocator_, allocation_, offset, bytes),
                          "vmaInvalidateAllocation");
}

Memory::Memory(LogicalDevice& device) : device_(device) {
    const Instance& owner = instance();
    VmaVulkanFunctions functions{};
    functions.vkGetInstanceProcAddr = owner.global.vkGetInstanceProcAddr;
    functions.vkGetDeviceProcAddr = owner.vk.vkGetDeviceProcAddr;
    VmaAllocatorCreateInfo info{};
    info.instance = owner.handle;
    info.physicalDevice = device.physical.handle;
    info.device = device.handle;
    info.vulkanApiVersion = VK_API_VERSION_1_3;
    info.pVulkanFunctions = &functions;
    if (device.features[Feature::memory_budget]) {
        info.flags |= VMA_ALLOCATOR_CREATE_EXT_MEMORY_BUDGET_BIT;
    }
    if (device.features[Feature::buffer_device_address]) {
        info.flags |= VMA_ALLOCATOR_CREATE_BUFFER_DEVICE_ADDRESS_BIT;
    }
    device.check(vmaCreateAllocator(&info, &allocator_), "vmaCreateAllocator");
}

Memory::~Memory() {
    vmaDestroyAllocator(allocator_);
}

void Memory::count(uint64_t bytes, uint32_t purpose) {
    live_by_purpose_[purpose] += bytes;
    const uint64_t now = live_ += bytes;
    uint64_t peak = peak_;
    while (peak < now && !peak_.compare_exchange_weak(peak, now)) {
    }
}

MemoryStatistics Memory::statistics() const {
    const VkPhysicalDeviceMemoryProperties* properties = nullptr;
    vmaGetMemoryProperties(allocator_, &properties);
    VmaBudget budgets[VK_MAX_MEMORY_HEAPS];
    vmaGetHeapBudgets(allocator_, budgets);
    MemoryStatistics sums{live_, peak_, 0, staging_, 0, 0};
    for (uint32_t i = 0; i < properties->memoryHeapCount; i++) {
        sums.blocks += budgets[i].statistics.blockBytes;
        if ((properties->memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0) {
            sums.budget += budgets[i].budget;
            sums.usage += budgets[i].usage;
        }
    }
    return sums;
}

}  // namespace dmlvk
