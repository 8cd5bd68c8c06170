// A graph's commands with the places of its inputs and outputs: what a run needs that does not ask Python.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "command_list.h"
#include "door.h"

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

    /// `commands` is null where there is nothing to launch.
    PreparedRun(std::shared_ptr<Device> device, std::vector<BoundRange> feeds, std::shared_ptr<CommandList> commands,
                std::vector<Result> results);

    /// See Door::run.
    void run(const Place* inputs, const Place* outputs);
    /// Lets go of what it has. Not while it runs.
    void close();
    bool is_open() const { return is_open_; }

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

    void submit(std::vector<Copy> copies, std::vector<Copies>& kept);

    const std::shared_ptr<Device> device_;
    std::vector<BoundRange> feeds_;
    std::shared_ptr<CommandList> commands_;
    std::vector<Result> results_;
    std::vector<Copies> feeding_, leaving_;
    std::atomic<bool> is_open_{true};
};

/// Moves bytes of a buffer on a device, and waits as long as that allows. The thread need not have Python's lock.
void upload(Device& device, const std::shared_ptr<DeviceBuffer>& buffer, uint64_t offset, const void* data, uint64_t bytes);
void download(Device& device, const std::shared_ptr<DeviceBuffer>& buffer, uint64_t offset, void* out, uint64_t bytes);

/// The table for other native modules, whose `raise` calls this with what was thrown.
const Door& door(void (*raise)(const std::exception_ptr& thrown), _object* (*buffer_object)(const HeldObject& buffer),
                 bool (*hold)(_object* object, HeldObject& held));

}  // namespace dmlvk
