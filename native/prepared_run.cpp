#include "prepared_run.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "errors.h"
#include "gil.h"

namespace dmlvk {
namespace {

constexpr size_t kKept = 4;  // Lists of copies of a run: callers take turns with two or three sets of arrays.
// The most bytes that copies from the host, or to it, keep memory for. Of more the ring and the downloader copy parts while
// others are under way, which gains more than a list that is recorded already.
constexpr uint64_t kMostOnHost = uint64_t{2} << 20;

/// Calls step(nanoseconds) until it answers true, as long as the device's wait_timeout allows. Hears Ctrl-C in between.
template <typename Step>
void waited(const Device& device, Step&& step) {
    using Clock = std::chrono::steady_clock;
    constexpr double slice = 0.05;
    device.logical.require_here();
    const double limit = device.wait_timeout;
    const Clock::time_point start = Clock::now();
    for (double left = limit;;) {
        if (step(static_cast<uint64_t>(std::min(left, slice) * 1e9))) {
            return;
        }
        left = limit - std::chrono::duration<double>(Clock::now() - start).count();
        if (left <= 0) {
            throw WaitTimeout(limit);
        }
        const WithGil gil;
        if (gil.is_held() && PyErr_CheckSignals() != 0) {
            throw nanobind::python_error();
        }
    }
}

// ---- the table

thread_local std::exception_ptr failure;
void (*raise_thrown)(const std::exception_ptr&) = nullptr;
_object* (*make_buffer_object)(const HeldObject&) = nullptr;
bool (*find_held)(_object*, HeldObject&) = nullptr;

HeldObject& object(Held* held) { return *reinterpret_cast<HeldObject*>(held); }
const HeldObject& held(const Place& place) { return object(place.buffer); }

/// Runs a function; what it throws is this thread's failure.
template <typename Function>
bool kept_failure(Function&& function) noexcept {
    try {
        function();
        return true;
    } catch (...) {
        failure = std::current_exception();
        return false;
    }
}

void settle(Device& device) {
    const uint64_t value = device.queue.flush();
    waited(device, [&](uint64_t nanoseconds) { return device.queue.wait(value, nanoseconds); });
    device.collect();
}

void copied(const HeldObject& source, uint64_t source_offset, const HeldObject& target, uint64_t target_offset,
            uint64_t bytes) {
    if (source.device != target.device) {
        std::vector<unsigned char> host(bytes);
        download(*source.device, source.buffer, source_offset, host.data(), bytes);
        upload(*target.device, target.buffer, target_offset, host.data(), bytes);
        return;
    }
    source.device->logical.require_alive();
    CommandList list(source.device, false);
    list.copy(source.buffer, source_offset, target.buffer, target_offset, bytes);
    waited(*source.device, [&](uint64_t nanoseconds) { return list.submit(true, nanoseconds); });
    source.device->queue.flush();
}

const Door kDoor = {
    [](_object* given) {
        Held* held = nullptr;
        kept_failure([&] {
            auto found = std::make_unique<HeldObject>();
            if (!find_held(given, *found)) {
                throw std::invalid_argument("neither a device, nor a buffer, nor a prepared run");
            }
            held = reinterpret_cast<Held*>(found.release());
        });
        return held;
    },
    [](Held* held) { delete reinterpret_cast<HeldObject*>(held); },
    [](Held* buffer) { return make_buffer_object(object(buffer)); },
    [] { raise_thrown(std::exchange(failure, nullptr)); },
    [](Held* held) { return object(held).device->logical.is_lost(); },
    [](Held* buffer, Held* device) { return object(buffer).device == object(device).device; },
    [](Held* buffer, uint64_t offset, const void* data, uint64_t bytes) {
        return kept_failure([&] { upload(*object(buffer).device, object(buffer).buffer, offset, data, bytes); });
    },
    [](Held* buffer, uint64_t offset, void* out, uint64_t bytes) {
        return kept_failure([&] { download(*object(buffer).device, object(buffer).buffer, offset, out, bytes); });
    },
    [](Held* source, uint64_t source_offset, Held* target, uint64_t target_offset, uint64_t bytes) {
        return kept_failure([&] { copied(object(source), source_offset, object(target), target_offset, bytes); });
    },
    [](Held* device) {
        return kept_failure([&] {
            object(device).device->logical.require_here();
            object(device).device->queue.flush();
        });
    },
    [](Held* device) { return kept_failure([&] { settle(*object(device).device); }); },
    [](Held* run) { return object(run).run->is_open(); },
    [](Held* run, const Place* inputs, const Place* outputs) {
        return kept_failure([&] { object(run).run->run(inputs, outputs); });
    },
};

}  // namespace

const Door& door(void (*raise)(const std::exception_ptr&), _object* (*buffer_object)(const HeldObject&),
                 bool (*hold)(_object*, HeldObject&)) {
    raise_thrown = raise;
    make_buffer_object = buffer_object;
    find_held = hold;
    return kDoor;
}

void upload(Device& device, const std::shared_ptr<DeviceBuffer>& buffer, uint64_t offset, const void* data, uint64_t bytes) {
    buffer->require_range(offset, bytes, "upload");
    device.logical.require_alive();
    Upload rest{buffer, offset, static_cast<const unsigned char*>(data), bytes};
    waited(device, [&](uint64_t nanoseconds) { return device.uploads.upload(rest, nanoseconds); });
}

void download(Device& device, const std::shared_ptr<DeviceBuffer>& buffer, uint64_t offset, void* out, uint64_t bytes) {
    buffer->require_range(offset, bytes, "download");
    device.logical.require_alive();
    Downloader::Download read(device.downloads, buffer, offset, static_cast<unsigned char*>(out), bytes);
    waited(device, [&](uint64_t nanoseconds) { return read.advance(nanoseconds); });
}

// ---- a prepared run

bool PreparedRun::Copy::operator==(const Copy& other) const {
    return !(source < other.source) && !(other.source < source) && !(target < other.target) && !(other.target < target);
}

PreparedRun::PreparedRun(std::shared_ptr<Device> device, std::vector<BoundRange> feeds,
                         std::vector<std::shared_ptr<CommandList>> commands, std::vector<Result> results)
    : device_(std::move(device)), feeds_(std::move(feeds)), commands_(std::move(commands)), results_(std::move(results)) {}

void PreparedRun::close() {
    is_open_ = false;
    feeds_.clear();
    commands_.clear();
    results_.clear();
    feeding_.clear();
    leaving_.clear();
    fed_ = {};
    read_ = {};
}

void PreparedRun::require_open() const {
    if (!is_open_) {
        throw WrongState("the run has been closed");
    }
}

/// Submits copies; with those of an earlier run, the same commands.
void PreparedRun::submit(std::vector<Copy> copies, std::vector<Copies>& kept) {
    if (copies.empty()) {
        return;
    }
    auto found = std::find_if(kept.begin(), kept.end(), [&](const Copies& item) { return item.copies == copies; });
    if (found == kept.end()) {
        auto commands = std::make_shared<CommandList>(device_, false);
        for (const Copy& copy : copies) {
            commands->copy(copy.source.buffer, copy.source.offset, copy.target.buffer, copy.target.offset, copy.source.bytes);
        }
        if (kept.size() == kKept) {
            kept.pop_back();
        }
        kept.push_back({std::move(copies), std::move(commands)});
        found = kept.end() - 1;
    }
    std::rotate(kept.begin(), found, found + 1);  // The last one used is the first.
    CommandList& commands = *kept.front().commands;
    waited(*device_, [&](uint64_t nanoseconds) { return commands.submit(true, nanoseconds); });
}

/// Takes the indices of tensors on the host as long as they are small together. Returns whether there are copies for them:
/// those are made when a run with the same ones comes again.
bool PreparedRun::OnHost::has_copies(const std::shared_ptr<Device>& device, StagingBuffer::Direction direction,
                                     const std::vector<std::pair<size_t, BoundRange>>& on_host) {
    std::vector<size_t> small;
    std::vector<BoundRange> ranges;
    uint64_t room = kMostOnHost;
    for (const auto& [index, range] : on_host) {
        if (range.bytes <= room) {
            room -= range.bytes;
            small.push_back(index);
            ranges.push_back(range);
        }
    }
    if (small.empty() || refused) {
        return false;
    }
    if (small != indices) {
        *this = {std::move(small), nullptr, false};
        return false;
    }
    if (copies == nullptr) {
        try {
            copies = std::make_unique<HostCopies>(device, direction, std::move(ranges));
        } catch (const VulkanFailure& failure) {
            if (failure.result != VK_ERROR_OUT_OF_DEVICE_MEMORY && failure.result != VK_ERROR_OUT_OF_HOST_MEMORY) {
                throw;
            }
            refused = true;
            return false;
        }
    }
    return true;
}

void PreparedRun::run(const Place* inputs, const Place* outputs) {
    require_open();
    device_->logical.require_alive();
    feed(inputs);
    launch();
    leave(outputs);
}

bool PreparedRun::start(const Place* inputs) {
    require_open();
    device_->logical.require_alive();
    feed(inputs);
    launch();
    std::vector<std::pair<size_t, BoundRange>> on_host;
    for (size_t index = 0; index < results_.size(); index++) {
        if (const BoundRange& range = results_[index].range; range.buffer != nullptr && range.bytes > 0) {
            on_host.emplace_back(index, range);
        }
    }
    const bool together =
        read_.has_copies(device_, StagingBuffer::Direction::download, on_host) && read_.indices.size() == on_host.size();
    if (together) {
        waited(*device_, [&](uint64_t nanoseconds) { return read_.copies->wait(nanoseconds); });
        read_.copies->defer();
    }
    device_->queue.flush();
    return together;
}

void PreparedRun::take(size_t index, uint64_t offset, void* out, uint64_t bytes) {
    require_open();
    device_->logical.require_alive();
    const auto found = std::lower_bound(read_.indices.begin(), read_.indices.end(), index);
    if (read_.copies == nullptr || found == read_.indices.end() || *found != index) {
        throw std::invalid_argument("take: the run brings no such result");
    }
    const uint64_t all = results_[index].bytes();
    if (offset > all || bytes > all - offset) {
        throw std::invalid_argument("take: bytes " + std::to_string(offset) + " + " + std::to_string(bytes) +
                                    " end past the result's " + std::to_string(all));
    }
    waited(*device_, [&](uint64_t nanoseconds) { return read_.copies->wait(nanoseconds); });
    read_.copies->take(static_cast<size_t>(found - read_.indices.begin()), offset, out, bytes);
    device_->downloads.count_others(1);
}

void PreparedRun::launch() {
    for (const std::shared_ptr<CommandList>& commands : commands_) {
        waited(*device_, [&](uint64_t nanoseconds) { return commands->submit(true, nanoseconds); });
    }
}

bool PreparedRun::is_here(const Place& place) const {
    return place.host == nullptr && held(place).device == device_;
}

/// Brings the inputs. What the ring uploads goes before what is deferred.
void PreparedRun::feed(const Place* inputs) {
    std::vector<std::pair<size_t, BoundRange>> on_host;
    std::vector<Copy> copies;
    for (size_t index = 0; index < feeds_.size(); index++) {
        const BoundRange& feed = feeds_[index];
        const Place& place = inputs[index];
        if (feed.bytes == 0) {
            continue;
        }
        if (place.host != nullptr) {
            on_host.emplace_back(index, feed);
        } else if (is_here(place)) {
            copies.push_back({{held(place).buffer, place.offset, feed.bytes}, feed});
        } else {
            copied(held(place), place.offset, {device_, feed.buffer, nullptr}, feed.offset, feed.bytes);
        }
    }
    const bool together = fed_.has_copies(device_, StagingBuffer::Direction::upload_at_device, on_host);
    for (const auto& [index, range] : on_host) {
        if (!together || !fed_.has(index)) {
            upload(*device_, range.buffer, range.offset, inputs[index].host, range.bytes);
        }
    }
    submit(std::move(copies), feeding_);
    if (together) {
        waited(*device_, [&](uint64_t nanoseconds) { return fed_.copies->wait(nanoseconds); });
        for (size_t i = 0; i < fed_.indices.size(); i++) {
            fed_.copies->put(i, inputs[fed_.indices[i]].host);
        }
        fed_.copies->defer();
        device_->uploads.count_others(fed_.indices.size());
    }
}

/// Takes the outputs. Only those on the host are waited for.
void PreparedRun::leave(const Place* outputs) {
    std::vector<std::pair<size_t, BoundRange>> on_host;
    std::vector<Copy> copies;
    std::vector<size_t> elsewhere;
    for (size_t index = 0; index < results_.size(); index++) {
        const Result& result = results_[index];
        const Place& place = outputs[index];
        if (result.bytes() == 0) {
            continue;
        }
        if (result.range.buffer == nullptr) {
            if (place.host != nullptr) {
                std::memcpy(place.host, result.known.data(), result.known.size());
            } else {
                upload(*held(place).device, held(place).buffer, place.offset, result.known.data(), result.known.size());
            }
        } else if (place.host != nullptr) {
            on_host.emplace_back(index, result.range);
        } else if (is_here(place)) {
            copies.push_back({result.range, {held(place).buffer, place.offset, result.range.bytes}});
        } else {
            elsewhere.push_back(index);
        }
    }
    submit(std::move(copies), leaving_);
    const bool together = read_.has_copies(device_, StagingBuffer::Direction::download, on_host);
    if (together) {
        waited(*device_, [&](uint64_t nanoseconds) { return read_.copies->wait(nanoseconds); });
        read_.copies->defer();
        device_->downloads.count_others(read_.indices.size());
    }
    for (const size_t index : elsewhere) {
        const BoundRange& range = results_[index].range;
        copied({device_, range.buffer, nullptr}, range.offset, held(outputs[index]), outputs[index].offset, range.bytes);
    }
    for (const auto& [index, range] : on_host) {
        if (!together || !read_.has(index)) {
            download(*device_, range.buffer, range.offset, outputs[index].host, range.bytes);
        }
    }
    if (together) {
        waited(*device_, [&](uint64_t nanoseconds) { return read_.copies->wait(nanoseconds); });
        for (size_t i = 0; i < read_.indices.size(); i++) {
            const size_t index = read_.indices[i];
            read_.copies->take(i, 0, outputs[index].host, results_[index].bytes());
        }
    }
}

}  // namespace dmlvk
