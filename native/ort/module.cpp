// The plug-in: ONNX Runtime loads this library as an execution provider, Python imports it as dmlvk.ort._plugin. It knows
// ONNX Runtime's interface and nothing of models: what a session takes, compiles and computes is Python's affair
// (src/dmlvk/ort/), which `serve` hands over.
//
// Whatever fails in Python, or here, becomes a status with its message; nothing is thrown past an exported function or one
// in a table. ONNX Runtime may call from any thread, with Python's lock or without; it may release what it has when the
// interpreter has ended, and then only memory of the process is left behind.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "../gil.h"
#include "graph.h"
#include "interface.h"
#include "memory.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace dmlvk::ort {
namespace {

constexpr const char* kVendor = "dmlvk";

/// What `serve` was given: never released, as the interpreter may be gone before the last session.
nb::object* server = nullptr;
std::string* provider_name = nullptr;
int (*has_gil)() = nullptr;

/// What our memory infos say of their vendor: no PCI number, lest another provider for the same GPU takes them for its own.
constexpr uint32_t kVendorId = 0x444D4C56;
constexpr uint64_t kKeptPart = 16;  // Of a device's memory: what may stay with us once it is freed.

// ---- errors

OrtStatus* status_of(const Interface& ort, int code, const std::string& message) {
    return ort.api.CreateStatus(code, message.c_str());
}

/// What is said where memory has run out: nothing is made of pieces here.
OrtStatus* out_of_memory(const Interface& ort) noexcept {
    return ort.api.CreateStatus(kFail, "MemoryError: dmlvk's provider has no memory");
}

/// The status for a Python exception: that of its kind, with its message.
OrtStatus* status_of(const Interface& ort, nb::python_error& error) {
    const int code = error.matches(PyExc_NotImplementedError) ? kNotImplemented
                     : error.matches(PyExc_ValueError)        ? kInvalidArgument
                                                              : kFail;
    std::string message = nb::cast<std::string>(nb::str(error.type().attr("__name__")));
    try {
        message += ": " + nb::cast<std::string>(nb::str(error.value()));
    } catch (const std::exception&) {
        message += ", whose message cannot be read";
    }
    if (error.matches(PyExc_KeyboardInterrupt)) {
        PyErr_SetInterrupt();  // Python hears of it again once ONNX Runtime has given the call back: nothing of it may run here.
    }
    return status_of(ort, code, message);
}

/// Runs a function that may throw; null where it does not. It has Python's lock.
template <typename Function>
OrtStatus* guarded(const Interface& ort, Function&& function) noexcept {
    try {
        const WithGil gil;
        if (!gil.is_held()) {
            return status_of(ort, kFail, "dmlvk: the Python interpreter has ended");
        }
        try {
            function();
            return nullptr;
        } catch (nb::python_error& error) {
            return status_of(ort, error);
        } catch (const OrtFailure& failure) {
            return failure.status;
        } catch (const std::bad_alloc&) {
            return out_of_memory(ort);
        } catch (const DoorFailure&) {
            behind->raise();
            nb::python_error error;
            return status_of(ort, error);
        } catch (const std::exception& error) {
            return status_of(ort, kFail, std::string("dmlvk: ") + error.what());
        }
    } catch (const std::bad_alloc&) {  // what an error says was being put together
        return out_of_memory(ort);
    } catch (...) {
        return ort.api.CreateStatus(kFail, "dmlvk: an error without a message");
    }
}

/// Runs a function that may throw but needs no Python; null where it does not.
template <typename Function>
OrtStatus* answered(const Interface& ort, Function&& function) noexcept {
    try {
        function();
        return nullptr;
    } catch (const OrtFailure& failure) {
        return failure.status;
    } catch (const DoorFailure&) {
        return guarded(ort, [] { throw DoorFailure{}; });
    } catch (const std::bad_alloc&) {
        return out_of_memory(ort);
    } catch (const std::exception& error) {
        return ort.api.CreateStatus(kFail, (std::string("dmlvk: ") + error.what()).c_str());
    } catch (...) {
        return ort.api.CreateStatus(kFail, "dmlvk: an error without a message");
    }
}

/// A mutex for its lifetime. Who has Python's lock lets go of it to wait: whoever has the mutex may want that.
class Turn {
  public:
    explicit Turn(std::mutex& mutex) : mutex_(mutex) {
        if (mutex_.try_lock()) {
            return;
        }
        if (Py_IsInitialized() && has_gil() != 0) {
            const WithoutGil without_gil;
            mutex_.lock();
        } else {
            mutex_.lock();
        }
    }
    ~Turn() { mutex_.unlock(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

  private:
    std::mutex& mutex_;
};

/// Gives a Python object back; where the interpreter has ended, nobody has use for it any more.
void released(nb::object& object) noexcept {
    const WithGil gil;
    if (gil.is_held()) {
        object.reset();
    } else {
        object.release();
    }
}

// ---- what Python sees

/// Bytes of ONNX Runtime's as a memoryview, without a copy.
nb::object view(const void* data, size_t bytes, bool writable) {
    static char nothing = 0;
    auto* start = const_cast<char*>(bytes == 0 ? &nothing : static_cast<const char*>(data));
    return nb::steal(PyMemoryView_FromMemory(start, static_cast<Py_ssize_t>(bytes), writable ? PyBUF_WRITE : PyBUF_READ));
}

/// A graph of ONNX Runtime's, for as long as the call that gave it.
class PyGraph {
  public:
    PyGraph(const Interface& ort, const OrtGraph* graph, GraphBytes bytes)
        : ort_(ort), graph_(graph), bytes_(std::move(bytes)) {}

    nb::bytes proto() const { return nb::bytes(bytes_.proto.data(), bytes_.proto.size()); }

    nb::dict weights() const {
        nb::dict found;
        for (const Weight& weight : bytes_.weights) {
            found[weight.name.c_str()] = view(weight.data, weight.bytes, false);
        }
        return found;
    }

    nb::dict opsets() const {
        nb::dict found;
        for (const auto& [domain, version] : bytes_.opsets) {
            found[domain.c_str()] = version;
        }
        return found;
    }

    int64_t format_version() const { return bytes_.format_version; }

    nb::object model_path() const {
        const PathChar* path = nullptr;
        check(ort_.api.Graph_GetModelPath(graph_, &path));
#ifdef _WIN32
        return nb::steal(PyUnicode_FromWideChar(path, -1));
#else
        return nb::steal(PyUnicode_DecodeFSDefault(path));
#endif
    }

    const std::vector<const OrtNode*>& nodes() const { return bytes_.nodes; }

    /// The node around this graph, as a graph by itself; None of the outermost.
    nb::object parent() const {
        std::optional<GraphBytes> around = node_around(ort_, graph_);
        if (!around.has_value()) {
            return nb::none();
        }
        return nb::cast(new PyGraph(ort_, graph_, std::move(*around)), nb::rv_policy::take_ownership);
    }

  private:
    const Interface& ort_;
    const OrtGraph* graph_;
    GraphBytes bytes_;
};

/// A tensor of ONNX Runtime's.
struct Tensor {
    int elements = 0;
    std::vector<int64_t> sizes;
    void* data = nullptr;
    size_t bytes = 0;
};

Tensor tensor_of(const Interface& ort, const OrtValue* value) {
    Tensor found;
    OrtTensorTypeAndShapeInfo* info = nullptr;
    check(ort.api.GetTensorTypeAndShape(value, &info));
    const std::unique_ptr<OrtTensorTypeAndShapeInfo, void(DMLVK_ORT_CALL*)(OrtTensorTypeAndShapeInfo*)> held(
        info, ort.api.ReleaseTensorTypeAndShapeInfo);
    size_t rank = 0;
    check(ort.api.GetTensorElementType(info, &found.elements));
    check(ort.api.GetDimensionsCount(info, &rank));
    found.sizes.resize(rank);
    if (rank > 0) {
        check(ort.api.GetDimensions(info, found.sizes.data(), rank));
    }
    check(ort.api.GetTensorMutableData(const_cast<OrtValue*>(value), &found.data));
    check(ort.api.GetTensorSizeInBytes(value, &found.bytes));
    return found;
}

/// Why this thread's last allocation of a device's memory failed, which ONNX Runtime does not ask for.
thread_local std::string no_memory;

/// Where tensors are: on the host, or in the memory of one of the devices. From any thread, without Python.
class Memories {
  public:
    DeviceMemory& of(const void* address) const {
        const uint32_t number = DeviceMemory::number_of(reinterpret_cast<uint64_t>(address));
        std::lock_guard<std::mutex> lock(mutex_);
        return *memories_.at(number);
    }

    Place place(void* data, uint64_t bytes) const {
        static char nothing = 0;
        if (bytes == 0) {
            return {&nothing, nullptr, 0};
        }
        if (data == nullptr) {
            throw std::runtime_error("a tensor of " + std::to_string(bytes) + " bytes has no memory: " +
                                     std::exchange(no_memory, "ONNX Runtime has given none"));
        }
        return DeviceMemory::is_ours(data) ? of(data).at(reinterpret_cast<uint64_t>(data), bytes) : Place{data, nullptr, 0};
    }

    /// A place that is about to be written.
    Place target(void* data, uint64_t bytes) const {
        if (bytes > 0 && DeviceMemory::is_ours(data)) {
            of(data).forget(reinterpret_cast<uint64_t>(data), bytes);
        }
        return place(data, bytes);
    }

    /// Copies a tensor's bytes to the host.
    void read(void* data, void* out, uint64_t bytes) const {
        const Place source = place(data, bytes);
        if (source.host != nullptr) {
            std::memcpy(out, source.host, bytes);
        } else if (!of(data).known(reinterpret_cast<uint64_t>(data), out, bytes)) {
            check(behind->download(source.buffer, source.offset, out, bytes));
        }
    }

    /// Copies bytes from one tensor to another, wherever they are.
    void copy(void* source_data, void* target_data, uint64_t bytes) const {
        if (bytes == 0) {
            return;
        }
        const Place to = target(target_data, bytes);
        if (to.host != nullptr) {
            read(source_data, to.host, bytes);
            return;
        }
        const Place from = place(source_data, bytes);
        if (from.host != nullptr) {
            check(behind->upload(to.buffer, to.offset, from.host, bytes));
            of(target_data).note(reinterpret_cast<uint64_t>(target_data), from.host, bytes);
        } else {
            check(behind->copy(from.buffer, from.offset, to.buffer, to.offset, bytes));
        }
    }

    /// The memory of the device with a UUID; made where there is none.
    DeviceMemory& add(const std::string& uuid, uint64_t most_kept) {
        std::lock_guard<std::mutex> lock(mutex_);
        for (const auto& memory : memories_) {
            if (memory->uuid == uuid) {
                return *memory;
            }
        }
        memories_.push_back(std::make_unique<DeviceMemory>(uuid, static_cast<uint32_t>(memories_.size()), most_kept));
        return *memories_.back();
    }

  private:
    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<DeviceMemory>> memories_;
};

/// The inputs and outputs of one run of a part, for as long as that lasts.
class PyRun {
  public:
    /// `device` is that of the part.
    PyRun(const Interface& ort, const Memories& memories, Held* device, OrtKernelContext* context)
        : ort_(ort), memories_(memories), device_(device), context_(context) {}
    PyRun(const PyRun&) = delete;
    PyRun& operator=(const PyRun&) = delete;

    /// To be called once Python has computed the outputs.
    void finish() {
        for (const auto& [bytes, data] : elsewhere_) {
            if (data != nullptr) {
                memories_.copy(bytes->data(), data, bytes->size());
            }
        }
    }

    void end() { context_ = nullptr; }

    /// ONNX's number of the element type, the sizes and the bytes, or a buffer of the part's device and an offset there.
    nb::tuple input(size_t index) {
        const OrtValue* value = nullptr;
        check(ort_.api.KernelContext_GetInput(context(), index, &value));
        if (value == nullptr) {
            throw std::runtime_error("input " + std::to_string(index) + " has no value");
        }
        const Tensor tensor = tensor_of(ort_, value);
        nb::list shape;
        for (const int64_t size : tensor.sizes) {
            shape.append(size);
        }
        return nb::make_tuple(tensor.elements, nb::tuple(shape), bytes_of(tensor, false));
    }

    /// How many bytes an output of these sizes has, and where they are to be written, as `input` says it.
    nb::tuple output(size_t index, nb::sequence shape) {
        std::vector<int64_t> sizes;
        for (nb::handle size : shape) {
            sizes.push_back(nb::cast<int64_t>(size));
        }
        OrtValue* value = nullptr;
        check(ort_.api.KernelContext_GetOutput(context(), index, sizes.data(), sizes.size(), &value));
        const Tensor tensor = tensor_of(ort_, value);
        return nb::make_tuple(tensor.bytes, bytes_of(tensor, true));
    }

  private:
    nb::object bytes_of(const Tensor& tensor, bool is_output) {
        const Place place = is_output ? memories_.target(tensor.data, tensor.bytes) : memories_.place(tensor.data, tensor.bytes);
        if (place.host != nullptr) {
            return view(place.host, tensor.bytes, is_output);
        }
        if (behind->is_of(place.buffer, device_)) {
            return nb::make_tuple(nb::steal(behind->buffer_object(place.buffer)), place.offset);
        }
        elsewhere_.emplace_back(std::make_unique<std::string>(tensor.bytes, '\0'), is_output ? tensor.data : nullptr);
        std::string& host = *elsewhere_.back().first;
        if (!is_output) {
            memories_.read(tensor.data, host.data(), tensor.bytes);
        }
        return view(host.data(), tensor.bytes, is_output);
    }

    OrtKernelContext* context() const {
        if (context_ == nullptr) {
            throw std::runtime_error("the run is over");
        }
        return context_;
    }

    const Interface& ort_;
    const Memories& memories_;
    Held* const device_;
    OrtKernelContext* context_;
    std::vector<std::pair<std::unique_ptr<std::string>, void*>> elsewhere_;  // Of tensors on other devices.
};

nb::dict dict_of(const Interface& ort, const OrtKeyValuePairs* pairs) {
    const char* const* keys = nullptr;
    const char* const* values = nullptr;
    size_t count = 0;
    ort.api.GetKeyValuePairs(pairs, &keys, &values, &count);
    nb::dict found;
    for (size_t index = 0; index < count; index++) {
        found[keys[index]] = nb::str(values[index]);
    }
    return found;
}

nb::list names_of(const Interface& ort, const OrtNode* node, bool of_outputs) {
    size_t count = 0;
    check(of_outputs ? ort.api.Node_GetNumOutputs(node, &count) : ort.api.Node_GetNumInputs(node, &count));
    std::vector<const OrtValueInfo*> items(count);
    if (count > 0) {
        check(of_outputs ? ort.api.Node_GetOutputs(node, items.data(), count)
                         : ort.api.Node_GetInputs(node, items.data(), count));
    }
    nb::list names;
    for (const OrtValueInfo* item : items) {
        const char* name = "";
        if (item != nullptr) {
            check(ort.api.GetValueInfoName(item, &name));
        }
        names.append(nb::str(name));
    }
    return names;
}

/// The node that stands for a part in a model that keeps what was compiled: `context` is what `compile` gave. ONNX Runtime
/// finds the part by `name`.
OrtNode* context_node(const Interface& ort, const char* name, nb::bytes context, bool is_embedded, nb::list inputs,
                      nb::list outputs) {
    const auto texts = [](nb::list names) {
        std::vector<std::string> found;
        for (nb::handle name : names) {
            found.push_back(nb::cast<std::string>(name));
        }
        return found;
    };
    const std::vector<std::string> given = texts(inputs), made = texts(outputs);
    const auto pointers = [](const std::vector<std::string>& names) {
        std::vector<const char*> found;
        for (const std::string& name : names) {
            found.push_back(name.c_str());
        }
        return found;
    };
    using Attribute = std::unique_ptr<OrtOpAttr, void(DMLVK_ORT_CALL*)(OrtOpAttr*)>;
    std::vector<Attribute> held;
    const auto attribute = [&](const char* called, const void* data, int length, int type) {
        OrtOpAttr* created = nullptr;
        check(ort.api.CreateOpAttr(called, data, length, type, &created));
        held.emplace_back(created, ort.api.ReleaseOpAttr);
    };
    const int64_t yes = 1, embedded = is_embedded ? 1 : 0;
    attribute("main_context", &yes, 1, kInt);
    attribute("embed_mode", &embedded, 1, kInt);
    attribute("ep_cache_context", context.c_str(), static_cast<int>(context.size()), kString);
    attribute("source", provider_name->c_str(), static_cast<int>(provider_name->size()), kString);
    std::vector<OrtOpAttr*> attributes;
    for (const Attribute& item : held) {
        attributes.push_back(item.get());
    }
    OrtNode* node = nullptr;
    check(ort.model_editor.CreateNode("EPContext", "com.microsoft", name, pointers(given).data(), given.size(),
                                      pointers(made).data(), made.size(), attributes.data(), attributes.size(), &node));
    for (Attribute& item : held) {
        item.release();  // they are the node's: ONNX Runtime frees them, whatever its header says of copies
    }
    return node;
}

// ---- what ONNX Runtime sees

/// Hands a session's kernels to ONNX Runtime's own trace.
struct Profiler : OrtEpProfilerImpl {
    using Clock = std::chrono::steady_clock;
    /// A kernel's name, the times of its start and end in seconds, and what there is to say of it.
    using Kernel = std::tuple<std::string, double, double, std::map<std::string, std::string>>;

    explicit Profiler(const Interface& ort_) : OrtEpProfilerImpl{}, ort(ort_) {
        ort_version_supported = ort.version;
        Release = [](OrtEpProfilerImpl* self) { delete static_cast<Profiler*>(self); };
        StartProfiling = [](OrtEpProfilerImpl* self, int64_t offset) -> OrtStatus* {
            Profiler& mine = *static_cast<Profiler*>(self);
            mine.start = Clock::now() - std::chrono::nanoseconds(offset);
            return nullptr;
        };
        // ONNX Runtime runs what an event is of in the thread that it tells of the event.
        StartEvent = [](OrtEpProfilerImpl* self, uint64_t) -> OrtStatus* {
            Profiler& mine = *static_cast<Profiler*>(self);
            return answered(mine.ort, [&] { listening.push_back(&mine); });
        };
        StopEvent = [](OrtEpProfilerImpl* self, uint64_t, const OrtProfilingEvent*) -> OrtStatus* {
            const auto found = std::find(listening.rbegin(), listening.rend(), static_cast<Profiler*>(self));
            if (found != listening.rend()) {
                listening.erase(found.base() - 1);
            }
            return nullptr;
        };
        EndProfiling = [](OrtEpProfilerImpl* self, OrtProfilingEventsContainer* container) -> OrtStatus* {
            Profiler& mine = *static_cast<Profiler*>(self);
            return answered(mine.ort, [&] { mine.hand_over(container); });
        };
    }

    /// Whether the events of this thread go to any profiler.
    static bool is_any() { return !listening.empty(); }

    /// Notes kernels that have just ended, whose times count from the first one's start, with all profilers of this thread.
    static void note(const std::vector<Kernel>& kernels) {
        double length = 0;
        for (const auto& kernel : kernels) {
            length = std::max(length, std::get<2>(kernel));
        }
        const Clock::time_point end = Clock::now();
        std::vector<Profiler*> noted;
        for (Profiler* profiler : listening) {
            if (std::find(noted.begin(), noted.end(), profiler) != noted.end()) {
                continue;
            }
            noted.push_back(profiler);
            std::lock_guard<std::mutex> lock(profiler->mutex);
            const double began = std::chrono::duration<double>(end - profiler->start).count() - length;
            for (const auto& [name, from, to, said] : kernels) {
                profiler->kernels.emplace_back(name, began + from, began + to, said);
            }
        }
    }

    void hand_over(OrtProfilingEventsContainer* container) {
        std::lock_guard<std::mutex> lock(mutex);
        for (const auto& [name, from, to, said] : kernels) {
            std::vector<const char*> keys, values;
            for (const auto& [key, value] : said) {
                keys.push_back(key.c_str());
                values.push_back(value.c_str());
            }
            OrtProfilingEvent* event = nullptr;
            check(ort.ep.CreateProfilingEvent(kKernelEvent, -1, -1, name.c_str(), static_cast<int64_t>(from * 1e6),
                                              static_cast<int64_t>((to - from) * 1e6), keys.data(), values.data(), keys.size(),
                                              &event));
            const std::unique_ptr<OrtProfilingEvent, void(DMLVK_ORT_CALL*)(OrtProfilingEvent*)> held(
                event, ort.ep.ReleaseProfilingEvent);
            const OrtProfilingEvent* const one = event;
            check(ort.ep.ProfilingEventsContainer_AddEvents(container, &one, 1));
        }
        kernels.clear();
    }

    const Interface& ort;
    Clock::time_point start = Clock::now();
    std::mutex mutex;
    std::vector<Kernel> kernels;  // Guarded by it.
    static thread_local std::vector<Profiler*> listening;
};

thread_local std::vector<Profiler*> Profiler::listening;

/// A part of a session's model that has been compiled. Python prepares a run for sizes that are new; known ones are run
/// without it.
struct Part : OrtNodeComputeInfo {
    Part(const Interface& ort_, const Memories& memories_, nb::object part_)
        : OrtNodeComputeInfo{}, ort(ort_), memories(memories_), part(std::move(part_)) {
        ort_version_supported = ort.version;
        device = Holding(behind->hold(nb::object(part.attr("device")).ptr()));
        check(device.get() != nullptr);
        host_inputs = nb::cast<std::vector<size_t>>(part.attr("host_inputs"));
        CreateState = [](OrtNodeComputeInfo* self, OrtNodeComputeContext*, void** state) -> OrtStatus* {
            *state = self;
            return nullptr;
        };
        Compute = [](OrtNodeComputeInfo*, void* state, OrtKernelContext* context) -> OrtStatus* {
            Part& self = *static_cast<Part*>(state);
            return answered(self.ort, [&] { self.compute(context); });
        };
        ReleaseState = [](OrtNodeComputeInfo*, void*) {};
    }
    ~Part() {
        ready.clear();
        released(part);
    }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    /// A run for inputs of certain sizes, and of the bytes of those that the host must know.
    struct Ready {
        std::vector<std::vector<int64_t>> sizes;
        std::vector<std::string> known;
        Holding run;
        std::vector<std::tuple<size_t, uint64_t>> feeds;
        std::vector<std::tuple<size_t, std::vector<int64_t>, uint64_t>> results;
    };

    void compute(OrtKernelContext* context) {
        const Turn turn(mutex);
        const bool is_timed = Profiler::is_any();
        if (!is_driven && !is_timed) {
            size_t count = 0;
            check(ort.api.KernelContext_GetInputCount(context, &count));
            given.resize(count);
            for (size_t index = 0; index < count; index++) {
                const OrtValue* value = nullptr;
                check(ort.api.KernelContext_GetInput(context, index, &value));
                given[index] = value == nullptr ? Tensor{} : tensor_of(ort, value);
            }
            if (Ready* const found = prepared()) {
                run(*found, context);
                return;
            }
        }
        check(guarded(ort, [&] {
            nb::object run = nb::cast(new PyRun(ort, memories, device.get(), context), nb::rv_policy::take_ownership);
            struct Ending {
                PyRun* run;
                ~Ending() { run->end(); }
            } const ending{nb::cast<PyRun*>(run)};
            nb::object kernels = part.attr("compute")(run, is_timed);
            if (is_timed) {
                Profiler::note(nb::cast<std::vector<Profiler::Kernel>>(kernels));
            }
            ending.run->finish();
        }));
    }

    /// The run for what is given, made by Python where there is none; null where Python has to drive each run.
    Ready* prepared() {
        std::vector<std::string> known = known_bytes();
        ready.erase(std::remove_if(ready.begin(), ready.end(), [](const Ready& item) { return !behind->is_open(item.run.get()); }),
                    ready.end());
        const auto found = std::find_if(ready.begin(), ready.end(), [&](const Ready& item) {
            return item.known == known && std::equal(item.sizes.begin(), item.sizes.end(), given.begin(), given.end(),
                                                     [](const auto& sizes, const Tensor& tensor) { return sizes == tensor.sizes; });
        });
        if (found != ready.end()) {
            std::rotate(ready.begin(), found, found + 1);  // The last one used is the first.
            return &ready.front();
        }
        check(guarded(ort, [&] { prepare(std::move(known)); }));
        return is_driven ? nullptr : &ready.front();
    }

    std::vector<std::string> known_bytes() {
        std::vector<std::string> known;
        for (const size_t index : host_inputs) {
            const Tensor& tensor = given.at(index);
            known.emplace_back(tensor.bytes, '\0');
            memories.read(tensor.data, known.back().data(), tensor.bytes);
        }
        return known;
    }

    void prepare(std::vector<std::string> known) {
        nb::list sizes;
        nb::dict values;
        Ready made;
        for (const Tensor& tensor : given) {
            nb::list shape;
            for (const int64_t size : tensor.sizes) {
                shape.append(size);
            }
            sizes.append(nb::tuple(shape));
            made.sizes.push_back(tensor.sizes);
        }
        for (size_t index = 0; index < known.size(); index++) {
            const size_t at = host_inputs[index];
            values[nb::int_(at)] =
                nb::make_tuple(given[at].elements, view(known[index].data(), known[index].size(), false));
        }
        nb::object answer = part.attr("prepare")(sizes, values);
        if (answer.is_none()) {
            is_driven = true;
            return;
        }
        nb::tuple parts(answer);
        made.run = Holding(behind->hold(nb::object(parts[0]).ptr()));
        check(made.run.get() != nullptr);
        made.feeds = nb::cast<decltype(made.feeds)>(parts[1]);
        made.results = nb::cast<decltype(made.results)>(parts[2]);
        made.known = std::move(known);
        ready.insert(ready.begin(), std::move(made));
    }

    void run(const Ready& item, OrtKernelContext* context) {
        inputs.clear();
        outputs.clear();
        for (const auto& [index, bytes] : item.feeds) {
            require(given.at(index), bytes);
            inputs.push_back(memories.place(given[index].data, bytes));
        }
        for (const auto& [index, sizes, bytes] : item.results) {
            OrtValue* value = nullptr;
            check(ort.api.KernelContext_GetOutput(context, index, sizes.data(), sizes.size(), &value));
            const Tensor tensor = tensor_of(ort, value);
            require(tensor, bytes);
            outputs.push_back(memories.target(tensor.data, bytes));
        }
        check(behind->run(item.run.get(), inputs.data(), outputs.data()));
    }

    static void require(const Tensor& tensor, uint64_t bytes) {
        if (tensor.bytes != bytes) {
            throw std::runtime_error("ONNX Runtime has a tensor of " + std::to_string(tensor.bytes) + " bytes where " +
                                     std::to_string(bytes) + " are wanted");
        }
    }

    const Interface& ort;
    const Memories& memories;
    nb::object part;
    Holding device;
    std::mutex mutex;  // Guards what follows, and the part's runs.
    bool is_driven = false;
    std::vector<size_t> host_inputs;
    std::vector<Ready> ready;
    std::vector<Tensor> given;           // Kept, so that a run allocates little.
    std::vector<Place> inputs, outputs;  // The same.
};

/// The allocator of a device's memory.
struct Allocator : OrtAllocator {
    Allocator(const Interface& ort_, DeviceMemory& memory_, const OrtMemoryInfo* info_)
        : OrtAllocator{}, ort(ort_), memory(memory_), info(info_) {
        version = ort.version;
        Alloc = [](OrtAllocator* self, size_t bytes) -> void* {
            Allocator& mine = *static_cast<Allocator*>(self);
            void* made = nullptr;
            OrtStatus* failed = answered(mine.ort, [&] {
                if (bytes > 0) {
                    made = reinterpret_cast<void*>(mine.memory.allocate(bytes, [&](uint64_t whole) { return mine.buffer(whole); }));
                }
            });
            if (failed != nullptr) {  // Whoever uses the memory says that there is none, and why.
                no_memory = mine.ort.api.GetErrorMessage(failed);
                mine.ort.api.ReleaseStatus(failed);
            }
            return made;
        };
        Free = [](OrtAllocator* self, void* data) {
            if (data != nullptr) {
                static_cast<Allocator*>(self)->memory.free(reinterpret_cast<uint64_t>(data));
            }
        };
        Info = [](const OrtAllocator* self) { return static_cast<const Allocator*>(self)->info; };
    }

    Holding buffer(uint64_t bytes) {
        Holding made;
        check(guarded(ort, [&] {
            nb::object native = server->attr("allocate")(memory.uuid, bytes);
            made = Holding(behind->hold(native.ptr()));
            check(made.get() != nullptr);
        }));
        return made;
    }

    const Interface& ort;
    DeviceMemory& memory;
    const OrtMemoryInfo* const info;
};

/// Copies between the devices' memory and the host's.
struct DataTransfer : OrtDataTransferImpl {
    DataTransfer(const Interface& ort_, const Memories& memories_) : OrtDataTransferImpl{}, ort(ort_), memories(memories_) {
        ort_version_supported = ort.version;
        Release = [](OrtDataTransferImpl* self) { delete static_cast<DataTransfer*>(self); };
        CanCopy = [](const OrtDataTransferImpl* self, const OrtMemoryDevice* source, const OrtMemoryDevice* target) {
            const EpApi& ep = static_cast<const DataTransfer*>(self)->ort.ep;
            const auto is_ours = [&](const OrtMemoryDevice* device) {
                return ep.MemoryDevice_GetDeviceType(device) == kGpuMemory && ep.MemoryDevice_GetVendorId(device) == kVendorId;
            };
            const auto is_host = [&](const OrtMemoryDevice* device) {
                return ep.MemoryDevice_GetDeviceType(device) == kCpuMemory;
            };
            return (is_ours(source) && (is_ours(target) || is_host(target))) || (is_host(source) && is_ours(target));
        };
        CopyTensors = [](OrtDataTransferImpl* self, const OrtValue** sources, OrtValue** targets, OrtSyncStream**,
                         size_t count) -> OrtStatus* {
            DataTransfer& mine = *static_cast<DataTransfer*>(self);
            return answered(mine.ort, [&] {
                for (size_t index = 0; index < count; index++) {
                    void *source = nullptr, *target = nullptr;
                    size_t bytes = 0;
                    check(mine.ort.api.GetTensorMutableData(const_cast<OrtValue*>(sources[index]), &source));
                    check(mine.ort.api.GetTensorMutableData(targets[index], &target));
                    check(mine.ort.api.GetTensorSizeInBytes(sources[index], &bytes));
                    mine.memories.copy(source, target, bytes);
                }
            });
        };
    }

    const Interface& ort;
    const Memories& memories;
};

/// A session's provider: Python's object that chooses and compiles.
struct Provider : OrtEp {
    Provider(const Interface& ort_, const Memories& memories_, const OrtMemoryInfo* info_, nb::object session_)
        : OrtEp{}, ort(ort_), memories(memories_), info(info_), session(std::move(session_)) {
        ort_version_supported = ort.version;
        device = Holding(behind->hold(nb::object(session.attr("device")).ptr()));
        check(device.get() != nullptr);
        CreateProfiler = [](OrtEp* self, OrtEpProfilerImpl** made) -> OrtStatus* {
            Provider& mine = *static_cast<Provider*>(self);
            *made = nullptr;
            return answered(mine.ort, [&] { *made = new Profiler(mine.ort); });
        };
        Sync = [](OrtEp* self) -> OrtStatus* {
            Provider& mine = *static_cast<Provider*>(self);
            return answered(mine.ort, [&] { check(behind->settle(mine.device.get())); });
        };
        OnRunEnd = [](OrtEp* self, const OrtRunOptions*, bool) -> OrtStatus* {
            Provider& mine = *static_cast<Provider*>(self);
            return answered(mine.ort, [&] { check(behind->flush(mine.device.get())); });
        };
        GetDefaultMemoryDevice = [](const OrtEp* self, const OrtMemoryDevice** found) -> OrtStatus* {
            const Provider& mine = *static_cast<const Provider*>(self);
            *found = mine.info == nullptr ? nullptr : mine.ort.ep.MemoryInfo_GetMemoryDevice(mine.info);
            return nullptr;
        };
        GetName = [](const OrtEp*) -> const char* { return provider_name->c_str(); };
        GetCapability = [](OrtEp* self, const OrtGraph* graph, OrtEpGraphSupportInfo* info) -> OrtStatus* {
            Provider& mine = *static_cast<Provider*>(self);
            OrtStatus* failed = guarded(mine.ort, [&] { mine.choose(graph, info); });
            return failed == nullptr ? nullptr : guarded(mine.ort, [&] { mine.keep(failed, graph, info); });
        };
        Compile = [](OrtEp* self, const OrtGraph** graphs, const OrtNode** nodes, size_t count, OrtNodeComputeInfo** made,
                     OrtNode** contexts) -> OrtStatus* {
            Provider& mine = *static_cast<Provider*>(self);
            return guarded(mine.ort, [&] {
                check(std::exchange(mine.failure, nullptr));
                for (size_t index = 0; index < count; index++) {
                    nb::object graph = nb::cast(new PyGraph(mine.ort, graphs[index], graph_bytes(mine.ort, graphs[index])),
                                                nb::rv_policy::take_ownership);
                    const char* name = nullptr;
                    check(mine.ort.api.Node_GetName(nodes[index], &name));
                    nb::list inputs = names_of(mine.ort, nodes[index], false), outputs = names_of(mine.ort, nodes[index], true);
                    nb::tuple compiled = nb::tuple(mine.session.attr("compile")(graph, name, inputs, outputs));
                    made[index] = new Part(mine.ort, mine.memories, nb::object(compiled[0]));
                    if (!compiled[1].is_none()) {
                        nb::tuple context(compiled[1]);
                        contexts[index] = context_node(mine.ort, name, nb::cast<nb::bytes>(context[0]),
                                                       nb::cast<bool>(context[1]), inputs, outputs);
                    }
                }
            });
        };
        ReleaseNodeComputeInfos = [](OrtEp*, OrtNodeComputeInfo** infos, size_t count) {
            for (size_t index = 0; index < count; index++) {
                delete static_cast<Part*>(infos[index]);
                infos[index] = nullptr;  // where a session fails, ONNX Runtime releases them twice
            }
        };
    }
    ~Provider() {
        if (memory != nullptr) {
            memory->end_session();
        }
        OrtStatus* failed = guarded(ort, [&] { session.attr("close")(); });
        if (failed != nullptr) {  // There is nobody left to tell.
            ort.api.ReleaseStatus(failed);
        }
        if (failure != nullptr) {
            ort.api.ReleaseStatus(failure);
        }
        released(session);
    }
    Provider(const Provider&) = delete;
    Provider& operator=(const Provider&) = delete;

    void choose(const OrtGraph* graph, OrtEpGraphSupportInfo* info) {
        has_taken = false;
        auto* given = new PyGraph(ort, graph, graph_bytes(ort, graph));
        nb::object held = nb::cast(given, nb::rv_policy::take_ownership);
        const auto parts = nb::cast<std::vector<std::vector<size_t>>>(session.attr("choose")(held));
        const OrtNodeFusionOptions options{ort.version, true};
        for (const std::vector<size_t>& part : parts) {
            std::vector<const OrtNode*> nodes;
            for (const size_t index : part) {
                nodes.push_back(given->nodes().at(index));
            }
            check(ort.ep.EpGraphSupportInfo_AddNodesToFuse(info, nodes.data(), nodes.size(), &options));
            has_taken = true;
        }
    }

    /// Keeps why nodes could not be chosen for Compile, which is called once one is taken: ONNX Runtime takes an error of
    /// GetCapability for a provider that wants no node, and goes on.
    void keep(OrtStatus* failed, const OrtGraph* graph, OrtEpGraphSupportInfo* info) {
        if (failure != nullptr) {
            ort.api.ReleaseStatus(failure);
        }
        failure = failed;
        size_t count = 0;
        check(ort.api.Graph_GetNumNodes(graph, &count));
        std::vector<const OrtNode*> nodes(count);
        check(ort.api.Graph_GetNodes(graph, nodes.data(), count));
        if (count > 0 && !has_taken) {
            const OrtNodeFusionOptions options{ort.version, true};
            check(ort.ep.EpGraphSupportInfo_AddNodesToFuse(info, nodes.data(), 1, &options));
        }
    }

    const Interface& ort;
    const Memories& memories;
    const OrtMemoryInfo* const info;  // Of the session's device, if that is one of those that it was given.
    DeviceMemory* memory = nullptr;   // That one's, once the session has begun there.
    nb::object session;
    OrtStatus* failure = nullptr;
    bool has_taken = false;
    Holding device;
};

/// The provider's devices, and its sessions.
struct Factory : OrtEpFactory {
    explicit Factory(Interface ort_) : OrtEpFactory{}, ort(ort_) {
        ort_version_supported = ort.version;
        GetName = [](const OrtEpFactory*) -> const char* { return provider_name->c_str(); };
        GetVendor = [](const OrtEpFactory*) -> const char* { return kVendor; };
        GetVendorId = [](const OrtEpFactory*) -> uint32_t { return 0; };
        GetVersion = [](const OrtEpFactory*) -> const char* { return DMLVK_VERSION; };
        GetSupportedDevices = [](OrtEpFactory* self, const OrtHardwareDevice* const* devices, size_t count,
                                 OrtEpDevice** made, size_t most, size_t* number) -> OrtStatus* {
            Factory& mine = *static_cast<Factory*>(self);
            *number = 0;
            return guarded(mine.ort, [&] { *number = mine.devices(devices, count, made, most); });
        };
        CreateEp = [](OrtEpFactory* self, const OrtHardwareDevice* const*, const OrtKeyValuePairs* const* metadata, size_t count,
                      const OrtSessionOptions* options, const OrtLogger* logger, OrtEp** made) -> OrtStatus* {
            Factory& mine = *static_cast<Factory*>(self);
            *made = nullptr;
            return guarded(mine.ort, [&] { *made = mine.provider(metadata, count, options, logger); });
        };
        ReleaseEp = [](OrtEpFactory*, OrtEp* provider) { delete static_cast<Provider*>(provider); };
        CreateAllocator = [](OrtEpFactory* self, const OrtMemoryInfo* info, const OrtKeyValuePairs*,
                             OrtAllocator** made) -> OrtStatus* {
            Factory& mine = *static_cast<Factory*>(self);
            *made = nullptr;
            return answered(mine.ort, [&] {
                const uint32_t number = mine.ort.ep.MemoryDevice_GetDeviceId(mine.ort.ep.MemoryInfo_GetMemoryDevice(info));
                *made = new Allocator(mine.ort, *mine.memory_of.at(number), mine.infos.at(number).get());
            });
        };
        ReleaseAllocator = [](OrtEpFactory*, OrtAllocator* allocator) { delete static_cast<Allocator*>(allocator); };
        CreateDataTransfer = [](OrtEpFactory* self, OrtDataTransferImpl** made) -> OrtStatus* {
            Factory& mine = *static_cast<Factory*>(self);
            *made = nullptr;
            return answered(mine.ort, [&] { *made = new DataTransfer(mine.ort, mine.memories); });
        };
        IsStreamAware = [](const OrtEpFactory*) { return false; };
    }

    /// A device for each that Python knows, on ONNX Runtime's device for the same hardware, or on the processor.
    size_t devices(const OrtHardwareDevice* const* given, size_t count, OrtEpDevice** made, size_t most) {
        size_t number = 0;
        for (nb::handle item : server->attr("devices")()) {
            const auto [is_gpu, vendor, device, metadata] = nb::cast<std::tuple<bool, uint32_t, uint32_t, nb::dict>>(item);
            const OrtHardwareDevice* hardware = nullptr;
            for (size_t index = 0; index < count; index++) {
                const int type = ort.api.HardwareDevice_Type(given[index]);
                const bool is_same = is_gpu && type == kGpu && ort.api.HardwareDevice_VendorId(given[index]) == vendor &&
                                     ort.api.HardwareDevice_DeviceId(given[index]) == device;
                if (is_same || (type == kCpu && hardware == nullptr)) {
                    hardware = given[index];
                }
            }
            if (hardware == nullptr || number == most) {
                break;
            }
            OrtKeyValuePairs* pairs = nullptr;
            ort.api.CreateKeyValuePairs(&pairs);
            const std::unique_ptr<OrtKeyValuePairs, void(DMLVK_ORT_CALL*)(OrtKeyValuePairs*)> held(
                pairs, ort.api.ReleaseKeyValuePairs);
            for (auto [key, value] : metadata) {
                ort.api.AddKeyValuePair(pairs, nb::cast<std::string>(key).c_str(), nb::cast<std::string>(value).c_str());
            }
            check(ort.ep.CreateEpDevice(this, hardware, pairs, nullptr, &made[number]));
            number++;
            const auto uuid = nb::cast<std::string>(metadata["device_uuid"]);
            const auto bytes = std::stoull(nb::cast<std::string>(metadata["memory_bytes"]));
            check(ort.ep.EpDevice_AddAllocatorInfo(made[number - 1], info_of(uuid, bytes)));
        }
        return number;
    }

    /// What ONNX Runtime calls the memory of a device.
    const OrtMemoryInfo* info_of(const std::string& uuid, uint64_t bytes) {
        DeviceMemory& memory = memories.add(uuid, bytes / kKeptPart);
        if (memory.number == infos.size()) {
            OrtMemoryInfo* info = nullptr;
            check(ort.api.CreateMemoryInfo_V2(kVendor, kGpuMemory, kVendorId, static_cast<int32_t>(memory.number),
                                              kDefaultMemory, 0, kDeviceAllocator, &info));
            infos.emplace_back(info, ort.api.ReleaseMemoryInfo);
            memory_of.push_back(&memory);
        }
        return infos[memory.number].get();
    }

    OrtEp* provider(const OrtKeyValuePairs* const* metadata, size_t count, const OrtSessionOptions* options,
                    const OrtLogger* logger) {
        nb::list devices;
        for (size_t index = 0; index < count; index++) {
            devices.append(dict_of(ort, metadata[index]));
        }
        OrtKeyValuePairs* entries = nullptr;
        check(ort.api.GetSessionOptionsConfigEntries(options, &entries));
        const std::unique_ptr<OrtKeyValuePairs, void(DMLVK_ORT_CALL*)(OrtKeyValuePairs*)> held(
            entries, ort.api.ReleaseKeyValuePairs);
        // Only for the calls of the session's making: then its logger is there.
        const nb::object log = nb::cpp_function([this, logger](int level, const std::string& message) {
            static const PathChar file[] = {'d', 'm', 'l', 'v', 'k', 0};
            check(ort.api.Logger_LogMessage(logger, level, message.c_str(), file, 0, provider_name->c_str()));
        });
        nb::object session = server->attr("session")(devices, dict_of(ort, entries), log, nb::make_tuple(ort.version, ort.patch));
        const auto uuid = nb::cast<std::string>(session.attr("device_uuid"));
        const OrtMemoryInfo* info = nullptr;
        for (nb::handle device : devices) {
            if (nb::cast<std::string>(nb::cast<nb::dict>(device)["device_uuid"]) == uuid) {
                info = info_of(uuid, 0);
            }
        }
        auto made = std::make_unique<Provider>(ort, memories, info, std::move(session));
        if (info != nullptr) {
            DeviceMemory& memory = memories.add(uuid, 0);
            memory.begin_session(made->device.get());
            made->memory = &memory;
        }
        return made.release();
    }

    const Interface ort;
    Memories memories;
    std::vector<std::unique_ptr<OrtMemoryInfo, void(DMLVK_ORT_CALL*)(OrtMemoryInfo*)>> infos;
    std::vector<DeviceMemory*> memory_of;  // By the number in each of those.
};

}  // namespace
}  // namespace dmlvk::ort

#ifdef _WIN32
#define DMLVK_EXPORT extern "C" __declspec(dllexport)
#else
#define DMLVK_EXPORT extern "C" __attribute__((visibility("default")))
#endif

DMLVK_EXPORT dmlvk::ort::OrtStatus* CreateEpFactories(const char*, const dmlvk::ort::OrtApiBase* base,
                                                      const dmlvk::ort::OrtLogger*, dmlvk::ort::OrtEpFactory** factories,
                                                      size_t most, size_t* number) noexcept {
    using namespace dmlvk::ort;
    *number = 0;
    const auto refused = [&](const std::string& message) -> OrtStatus* {
        // Slot 0 of every version there has been makes a status.
        const void* api = base->GetApi(1);
        using CreateStatus = OrtStatus*(DMLVK_ORT_CALL*)(int, const char*);
        return api == nullptr ? nullptr : reinterpret_cast<CreateStatus>(*static_cast<void* const*>(api))(kFail, message.c_str());
    };
    try {
        if (server == nullptr) {
            return refused("dmlvk's provider runs in Python: import dmlvk.ort before its library is registered");
        }
        if (most < 1) {
            return refused("dmlvk's provider has one factory, and ONNX Runtime has room for none");
        }
        factories[0] = new Factory(negotiated(base));
        *number = 1;
        return nullptr;
    } catch (const std::exception& error) {
        return refused(error.what());
    }
}

DMLVK_EXPORT dmlvk::ort::OrtStatus* ReleaseEpFactory(dmlvk::ort::OrtEpFactory* factory) noexcept {
    delete static_cast<dmlvk::ort::Factory*>(factory);
    return nullptr;
}

NB_MODULE(_plugin, module) {
    using namespace dmlvk::ort;
    nb::set_leak_warnings(false);
    dmlvk::watch_interpreter_end();
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const OrtFailure&) {
            PyErr_SetString(PyExc_RuntimeError, "ONNX Runtime refused a call of its own interface");
        }
    });
    module.attr("OLDEST") = kOldest;
    nb::class_<PyGraph>(module, "Graph")
        .def_prop_ro("proto", &PyGraph::proto)
        .def_prop_ro("weights", &PyGraph::weights)
        .def_prop_ro("opsets", &PyGraph::opsets)
        .def_prop_ro("format_version", &PyGraph::format_version)
        .def_prop_ro("model_path", &PyGraph::model_path)
        .def("parent", &PyGraph::parent);
    nb::class_<PyRun>(module, "Run")
        .def("input", &PyRun::input, "index"_a)
        .def("output", &PyRun::output, "index"_a, "shape"_a);
    module.def("serve", [](nb::str name, nb::object given, nb::capsule door, nb::object gil_check) {
        if (server == nullptr) {
            behind = static_cast<const dmlvk::Door*>(PyCapsule_GetPointer(door.ptr(), dmlvk::kDoorName));
            if (behind == nullptr) {
                throw nb::python_error();
            }
            has_gil = reinterpret_cast<int (*)()>(nb::cast<uintptr_t>(gil_check));
            provider_name = new std::string(name.c_str());
            server = new nb::object(std::move(given));
        }
    }, "name"_a, "server"_a, "door"_a, "gil_check"_a);
}
