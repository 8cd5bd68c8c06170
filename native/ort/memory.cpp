#include "memory.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "../gil.h"

namespace dmlvk::ort {
namespace {

// No address of a process of today has these bits, nor a tag in a pointer's last byte.
constexpr uint64_t kOurs = uint64_t{0x0D3} << 52;
constexpr uint64_t kOursMask = uint64_t{0xFFF} << 52;
constexpr int kNumberShift = 48;  // So many bits are a device's own.
constexpr uint64_t kAlignment = 256;
constexpr size_t kFew = 1024;  // Bytes that are worth knowing: shapes, steps, lengths.

}  // namespace

const Door* behind = nullptr;

Holding::~Holding() {
    if (held_ != nullptr && Py_IsInitialized()) {
        behind->release(held_);
    }
}

DeviceMemory::DeviceMemory(std::string uuid_, uint32_t number_, uint64_t most_kept)
    : uuid(std::move(uuid_)),
      number(number_),
      most_kept_(most_kept),
      next_(kOurs | static_cast<uint64_t>(number_) << kNumberShift) {}

bool DeviceMemory::is_ours(const void* address) {
    return (reinterpret_cast<uint64_t>(address) & kOursMask) == kOurs;
}

uint32_t DeviceMemory::number_of(uint64_t address) {
    return static_cast<uint32_t>((address & ~kOursMask) >> kNumberShift);
}

uint64_t DeviceMemory::rounded(uint64_t bytes) {
    return (std::max<uint64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

uint64_t DeviceMemory::reused(uint64_t bytes) {
    std::vector<Block> lost;  // Freed without the mutex.
    std::lock_guard<std::mutex> lock(mutex_);
    auto& same = kept_[bytes];
    while (!same.empty()) {
        auto [address, block] = std::move(same.back());
        same.pop_back();
        kept_bytes_ -= bytes;
        if (!behind->is_lost(block.buffer.get())) {
            blocks_.emplace(address, std::move(block));
            return address;
        }
        lost.push_back(std::move(block));
        spare_[bytes].push_back(address);
    }
    return 0;
}

uint64_t DeviceMemory::placed(Holding buffer, uint64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& spare = spare_[bytes];
    uint64_t address = next_;
    if (spare.empty()) {
        next_ += bytes + kAlignment;  // So that none ends where another begins.
    } else {
        address = spare.back();
        spare.pop_back();
    }
    blocks_.emplace(address, Block{std::move(buffer), bytes});
    return address;
}

void DeviceMemory::free(uint64_t address) {
    Block dropped;
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(address);
    if (found == blocks_.end()) {
        return;
    }
    const uint64_t bytes = found->second.bytes;
    known_.erase(known_.lower_bound(address), known_.lower_bound(address + bytes));
    if (sessions_ > 0 && kept_bytes_ + bytes <= most_kept_) {
        kept_[bytes].emplace_back(address, std::move(found->second));
        kept_bytes_ += bytes;
    } else {
        dropped = std::move(found->second);
        spare_[bytes].push_back(address);
    }
    blocks_.erase(found);
}

void DeviceMemory::begin_session(Held* device) {
    std::vector<Block> dropped;  // Freed without the mutex.
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [bytes, same] : kept_) {
        const auto others = std::stable_partition(
            same.begin(), same.end(), [&](const auto& kept) { return behind->is_of(kept.second.buffer.get(), device); });
        for (auto kept = others; kept != same.end(); ++kept) {
            dropped.push_back(std::move(kept->second));
            spare_[bytes].push_back(kept->first);
            kept_bytes_ -= bytes;
        }
        same.erase(others, same.end());
    }
    sessions_++;
}

void DeviceMemory::end_session() {
    Kept dropped;  // Freed without the mutex.
    std::lock_guard<std::mutex> lock(mutex_);
    if (--sessions_ > 0) {
        return;
    }
    try {
        for (const auto& [bytes, same] : kept_) {
            for (const auto& kept : same) {
                spare_[bytes].push_back(kept.first);
            }
        }
    } catch (const std::bad_alloc&) {
        // The addresses that are left are not given again, and there are plenty.
    }
    std::swap(dropped, kept_);
    kept_bytes_ = 0;
}

Place DeviceMemory::at(uint64_t address, uint64_t bytes) const {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = blocks_.upper_bound(address);
    if (found != blocks_.begin()) {
        --found;
        const uint64_t offset = address - found->first;
        if (offset <= found->second.bytes && bytes <= found->second.bytes - offset) {
            return {nullptr, found->second.buffer.get(), offset};
        }
    }
    throw std::runtime_error("a tensor on the device names memory that is not allocated there");
}

void DeviceMemory::note(uint64_t address, const void* data, uint64_t bytes) {
    forget(address, bytes);
    if (bytes > 0 && bytes <= kFew) {
        std::lock_guard<std::mutex> lock(mutex_);
        known_.emplace(address, std::string(static_cast<const char*>(data), bytes));
    }
}

void DeviceMemory::forget(uint64_t address, uint64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto item = known_.lower_bound(address < kFew ? 0 : address - kFew);
    while (item != known_.end() && item->first < address + std::max<uint64_t>(bytes, 1)) {
        item = item->first + item->second.size() > address ? known_.erase(item) : std::next(item);
    }
}

bool DeviceMemory::known(uint64_t address, void* out, uint64_t bytes) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = known_.find(address);
    if (found == known_.end() || found->second.size() < bytes) {
        return false;
    }
    std::memcpy(out, found->second.data(), bytes);
    return true;
}

}  // namespace dmlvk::ort
