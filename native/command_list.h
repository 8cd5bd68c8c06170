// Recorded work: dispatches, copies and fills with the barriers between them, submitted any number of times.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "device.h"

namespace dmlvk {

struct BoundRange {
    std::shared_ptr<DeviceBuffer> buffer;
    uint64_t offset;
    uint64_t bytes;

    bool operator<(const BoundRange& other) const {
        return std::tie(buffer, offset, bytes) < std::tie(other.buffer, other.offset, other.bytes);
    }
};

struct DispatchArguments {
    std::shared_ptr<Kernel> kernel;
    std::vector<BoundRange> buffers;
    /// Bit i: storage buffer i is written.
    uint64_t writes = 0;
    std::optional<BoundRange> params;
    std::string push;
    std::array<uint64_t, 3> grid{};
    /// Needs no barrier against the command before, nor against those that this one is beside.
    bool beside_previous = false;
};

/// Thread-safe. Misuse throws std::invalid_argument and leaves the list as it was. After a failure while a command is recorded
/// the list takes and submits nothing more: that throws WrongState.
class CommandList : public std::enable_shared_from_this<CommandList> {
  public:
    CommandList(std::shared_ptr<Device> device, bool timestamps);
    /// A list that still runs leaves its resources to the device until they are free.
    ~CommandList();
    CommandList(const CommandList&) = delete;
    CommandList& operator=(const CommandList&) = delete;

    void dispatch(DispatchArguments arguments);
    void copy(const std::shared_ptr<DeviceBuffer>& source, uint64_t source_offset,
              const std::shared_ptr<DeviceBuffer>& target, uint64_t target_offset, uint64_t bytes);
    void fill(const std::shared_ptr<DeviceBuffer>& target, uint64_t offset, uint64_t bytes, uint32_t word);

    /// Ends recording and submits; with `defer` together with whatever is submitted next. False when the list's own previous
    /// submit was not over in `timeout` nanoseconds: then nothing has happened.
    bool submit(bool defer, uint64_t timeout);
    /// False when `timeout` nanoseconds ran out. True for a list never submitted.
    bool wait(uint64_t timeout);
    std::vector<std::pair<double, double>> timings();
    /// Records a timestamp, which is taken once every earlier command of the list is done.
    void timestamp();
    /// The timestamps of the last finished submit, in ticks of `limits.timestampPeriod` nanoseconds.
    std::vector<uint64_t> timestamps();

    uint64_t dispatch_count() const;
    /// Barriers between this list's commands; the one it starts with is not counted.
    uint64_t barrier_count() const;
    const std::shared_ptr<Device>& device() const { return device_; }

  private:
    struct Recording;
    class Change;

    std::shared_ptr<Device> device_;
    mutable std::mutex mutex_;
    std::shared_ptr<Recording> recording_;
};

}  // namespace dmlvk
