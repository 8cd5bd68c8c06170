// Device memory: buffers sub-allocated from pooled blocks (Vulkan Memory Allocator), and host-visible staging memory.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "logical_device.h"

struct VmaAllocator_T;
struct VmaAllocation_T;

namespace dmlvk {

class Memory;

/// Headings under which buffers are counted; dmlvk.runtime.memory.Purpose names them.
constexpr uint32_t kPurposes = 4;

/// One storage buffer. Shared by the Python object, by command lists and by staged uploads; the last one frees it.
class DeviceBuffer {
  public:
    /// `purpose` is the heading under which the device counts it. What is exported has an allocation of its own, which other
    /// interfaces may import.
    DeviceBuffer(Memory& memory, uint64_t size, uint32_t purpose, bool exported = false);
    ~DeviceBuffer();
    /// Every buffer ends with a whole 16-byte word, so that a kernel may load the one that a tensor's last byte lies in.
    static constexpr uint64_t whole_words(uint64_t bytes) { return (bytes + 15) / 16 * 16; }
    DeviceBuffer(const DeviceBuffer&) = delete;
    DeviceBuffer& operator=(const DeviceBuffer&) = delete;

    /// Throws std::invalid_argument, worded for `what`, unless offset + bytes lies inside.
    void require_range(uint64_t offset, uint64_t bytes, const char* what) const;

    /// A new file descriptor of an exported buffer's allocation, which its caller closes or gives away, and the allocation's
    /// bytes. Throws std::invalid_argument for any other buffer.
    std::pair<int, uint64_t> export_memory() const;

    const uint64_t size;
    VkBuffer handle = VK_NULL_HANDLE;

  private:
    Memory& memory_;
    const uint32_t purpose_;
    const bool exported_;
    VmaAllocation_T* allocation_ = nullptr;
};

/// Host memory that stays mapped and that the device copies from or to.
class StagingBuffer {
  public:
    /// `upload_at_device` is memory of the device's own, where the host can write to it: copies out of it are the device's
    /// fastest.
    enum class Direction { upload, upload_at_device, download };
    StagingBuffer(Memory& memory, uint64_t size, Direction direction);
    ~StagingBuffer();
    StagingBuffer(const StagingBuffer&) = delete;
    StagingBuffer& operator=(const StagingBuffer&) = delete;

    /// Makes what the device wrote readable here, where the memory type is not coherent.
    void invalidate(uint64_t offset, uint64_t bytes);

    const uint64_t size;
    VkBuffer handle = VK_NULL_HANDLE;
    unsigned char* mapped = nullptr;

  private:
    Memory& memory_;
    VmaAllocation_T* allocation_ = nullptr;
};

struct MemoryStatistics {
    uint64_t buffers;
    uint64_t peak;
    uint64_t blocks;
    uint64_t staging;
    uint64_t budget;
    uint64_t usage;
};

class Memory {
  public:
    explicit Memory(LogicalDevice& device);
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    MemoryStatistics statistics() const;
    /// Bytes of live buffers of a purpose.
    uint64_t live(uint32_t purpose) const { return live_by_purpose_.at(purpose); }
    void reset_peak(uint64_t at_least) { peak_ = std::max(at_least, live_.load()); }

  private:
    friend class DeviceBuffer;
    friend class StagingBuffer;
    void count(uint64_t bytes, uint32_t purpose);

    LogicalDevice& device_;
    VmaAllocator_T* allocator_ = nullptr;
    std::atomic<uint64_t> live_{0};
    std::atomic<uint64_t> peak_{0};
    std::array<std::atomic<uint64_t>, kPurposes> live_by_purpose_{};
    std::atomic<uint64_t> staging_{0};
};

}  // namespace dmlvk
