"""Models as sessions, by ``torch.export``: without PyTorch's compiler, and without a file between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import InputKind, OutputKind

from dmlvk.runtime.device import ComputeDevice
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.torch.backend import Options
from dmlvk.torch.calls import DeviceGraph
from dmlvk.torch.decompositions import decompositions
from dmlvk.torch.facts import TensorFacts
from dmlvk.torch.memory import is_on_device, to_host
from dmlvk.torch.report import note


class ExportedSession:
    """A model on a device. Its weights are constants: what follows from them is computed once.

    Args:
        program: The model, as ``torch.export`` gives it.
        device: The device.

    Attributes:
        inputs, outputs: The names of its inputs and outputs.

    Raises:
        UnsupportedError: it has operators without a converter; the message names them all.
    """

    def __init__(self, program: torch.export.ExportedProgram, device: ComputeDevice) -> None:
        core = program.run_decompositions(decompositions())
        signature = core.graph_signature
        tensors = {**core.state_dict, **core.constants}
        held = {spec.arg.name: tensors[spec.target] for spec in signature.input_specs if spec.kind in _HELD}
        module = core.graph_module
        (output,) = (node for node in module.graph.nodes if node.op == "output")
        nodes = {node.name: node for node in module.graph.nodes}
        names = {spec.target: spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.BUFFER}
        kept = []
        changed = []
        for spec, value in zip(signature.output_specs, output.args[0], strict=True):
            if spec.kind is OutputKind.USER_OUTPUT:
                kept.append(value)
                continue
            if spec.kind not in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
                rule = "must compute outputs, and change nothing but buffers and inputs"
                raise InvalidArgumentError(rule, operator="dmlvk.torch.export", field="model", value=spec.kind.name)
            name = names[spec.target] if spec.kind is OutputKind.BUFFER_MUTATION else spec.target
            changed.append(name)
            with module.graph.inserting_before(output):
                module.graph.call_function(torch.ops.aten.copy_.default, (nodes[name], value))
        output.args = (tuple(kept),)
        module.recompile()
        self._states = {name: held.pop(name).detach().clone() for name in changed if name in held}
        self._graph = DeviceGraph(device, module, "exported", constants={name: own.detach() for name, own in held.items()})
        note(self._graph)
        self._order = [node.name for node in self._graph.network.inputs]
        self.inputs = tuple(name for name in self._order if name not in self._states)
        self.outputs = tuple(getattr(node, "name", f"output {index}") for index, node in enumerate(kept))

    def run(self, outputs: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """The outputs for some inputs, by name, as numpy arrays.

        Args:
            outputs: The names of the outputs that are wanted, all where None.
            feeds: An array for each input; tensors of PyTorch are taken too.

        Raises:
            InvalidArgumentError: an input is missing, or a name is none of the model's.
        """
        if {*feeds} != {*self.inputs}:
            rule = "must be one array for each input"
            raise InvalidArgumentError(
                rule, operator="run", field="feeds", value=sorted(feeds), expected=sorted(self.inputs)
            )
        unknown = [name for name in outputs or () if name not in self.outputs]
        if unknown:
            raise InvalidArgumentError(f"must be among {', '.join(self.outputs)}", field="outputs", value=unknown)
        given = {name: torch.as_tensor(feeds[name]) for name in self.inputs}
        for node in self._graph.network.inputs:
            if node.name in given:
                _check(node.name, given[node.name], self._graph.network.facts[node])
        made = dict(zip(self.outputs, self(*given.values()), strict=True))
        return [_array(made[name]) for name in (self.outputs if outputs is None else outputs)]

    def __call__(self, *inputs: torch.Tensor) -> list[Any]:
        """The outputs for the inputs in order, as PyTorch's tensors."""
        given = dict(zip(self.inputs, inputs, strict=True))
        return self._graph([self._states[name] if name in self._states else given[name] for name in self._order])


_HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def _check(name: str, given: torch.Tensor, facts: Any) -> None:
    """Holds that an input is of the type and the sizes that the model was exported for."""
    if not isinstance(facts, TensorFacts):
        return
    expected = tuple(size if isinstance(size, int) else None for size in facts.sizes)
    fits = len(given.shape) == len(expected) and all(
        size in (own, None) for own, size in zip(given.shape, expected, strict=True)
    )
    if given.dtype is not facts.dtype or not fits:
        rule = "must have the type and the sizes of the model's input; None stands for a size that may change"
        value = (given.dtype, tuple(given.shape))
        raise InvalidArgumentError(rule, operator="run", field=name, value=value, expected=(facts.dtype, expected))


def _array(item: Any) -> Any:
    if not isinstance(item, torch.Tensor):
        return np.asarray(item)
    item = to_host(item) if is_on_device(item) else item
    return item.float().numpy() if item.dtype is torch.bfloat16 else item.numpy()


def export(
    model: torch.nn.Module,
    example_inputs: tuple[Any, ...],
    *,
    dynamic_shapes: Any = None,
    device: Any = None,
) -> ExportedSession:
    """A model as a session.

    Args:
        model: The model, in the mode in which it is to run.
        example_inputs: Inputs of the types and sizes that it will get.
        dynamic_shapes: Which sizes may change, as ``torch.export.export`` takes it.
        device: A ``dmlvk.Device``, or what its constructor takes; ``dmlvk.default_device()`` where None.

    Raises:
        UnsupportedError: it has operators without a converter; the message names them all.
    """
    program = torch.export.export(model, example_inputs, dynamic_shapes=dynamic_shapes)
    return ExportedSession(program, Options(device).opened())
