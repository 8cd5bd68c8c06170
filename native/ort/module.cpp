// The plug-in: ONNX Runtime loads this library as an execution provider, Python imports it as dmlvk.ort._plugin. It knows
// ONNX Runtime's interface and nothing of models: what a session takes, compiles and computes is Python's affair
// (src/dmlvk/ort/), which `serve` hands over.
//
// Whatever fails in Python, or here, becomes a status with its message; nothing is thrown past an exported function or one
// in a table. ONNX Runtime may call from any thread, with Python's lock or without; it may release what it has when the
// interpreter has ended, and then only memory of the process is left behind.
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "../gil.h"
#include "graph.h"
#include "interface.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace dmlvk::ort {
namespace {

constexpr const char* kVendor = "dmlvk";

/// What `serve` was given: never released, as the interpreter may be gone before the last session.
nb::object* server = nullptr;
std::string* provider_name = nullptr;

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
    if (error.matches(PyExc_KeyboardInterrupt)) {
        PyErr_SetInterrupt();  // Python hears of it again once ONNX Runtime has given the call back.
    }
    const int code = error.matches(PyExc_NotImplementedError) ? kNotImplemented
                     : error.matches(PyExc_ValueError)        ? kInvalidArgument
                                                              : kFail;
    std::string message = nb::cast<std::string>(nb::str(error.type().attr("__name__")));
    try {
        message += ": " + nb::cast<std::string>(nb::str(error.value()));
    } catch (const std::exception&) {
        message += ", whose message cannot be read";
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
        } catch (const std::exception& error) {
            return status_of(ort, kFail, std::string("dmlvk: ") + error.what());
        }
    } catch (const std::bad_alloc&) {  // what an error says was being put together
        return out_of_memory(ort);
    } catch (...) {
        return ort.api.CreateStatus(kFail, "dmlvk: an error without a message");
    }
}

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

/// The inputs and outputs of one run of a part, for as long as that lasts.
class PyRun {
  public:
    PyRun(const Interface& ort, OrtKernelContext* context) : ort_(ort), context_(context) {}

    void end() { context_ = nullptr; }

    /// ONNX's number of the element type, the sizes and the bytes.
    nb::tuple input(size_t index) const {
        const OrtValue* value = nullptr;
        check(ort_.api.KernelContext_GetInput(context(), index, &value));
        if (value == nullptr) {
            throw std::runtime_error("input " + std::to_string(index) + " has no value");
        }
        OrtTensorTypeAndShapeInfo* info = nullptr;
        check(ort_.api.GetTensorTypeAndShape(value, &info));
        const std::unique_ptr<OrtTensorTypeAndShapeInfo, void(DMLVK_ORT_CALL*)(OrtTensorTypeAndShapeInfo*)> held(
            info, ort_.api.ReleaseTensorTypeAndShapeInfo);
        int elements = 0;
        size_t rank = 0;
        check(ort_.api.GetTensorElementType(info, &elements));
        check(ort_.api.GetDimensionsCount(info, &rank));
        std::vector<int64_t> sizes(rank);
        if (rank > 0) {
            check(ort_.api.GetDimensions(info, sizes.data(), rank));
        }
        void* data = nullptr;
        size_t bytes = 0;
        check(ort_.api.GetTensorMutableData(const_cast<OrtValue*>(value), &data));
        check(ort_.api.GetTensorSizeInBytes(value, &bytes));
        nb::list shape;
        for (const int64_t size : sizes) {
            shape.append(size);
        }
        return nb::make_tuple(elements, nb::tuple(shape), view(data, bytes, false));
    }

    /// The bytes of an output of these sizes.
    nb::object output(size_t index, nb::sequence shape) const {
        std::vector<int64_t> sizes;
        for (nb::handle size : shape) {
            sizes.push_back(nb::cast<int64_t>(size));
        }
        OrtValue* value = nullptr;
        check(ort_.api.KernelContext_GetOutput(context(), index, sizes.data(), sizes.size(), &value));
        void* data = nullptr;
        size_t bytes = 0;
        check(ort_.api.GetTensorMutableData(value, &data));
        check(ort_.api.GetTensorSizeInBytes(value, &bytes));
        return view(data, bytes, true);
    }

  private:
    OrtKernelContext* context() const {
        if (context_ == nullptr) {
            throw std::runtime_error("the run is over");
        }
        return context_;
    }

    const Interface& ort_;
    OrtKernelContext* context_;
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

/// The node that stands for a part in a model that keeps what was compiled: `context` are bytes that `compile` reads.
OrtNode* context_node(const Interface& ort, const OrtNode* part, nb::bytes context, nb::list inputs, nb::list outputs) {
    const char* name = nullptr;  // by which ONNX Runtime finds the part that the node stands for
    check(ort.api.Node_GetName(part, &name));
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
    const int64_t yes = 1;
    attribute("main_context", &yes, 1, kInt);
    attribute("embed_mode", &yes, 1, kInt);
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

/// A part of a session's model that has been compiled: Python's function that computes it.
struct Part : OrtNodeComputeInfo {
    Part(const Interface& ort_, nb::object compute_) : OrtNodeComputeInfo{}, ort(ort_), compute(std::move(compute_)) {
        ort_version_supported = ort.version;
        CreateState = [](OrtNodeComputeInfo* self, OrtNodeComputeContext*, void** state) -> OrtStatus* {
            *state = self;
            return nullptr;
        };
        Compute = [](OrtNodeComputeInfo*, void* state, OrtKernelContext* context) -> OrtStatus* {
            Part& self = *static_cast<Part*>(state);
            return guarded(self.ort, [&] {
                nb::object run = nb::cast(new PyRun(self.ort, context), nb::rv_policy::take_ownership);
                struct Ending {
                    PyRun* run;
                    ~Ending() { run->end(); }
                } const ending{nb::cast<PyRun*>(run)};
                self.compute(run);
            });
        };
        ReleaseState = [](OrtNodeComputeInfo*, void*) {};
    }
    ~Part() { released(compute); }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    const Interface& ort;
    nb::object compute;
};

/// A session's provider: Python's object that chooses and compiles.
struct Provider : OrtEp {
    Provider(const Interface& ort_, nb::object session_) : OrtEp{}, ort(ort_), session(std::move(session_)) {
        ort_version_supported = ort.version;
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
                    nb::list inputs = names_of(mine.ort, nodes[index], false), outputs = names_of(mine.ort, nodes[index], true);
                    nb::tuple compiled = nb::tuple(mine.session.attr("compile")(graph, inputs, outputs));
                    made[index] = new Part(mine.ort, nb::object(compiled[0]));
                    if (!compiled[1].is_none()) {
                        contexts[index] = context_node(mine.ort, nodes[index], nb::cast<nb::bytes>(compiled[1]), inputs, outputs);
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
    nb::object session;
    OrtStatus* failure = nullptr;
    bool has_taken = false;
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
        CreateAllocator = [](OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*, OrtAllocator** made) -> OrtStatus* {
            *made = nullptr;  // the host's memory, as everyone's
            return nullptr;
        };
        ReleaseAllocator = [](OrtEpFactory*, OrtAllocator*) {};
        CreateDataTransfer = [](OrtEpFactory*, OrtDataTransferImpl** made) -> OrtStatus* {
            *made = nullptr;
            return nullptr;
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
        }
        return number;
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
        return new Provider(ort, server->attr("session")(devices, dict_of(ort, entries), log));
    }

    const Interface ort;
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
        .def("parent", &PyGraph::parent);
    nb::class_<PyRun>(module, "Run")
        .def("input", &PyRun::input, "index"_a)
        .def("output", &PyRun::output, "index"_a, "shape"_a);
    module.def("serve", [](nb::str name, nb::object given) {
        if (server == nullptr) {
            provider_name = new std::string(name.c_str());
            server = new nb::object(std::move(given));
        }
    }, "name"_a, "server"_a);
}
