"""ONNX models: a session whose inputs and outputs are the resources of the file, or made for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np

from dmlvk.directml.device import Device
from dmlvk.dxdispatch.buffers import Buffers
from dmlvk.dxdispatch.document import Place
from dmlvk.dxdispatch.model import BindingSource, OnnxDispatchable
from dmlvk.dxdispatch.operator_run import Bound
from dmlvk.dxdispatch.options import Options
from dmlvk.engine.device_array import DeviceArray
from dmlvk.onnx.iobinding import IOBinding
from dmlvk.onnx.model import ValueInfo
from dmlvk.onnx.options import GraphOptimizationLevel, SessionOptions
from dmlvk.onnx.session import InferenceSession
from dmlvk.spec.errors import ModelError, UnsupportedError

_LEVELS: Final = {
    0: GraphOptimizationLevel.ORT_DISABLE_ALL,
    1: GraphOptimizationLevel.ORT_ENABLE_BASIC,
    2: GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
}

Shape = tuple[int | str | None, ...]


class OnnxRun:
    """A model on a device. Nodes that no device can do run on the host, as in ONNX Runtime.

    Args:
        device: The device.
        item: The model.
        options: How it is run; what they say of the model goes before what the file says.
        say: Prints a line.
    """

    def __init__(self, device: Device, item: OnnxDispatchable, options: Options, say: Callable[[str], None]) -> None:
        settings = SessionOptions(on_unsupported="host")
        level = item.optimization_level if options.optimization_level is None else options.optimization_level
        settings.graph_optimization_level = _LEVELS.get(level, GraphOptimizationLevel.ORT_ENABLE_ALL)
        settings.log_severity_level = item.logging_level if options.logging_level is None else options.logging_level
        settings.enable_profiling = options.profile
        self._fixed: dict[tuple[str, int], int] = {}
        sizes = {**item.sizes, **options.sizes}
        if denoted := {**item.denoted_sizes, **options.denoted_sizes}:
            for name, axis, symbol, size in _denoted(item, denoted):
                if symbol:
                    sizes.setdefault(symbol, size)
                else:
                    self._fixed[name, axis] = size
        for name, size in sizes.items():
            settings.add_free_dimension_override_by_name(name, size)
        for key, value in {**item.config, **options.config}.items():
            settings.add_session_config_entry(key, value)
        self._session = InferenceSession(item.path, device, settings)
        self._say, self._options = say, options

    @property
    def bind_points(self) -> tuple[str, ...]:
        """The names that bindings may have."""
        return tuple(info.name for info in self._session.get_inputs() + self._session.get_outputs())

    def bound(
        self, place: Place, bindings: Mapping[str, tuple[BindingSource, ...]], buffers: Buffers, options: Options
    ) -> Bound:
        """The model with these resources.

        Raises:
            InvalidArgumentError: a resource does not fit its tensor; names the path.
            UnsupportedError: an input is no tensor of numbers.
        """
        binding = self._session.io_binding()
        made: dict[str, str] = {}
        for info in self._session.get_inputs():
            if not info.is_tensor:
                raise UnsupportedError(
                    f"{place.path}: input {info.name!r} is a {info.type}; tensors of numbers can be bound"
                )
            source = _only(info, bindings)
            shape = self._shape(info, source)
            sizes = tuple(size if isinstance(size, int) else 1 for size in shape)
            if source is None:
                binding.bind_cpu_input(info.name, np.zeros(sizes, info.dtype))
            else:
                binding.bind_input(info.name, buffers.array(source, info.dtype, sizes))
            self._describe("Input", info, "implicit" if source is None else "explicit", sizes)
        for info in self._session.get_outputs():
            source = _only(info, bindings)
            shape = self._shape(info, source)
            known = tuple(size for size in shape if isinstance(size, int))
            if source is None or buffers.is_deferred(source):
                binding.bind_output(info.name)
                if source is not None:
                    made[info.name] = source.resource
                self._describe("Output", info, "implicit" if source is None and known == shape else "deferred", shape)
                continue
            if known != shape:
                source.place.refuse(
                    f"output {info.name!r} must have a shape: the model leaves it open, and its resource is given", shape
                )
            binding.bind_output(info.name, buffers.array(source, info.dtype, known))
            self._describe("Output", info, "explicit", known)
        return _BoundModel(self._session, binding, buffers, made, options.repeat)

    def end(self) -> str:
        """See ``Run``: the timeline."""
        return self._session.end_profiling() if self._options.profile else ""

    def _shape(self, info: ValueInfo, source: BindingSource | None) -> Shape:
        """The sizes of a tensor: of the command line, else of the file, else of the model."""
        given = self._options.binding_shapes.get(info.name) or (source.shape if source is not None else ())
        if given:
            return given
        if info.shape is None:
            raise ModelError(f"{info.name!r} has no shape in the model: give it one in its binding, or with --binding_shape")
        return tuple(self._fixed.get((info.name, axis), size) for axis, size in enumerate(info.shape))

    def _describe(self, kind: str, info: ValueInfo, resource: str, shape: Shape) -> None:
        if self._options.print_bindings:
            sizes = ",".join(str(size) if isinstance(size, int) else "-1" for size in shape)
            data_type = info.type.removeprefix("tensor(").removesuffix(")").upper()
            self._say(f"{kind} Tensor '{info.name}':\n  Resource  = {resource} (Vulkan)\n  Data Type = {data_type}")
            self._say(f"  Shape     = [{sizes}]\n")


class _BoundModel:
    def __init__(
        self, session: InferenceSession, binding: IOBinding, buffers: Buffers, made: Mapping[str, str], repeat: int
    ) -> None:
        self._session, self._binding, self._buffers, self._made, self._repeat = session, binding, buffers, made, repeat

    def run(self) -> float | None:
        """See ``Bound``. Times on the device are not taken: a model may be many submissions, with the host between them."""
        for _ in range(self._repeat):
            self._session.run_with_iobinding(self._binding)
        self._binding.synchronize_outputs()
        for name, resource in self._made.items():
            found = self._binding.results[name]
            assert isinstance(found, DeviceArray), "it was asked for on the device"
            self._buffers.deferred[resource] = found
        return None


def _only(info: ValueInfo, bindings: Mapping[str, tuple[BindingSource, ...]]) -> BindingSource | None:
    sources = bindings.get(info.name, ())
    if len(sources) > 1:
        sources[1].place.refuse(f"{info.name!r} must have one resource")
    return sources[0] if sources else None


def _denoted(item: OnnxDispatchable, sizes: Mapping[str, int]) -> Iterator[tuple[str, int, str, int]]:
    """The sizes of a model's inputs that have a denotation among these: input, axis, symbol ("" for none) and size."""
    import onnx

    for value in onnx.load(item.path, load_external_data=False).graph.input:
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
            if dimension.denotation in sizes and not dimension.dim_value:
                yield value.name, axis, dimension.dim_param, sizes[dimension.denotation]
