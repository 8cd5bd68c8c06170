// The memory of Vulkan devices as ONNX Runtime sees it: addresses, which an allocator gives and a data transfer copies at.
//
// A Vulkan buffer has no address. A tensor on a device gets a number instead that no pointer can be: whoever reads it as one
// faults at once. Numbers are never given twice but for memory that was freed and is of the same size.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "../door.h"
#include "interface.h"

namespace dmlvk::ort {

/// What is behind the door: set once, before there is a factory.
extern const Door* behind;

/// A `Held` of its own. Not given back once the interpreter has ended, when the driver may be gone.
class Holding {
  public:
    Holding() = default;
    explicit Holding(Held* held) : held_(held) {}
    ~Holding();
    Holding(Holding&& other) noexcept : held_(other.held_) { other.held_ = nullptr; }
    Holding& operator=(Holding&& other) noexcept {
        std::swap(held_, other.held_);
        return *this;
    }

    Held* get() const { return held_; }

  private:
    Held* held_ = nullptr;
};

/// A call through the door failed: Python raises what it was.
struct DoorFailure {};

/// Throws DoorFailure where a call failed.
inline void check(bool is_done) {
    if (!is_done) {
        throw DoorFailure{};
    }
}

/// A device's memory. From any thread.
class DeviceMemory {
  public:
    /// `number` is the device's among those of the factory; `most_kept` how many bytes of freed memory stay for whoever wants
    /// as many next.
    DeviceMemory(std::string uuid, uint32_t number, uint64_t most_kept);

    /// The address of new memory. `made` gives a buffer of a number of bytes, where none is kept. Throws what that throws.
    template <typename Make>
    uint64_t allocate(uint64_t bytes, Make&& made) {
        const uint64_t whole = rounded(bytes);
        if (const uint64_t address = reused(whole)) {
            return address;
        }
        return placed(made(whole), whole);
    }
    void free(uint64_t address) noexcept;
    /// A session begins on this device object. Kept memory of others is freed: of the same GPU that was opened before, and may
    /// be lost.
    void begin_session(Held* device);
    /// A session ends. After the last one nothing is kept: its memory, and the device with it, would stay with nobody.
    void end_session();
    /// Where an address of this device is; throws std::runtime_error where nothing is. The buffer lives as long as its memory
    /// is not freed.
    Place at(uint64_t address, uint64_t bytes) const;

    /// Notes what a few bytes at an address are, which the host has just written there; forgets what was known of them.
    void note(uint64_t address, const void* data, uint64_t bytes);
    void forget(uint64_t address, uint64_t bytes);
    /// Copies bytes that are known; false where they are not.
    bool known(uint64_t address, void* out, uint64_t bytes) const;

    /// Whether an address is one of any device.
    static bool is_ours(const void* address);
    /// The number of the device of such an address.
    static uint32_t number_of(uint64_t address);

    const std::string uuid;
    const uint32_t number;

  private:
    struct Block {
        Holding buffer;
        uint64_t bytes;
    };

    using Blocks = std::map<uint64_t, Block>;
    /// By size. A block goes from one to the other with its place in the map, which takes no memory.
    using Kept = std::unordered_map<uint64_t, std::vector<Blocks::node_type>>;

    static uint64_t rounded(uint64_t bytes);
    /// The address of kept memory of a size; 0 where there is none.
    uint64_t reused(uint64_t bytes);
    uint64_t placed(Holding buffer, uint64_t bytes);
    /// Notes an address without memory for whoever wants as many bytes next.
    void spare(uint64_t bytes, uint64_t address) noexcept;

    const uint64_t most_kept_;
    mutable std::mutex mutex_;
    uint64_t next_;
    Blocks blocks_;
    Kept kept_;  // Only while there are sessions.
    uint64_t kept_bytes_ = 0;
    uint32_t sessions_ = 0;
    std::unordered_map<uint64_t, std::vector<uint64_t>> spare_;  // Addresses without memory, by size.
    std::map<uint64_t, std::string> known_;
};

}  // namespace dmlvk::ort
