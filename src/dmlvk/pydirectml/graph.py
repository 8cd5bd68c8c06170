"""PyDirectML's device, graphs and expressions over ``dmlvk.Graph``."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from dmlvk import builder
from dmlvk.directml.device import Device as EngineDevice
from dmlvk.directml.device import default_device
from dmlvk.engine.device_array import DeviceArray
from dmlvk.pydirectml.tensors import Binding, TensorData, TensorDesc
from dmlvk.runtime.device import devices
from dmlvk.spec.enums import ExecutionFlags, TensorDataType
from dmlvk.spec.errors import InvalidArgumentError, StateError
from dmlvk.spec.schema import ScaleBias


class Device:
    """A device that computes models.

    Args:
        use_gpu: Whether to take dmlvk's default device, which DMLVK_DEVICE names; else it is the first CPU, if there is one.
        use_debug_layer: Without effect: DMLVK_VALIDATION=1 switches Vulkan's validation layer on.

    Raises:
        NoDeviceError: there is none.
    """

    def __init__(self, use_gpu: bool = True, use_debug_layer: bool = False) -> None:
        cpus = [] if use_gpu else [info for info in devices() if info.type == "cpu"]
        self._device = EngineDevice(cpus[0]) if cpus else default_device()

    def compute(
        self, model: Model, inputs: Sequence[Binding | None], outputs: Sequence[Expression | None], /
    ) -> list[TensorData]:
        """Runs a model.

        Args:
            model: What ``GraphBuilder.build`` made.
            inputs: The binding of each input, by the input's index; None for one that nothing reads.
            outputs: The model's outputs, in order; None for one that is not wanted.

        Returns:
            The numbers of each wanted output.

        Raises:
            InvalidArgumentError: an input that the model reads has no binding, or one of another tensor, or there are more
                outputs than the model has.
        """
        made = model._run(inputs)
        if len(outputs) > len(made):
            rule = "must be no more than the model's outputs"
            raise InvalidArgumentError(rule, operator="compute", field="outputs", value=len(outputs), expected=len(made))
        return [
            _as_output(index, array, output)
            for index, (output, array) in enumerate(zip(outputs, made, strict=False))
            if output is not None
        ]

    def __repr__(self) -> str:
        return f"dml.Device on {'CPU' if self._device.info.type == 'cpu' else 'GPU'}"


def _as_output(index: int, array: DeviceArray, output: Expression) -> TensorData:
    """A model's output under the desc that the caller names it by."""
    desc, own = output._tensor.desc, array.desc.total_tensor_size_in_bytes
    if desc.total_tensor_size_in_bytes > own:
        rule = f"must be the model's output, which has {own} bytes"
        raise InvalidArgumentError(rule, operator="compute", field=f"output {index}", value=desc)
    return TensorData._of(array.numpy(), desc)


@dataclasses.dataclass(frozen=True)
class _Input:
    """An input of a graph, and the index of its binding."""

    index: int
    expression: builder.Expression

    @property
    def is_owned(self) -> bool:
        """Whether it is initialised, and not fed."""
        return self.expression.desc.owned_by_dml


class GraphBuilder:
    """A graph under construction.

    Args:
        device: The device that will compute it.
    """

    def __init__(self, device: Device) -> None:
        self._graph = builder.Graph(device._device)
        self._inputs: list[_Input] = []

    def _input(self, index: int, desc: TensorDesc) -> Expression:
        made = self._graph.input_tensor(desc._desc)
        self._inputs.append(_Input(index, made))
        return Expression._of(made)

    def build(self, flags: ExecutionFlags, outputs: Sequence[Expression], /) -> Model:
        """The model that computes some of the graph's expressions.

        Raises:
            InvalidArgumentError: no output.
            StateError: an expression of another graph, or an empty one.
            UnsupportedError: the device cannot compute it.
        """
        return Model(self, flags, [output._node for output in outputs])


class Model:
    """A graph that was built; ``Device.compute`` runs it."""

    def __init__(self, graph: GraphBuilder, flags: ExecutionFlags, outputs: list[builder.Expression], /) -> None:
        self._graph, self._inputs, self._flags, self._outputs = graph._graph, list(graph._inputs), flags, outputs
        self._function = self._compiled()
        self._owned: list[Binding] = []

    def _compiled(self) -> builder.Function[Any]:
        return self._graph.compile(*self._outputs, flags=self._flags)

    def _run(self, bindings: Sequence[Binding | None]) -> list[DeviceArray]:
        """The outputs. What is OWNED_BY_DML is initialised when it is not what the last run had."""
        read = {item: _bound(item, bindings) for item in self._inputs if self._function.reads(item.expression)}
        kept = {item.expression: binding for item, binding in read.items() if item.is_owned}
        owned = list(kept.values())
        if owned != self._owned:
            if self._owned:
                self._function, self._owned = self._compiled(), []
            self._function.initialize({expression: binding._array() for expression, binding in kept.items()})
            self._owned = owned
        nothing = np.zeros(0, np.float32)
        free = [item for item in self._inputs if not item.is_owned]
        results = self._function(*(read[item]._array() if item in read else nothing for item in free))
        return [results] if isinstance(results, DeviceArray) else list(results)


def _bound(item: _Input, bindings: Sequence[Binding | None]) -> Binding:
    """The binding of an input that a model reads."""
    field = f"input {item.index}"
    binding = bindings[item.index] if item.index < len(bindings) else None
    if binding is None:
        raise InvalidArgumentError("must have a binding, because the model reads it", operator="compute", field=field)
    if binding._desc != item.expression.desc:
        rule = "must have a binding of the same tensor"
        raise InvalidArgumentError(rule, operator="compute", field=field, value=binding._desc, expected=item.expression.desc)
    return binding


class Expression:
    """A tensor of a graph. Without arguments it is an empty one, of no graph.

    Arithmetic with another takes equal sizes, and ``%`` truncates. Arithmetic with a number scales and shifts.
    """

    __array_ufunc__ = None  # an array + an expression is refused, and no array of expressions

    def __init__(self) -> None:
        self._made: builder.Expression | None = None
        self._whole: builder.Expression | None = None

    @classmethod
    def _of(cls, made: builder.Expression, whole: builder.Expression | None = None) -> Expression:
        """What an operator made, or another view of the ``whole``."""
        expression = cls()
        expression._made, expression._whole = made, made if whole is None else whole
        return expression

    @property
    def _tensor(self) -> builder.Expression:
        """The tensor, as an operand.

        Raises:
            StateError: there is none.
        """
        if self._made is None:
            raise StateError("the expression is empty: no function made it")
        return self._made

    @property
    def _node(self) -> builder.Expression:
        """The tensor as its operator made it, as an output: bytes are the same under every view."""
        assert self._tensor is not None and self._whole is not None
        return self._whole

    def get_output_desc(self) -> TensorDesc:
        """The tensor's desc."""
        return TensorDesc._of(self._tensor.desc)

    def _reinterpreted(self, data_type: TensorDataType, sizes: Sequence[int], strides: Sequence[int] | None) -> Expression:
        return Expression._of(self._tensor.reinterpret(data_type, sizes, strides), self._node)

    def _binary(self, name: str, other: object) -> Expression:
        """The result of an operator; NotImplemented for what is no expression."""
        if not isinstance(other, Expression):
            return NotImplemented  # type: ignore[no-any-return]  # as Python wants it of an operator
        return Expression._of(getattr(self._tensor.graph, name)(self._tensor, other._tensor))

    def _scaled(self, scale: float, bias: float) -> Expression:
        return Expression._of(self._tensor.graph.element_wise_identity(self._tensor, scale_bias=ScaleBias(scale, bias)))

    def __add__(self, other: Expression | float) -> Expression:
        return self._scaled(1.0, float(other)) if _is_number(other) else self._binary("element_wise_add", other)

    def __sub__(self, other: Expression | float) -> Expression:
        return self._scaled(1.0, -other) if _is_number(other) else self._binary("element_wise_subtract", other)

    def __mul__(self, other: Expression | float) -> Expression:
        return self._scaled(float(other), 0.0) if _is_number(other) else self._binary("element_wise_multiply", other)

    def __truediv__(self, other: Expression | float) -> Expression:
        return self._scaled(1.0 / other, 0.0) if _is_number(other) else self._binary("element_wise_divide", other)

    def __mod__(self, other: Expression) -> Expression:
        return self._binary("element_wise_modulus_truncate", other)

    def __radd__(self, other: float) -> Expression:
        return self._scaled(1.0, float(other)) if _is_number(other) else NotImplemented

    def __rsub__(self, other: float) -> Expression:
        return self._scaled(-1.0, float(other)) if _is_number(other) else NotImplemented

    def __rmul__(self, other: float) -> Expression:
        return self._scaled(float(other), 0.0) if _is_number(other) else NotImplemented

    def __rtruediv__(self, other: float) -> Expression:
        if not _is_number(other):
            return NotImplemented
        return Expression._of(self._tensor.graph.element_wise_recip(self._tensor)) * other

    def __neg__(self) -> Expression:
        return self._scaled(-1.0, 0.0)

    def _becomes(self, result: Expression) -> Expression:
        """In-place arithmetic changes the object, so that all its names see the result, as with the binding."""
        if isinstance(result, Expression):
            self._made, self._whole = result._made, result._whole
            return self
        return NotImplemented

    def __iadd__(self, other: Expression | float) -> Expression:
        return self._becomes(self.__add__(other))

    def __isub__(self, other: Expression | float) -> Expression:
        return self._becomes(self.__sub__(other))

    def __imul__(self, other: Expression | float) -> Expression:
        return self._becomes(self.__mul__(other))

    def __itruediv__(self, other: Expression | float) -> Expression:
        return self._becomes(self.__truediv__(other))

    def __imod__(self, other: Expression) -> Expression:
        return self._becomes(self.__mod__(other))


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, numbers.Real)
