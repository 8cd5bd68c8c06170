// What another native module of ours calls here without Python's lock: memory of devices, and runs that are prepared.
//
// The modules share neither a C++ runtime nor types, so that this is a table of plain functions. Python hands it on as a
// capsule, `_native.door()`. None of them throws: one that fails answers false or null, and leaves the failure with its
// thread for `raise`.
#pragma once

#include <cstddef>
#include <cstdint>

struct _object;

namespace dmlvk {

/// Something shared, which `release` gives back: a device, a buffer or a prepared run.
struct Held;

/// Where the bytes of a tensor are: at `host`, or where that is null in a buffer.
struct Place {
    void* host;
    Held* buffer;
    uint64_t offset;
};

struct Door {
    /// With Python's lock: what a `_native.Device`, `_native.Buffer` or `_native.PreparedRun` stands for; null of anything
    /// else.
    Held* (*hold)(_object* object);
    void (*release)(Held* held);
    /// With Python's lock: the `_native.Buffer` of a buffer, a new reference.
    _object* (*buffer_object)(Held* buffer);
    /// With Python's lock: raises the failure of this thread's last call as a Python exception.
    void (*raise)();

    /// Whether the device is lost, or that of a buffer.
    bool (*is_lost)(Held* held);
    bool (*is_of)(Held* buffer, Held* device);
    bool (*upload)(Held* buffer, uint64_t offset, const void* data, uint64_t bytes);
    bool (*download)(Held* buffer, uint64_t offset, void* out, uint64_t bytes);
    bool (*copy)(Held* source, uint64_t source_offset, Held* target, uint64_t target_offset, uint64_t bytes);
    /// Hands over what waits for the next submit, as a run leaves it.
    bool (*flush)(Held* device);
    /// Waits until the device has done all that was submitted.
    bool (*settle)(Held* device);

    /// Whether the run may be repeated; not once Python has closed it.
    bool (*is_open)(Held* run);
    /// Runs once: `inputs` and `outputs` are as many as the run has, in its order. Waits only where an output is on the host.
    /// Not for two threads at once.
    bool (*run)(Held* run, const Place* inputs, const Place* outputs);
};

/// The capsule's name.
inline constexpr const char* kDoorName = "dmlvk.runtime._native.door";

}  // namespace dmlvk
