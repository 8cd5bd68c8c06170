"""Calls of operators with tensors that have no elements: nothing is launched for an output without any, and an output that
has some although an input has none is what the operator makes of nothing."""

from __future__ import annotations

import copy
import numbers
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from dmlvk.arguments import Arguments
from dmlvk.engine.numpy_types import dtype_of
from dmlvk.spec import ops
from dmlvk.spec.enums import PaddingMode, ReduceFunction
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.ops.reduction import of_nothing
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc

_PRODUCTS: Final = (ops.Gemm, ops.Convolution)
"""Operators for which an element that is not there is as good as one that is 0."""
_PADDING: Final = (ops.Padding, ops.Padding1)
_SCATTERING: Final = (ops.ScatterElements, ops.ScatterNd)
"""Operators that leave their first tensor as it is where there is nothing to write."""


class Door(Protocol):
    """What a door makes of the parts of a call."""

    def made(self, call: Arguments) -> Sequence[Any]:
        """The outputs of a call."""

    def nothing(self, desc: TensorDesc) -> Any:
        """A tensor without elements."""

    def given(self, array: npt.NDArray[Any]) -> Any:
        """An array as an operand or an output."""

    def copied(self, operand: Any) -> Any:
        """A copy of an operand."""


def has_no_elements(call: Arguments, shapes: Iterable[Sequence[int]]) -> bool:
    """Whether some tensor of a call has a size of 0, as far as the call says it.

    Args:
        call: The call.
        shapes: The sizes of its operands.
    """
    if any(0 in shape for shape in shapes):
        return True
    if call.output_sizes is None:
        return False
    try:
        return any(entry == 0 if isinstance(entry, numbers.Integral) else 0 in list(entry) for entry in call.output_sizes)
    except TypeError:  # the call will be refused for them
        return False


def outputs_of_nothing(call: Arguments, tensors: Sequence[TensorDesc | None], door: Door) -> list[Any]:
    """The outputs of a call some of whose tensors have a size of 0, in slot order.

    Args:
        call: The call.
        tensors: The descs of its operands.
        door: Makes them.

    Raises:
        InvalidArgumentError: the call breaks a rule of its operator.
        UnsupportedError: an output has elements, and the operator makes none of nothing.
    """
    desc = call.describe(tensors)
    desc.validate()
    outputs = [slot.tensor for slot in desc.output_slots() if slot.tensor is not None]
    if all(0 in output.sizes for output in outputs):
        return [door.nothing(output) for output in outputs]
    if call.row is ops.Reduce:
        return [door.given(_reduced(desc, outputs[0]))]
    if call.row in _PADDING and _field(desc, "padding_mode") is PaddingMode.CONSTANT:
        return [door.given(np.full(outputs[0].sizes, _field(desc, "padding_value"), dtype_of(outputs[0].data_type)))]
    if call.row is ops.NonzeroCoordinates:
        return [door.given(np.zeros(output.sizes, dtype_of(output.data_type))) for output in outputs]
    if call.row in _SCATTERING:
        return [door.copied(call.operands[0])]
    rest = iter(door.made(_without_nothing(call, desc, tensors, outputs, door)))
    return [door.nothing(output) if 0 in output.sizes else next(rest) for output in outputs]


def _field(desc: OperatorDesc, name: str) -> Any:
    return getattr(desc, name)  # which not every row has


def _reduced(desc: OperatorDesc, output: TensorDesc) -> npt.NDArray[Any]:
    function = _field(desc, "function")
    if function in (ReduceFunction.ARGMAX, ReduceFunction.ARGMIN):
        raise _unsupported(desc, output)
    return np.full(output.sizes, of_nothing(function, output.data_type), dtype_of(output.data_type))


def _without_nothing(
    call: Arguments,
    desc: OperatorDesc,
    tensors: Sequence[TensorDesc | None],
    outputs: Sequence[TensorDesc],
    door: Door,
) -> Arguments:
    """A call of tensors with elements that makes those of the outputs that have some."""
    rest = copy.copy(call)
    if call.row is ops.Join:
        pairs = zip(call.operands, tensors, strict=True)
        rest.operands = [operand for operand, tensor in pairs if tensor is not None and 0 not in tensor.sizes]
        rest.counts = [(spec, len(rest.operands)) for spec, _ in call.counts]
        return rest
    if call.row is ops.Split:
        rest.output_sizes = [output.sizes for output in outputs if 0 not in output.sizes]
        return rest
    if call.row in _PRODUCTS:
        rest.operands = list(_filled(call, tensors, door))
        sizes = [None if tensor is None else tuple(max(size, 1) for size in tensor.sizes) for tensor in tensors]
        filled = (
            None if tensor is None or own is None else TensorDesc(tensor.data_type, own)
            for tensor, own in zip(tensors, sizes, strict=True)
        )
        if [slot.tensor for slot in call.describe(filled).output_slots()] == list(outputs):
            return rest
    raise _unsupported(desc, next(output for output in outputs if 0 not in output.sizes))


def _filled(call: Arguments, tensors: Sequence[TensorDesc | None], door: Door) -> Iterator[Any]:
    """The operands, with a 0 wherever one has a size of 0."""
    for operand, tensor in zip(call.operands, tensors, strict=True):
        if tensor is None or 0 not in tensor.sizes:
            yield operand
        else:
            sizes = tuple(max(size, 1) for size in tensor.sizes)
            yield door.given(np.zeros(sizes, dtype_of(tensor.data_type)))


def _unsupported(desc: OperatorDesc, output: TensorDesc) -> UnsupportedError:
    return UnsupportedError(
        f"{desc.type.dml_name}: an output has sizes {output.sizes}, and the operator makes no element of tensors without any"
    )
