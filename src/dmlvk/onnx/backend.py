"""ONNX's backend interface (``onnx.backend.base``) over ``InferenceSession``.

``prepare(model).run(inputs)``, ``run_model`` and ``run_node`` are functions of this module, as in other runtimes' backends;
``VulkanBackend`` is the class that they belong to, for ``onnx.backend.test.BackendTest`` and for deriving from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
import onnx.defs
import onnx.helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from dmlvk.directml.device import Device
from dmlvk.onnx.model import load_model
from dmlvk.onnx.network import Network
from dmlvk.onnx.options import SessionOptions
from dmlvk.onnx.session import InferenceSession
from dmlvk.onnx.types import infer_types
from dmlvk.runtime.device import choose_device
from dmlvk.spec.errors import InvalidArgumentError, ModelError, NoDeviceError, UnsupportedError

_ANY_DEVICE: Final = ("VULKAN", "CPU")
"""Names of the process-wide device. "CPU" is what ONNX's interface says where nobody chose anything."""
_ONE_DEVICE: Final = "VULKAN:"


class PreparedModel(BackendRep):
    """A model that is ready to run.

    Attributes:
        session: The session that runs it; its ``report`` says where the nodes ran.
    """

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self._outputs = namedtupledict("Outputs", [info.name for info in session.get_outputs()])

    def run(self, inputs: Any, **_ignored: Any) -> tuple[Any, ...]:
        """Runs the model.

        Args:
            inputs: An array for each input (initializers are none) in the model's order, or a list of arrays for a sequence;
                a mapping of them by name, or the one array of a model with one input.

        Returns:
            A tuple of new arrays in the order of the model's outputs, which also answers to their names; a list for a
            sequence, None for an empty optional output.

        Raises:
            ModelError: inputs that do not fit the model.
            UnsupportedNodeError: a node cannot run with these shapes.
        """
        infos = self.session.get_inputs()
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        if not isinstance(inputs, Mapping):
            if len(inputs) != len(infos):
                wanted = ", ".join(repr(info.name) for info in infos) or "none"
                raise ModelError(
                    f"there must be one array for each of the model's inputs, {wanted}; got {len(inputs)} arrays"
                )
            inputs = {info.name: array for info, array in zip(infos, inputs, strict=True)}
        outputs: tuple[Any, ...] = self._outputs(*self.session.run(None, inputs))
        return outputs


class VulkanBackend(Backend):
    """``onnx.backend.base.Backend`` on Vulkan devices.

    A device is named "VULKAN" or "CPU" for the process-wide one (the latter is ONNX's default argument, not a promise to
    run on a CPU), "VULKAN:" and an index, a UUID or part of a name for a particular one, or it is a ``dmlvk.Device``.
    """

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether ``prepare`` takes this name here."""
        try:
            choice = _choice(device)
            choose_device(choice)
        except (InvalidArgumentError, NoDeviceError):
            return False
        return True

    @classmethod
    def is_compatible(
        cls, model: onnx.ModelProto, device: str | Device = "CPU", options: SessionOptions | None = None, **_ignored: Any
    ) -> bool:
        """Whether the model is sound and each of its nodes can be converted, as far as that is known before there are
        inputs; a device may still lack a feature that it takes. ``prepare`` says what is wrong."""
        options = options or SessionOptions()
        try:
            hosts = options.on_unsupported == "host"
            loaded = load_model(
                model,
                float64_as_float32=options.float64_as_float32,
                hosts=hosts,
                max_function_nodes=options.max_function_nodes,
            )
            Network(loaded, options.without_passes, hosts=hosts, limits=options.limits)
        except (ModelError, UnsupportedError):
            return False
        return True

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str | Device = "CPU", options: SessionOptions | None = None, **_ignored: Any
    ) -> PreparedModel:
        """Makes a model ready to run any number of times.

        Args:
            model: The model.
            device: See the class.
            options: The session's.
            _ignored: Anything else; ONNX's test runner passes its tolerances.

        Raises:
            InvalidArgumentError: the device's name is none of those above.
            Those of ``InferenceSession``.
        """
        chosen = device if isinstance(device, Device) else _choice(device)
        return PreparedModel(InferenceSession(model, chosen, options))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str | Device = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """``prepare`` and ``PreparedModel.run``, once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str | Device = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Runs one node.

        Args:
            node: The node; one of another domain than ONNX's own is of that domain's version 1.
            inputs: An array, or a list of arrays for a sequence, for each input that it names, in their order, or a mapping
                of them by name.
            device: See the class.
            outputs_info: numpy type and shape of each output; where not given they are inferred.
            kwargs: ``opset_version`` of ONNX's own domain, the newest that the installed onnx knows where not given;
                else as of ``prepare``.

        Raises:
            ModelError: the node is broken, its inputs are not as many as it names, or the types of its outputs are not
                given and cannot be inferred.
            Those of ``InferenceSession``.
        """
        newest = onnx.defs.onnx_opset_version()
        model = _around(node, inputs, outputs_info, kwargs.pop("opset_version", newest))
        return cls.run_model(model, inputs, device, **kwargs)


def _choice(device: str) -> str | None:
    """The choice for ``dmlvk.Device`` that a device's name stands for; None for any device."""
    if device in _ANY_DEVICE:
        return None
    if device.startswith(_ONE_DEVICE) and len(device) > len(_ONE_DEVICE):
        return device.removeprefix(_ONE_DEVICE)
    raise InvalidArgumentError(
        'must be "VULKAN", "CPU", or "VULKAN:" with an index, a UUID or part of a name', field="device", value=device
    )


def _around(
    node: onnx.NodeProto,
    inputs: Any,
    outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None,
    opset_version: int,
) -> onnx.ModelProto:
    """A model of this node alone."""
    names = list(dict.fromkeys(name for name in node.input if name))
    if isinstance(inputs, np.ndarray):
        inputs = [inputs]
    if isinstance(inputs, Mapping):
        inputs = [inputs[name] for name in names if name in inputs]
    if len(inputs) != len(names):
        raise ModelError(f"a {node.op_type} node with the inputs {', '.join(names) or 'none'} was fed {len(inputs)} arrays")
    outputs = [name for name in node.output if name]
    if outputs_info is not None and len(outputs_info) != len(outputs):
        raise ModelError(f"a {node.op_type} node has {len(outputs)} outputs; outputs_info describes {len(outputs_info)}")
    opsets = {"" if node.domain == "ai.onnx" else node.domain: 1, "": opset_version}
    fed = [_described(name, value) for name, value in zip(names, inputs, strict=True)]
    if outputs_info is None:
        made = _inferred_outputs(node, outputs, fed, opsets)
    else:
        made = [_tensor(name, dtype, shape) for name, (dtype, shape) in zip(outputs, outputs_info, strict=True)]
    return onnx.helper.make_model(
        onnx.helper.make_graph([node], node.name or node.op_type, fed, made),
        opset_imports=[onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()],
    )


def _described(name: str, value: Any) -> onnx.ValueInfoProto:
    """The type of an input, from the value that it is fed: a list of arrays is a sequence."""
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, np.ndarray) for item in value):
        proto = _tensor(name, value[0].dtype, None)
        return onnx.helper.make_value_info(name, onnx.helper.make_sequence_type_proto(proto.type))
    try:
        array = np.asarray(value)
    except ValueError as error:  # a ragged list
        raise ModelError(f"{name!r} is fed what is no array ({error})") from error
    return _tensor(name, array.dtype, array.shape)


def _tensor(name: str, dtype: Any, shape: tuple[int, ...] | None) -> onnx.ValueInfoProto:
    try:
        code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    except (KeyError, ValueError) as error:
        raise UnsupportedError(f"{name!r} has elements of type {dtype}, which ONNX does not have") from error
    return onnx.helper.make_tensor_value_info(name, code, shape)


def _inferred_outputs(
    node: onnx.NodeProto, names: Sequence[str], fed: Sequence[onnx.ValueInfoProto], opsets: Mapping[str, int]
) -> list[onnx.ValueInfoProto]:
    """The node's outputs with the types that its operator's definition says; the sizes are left open."""
    types = {item.name: item.type.tensor_type.elem_type for item in fed}
    infer_types([node], opsets, types)
    for name in names:
        if name not in types:
            raise ModelError(f"the type of output {name!r} of {node.op_type} is not known; outputs_info would say it")
    return [onnx.helper.make_tensor_value_info(name, types[name], None) for name in names]


prepare = VulkanBackend.prepare
run_model = VulkanBackend.run_model
run_node = VulkanBackend.run_node
supports_device = VulkanBackend.supports_device
is_compatible = VulkanBackend.is_compatible

__all__ = ["PreparedModel", "VulkanBackend", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]
