// The Python face of everything here. src/dmlvk/runtime/_native.pyi is its contract.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <system_error>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "command_list.h"
#include "device.h"
#include "errors.h"
#include "gil.h"
#include "prepared_run.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace dmlvk {
namespace {

// Python's Buffer and Kernel: what they wrap, and the device that it must not outlive. Members are destroyed in reverse
// order, so the device goes last.
struct PyBuffer {
    std::shared_ptr<Device> device;
    std::shared_ptr<DeviceBuffer> buffer;
};

struct PyTimeline {
    std::shared_ptr<Device> device;
    SharedTimeline* timeline;
};

struct PyRun {
    std::shared_ptr<PreparedRun> run;
};

struct PyKernel {
    std::shared_ptr<Device> device;
    std::shared_ptr<Kernel> kernel;
};

/// What the launches of a plan have in common whatever their sizes.
struct PyLaunches {
    /// A binding's resource: its place in Python's Resources, and the slot there.
    struct Place {
        size_t resource;
        size_t slot;
    };
    /// A copy has no kernel.
    struct Launch {
        PyKernel kernel;
        uint64_t writes;
        std::vector<Place> places;
        bool beside_previous;
    };
    uint64_t alignment;
    std::vector<Launch> launches;
};

using PyRange = std::tuple<const PyBuffer*, uint64_t, uint64_t>;

// nanobind converts arguments in functions that may not throw, so that an argument which needs memory would end the
// process where there is none. Texts and sequences come as Python objects, which these turn into ours.

std::string text_of(nb::str given) {
    Py_ssize_t bytes = 0;
    const char* text = PyUnicode_AsUTF8AndSize(given.ptr(), &bytes);
    if (text == nullptr) {
        throw nb::python_error();
    }
    return std::string(text, static_cast<size_t>(bytes));
}

template <typename T>
std::vector<T> values_of(nb::sequence given, const char* what) {
    const size_t count = nb::len(given);
    std::vector<T> values(count);
    for (size_t i = 0; i < count; i++) {
        if (!nb::try_cast(nb::object(given[i]), values[i])) {
            throw nb::type_error(what);
        }
    }
    return values;
}

std::vector<std::string> texts_of(nb::sequence given, const char* what) {
    std::vector<std::string> texts;
    for (const nb::str& text : values_of<nb::str>(given, what)) {
        texts.push_back(text_of(text));
    }
    return texts;
}

void require_same_device(const Device& device, const std::shared_ptr<Device>& other, const char* what) {
    if (other.get() != &device) {
        throw std::invalid_argument(std::string(what) + " belongs to another device");
    }
}

/// The contiguous memory of a Python object, held while in use.
class HostBytes {
  public:
    HostBytes(nb::handle object, bool writable) {
        if (PyObject_GetBuffer(object.ptr(), &view_, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) {
            nb::python_error error;
            const std::string reason = error.what();
            throw std::invalid_argument(std::string(writable ? "out" : "data") + " is no contiguous " +
                                        (writable ? "writable " : "") + "buffer: " + reason);
        }
    }
    ~HostBytes() { PyBuffer_Release(&view_); }
    HostBytes(const HostBytes&) = delete;
    HostBytes& operator=(const HostBytes&) = delete;

    unsigned char* data() const { return static_cast<unsigned char*>(view_.buf); }
    uint64_t size() const { return static_cast<uint64_t>(view_.len); }

  private:
    Py_buffer view_;
};

/// Calls step(nanoseconds) without the GIL, in slices between which Ctrl-C is heard. True once it answers true, false when
/// the timeout in seconds ran out. A step may do work, but must not wait with a mutex held: a signal's handler may come
/// here again.
template <typename Step>
bool in_slices(std::optional<double> timeout, Step&& step) {
    using Clock = std::chrono::steady_clock;
    constexpr uint64_t slice = 50'000'000;
    constexpr double longest = 1e9;  // 30 years
    if (timeout.has_value() && !(*timeout >= 0.0)) {
        throw std::invalid_argument("timeout must be a number of seconds >= 0 or None");
    }
    const double seconds = timeout.has_value() ? std::min(*timeout, longest) : longest;
    const Clock::time_point end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    for (uint64_t rest = static_cast<uint64_t>(seconds * 1e9);;) {
        {
            const WithoutGil without_gil;
            if (step(std::min(rest, slice))) {
                return true;
            }
        }
        if (PyErr_CheckSignals() != 0) {
            throw nb::python_error();
        }
        const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(end - Clock::now()).count();
        if (left <= 0) {
            return false;
        }
        rest = static_cast<uint64_t>(left);
    }
}

/// in_slices for as long as the device's wait_timeout allows.
template <typename Step>
void within_limit(const Device& device, Step&& step) {
    device.logical.require_here();
    const double limit = device.wait_timeout;
    if (!in_slices(limit, step)) {
        throw WaitTimeout(limit);
    }
}

/// Waits until the device has done all that was submitted, and frees what only that used.
void wait_idle(Device& device) {
    std::optional<uint64_t> value;
    within_limit(device, [&](uint64_t nanoseconds) {
        if (!value.has_value()) {
            value = device.queue.flush();
        }
        return device.queue.wait(*value, nanoseconds);
    });
    device.collect();
}

BoundRange bound_range(const Device& device, const PyRange& range) {
    const auto& [buffer, offset, bytes] = range;
    if (buffer == nullptr) {
        throw std::invalid_argument("dispatch: a binding has no buffer");
    }
    require_same_device(device, buffer->device, "dispatch: a bound buffer");
    return {buffer->buffer, offset, bytes};
}

nb::dict feature_dict(const FeatureSet& features) {
    nb::dict named;
    for (size_t i = 0; i < kFeatureNames.size(); i++) {
        named[kFeatureNames[i]] = features.at(i);
    }
    return named;
}

nb::dict limit_dict(const PhysicalDevice& device) {
    nb::dict named;
    for (const auto& [name, value] : device.named_limits()) {
        if (const auto* whole = std::get_if<uint64_t>(&value)) {
            named[name.c_str()] = *whole;
        } else {
            named[name.c_str()] = std::get<double>(value);
        }
    }
    return named;
}

nb::list cooperative_matrix_list(const PhysicalDevice& device) {
    nb::list shapes;
    for (const CooperativeMatrixShape& shape : device.cooperative_matrices) {
        nb::dict entry;
        entry["m"] = shape.m;
        entry["n"] = shape.n;
        entry["k"] = shape.k;
        entry["a_type"] = shape.a_type;
        entry["b_type"] = shape.b_type;
        entry["c_type"] = shape.c_type;
        entry["result_type"] = shape.result_type;
        entry["saturating"] = shape.saturating;
        entry["scope"] = shape.scope;
        shapes.append(entry);
    }
    return shapes;
}

PyKernel make_kernel(Device& device, nb::bytes spirv, nb::str name, uint32_t storage_buffers, bool has_params,
                     uint32_t push_bytes, nb::sequence constants, uint32_t subgroup_size, bool inspected) {
    KernelDescription description;
    description.name = text_of(name);
    if (spirv.size() % sizeof(uint32_t) != 0) {
        throw std::invalid_argument("kernel " + description.name + ": not a SPIR-V module");
    }
    description.spirv.resize(spirv.size() / sizeof(uint32_t));
    std::memcpy(description.spirv.data(), spirv.c_str(), spirv.size());
    description.storage_buffers = storage_buffers;
    description.has_params = has_params;
    description.push_bytes = push_bytes;
    description.constants = values_of<std::pair<uint32_t, uint32_t>>(constants, "constants: pairs of 32-bit integers");
    description.subgroup_size = subgroup_size;
    description.inspected = inspected;
    const WithoutGil without_gil;
    return {device.shared_from_this(), device.kernel(description)};
}

nb::list executables(const PyKernel& kernel) {
    std::vector<Executable> programs;
    {
        const WithoutGil without_gil;
        programs = kernel.kernel->executables();
    }
    nb::list found;
    for (const Executable& program : programs) {
        nb::list statistics, representations;
        for (const auto& statistic : program.statistics) {
            const nb::object value = std::visit([](auto own) { return nb::cast(own); }, statistic.value);
            statistics.append(nb::make_tuple(statistic.name, statistic.description, value));
        }
        for (const auto& form : program.representations) {
            const nb::bytes data(form.data.data(), form.data.size());
            representations.append(nb::make_tuple(form.name, form.description, data, form.is_text));
        }
        found.append(nb::make_tuple(program.name, program.description, program.subgroup_size, statistics, representations));
    }
    return found;
}

void upload(Device& device, const PyBuffer& buffer, uint64_t offset, nb::handle data) {
    require_same_device(device, buffer.device, "upload: the buffer");
    const HostBytes bytes(data, false);
    buffer.buffer->require_range(offset, bytes.size(), "upload");
    Upload rest{buffer.buffer, offset, bytes.data(), bytes.size()};
    within_limit(device, [&](uint64_t nanoseconds) { return device.uploads.upload(rest, nanoseconds); });
}

void download(Device& device, const PyBuffer& buffer, uint64_t offset, nb::handle out) {
    require_same_device(device, buffer.device, "download: the buffer");
    const HostBytes bytes(out, true);
    buffer.buffer->require_range(offset, bytes.size(), "download");
    std::optional<Downloader::Download> read;
    within_limit(device, [&](uint64_t nanoseconds) {
        if (!read.has_value()) {
            read.emplace(device.downloads, buffer.buffer, offset, bytes.data(), bytes.size());
        }
        return read->advance(nanoseconds);
    });
}

/// A download that the device does while the host goes on.
class PendingDownload {
  public:
    PendingDownload(Device& device, const PyBuffer& buffer, uint64_t offset, nb::handle out)
        : device_(device.shared_from_this()),
          bytes_(out, true),
          download_(device.downloads, buffer.buffer, offset, bytes_.data(), bytes_.size()) {
        within_limit(device, [&](uint64_t nanoseconds) { return download_.begin(nanoseconds); });
    }

    void finish() {
        within_limit(*device_, [&](uint64_t nanoseconds) { return download_.advance(nanoseconds); });
    }

  private:
    const std::shared_ptr<Device> device_;
    const HostBytes bytes_;
    Downloader::Download download_;
};

PendingDownload* begin_download(Device& device, const PyBuffer& buffer, uint64_t offset, nb::handle out) {
    require_same_device(device, buffer.device, "begin_download: the buffer");
    const uint64_t bytes = HostBytes(out, true).size();
    buffer.buffer->require_range(offset, bytes, "begin_download");
    if (bytes > Downloader::Download::most_at_once()) {
        throw std::invalid_argument("begin_download: " + std::to_string(bytes) + " bytes are more than are under way at once");
    }
    return std::make_unique<PendingDownload>(device, buffer, offset, out).release();
}

PyBuffer allocate(Device& device, uint64_t nbytes, uint32_t purpose, bool exported) {
    const auto made = [&] {
        const WithoutGil without_gil;
        return PyBuffer{device.shared_from_this(), device.allocate(nbytes, purpose, exported)};
    };
    device.logical.require_here();
    try {
        return made();
    } catch (const VulkanFailure& failure) {
        if (failure.result != VK_ERROR_OUT_OF_DEVICE_MEMORY) {
            throw;
        }
    }
    // Memory ran out, but dropped objects may give some back once the running work ends.
    wait_idle(device);
    return made();
}

/// Submits a list once its own previous submit is over.
void submit(CommandList& list, bool defer) {
    within_limit(*list.device(), [&](uint64_t nanoseconds) { return list.submit(defer, nanoseconds); });
}

bool wait(CommandList& list, std::optional<double> timeout) {
    const auto step = [&](uint64_t nanoseconds) { return list.wait(nanoseconds); };
    if (timeout.has_value()) {
        list.device()->logical.require_here();
        return in_slices(timeout, step);
    }
    within_limit(*list.device(), step);
    return true;
}

void set_wait_timeout(Device& device, std::optional<double> seconds) {
    if (seconds.has_value() && !(*seconds > 0.0)) {
        throw std::invalid_argument("wait_timeout must be a number of seconds above 0 or None");
    }
    device.wait_timeout = seconds.value_or(std::numeric_limits<double>::infinity());
}

nb::dict memory_dict(Device& device) {
    device.logical.require_here();
    const MemoryStatistics statistics = device.memory_statistics();
    nb::dict named;
    named["buffers"] = statistics.buffers;
    named["peak"] = statistics.peak;
    named["blocks"] = statistics.blocks;
    named["staging"] = statistics.staging;
    if (device.logical.features[Feature::memory_budget]) {
        named["budget"] = statistics.budget;
        named["usage"] = statistics.usage;
    }
    return named;
}

void dispatch(CommandList& list, const PyKernel& kernel, nb::sequence buffers, uint64_t writes,
              const std::optional<PyRange>& params, nb::bytes push,
              const std::tuple<uint64_t, uint64_t, uint64_t>& grid) {
    const Device& device = *list.device();
    device.logical.require_here();
    require_same_device(device, kernel.device, "dispatch: the kernel");
    DispatchArguments arguments;
    arguments.kernel = kernel.kernel;
    const std::vector<PyRange> ranges = values_of<PyRange>(buffers, "buffers: tuples of a buffer, its offset and bytes");
    arguments.buffers.reserve(ranges.size() + 1);
    for (const PyRange& range : ranges) {
        arguments.buffers.push_back(bound_range(device, range));
    }
    arguments.writes = writes;
    if (params.has_value()) {
        arguments.params = bound_range(device, *params);
    }
    arguments.push.assign(push.c_str(), push.size());
    arguments.grid = {std::get<0>(grid), std::get<1>(grid), std::get<2>(grid)};
    list.dispatch(std::move(arguments));
}

std::unique_ptr<PyLaunches> make_launches(Device& device, uint64_t alignment, nb::sequence given) {
    using Given = std::tuple<const PyKernel*, uint64_t, nb::sequence, bool>;
    auto made = std::make_unique<PyLaunches>();
    made->alignment = std::max<uint64_t>(alignment, 1);
    for (const auto& [kernel, writes, places, beside] :
         values_of<Given>(given, "launches: a kernel, what it writes, places, whether beside the previous one")) {
        if (kernel != nullptr) {
            require_same_device(device, kernel->device, "launches: a kernel");
        }
        PyLaunches::Launch launch{kernel == nullptr ? PyKernel{} : *kernel, writes, {}, beside};
        for (const auto& [resource, slot] : values_of<std::pair<size_t, size_t>>(places, "places: two numbers")) {
            launch.places.push_back({resource, slot});
        }
        if (kernel == nullptr && launch.places.size() != 2) {
            throw std::invalid_argument("launches: a copy has a source and a target");
        }
        made->launches.push_back(std::move(launch));
    }
    return made;
}

/// An item of a tuple or a list, which keeps it.
nb::handle item_of(nb::handle sequence, size_t index) {
    const bool is_tuple = PyTuple_Check(sequence.ptr());
    if (!is_tuple && !PyList_Check(sequence.ptr())) {
        throw nb::type_error("launch: takes tuples and lists");
    }
    if (index >= static_cast<size_t>(is_tuple ? PyTuple_Size(sequence.ptr()) : PyList_Size(sequence.ptr()))) {
        throw std::invalid_argument("launch: item " + std::to_string(index) + " is not there");
    }
    const auto place = static_cast<Py_ssize_t>(index);
    return is_tuple ? PyTuple_GetItem(sequence.ptr(), place) : PyList_GetItem(sequence.ptr(), place);
}

uint64_t number_of(nb::handle sequence, size_t index) {
    const nb::object whole = nb::steal(PyNumber_Index(item_of(sequence, index).ptr()));
    const uint64_t number = whole.is_valid() ? PyLong_AsUnsignedLongLong(whole.ptr()) : 0;
    if (PyErr_Occurred() != nullptr) {
        throw nb::python_error();
    }
    return number;
}

/// The bytes that a plan's range means. `buffers` holds the native buffers of Python's that were met so far.
BoundRange located(const Device& device, nb::handle resources, const PyLaunches::Place& place, nb::handle range,
                   std::vector<std::pair<PyObject*, const PyBuffer*>>& buffers) {
    const nb::handle resource = item_of(resources, place.resource);
    const bool is_alone = place.resource == 2 || place.resource == 3;  // the temporary and the persistent resource
    const nb::handle whole = is_alone ? resource : item_of(resource, place.slot);
    if (whole.is_none()) {
        throw std::invalid_argument("launch: the plan uses a resource where nothing is bound");
    }
    const nb::handle buffer = item_of(whole, 0);
    auto known = std::find_if(buffers.begin(), buffers.end(), [&](const auto& entry) { return entry.first == buffer.ptr(); });
    if (known == buffers.end()) {
        const nb::object native = buffer.attr("native");
        const PyBuffer& found = nb::cast<const PyBuffer&>(native);  // lives as long as the Python object, which holds it
        require_same_device(device, found.device, "launch: a bound buffer");
        known = buffers.insert(known, {buffer.ptr(), &found});
    }
    const uint64_t start = number_of(range, 2);
    const uint64_t bytes = number_of(whole, 2);
    const uint64_t length = number_of(range, 3);
    if (start > bytes || length > bytes - start) {
        throw std::invalid_argument("launch: bytes " + std::to_string(start) + " + " + std::to_string(length) +
                                    " leave a resource of " + std::to_string(bytes));
    }
    return {known->second->buffer, number_of(whole, 1) + start, length == 0 ? bytes - start : length};
}

nb::tuple launch(CommandList& list, const PyLaunches& launches, nb::object order, nb::object values, nb::object blocks,
                 nb::object resources) {
    const Device& device = *list.device();
    device.logical.require_here();
    std::vector<std::pair<PyObject*, const PyBuffer*>> buffers;
    nb::list left_out;
    bool has_previous = false;  // A command of this call: what was recorded before it is beside nothing here.
    for (size_t index = 0; index < nb::len(values); index++) {
        const PyLaunches::Launch& own = launches.launches.at(order.is_none() ? index : number_of(order, index));
        const nb::handle value = item_of(values, index);
        const nb::handle ranges = item_of(value, 2);
        const auto range = [&](size_t binding) {
            return located(device, resources, own.places[binding], item_of(ranges, binding), buffers);
        };
        if (own.kernel.kernel == nullptr) {
            const BoundRange source = range(0), target = range(1);
            if (source.bytes != target.bytes) {
                throw std::invalid_argument("launch: the ranges of a copy differ in length");
            }
            if (source.buffer == target.buffer && source.offset == target.offset) {
                left_out.append(index);
            } else {
                list.copy(source.buffer, source.offset, target.buffer, target.offset, source.bytes);
                has_previous = true;
            }
            continue;
        }
        DispatchArguments arguments;
        arguments.kernel = own.kernel.kernel;
        arguments.writes = own.writes;
        arguments.beside_previous = own.beside_previous && has_previous;
        has_previous = true;
        arguments.buffers.reserve(own.places.size() + 1);
        const bool has_offsets = own.kernel.kernel->push_bytes > 0;
        arguments.push.reserve(has_offsets ? 4 * own.places.size() : 0);
        for (size_t binding = 0; binding < own.places.size(); binding++) {
            BoundRange bound = range(binding);
            const uint64_t remainder = bound.offset % launches.alignment;
            bound.offset -= remainder;
            bound.bytes += remainder;
            arguments.buffers.push_back(std::move(bound));
            if (!has_offsets && remainder != 0) {
                throw std::logic_error("launch: storage buffer " + std::to_string(binding) + " starts " +
                                       std::to_string(remainder) + " bytes behind what is bound");
            }
            for (int shift = 0; has_offsets && shift < 32; shift += 8) {
                arguments.push.push_back(static_cast<char>(remainder >> shift & 0xff));
            }
        }
        const nb::handle block = item_of(blocks, index);
        if (!block.is_none()) {
            const auto& native = nb::cast<const PyBuffer&>(item_of(block, 0));
            arguments.params = bound_range(device, {&native, number_of(block, 1), number_of(block, 2)});
        }
        const nb::handle grid = item_of(value, 1);
        arguments.grid = {number_of(grid, 0), number_of(grid, 1), number_of(grid, 2)};
        list.dispatch(std::move(arguments));
    }
    return nb::tuple(left_out);
}

PyRun prepared_run(Device& device, nb::sequence feeds, nb::sequence commands, nb::sequence results) {
    const auto shared = device.shared_from_this();
    std::vector<BoundRange> inputs;
    for (const PyRange& range : values_of<PyRange>(feeds, "feeds: tuples of a buffer, its offset and bytes")) {
        inputs.push_back(bound_range(device, range));
    }
    std::vector<PreparedRun::Result> outputs;
    for (const nb::object& result : values_of<nb::object>(results, "results: tuples as feeds, or bytes")) {
        if (nb::isinstance<nb::bytes>(result)) {
            const auto known = nb::cast<nb::bytes>(result);
            outputs.push_back({{}, std::string(known.c_str(), known.size())});
        } else {
            outputs.push_back({bound_range(device, nb::cast<PyRange>(result)), {}});
        }
    }
    std::vector<std::shared_ptr<CommandList>> lists;
    for (const nb::object& list : values_of<nb::object>(commands, "commands: lists")) {
        lists.push_back(nb::cast<std::shared_ptr<CommandList>>(list));
        require_same_device(device, lists.back()->device(), "prepared_run: a list");
    }
    return {std::make_shared<PreparedRun>(shared, std::move(inputs), std::move(lists), std::move(outputs))};
}

/// The contiguous memory of a run's inputs or outputs, `bytes(index)` each, which `held` holds.
template <typename Bytes>
std::vector<Place> places_of(nb::sequence given, bool writable, size_t count, Bytes&& bytes, std::deque<HostBytes>& held) {
    std::vector<Place> found;
    if (nb::len(given) != count) {
        throw std::invalid_argument(std::string("run: there must be ") + std::to_string(count) +
                                    (writable ? " outputs" : " inputs"));
    }
    for (size_t index = 0; index < count; index++) {
        const HostBytes& memory = held.emplace_back(nb::object(given[index]), writable);
        if (memory.size() != bytes(index)) {
            throw std::invalid_argument(std::string("run: ") + (writable ? "output " : "input ") + std::to_string(index) +
                                        " must have " + std::to_string(bytes(index)) + " bytes");
        }
        found.push_back({memory.data(), nullptr, 0});
    }
    return found;
}

std::vector<Place> inputs_of(const PreparedRun& run, nb::sequence given, std::deque<HostBytes>& held) {
    run.require_open();
    return places_of(given, false, run.feed_count(), [&](size_t index) { return run.feed_bytes(index); }, held);
}

void run_prepared(const PyRun& self, nb::sequence inputs, nb::sequence outputs) {
    std::deque<HostBytes> held;  // As long as the run takes.
    PreparedRun& run = *self.run;
    const std::vector<Place> from = inputs_of(run, inputs, held);
    const std::vector<Place> to =
        places_of(outputs, true, run.result_count(), [&](size_t index) { return run.result_bytes(index); }, held);
    const WithoutGil without_gil;
    run.run(from.data(), to.data());
}

bool start_prepared(const PyRun& self, nb::sequence inputs) {
    std::deque<HostBytes> held;  // As long as the start takes.
    const std::vector<Place> from = inputs_of(*self.run, inputs, held);
    const WithoutGil without_gil;
    return self.run->start(from.data());
}

void take_result(const PyRun& self, size_t index, uint64_t offset, nb::handle out) {
    const HostBytes bytes(out, true);
    const WithoutGil without_gil;
    self.run->take(index, offset, bytes.data(), bytes.size());
}

void copy(CommandList& list, const PyBuffer& source, uint64_t source_offset, const PyBuffer& target,
          uint64_t target_offset, uint64_t nbytes) {
    list.device()->logical.require_here();
    require_same_device(*list.device(), source.device, "copy: the source");
    require_same_device(*list.device(), target.device, "copy: the target");
    list.copy(source.buffer, source_offset, target.buffer, target_offset, nbytes);
}

void fill(CommandList& list, const PyBuffer& target, uint64_t offset, uint64_t nbytes, uint32_t word) {
    list.device()->logical.require_here();
    require_same_device(*list.device(), target.device, "fill: the target");
    list.fill(target.buffer, offset, nbytes, word);
}

/// Raises what dmlvk.spec.errors makes of a failure.
void translate_failure(const std::exception_ptr& thrown, void*) {
    const auto raise = [](const nb::object& error) { PyErr_SetObject(error.type().ptr(), error.ptr()); };
    try {
        std::rethrow_exception(thrown);
    } catch (const VulkanFailure& failure) {
        raise(nb::module_::import_("dmlvk.spec.errors")
                  .attr("vulkan_error")(static_cast<int>(failure.result), failure.call, failure.detail));
    } catch (const NoDevice& failure) {
        raise(nb::module_::import_("dmlvk.spec.errors").attr("NoDeviceError")(failure.what()));
    } catch (const WrongState& failure) {
        raise(nb::module_::import_("dmlvk.spec.errors").attr("StateError")(failure.what()));
    } catch (const WaitTimeout& failure) {
        raise(nb::module_::import_("dmlvk.spec.errors").attr("WaitTimeoutError")(failure.seconds));
    } catch (const std::system_error& failure) {
        raise(nb::handle(PyExc_OSError)(failure.code().value(), failure.what()));
    }
}

// ---- for other native modules

/// Raises what a call through the door threw.
void raise_thrown(const std::exception_ptr& thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (nb::python_error& error) {
        error.restore();
    } catch (const std::invalid_argument& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (...) {
        try {
            translate_failure(std::current_exception(), nullptr);
        } catch (const std::exception& error) {
            PyErr_SetString(PyExc_RuntimeError, error.what());
        }
    }
}

PyObject* buffer_object(const HeldObject& held) {
    return nb::cast(PyBuffer{held.device, held.buffer}).release().ptr();
}

bool hold(PyObject* object, HeldObject& held) {
    const nb::handle given(object);
    if (nb::isinstance<Device>(given)) {
        held.device = nb::cast<std::shared_ptr<Device>>(given);
    } else if (nb::isinstance<PyBuffer>(given)) {
        const auto& buffer = nb::cast<const PyBuffer&>(given);
        held.device = buffer.device;
        held.buffer = buffer.buffer;
    } else if (nb::isinstance<PyRun>(given)) {
        held.run = nb::cast<const PyRun&>(given).run;
    } else {
        return false;
    }
    return true;
}

nb::capsule door_capsule() {
    return nb::capsule(&door(&raise_thrown, &buffer_object, &hold), kDoorName);
}

void bind_physical_device(nb::module_& module) {
    nb::class_<PhysicalDevice>(module, "PhysicalDevice")
        .def_ro("index", &PhysicalDevice::index)
        .def_ro("name", &PhysicalDevice::name)
        .def_ro("uuid", &PhysicalDevice::uuid)
        .def_ro("driver", &PhysicalDevice::driver)
        .def_ro("driver_version", &PhysicalDevice::driver_version)
        .def_ro("vendor_id", &PhysicalDevice::vendor_id)
        .def_ro("device_id", &PhysicalDevice::device_id)
        .def_ro("type", &PhysicalDevice::type)
        .def_prop_ro("api_version",
                     [](const PhysicalDevice& self) {
                         return nb::make_tuple(VK_API_VERSION_MAJOR(self.api_version),
                                               VK_API_VERSION_MINOR(self.api_version),
                                               VK_API_VERSION_PATCH(self.api_version));
                     })
        .def_ro("memory_bytes", &PhysicalDevice::memory_bytes)
        .def_prop_ro("features", [](const PhysicalDevice& self) { return feature_dict(self.features); })
        .def_ro("has_portable_reductions", &PhysicalDevice::has_portable_reductions)
        .def_prop_ro("limits", &limit_dict)
        .def_prop_ro("cooperative_matrices", &cooperative_matrix_list);

    nb::list names;
    for (const char* name : kFeatureNames) {
        names.append(name);
    }
    module.attr("FEATURE_NAMES") = nb::tuple(names);
    module.def("physical_devices", [] {
        const std::vector<PhysicalDevice>* devices = nullptr;
        {
            const WithoutGil without_gil;
            devices = &physical_devices();
        }
        nb::list list;
        for (const PhysicalDevice& device : *devices) {
            list.append(nb::cast(&device, nb::rv_policy::reference));
        }
        return list;
    });
    module.def("validation_messages", &validation_messages, "clear"_a = true);
}

void bind_device(nb::module_& module) {
    nb::class_<Device>(module, "Device", nb::is_weak_referenceable())
        .def(nb::new_([](uint32_t index, nb::sequence disable, nb::str pipeline_cache) {
                 const std::vector<std::string> disabled = texts_of(disable, "disable: names");
                 const std::string cache_path = text_of(pipeline_cache);
                 const WithoutGil without_gil;
                 return Device::open(index, disabled, cache_path);
             }),
             "index"_a, nb::kw_only(), "disable"_a = nb::make_tuple(), "pipeline_cache"_a = "")
        .def_prop_ro(
            "physical", [](const Device& self) { return &self.logical.physical; }, nb::rv_policy::reference)
        .def_prop_ro("features", [](const Device& self) { return feature_dict(self.logical.features); })
        .def_prop_ro("pipelines_created", [](const Device& self) { return self.pipelines_created.load(); })
        .def_prop_ro("submissions", [](const Device& self) { return self.queue.submissions(); })
        .def_prop_ro("dispatches", [](const Device& self) { return self.dispatches.load(); })
        .def_prop_ro("uploads", [](const Device& self) { return self.uploads.count(); })
        .def_prop_ro("downloads", [](const Device& self) { return self.downloads.count(); })
        .def_prop_ro("lost", [](const Device& self) { return self.logical.lost(); })
        .def_prop_ro("left_behind", [](const Device& self) { return self.logical.is_left_behind(); })
        .def("require_alive", [](const Device& self) { self.logical.require_alive(); })
        .def_prop_rw(
            "wait_timeout",
            [](const Device& self) {
                const double limit = self.wait_timeout;
                return std::isinf(limit) ? std::nullopt : std::optional<double>(limit);
            },
            &set_wait_timeout,
            nb::for_setter(nb::arg("seconds").none()))
        .def("allocate", &allocate, "nbytes"_a, "purpose"_a = 0, "exported"_a = false)
        .def("shared_timeline", [](Device& self) {
            self.logical.require_here();
            return PyTimeline{self.shared_from_this(), &self.new_timeline()};
        })
        .def("kernel", &make_kernel, "spirv"_a, nb::kw_only(), "name"_a, "storage_buffers"_a, "has_params"_a,
             "push_bytes"_a, "constants"_a = nb::make_tuple(), "subgroup_size"_a = 0, "inspected"_a = false)
        .def("upload", &upload, "buffer"_a, "offset"_a, "data"_a)
        .def("download", &download, "buffer"_a, "offset"_a, "out"_a)
        .def_prop_ro("most_pending_bytes", [](const Device&) { return Downloader::Download::most_at_once(); })
        .def("begin_download", &begin_download, "buffer"_a, "offset"_a, "out"_a, nb::rv_policy::take_ownership)
        .def(
            "launches",
            [](Device& self, uint64_t alignment, nb::sequence given) {
                return make_launches(self, alignment, given).release();
            },
            "alignment"_a, "launches"_a, nb::rv_policy::take_ownership)
        .def(
            "command_list",
            [](Device& self, bool timestamps) {
                return std::make_shared<CommandList>(self.shared_from_this(), timestamps);
            },
            nb::kw_only(), "timestamps"_a = false)
        .def("prepared_run", &prepared_run, "feeds"_a, "commands"_a, "results"_a)
        .def("flush", [](Device& self) {
            self.logical.require_here();
            const WithoutGil without_gil;
            self.queue.flush();
        })
        .def("wait_idle", &wait_idle)
        .def("memory", &memory_dict)
        .def("live_bytes", [](const Device& self, uint32_t purpose) { return self.memory.live(purpose); }, "purpose"_a)
        .def("reset_peak", [](Device& self, uint64_t at_least) { self.memory.reset_peak(at_least); }, "at_least"_a = 0)
        .def("save_pipeline_cache", [](Device& self) {
            self.logical.require_here();
            const WithoutGil without_gil;
            self.pipeline_cache.save();
        });
}

void bind_objects(nb::module_& module) {
    nb::class_<PyTimeline>(module, "SharedTimeline")
        .def("export_semaphore", [](const PyTimeline& self) {
            self.device->logical.require_here();
            return self.timeline->export_semaphore();
        })
        .def("signal", [](const PyTimeline& self, uint64_t value) {
            self.device->logical.require_here();
            const WithoutGil without_gil;
            self.device->queue.signal(self.timeline->handle, value);
        }, "value"_a)
        .def("wait", [](const PyTimeline& self, uint64_t value) {
            self.device->logical.require_here();
            const WithoutGil without_gil;
            self.device->queue.wait_for(self.timeline->handle, value);
        }, "value"_a);
    nb::class_<PendingDownload>(module, "PendingDownload").def("finish", &PendingDownload::finish);

    nb::class_<PyBuffer>(module, "Buffer", nb::is_weak_referenceable())
        .def_prop_ro("size", [](const PyBuffer& self) { return self.buffer->size; })
        .def("export_memory", [](const PyBuffer& self) {
            self.device->logical.require_here();
            return self.buffer->export_memory();
        })
        .def_prop_ro("device", [](const PyBuffer& self) { return self.device; });
    nb::class_<PyRun>(module, "PreparedRun", nb::is_weak_referenceable())
        .def_prop_ro("is_open", [](const PyRun& self) { return self.run->is_open(); })
        .def("run", &run_prepared, "inputs"_a, "outputs"_a)
        .def("start", &start_prepared, "inputs"_a)
        .def("take", &take_result, "index"_a, "offset"_a, "out"_a)
        .def("close", [](const PyRun& self) { self.run->close(); });
    module.def("door", &door_capsule);
    nb::class_<PyKernel>(module, "Kernel", nb::is_weak_referenceable())
        .def_prop_ro("name", [](const PyKernel& self) { return self.kernel->name; })
        .def("executables", &executables);
    nb::class_<PyLaunches>(module, "Launches", nb::is_weak_referenceable());
    nb::class_<CommandList>(module, "CommandList", nb::is_weak_referenceable())
        .def("dispatch", &dispatch, "kernel"_a, "buffers"_a, "writes"_a, "params"_a.none(), "push"_a, "grid"_a)
        .def("launch", &launch, "launches"_a, "order"_a.none(), "values"_a, "blocks"_a, "resources"_a)
        .def("copy", &copy, "source"_a, "source_offset"_a, "target"_a, "target_offset"_a, "nbytes"_a)
        .def("fill", &fill, "target"_a, "offset"_a, "nbytes"_a, "word"_a)
        .def("submit", &submit, nb::kw_only(), "defer"_a = false)
        .def("wait", &wait, "timeout"_a = nb::none())
        .def("timings", &CommandList::timings)
        .def("timestamp", &CommandList::timestamp)
        .def("timestamps", &CommandList::timestamps)
        .def_prop_ro("dispatch_count", &CommandList::dispatch_count)
        .def_prop_ro("barrier_count", &CommandList::barrier_count);
}

}  // namespace
}  // namespace dmlvk

NB_MODULE(_native, module) {
    // Objects that live in module globals are still there when Python ends; the process frees them.
    nb::set_leak_warnings(false);
    dmlvk::watch_interpreter_end();
    nb::register_exception_translator(dmlvk::translate_failure);
    dmlvk::bind_physical_device(module);
    dmlvk::bind_device(module);
    dmlvk::bind_objects(module);
}
