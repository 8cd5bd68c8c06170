"""Fills, in the output's own type."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.engine.numpy_types import dtype_of
from dmlvk.spec.ops.fill import DiagonalMatrix, DiagonalMatrix1, FillValueConstant, FillValueSequence, OneHot
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.oracle.elementwise import cast_to

Array = NDArray[Any]


def _number(value: float, output: TensorDesc) -> Array:
    """A scalar in the output's type; integers modulo 2^bits."""
    kind = dtype_of(output.data_type)
    if kind.kind == "f":
        return np.array(value).astype(kind)
    return np.array(int(value) % 2**64, np.uint64).astype(kind)


def fill_value_constant(desc: FillValueConstant) -> Array:
    """``FillValueConstant``."""
    output = desc.tensor("output_tensor")
    return np.full(output.sizes, _number(desc.value, output))


def fill_value_sequence(desc: FillValueSequence) -> Array:
    """``FillValueSequence``, floats by the row's own definition: one product and one sum in float32."""
    output = desc.tensor("output_tensor")
    start, delta = _number(desc.value_start, output), _number(desc.value_delta, output)
    if start.dtype.kind == "f":
        counter = np.arange(output.element_count).astype(np.float32)
        values: Array = start.astype(np.float32) + counter * delta.astype(np.float32)
    else:
        values = start.astype(np.uint64) + np.arange(output.element_count, dtype=np.uint64) * delta.astype(np.uint64)
    return values.astype(start.dtype).reshape(output.sizes)


def diagonal_matrix(desc: DiagonalMatrix) -> Array:
    """``DiagonalMatrix``."""
    output = desc.tensor("output_tensor")
    kind = dtype_of(output.data_type)
    value = np.array(np.float32(desc.value), np.float64)
    rows, columns = output.sizes[-2:]
    diagonal = np.eye(rows, columns, desc.offset, kind)
    return np.broadcast_to(diagonal * cast_to(value, kind), output.sizes)


def diagonal_matrix1(desc: DiagonalMatrix1, background: Array | None) -> Array:
    """``DiagonalMatrix1``, by the specification's formula."""
    output = desc.tensor("output_tensor")
    value = _number(desc.value, output)
    begin, end = desc.diagonal_fill_begin, desc.diagonal_fill_end
    rows, columns = output.sizes[-2:]
    top = np.arange(columns) - np.arange(rows)[:, None]
    use = (end >= begin) ^ (top >= begin) ^ (top < end)
    return np.where(use, value, np.zeros(output.sizes, value.dtype) if background is None else background)


def one_hot(desc: OneHot, indices: Array, values: Array) -> Array:
    """``OneHot``."""
    size = desc.tensor("output_tensor").sizes[desc.axis]
    if indices.dtype.kind == "i":
        indices = np.where(indices < 0, indices + size, indices)
    shape = [1] * indices.ndim
    shape[desc.axis] = size
    off, on = values.reshape(-1)[:2]
    return np.asarray(np.where(np.arange(size).astype(indices.dtype).reshape(shape) == indices, on, off))
