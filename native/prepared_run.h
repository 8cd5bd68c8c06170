// A graph's commands with the places of its inputs and outputs: what a run needs that does not ask Python.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "command_list.h"
#include "door.h"
#include "host_copies.h"

namespace dmlvk {

/// What `Held` stands for; members that are not of its kind are null.
struct HeldObject {
    std::shared_ptr<Device> device;
    std::shared_ptr<DeviceBuffer> buffer;
    std::shared_ptr<class PreparedRun> run;
};

class PreparedRun {
  public:
    /// An output: a range of the device, or bytes that are known where the buffer is null.
    struct Result {
        BoundRange range;
        std::string known;
        uint64_t bytes() const { return range.buffer == nullptr ? known.size() : range.bytes; }
    };

    /// `commands` run one after the other; there are none where there is nothing to launch.
    PreparedRun(std::shared_ptr<Device> device, std::vector<BoundRange> feeds,
                std::vector<std::shared_ptr<CommandList>> commands, std::vector<Result> results);

    /// See Door::run.
    void run(const Place* inputs, const Place* outputs);
    /// Hands over a run without waiting for it. Returns whether copies bring the results to the host with it: those of the
    /// first run do not, nor do large ones.
    bool start(const Place* inputs);
    /// Waits for bytes of a result that the last `start` brings, from `offset` on. May be called by several threads, but not
    /// while another run starts.
    void take(size_t index, uint64_t offset, void* out, uint64_t bytes);
    size_t feed_count() const { return feeds_.size(); }
    size_t result_count() const { return results_.size(); }
    uint64_t feed_bytes(size_t index) const { return feeds_[index].bytes; }
    uint64_t result_bytes(size_t index) const { return results_[index].bytes(); }
    /// Lets go of what it has. Not while it runs.
    void close();
    bool is_open() const { return is_open_; }
    /// Throws WrongState of a run that is closed.
    void require_open() const;

  private:
    struct Copy {
        BoundRange source;
        BoundRange target;
        bool operator==(const Copy& other) const;
    };
    /// Copies of one run before or after its commands, kept for a run with the same ones.
    struct Copies {
        std::vector<Copy> copies;
        std::shared_ptr<CommandList> commands;
    };

    /// The feeds or the results of a run that are on the host and small.
    struct OnHost {
        std::vector<size_t> indices;
        std::unique_ptr<HostCopies> copies;
        bool refused = false;  // There was no memory for the copies.

        bool has_copies(const std::shared_ptr<Device>& device, StagingBuffer::Direction direction,
                        const std::vector<std::pair<size_t, BoundRange>>& on_host);
        bool has(size_t index) const { return std::binary_search(indices.begin(), indices.end(), index); }
    };

    void feed(const Place* inputs);
    void launch();
    void leave(const Place* outputs);
    bool is_here(const Place& place) const;
    void submit(std::vector<Copy> copies, std::vector<Copies>& kept);

    const std::shared_ptr<Device> device_;
    std::vector<BoundRange> feeds_;
    std::vector<std::shared_ptr<CommandList>> commands_;
    std::vector<Result> results_;
    std::vector<Copies> feeding_, leaving_;
    OnHost fed_, read_;
    std::atomic<bool> is_open_{true};
};

/// Moves bytes of a buffer on a device, and waits as long as that allows. The thread need not have Python's lock.
void upload(Device& device, const std::shared_ptr<DeviceBuffer>& buffer, uint64_t offset, const void* data, uint64_t bytes);
void download(Device& device, const std::shared_ptr<DeviceBuffer>& buffer, uint64_t offset, void* out, uint64_t bytes);

/// The table for other native modules, whose `raise` calls this with what was thrown.
const Door& door(void (*raise)(const std::exception_ptr& thrown), _object* (*buffer_object)(const HeldObject& buffer),
                 bool (*hold)(_object* object, HeldObject& held));

}  // namespace dmlvk
