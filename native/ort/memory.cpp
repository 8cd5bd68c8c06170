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
    std::vector<Blocks::node_type> lost;  // Freed without the mutex.
    std::lock_guard<std::mutex> lock(mutex_);
    const auto same = kept_.find(bytes);
    while (same != kept_.end() && !same->second.empty()) {
        Blocks::node_type& last = same->second.back();
        const uint64_t address = last.key();
        const bool is_lost = behind->is_lost(last.mapped().buffer.get());
        if (is_lost) {
            lost.push_back(std::move(last));
            spare(bytes, address);
        } else {
            blocks_.insert(std::move(last));
        }
        same->second.pop_back();
        kept_bytes_ -= bytes;
        if (!is_lost) {
            return address;
        }
    }
    return 0;
}

void DeviceMemory::spare(uint64_t bytes, uint64_t address) noexcept {
    try {
        spare_[bytes].push_back(address);
    } catch (const std::bad_alloc&) {
        // It is not given again, and there are plenty.
    }
}

uint64_t DeviceMemory::placed(Holding buffer, uint64_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& addresses = spare_[bytes];
    const uint64_t address = addresses.empty() ? next_ : addresses.back();
    blocks_.emplace(address, Block{std::move(buffer), bytes});
    if (addresses.empty()) {
        next_ += bytes + kAlignment;  // So that none ends where another begins.
    } else {
        addresses.pop_back();
    }
    return address;
}

void DeviceMemory::free(uint64_t address) noexcept {
    Blocks::node_type dropped;  // Freed without the mutex.
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(address);
    if (found == blocks_.end()) {
        return;
    }
    const uint64_t bytes = found->second.bytes;
    known_.erase(known_.lower_bound(address), known_.lower_bound(address + bytes));
    dropped = blocks_.extract(found);
    if (sessions_ > 0 && kept_bytes_ + bytes <= most_kept_) {
        try {
            auto& same = kept_[bytes];
            same.emplace_back();
            same.back() = std::move(dropped);
            kept_bytes_ += bytes;
            return;
        } catch (const std::bad_alloc&) {
            // It is not kept.
        }
    }
    spare(bytes, address);
}

void DeviceMemory::begin_session(Held* device) {
    std::vector<Blocks::node_type> dropped;  // Freed without the mutex.
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [bytes, same] : kept_) {
        const auto others = std::stable_partition(
            same.begin(), same.end(), [&](const auto& kept) { return behind->is_of(kept.mapped().buffer.get(), device); });
        dropped.reserve(dropped.size() + static_cast<size_t>(same.end() - others));
        for (auto kept = others; kept != same.end(); ++kept) {
            spare(bytes, kept->key());
            dropped.push_back(std::move(*kept));
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
    for (const auto& [bytes, same] : kept_) {
        for (const auto& kept : same) {
            spare(bytes, kept.key());
        }
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
