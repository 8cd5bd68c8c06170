"""ONNX Runtime's sessions: the fastest provider, and one model at a time with its values on the device."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import helper

from dmlvk_bench.rivals.base import Array, handed_over, paced
from dmlvk_bench.rivals.onnx_nodes import IR_VERSION, OPSET
from dmlvk_bench.timing import Pace

WEBGPU, CPU = "WebGpuExecutionProvider", "CPUExecutionProvider"
PROVIDERS: dict[str, tuple[str, dict[str, str]]] = {
    WEBGPU: ("", {"validationMode": "disabled"}),
    "CUDAExecutionProvider": ("cuda", {"use_tf32": "0"}),
    "ROCMExecutionProvider": ("cuda", {}),
    "DmlExecutionProvider": ("dml", {}),
    CPU: ("cpu", {}),
}
"""The providers, the best first: the name of each one's memory in ONNX Runtime's Python API ("" for none), its options."""


def make_session(
    model: bytes | str, provider: str, *, capture: bool = True, fallback: bool = False, profile: str = ""
) -> Any:
    """A session.

    Args:
        model: The ONNX file, or the path of one.
        provider: A name in ``PROVIDERS``.
        capture: Whether WebGPU records its commands once and replays them.
        fallback: Whether nodes may be left to the CPU.
        profile: The first part of the name of a profile's file, "" for none.

    Raises:
        RuntimeError: the provider finds no device.
    """
    runtime: Any = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    if provider != CPU and not fallback:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if profile:
        options.enable_profiling = True
        options.profile_file_prefix = profile
    choice = PROVIDERS[provider][1] | ({"enableGraphCapture": str(int(capture))} if provider == WEBGPU else {})
    session = runtime.InferenceSession(model, options, providers=[(provider, choice)])
    if session.get_providers()[0] != provider:  # it prints what failed, and takes the CPU instead
        raise RuntimeError(f"{provider} finds no device here")
    return session


class Worker:
    """The worker that ``RivalProcess`` runs.

    Args:
        on_cpu: Whether only the CPU is asked for.

    Attributes:
        version: ONNX Runtime's, and the provider.
    """

    def __init__(self, on_cpu: bool) -> None:
        self._runtime: Any = importlib.import_module("onnxruntime")
        available = self._runtime.get_available_providers()
        choices = (CPU,) if on_cpu else [name for name in PROVIDERS if name in available]
        self._provider = next(name for name in choices if _computes(name))
        self.version = f"{self._runtime.__version__} on {self._provider.removesuffix('ExecutionProvider')}"
        self._session: Any = None
        self._bound: Any = None
        self._fence: Any = None
        self._values: list[Any] = []
        self._sessions: list[Any] = []

    def provider(self) -> str:
        """The first that finds its device."""
        return self._provider

    def load(self, model: bytes, feeds: Mapping[str, Array]) -> None:
        """A model with what it is fed, run once, and on WebGPU recorded."""
        self.forget()
        self._session = make_session(model, self._provider)
        self._bound = self._session.io_binding()
        for name, array in feeds.items():
            self._bound.bind_ortvalue_input(name, self._resident(np.ascontiguousarray(array)))
        for output in self._session.get_outputs():
            self._bind_output(self._bound, output.name)
        if self._provider == WEBGPU:
            number = self._resident(np.zeros(1, np.float32))
            self._fence = self._sessions[-1].io_binding()
            self._fence.bind_ortvalue_input("x", number)
            self._bind_output(self._fence, "y")
            self._run()
        self._run()

    def _resident(self, array: Array) -> Any:
        """An array as a value on the provider's device."""
        memory = PROVIDERS[self._provider][0]
        if memory:
            value = self._runtime.OrtValue.ortvalue_from_numpy(array, memory, 0)
        else:
            # Nothing makes a value in WebGPU's memory: what an identity leaves there is one, as long as its session lives.
            session = make_session(_identity(array), self._provider)
            bound = session.io_binding()
            bound.bind_cpu_input("x", array)
            self._bind_output(bound, "y")
            session.run_with_iobinding(bound)
            value = bound.get_outputs()[0]
            self._sessions.append(session)
        self._values.append(value)
        return value

    def _bind_output(self, bound: Any, name: str) -> None:
        """Leaves an output on the device."""
        memory = PROVIDERS[self._provider][0]
        if memory:
            bound.bind_output(name, memory)
            return
        kind = importlib.import_module("onnxruntime.capi._pybind_state").OrtDevice  # ``bind_output`` has no name for it
        bound._iobinding.bind_output(name, kind(kind.webgpu(), kind.default_memory(), 0))

    def _run(self) -> None:
        self._session.run_with_iobinding(self._bound)

    def _wait(self) -> None:
        """Waits for all runs of WebGPU."""
        self._sessions[-1].run_with_iobinding(self._fence)
        self._fence.copy_outputs_to_cpu()

    def time(self, pace: Pace) -> list[float]:
        """Seconds of a run."""
        return paced(pace, self._run) if self._fence is None else handed_over(pace, self._run, self._wait)

    def outputs(self, count: int) -> list[Array]:
        """The first outputs of the last run."""
        return [np.asarray(output) for output in self._bound.copy_outputs_to_cpu()[:count]]

    def forget(self) -> None:
        """The model. WebGPU's values and bindings do not survive the session that they come from, and do not keep it."""
        self._fence = self._bound = None
        self._values.clear()
        self._sessions.clear()
        self._session = None


def _computes(provider: str) -> bool:
    """Whether a provider copies a number: that a wheel has it does not mean that its device is here."""
    try:
        session = make_session(_identity(np.zeros(1, np.float32)), provider)
        found = session.run(None, {"x": np.full(1, 2.0, np.float32)})
    except Exception:  # its exceptions share no base
        if provider == CPU:
            raise
        return False
    return float(found[0][0]) == 2.0


def _identity(array: Array) -> bytes:
    """The ONNX file of a copy of an array of this type and these sizes."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    x, y = (helper.make_tensor_value_info(name, kind, array.shape) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "identity", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return bytes(model.SerializeToString())
