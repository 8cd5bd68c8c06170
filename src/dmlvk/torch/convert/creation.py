"""Tensors of numbers that are known before the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlvk.engine.values import Value
from dmlvk.spec import ops
from dmlvk.torch.conversion import Conversion, Number
from dmlvk.torch.registry import converter


@converter("aten.full.default")
def full(node: Conversion, size: Sequence[int], value: Number, **options: Any) -> Value:
    return node.fill(node.sizes, node.dtype.type(value))


@converter("aten.full_like.default")
def full_like(node: Conversion, x: Value, value: Number, **options: Any) -> Value:
    return node.fill(node.sizes, node.dtype.type(value))


@converter("aten.fill.Scalar")
def fill(node: Conversion, x: Value, value: Number) -> Value:
    return node.fill(node.sizes, node.dtype.type(value))


@converter("aten.scalar_tensor.default")
def scalar_tensor(node: Conversion, value: Number, **options: Any) -> Value:
    return node.tensor(value, node.dtype)


@converter("aten.empty.memory_format", "aten.empty_strided.default", "aten.zeros.default", "aten.new_zeros.default")
def empty(node: Conversion, *sizes: Any, **options: Any) -> Value:
    """Zeros, so that each run gives the same where a program reads what it has not written."""
    return node.fill(node.sizes, node.dtype.type(0))


@converter("aten.zeros_like.default", "aten.empty_like.default", "aten.new_empty.default")
def zeros_like(node: Conversion, x: Value, *sizes: Any, **options: Any) -> Value:
    return node.fill(node.sizes, node.dtype.type(0))


@converter("aten.ones.default")
def ones(node: Conversion, size: Sequence[int], **options: Any) -> Value:
    return node.fill(node.sizes, node.dtype.type(1))


@converter("aten.ones_like.default")
def ones_like(node: Conversion, x: Value, **options: Any) -> Value:
    return node.fill(node.sizes, node.dtype.type(1))


@converter("aten.arange.start_step")
def arange(node: Conversion, start: Number, end: Number, step: Number = 1, **options: Any) -> Value:
    """start, start + step, ...; of a type whose numbers are not exact in its steps, rounded once."""
    dtype = node.dtype
    if dtype.kind == "f" and dtype == np.float64:
        return node.upload(start + step * np.arange(node.sizes[0], dtype=dtype))
    if dtype.kind == "f":
        start, step = float(start), float(step)
        kind = np.dtype(np.float32)
    else:
        start, step, kind = int(start), int(step), dtype
    y = node.new(node.sizes, kind)
    fields = {"value_data_type": y.data_type, "value_start": start, "value_delta": step}
    return node.cast(node.launch(ops.FillValueSequence, output_tensor=y, **fields), dtype)
