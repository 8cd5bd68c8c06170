"""Calls of ``dmlvk.eager``: described, compiled once for each distinct call, and run."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.arguments import Arguments
from dmlvk.empty_calls import has_no_elements, outputs_of_nothing
from dmlvk.engine.array_functions import broadcast, number
from dmlvk.engine.default_device import check_device, default_device
from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.numpy_types import array_of, data_type_of, dtype_of, element_strides, memory_span
from dmlvk.engine.single_operators import bound, single_operator
from dmlvk.graph.views import Sizes, broadcast_sizes
from dmlvk.runtime.device import ComputeDevice
from dmlvk.runtime.recorder import BoundRange
from dmlvk.spec import ops
from dmlvk.spec.constraints import same_sizes
from dmlvk.spec.errors import other_device
from dmlvk.spec.functions import EAGER_OPTIONS, function_name
from dmlvk.spec.schema import FieldSpec, OperatorDesc
from dmlvk.spec.tensor import TensorDesc, element_bits, tensor_desc

Operand = npt.NDArray[Any] | DeviceArray | None


class Call(Arguments):
    """A call with arrays as its operands."""

    def __init__(self, row: type[OperatorDesc], args: tuple[Any, ...], named: dict[str, Any]) -> None:
        super().__init__(row, args, named, EAGER_OPTIONS)
        fields = [spec for spec, count in self.counts for _ in range(1 if count is None else count)]
        given: list[tuple[FieldSpec, Any]] = list(zip(fields, self.operands, strict=True))
        known = [(spec, value.dtype) for spec, value in given if hasattr(value, "dtype")]
        self.operands: list[Operand] = [self._operand(index, *item, known) for index, item in enumerate(given)]
        if _is_elementwise(row):
            self._broadcast()
        self.on_device = any(isinstance(operand, DeviceArray) for operand in self.operands)
        self.device = self._device(self.options["device"])

    def _operand(self, index: int, spec: FieldSpec, value: Any, known: list[tuple[FieldSpec, np.dtype[Any]]]) -> Operand:
        """An operand as an array. Python's numbers take the field's only type, or that of the first array
        whose field has the same types."""
        if value is None or isinstance(value, DeviceArray):
            return value
        name = f"{function_name(self.row)}.{self.operand_name(index)}"
        array = array_of(value, lambda: name)
        if hasattr(value, "dtype") or array.dtype.kind not in "biuf":
            return array
        own = [dtype for beside, dtype in known if beside.all_types == spec.all_types]
        if len(spec.all_types) == 1:
            own = [dtype_of(spec.all_types[0])]
        if own:
            return number(name, value, own[0])
        return array.astype(np.float32) if array.dtype == np.float64 else array  # which few operators take

    def _broadcast(self) -> None:
        """Gives the operands the shape that they have together, where they have one."""
        shapes = {operand.shape for operand in self.operands if operand is not None}
        sizes = broadcast_sizes(*shapes) if len(shapes) > 1 else None
        if sizes is not None:
            self.operands = [None if operand is None else _over(operand, sizes) for operand in self.operands]

    def _device(self, wanted: ComputeDevice | None) -> ComputeDevice:
        device = wanted
        if device is not None:
            check_device(device)
        for operand in self.operands:
            if isinstance(operand, DeviceArray):
                if device is not None and operand.device is not device:
                    raise other_device(
                        "an operand", operand.device, "the operands before it and the argument device", device
                    )
                device = operand.device
        return default_device() if device is None else device

    def key(self) -> tuple[object, ...]:
        """Equal for calls that can share what is prepared. Attributes by their text: 0.0 is not -0.0, nor 1 True."""
        try:
            attributes = repr((self.attributes, self.outputs, self.output_sizes, self.output_data_types))
        except ValueError:  # an integer of more digits than Python spells, which no field takes
            attributes = ""
        return (
            self.row,
            tuple([count for _, count in self.counts]),
            tuple([_operand_key(operand) for operand in self.operands]),
            attributes,
        )


def _over(operand: npt.NDArray[Any] | DeviceArray, sizes: Sizes) -> npt.NDArray[Any] | DeviceArray:
    """An operand over the shape that it has together with others: a view."""
    return broadcast(operand, sizes) if isinstance(operand, DeviceArray) else np.broadcast_to(operand, sizes)


def _is_elementwise(row: type[OperatorDesc]) -> bool:
    """Whether an operator's tensors all have one shape, and any strides do."""
    all_alike = same_sizes().rule  # others, as of products, say it of some tensors alone
    return (row.traits.pointwise or row.traits.strided) and any(rule.rule == all_alike for rule in row.constraints)


def _operand_key(operand: Operand) -> object:
    if operand is None:
        return None
    if isinstance(operand, DeviceArray):
        return ("on device", operand.data_type, operand.shape, operand.strides)
    return (operand.dtype, operand.shape, operand.strides)


def _tensor_desc(operand: Operand) -> TensorDesc | None:
    if operand is None:
        return None
    if isinstance(operand, DeviceArray):
        return operand.desc
    if operand.size == 0:
        return tensor_desc(data_type_of(operand.dtype), operand.shape)
    strides = None if operand.flags.c_contiguous else element_strides(operand)
    return TensorDesc(data_type_of(operand.dtype), operand.shape or (1,), strides)


def _range(device: ComputeDevice, operand: Operand, tensor: TensorDesc | None) -> BoundRange | None:
    """The range of an operand on the device; a numpy array is uploaded."""
    if operand is None or tensor is None:
        return None
    if isinstance(operand, DeviceArray):
        return bound(operand)
    nbytes = tensor.total_tensor_size_in_bytes
    buffer = device.create_buffer(nbytes)
    if operand.flags.c_contiguous:
        buffer.write(operand)
    elif (strides := element_strides(operand)) is None:
        buffer.write(np.ascontiguousarray(operand))
    else:
        buffer.write(memory_span(operand, strides))
    return BoundRange(buffer, 0, nbytes)


def execute(call: Call) -> Any:
    """Runs a call.

    Returns:
        Its one output, or a tuple of several: numpy arrays, or device arrays where an operand is one.
    """
    results = _results(call)
    return results[0] if len(results) == 1 else tuple(results)


def _results(call: Call) -> list[Any]:
    """The outputs of a call, in slot order."""
    if has_no_elements(call, [operand.shape for operand in call.operands if operand is not None]):
        return outputs_of_nothing(call, list(map(_tensor_desc, call.operands)), _Door(call))
    device = call.device
    operator = single_operator(device, call.key(), lambda: call.describe(map(_tensor_desc, call.operands)))
    pairs = zip(call.operands, operator.inputs, strict=True)
    buffers = operator.run(device, [_range(device, operand, tensor) for operand, tensor in pairs])
    results: list[Any] = []
    for tensor, buffer in zip(operator.outputs, buffers, strict=True):
        if tensor is None or buffer is None:
            continue
        if call.on_device:
            results.append(DeviceArray(device, buffer, tensor.data_type, tensor.sizes))
        elif element_bits(tensor.data_type) < 8:
            results.append(DeviceArray(device, buffer, tensor.data_type, tensor.sizes).numpy())
        else:
            array = np.empty(tensor.sizes, dtype_of(tensor.data_type))
            buffer.read_into(array)
            results.append(array)
    return results


class _Door:
    """What ``dmlvk.eager`` makes of the parts of a call without elements."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def made(self, call: Arguments) -> list[Any]:
        """The outputs of a call like this one."""
        assert isinstance(call, Call), "it is made of this one"
        return _results(call)

    def nothing(self, desc: TensorDesc) -> Any:
        """A tensor without elements."""
        return self.given(np.empty(desc.sizes, dtype_of(desc.data_type)))

    def given(self, array: npt.NDArray[Any]) -> Any:
        """An array where the call's arrays are."""
        return DeviceArray.from_numpy(array, self._call.device) if self._call.on_device else array

    def copied(self, operand: Any) -> Any:
        """A copy of an operand."""
        return execute(Call(ops.ElementWiseIdentity, (operand,), {"device": self._call.device}))
