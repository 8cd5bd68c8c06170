"""Every public name of ONNX Runtime's session interface, and what becomes of it here: THE table.

The page on ONNX Runtime's names is made of it, what is refused is built from it, log lines quote it, and a test holds it
against the installed package.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple


class Standing(enum.Enum):
    """What a name does here."""

    SAME = "same"
    ACCEPTED = "accepted without effect"
    REFUSED = "refused"


class Row(NamedTuple):
    """A name.

    Attributes:
        standing: What it does.
        note: The reason, or in which way it differs; "" where there is nothing to say.
    """

    standing: Standing
    note: str = ""


def _same(*names: str) -> dict[str, Row]:
    return dict.fromkeys(names, Row(Standing.SAME))


def _same_but(note: str, *names: str) -> dict[str, Row]:
    return dict.fromkeys(names, Row(Standing.SAME, note))


def _accepted(reason: str, *names: str) -> dict[str, Row]:
    return dict.fromkeys(names, Row(Standing.ACCEPTED, reason))


def _refused(reason: str, *names: str) -> dict[str, Row]:
    return dict.fromkeys(names, Row(Standing.REFUSED, reason))


_PLUG_INS: Final = "execution providers are libraries of ONNX Runtime; here the Vulkan device runs everything"
_PACKAGES: Final = "packages of compiled variants belong to ONNX Runtime's providers; give the ONNX file"
_MEMORY: Final = "dmlvk places the device's memory itself"
_SPARSE: Final = "no operator of the device takes sparse tensors"
_ADAPTERS: Final = "adapters are not supported; merge one into the model's weights"
_THREADS: Final = "the device runs the model, not threads of the host"
_LOGS: Final = "messages go through Python's logging, under dmlvk"

NAMES: Final[Mapping[str, Mapping[str, Row]]] = {
    "": {
        **_same(
            "ExecutionMode",
            "ExecutionOrder",
            "GraphOptimizationLevel",
            "IOBinding",
            "InferenceSession",
            "ModelMetadata",
            "OrtDevice",
            "OrtDeviceVendorId",
            "OrtValue",
            "RunOptions",
            "SessionOptions",
            "disable_telemetry_events",
            "get_all_providers",
            "has_collective_ops",
            "import_capi_exception",
        ),
        **_same_but("dmlvk's `ValueInfo`, which has the numpy type as well", "NodeArg"),
        **_same_but("VulkanExecutionProvider, DmlExecutionProvider and CPUExecutionProvider", "get_available_providers"),
        **_same_but("between tensors of the host as well", "copy_tensors"),
        **_same_but('"GPU"', "get_device"),
        **_same_but("the version of ONNX Runtime whose names these are", "get_version_string", "version"),
        **_same_but("says dmlvk's version, and that of the names", "get_build_info", "print_debug_info"),
        **_same_but("of the logger `dmlvk`", "set_default_logger_severity"),
        **_same_but("random nodes give other numbers than ONNX Runtime's, and the same ones again", "set_seed"),
        **_same_but('"dmlvk"', "package_name"),
        **_same_but('"": there is no CUDA in it', "cuda_version"),
        **_accepted("nothing is sent anywhere", "enable_telemetry_events"),
        **_accepted(_LOGS, "set_default_logger_verbosity"),
        **_accepted(_THREADS, "set_global_thread_pool_sizes"),
        **_accepted("there are no libraries of CUDA to load", "preload_dlls"),
        **_refused(_LOGS, "set_default_logger_callback"),
        **_refused(_ADAPTERS, "AdapterFormat", "LoraAdapter"),
        **_refused(
            "plans are made for a device and kept there; there is no compiled file", "ModelCompiler", "OrtCompileApiFlags"
        ),
        **_refused(
            _PACKAGES,
            "ModelPackage",
            "ModelPackageComponentContext",
            "ModelPackageContext",
            "ModelPackageOptions",
            "ModelPackageWriteMode",
            "OrtEpContextData",
            "OrtEpContextDataBuffer",
        ),
        **_refused(
            _MEMORY,
            "OrtAllocatorType",
            "OrtArenaCfg",
            "OrtDeviceMemoryType",
            "OrtMemType",
            "OrtMemoryInfo",
            "OrtMemoryInfoDeviceType",
            "create_and_register_allocator",
            "create_and_register_allocator_v2",
        ),
        **_refused(
            _PLUG_INS,
            "OrtEpAssignedNode",
            "OrtEpAssignedSubgraph",
            "OrtEpDevice",
            "OrtExecutionProviderDevicePolicy",
            "OrtHardwareDevice",
            "OrtHardwareDeviceType",
            "OrtSyncStream",
            "get_ep_devices",
            "register_execution_provider_library",
            "unregister_execution_provider_library",
        ),
        **_refused("initializers come from the model's file and the files beside it", "OrtExternalInitializerInfo"),
        **_refused(_SPARSE, "SparseTensor", "OrtSparseFormat"),
        **_refused("it is what `IOBinding` is made of there", "SessionIOBinding"),
    },
    "InferenceSession": {
        **_same(
            "create_ortvalue_from_shape_and_type",
            "get_modelmeta",
            "get_overridable_initializers",
            "get_profiling_start_time_ns",
            "get_provider_options",
            "get_session_options",
            "io_binding",
            "run_with_iobinding",
            "run_with_ort_values",
            "set_providers",
        ),
        **_same_but("an input with an initializer cannot be fed: see `SessionOptions.add_initializer`", "run", "run_async"),
        **_same_but("`shape` is a list, None where the model says nothing of it", "get_inputs", "get_outputs"),
        **_same_but("the providers that were asked for: each is the Vulkan device", "get_providers"),
        **_same_but("writes Chrome's trace format, with the kernels' times", "end_profiling"),
        **_accepted("there is nothing to fall back to", "disable_fallback", "enable_fallback"),
        **_accepted("no graph is captured: every run replays recorded commands", "release_captured_graph"),
        **_accepted("the rules choose kernels by the device's numbers", "get_tuning_results", "set_tuning_results"),
        **_accepted("there are none", "set_ep_dynamic_options"),
        **_refused(_MEMORY, "get_input_memory_infos", "get_output_memory_infos"),
        **_refused(f"{_PLUG_INS}; `report` says where each node ran", "get_provider_graph_assignment_info"),
        **_refused(_PLUG_INS, "get_input_epdevices"),
        **_refused("use `run_with_iobinding`", "run_with_ortvaluevector"),
    },
    "SessionOptions": {
        **_same(
            "add_free_dimension_override_by_name",
            "add_initializer",
            "enable_profiling",
            "get_session_config_entry",
            "has_providers",
            "profile_file_prefix",
        ),
        **_same_but("as `providers` of a session", "add_provider"),
        **_same_but("ORT_DISABLE_ALL leaves every pass out, any other level none", "graph_optimization_level"),
        **_accepted("no entry means anything to dmlvk", "add_session_config_entry"),
        **_accepted("results have the same bits at every run anyway", "use_deterministic_compute"),
        **_accepted(_THREADS, "inter_op_num_threads", "intra_op_num_threads", "use_per_session_threads", "execution_mode"),
        **_accepted("the device's commands are recorded in an order of dmlvk's", "execution_order"),
        **_accepted(_MEMORY, "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse"),
        **_accepted(_LOGS, "log_severity_level", "log_verbosity_level", "logid"),
        **_accepted("loading goes on to its end", "set_load_cancellation_flag"),
        **_refused("dmlvk's graph after the passes is no ONNX model", "optimized_model_filepath"),
        **_refused("denotations of sizes are not read; use the size's name", "add_free_dimension_override_by_denotation"),
        **_refused(
            "data of initializers come from the files beside the model",
            "add_external_initializers",
            "add_external_initializers_from_files_in_memory",
        ),
        **_refused("a library has kernels for ONNX Runtime's processors, none for Vulkan", "register_custom_ops_library"),
        **_refused(
            _PLUG_INS,
            "add_provider_for_devices",
            "set_provider_selection_policy",
            "set_provider_selection_policy_delegate",
        ),
        **_refused(_PACKAGES, "set_ep_context_data_read_func", "clear_ep_context_data_read_func"),
    },
    "RunOptions": {
        **_same("get_run_config_entry"),
        **_same_but("looked at when a run begins", "terminate"),
        **_accepted("no entry means anything to dmlvk", "add_run_config_entry"),
        **_accepted("a plan computes all outputs of the model", "only_execute_path_to_fetches"),
        **_accepted(_LOGS, "log_severity_level", "log_verbosity_level", "logid"),
        **_refused(_ADAPTERS, "add_active_adapter"),
    },
    "OrtValue": {
        **_same(
            "data_type",
            "device_name",
            "element_type",
            "from_dlpack",
            "has_value",
            "is_sparse_tensor",
            "is_tensor",
            "is_tensor_sequence",
            "numpy",
            "ortvalue_from_numpy",
            "ortvalue_from_numpy_with_onnx_type",
            "shape",
            "tensor_size_in_bytes",
        ),
        **_same_but("`memory_info` is refused", "ortvalue_from_shape_and_type"),
        **_same_but("types must be equal: no bits are taken for other numbers", "update_inplace"),
        **_same_but("on the device a number that `bind_input` and `bind_output` know, and no address", "data_ptr"),
        **_refused(_SPARSE, "as_sparse_tensor", "ort_value_from_sparse_tensor"),
    },
    "IOBinding": {
        **_same(
            "bind_cpu_input",
            "bind_input",
            "bind_ortvalue_input",
            "bind_ortvalue_output",
            "clear_binding_inputs",
            "clear_binding_outputs",
            "copy_outputs_to_cpu",
            "synchronize_inputs",
        ),
        **_same_but("with the name alone, the output stays on the device as a `DeviceArray`", "bind_output", "get_outputs"),
        **_same_but("an error before the first run", "synchronize_outputs"),
        **_same_but("a list", "get_outputs_as_ortvaluevector"),
    },
    "ModelMetadata": _same(
        "custom_metadata_map", "description", "domain", "graph_description", "graph_name", "producer_name", "version"
    ),
    "NodeArg": _same("name", "shape", "type"),
    "OrtDevice": _same("device_id", "device_mem_type", "device_type", "device_vendor_id", "make"),
}
"""Owner -> name -> row; the owner of the module's own names is "". A class that is refused stands for its members, and an
enumeration for its."""

VERSION: Final = "1.32.0"
"""The version of ONNX Runtime whose names these are."""


def standing_of(owner: str, name: str) -> Row:
    """The row of a name."""
    return NAMES[owner][name]
