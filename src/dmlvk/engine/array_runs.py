"""Operators on arrays of a device: their output is a new array, or is written into one that is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from dmlvk.engine.numpy_types import data_type_of
from dmlvk.engine.single_operators import Stored, bound, single_operator
from dmlvk.engine.stored_array import StoredArray
from dmlvk.graph.views import Sizes
from dmlvk.runtime.recorder import BoundRange, Recording, copy_between
from dmlvk.spec import ops
from dmlvk.spec.functions import input_fields
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc

_BOOL: Final = np.dtype(bool)


def run(
    row: type[OperatorDesc],
    inputs: Mapping[str, Stored],
    dtype: np.dtype[Any],
    sizes: Sizes,
    into: Stored | None = None,
    **attributes: Any,
) -> Stored:
    """One operator, by itself: compiled once for each distinct desc, as calls of functions for operators are.

    Args:
        row: The operator.
        inputs: Its tensors by field.
        dtype, sizes: The type and the shape of its output. Nothing runs where that has no elements.
        into: An array of this type and shape, whose elements lie apart, to write to. It may share memory with the inputs.
        attributes: Its attributes.
    """
    first = next(iter(inputs.values()))
    if 0 in sizes:
        return type(first).from_numpy(np.empty(sizes, dtype), first.device) if into is None else into
    if into is not None and not _takes_output(row, inputs, into):
        _store(run(row, inputs, dtype, sizes, **attributes), into)
        return into
    data_type = data_type_of(dtype)
    output = TensorDesc(data_type, sizes or (1,)) if into is None else into.desc

    def describe() -> OperatorDesc:
        tensors = {name: array.desc for name, array in inputs.items()}
        return row(**tensors, output_tensor=output, **attributes)

    about = tuple((name, array.data_type, array.shape, array.strides) for name, array in inputs.items())
    prepared = single_operator(first.device, ("array", row, about, output, repr(attributes)), describe)
    ranges = [bound(inputs[spec.name]) if spec.name in inputs else None for spec in input_fields(row)]
    if into is not None:
        prepared.run_into(first.device, ranges, [bound(into)])
        return into
    buffer, *_ = prepared.run(first.device, ranges)  # optional outputs behind the first are left out
    assert buffer is not None, "an operator that gives one array has an output"
    return type(first)(first.device, buffer, data_type, sizes, is_bool=dtype == _BOOL)


def written(values: Stored, into: Stored) -> Stored:
    """Writes elements into an array of their type and shape, as if they were copied first; see ``run``."""
    return run(ops.ElementWiseIdentity, {"input_tensor": values}, into.dtype, into.shape, into)


def _takes_output(row: type[OperatorDesc], inputs: Mapping[str, Stored], into: Stored) -> bool:
    """Whether an operator can write to an array itself: it starts where tensors may, and no input lies in its memory but
    one that the operator overwrites element by element."""
    if not into.is_bindable:
        return False
    for name, array in inputs.items():
        if _bytes(array).intersects(_bytes(into)) and not (name in row.in_place and is_same(array, into)):
            return False
    return True


def is_same(one: StoredArray, other: StoredArray) -> bool:
    """Whether two arrays show the same elements of the same memory."""
    return one.buffer == other.buffer and one.offset == other.offset and one.view.is_same(other.view)


def _bytes(array: StoredArray) -> BoundRange:
    return BoundRange(array.buffer, array.offset, array.desc.total_tensor_size_in_bytes)


def _store(values: Stored, into: Stored) -> None:
    """Writes a packed array of its own memory into another array, wherever that starts."""
    if into.is_bindable:
        written(values, into)
        return
    device, target = into.device, BoundRange(into.buffer, into.offset, into.span_in_bytes)
    if not into.is_packed:  # what lies between the elements stays
        around = into.binding()
        assert around.buffer is not None, "a copy has memory"
        values = written(values, type(into)(device, around.buffer, into.data_type, *into.view, around.offset, into.is_bool))
    recording = Recording(device, timestamps=False)
    recording.add([copy_between("CopyBufferRegion", BoundRange(values.buffer, 0, target.nbytes), target)])
    recording.submit()
