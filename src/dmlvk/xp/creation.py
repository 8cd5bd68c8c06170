"""Arrays made of values, numbers and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.engine.array_functions import broadcast, common_sizes, reshaped
from dmlvk.engine.array_runs import run
from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.numpy_types import array_of
from dmlvk.runtime.device import ComputeDevice
from dmlvk.spec import ops
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.xp.operands import DEFAULT_FLOAT, default_type, numpys, on_device

Shape = int | tuple[int, ...]


def asarray(
    obj: Any, dtype: npt.DTypeLike | None = None, *, device: ComputeDevice | None = None, copy: bool | None = None
) -> DeviceArray:
    """An array on a device: of nested sequences of numbers, or of what numpy makes an array of, which are uploaded, or of
    an array on a device.

    Args:
        obj: The values. Python's floats become float32, its integers int64.
        dtype: The type, where not that.
        device: The device, where not the array's own or the default one.
        copy: Whether an array that is there already is copied; None for as needed. False raises where a copy is needed.
    """
    if isinstance(obj, DeviceArray):
        array = obj if device is None else obj.to_device(device)
        array = array if dtype is None else array.astype(dtype, copy=False)
        if copy is False and array is not obj:
            raise _needs_copy("asarray")
        return array.copy() if copy and array is obj else array
    if copy is False:
        raise _needs_copy("asarray")
    values = array_of(obj, lambda: "obj", dtype)
    return DeviceArray.from_numpy(values if dtype is not None or hasattr(obj, "dtype") else default_type(values), device)


def _needs_copy(name: str) -> InvalidArgumentError:
    return InvalidArgumentError("must not be False where a copy is needed", operator=name, field="copy", value=False)


def from_dlpack(x: Any, /, *, device: ComputeDevice | None = None, copy: bool | None = None) -> DeviceArray:
    """An array of another library's, which is uploaded: see ``DeviceArray.from_dlpack``."""
    if isinstance(x, DeviceArray):
        return asarray(x, device=device, copy=copy)
    if copy is False:
        raise _needs_copy("from_dlpack")
    return DeviceArray.from_dlpack(x, device)


def full(
    shape: Shape, fill_value: complex, *, dtype: npt.DTypeLike | None = None, device: ComputeDevice | None = None
) -> DeviceArray:
    """An array of one value."""
    value = array_of(fill_value, lambda: "fill_value", dtype)
    return _filled(shape, default_type(value) if dtype is None else value, device)


def _filled(shape: Shape, value: npt.NDArray[Any], device: ComputeDevice | None) -> DeviceArray:
    return DeviceArray.from_numpy(np.broadcast_to(value, shape), device).copy()


def zeros(shape: Shape, *, dtype: npt.DTypeLike | None = None, device: ComputeDevice | None = None) -> DeviceArray:
    """An array of zeros."""
    return _filled(shape, np.zeros((), DEFAULT_FLOAT if dtype is None else dtype), device)


def ones(shape: Shape, *, dtype: npt.DTypeLike | None = None, device: ComputeDevice | None = None) -> DeviceArray:
    """An array of ones."""
    return _filled(shape, np.ones((), DEFAULT_FLOAT if dtype is None else dtype), device)


def empty(shape: Shape, *, dtype: npt.DTypeLike | None = None, device: ComputeDevice | None = None) -> DeviceArray:
    """As ``zeros``: memory never shows what it held before."""
    return zeros(shape, dtype=dtype, device=device)


@numpys("full_like")
def full_like(
    x: DeviceArray, fill_value: complex, *, dtype: npt.DTypeLike | None = None, device: ComputeDevice | None = None
) -> DeviceArray:
    """An array of one value, with another one's shape, and its type and device unless told."""
    x = on_device("full_like", x)
    return full(x.shape, fill_value, dtype=x.dtype if dtype is None else dtype, device=device or x.device)


@numpys("zeros_like", "empty_like")
def zeros_like(x: DeviceArray, *, dtype: npt.DTypeLike | None = None, device: ComputeDevice | None = None) -> DeviceArray:
    """An array of zeros; see ``full_like``."""
    return full_like(x, 0, dtype=dtype, device=device)


@numpys("ones_like")
def ones_like(x: DeviceArray, *, dtype: npt.DTypeLike | None = None, device: ComputeDevice | None = None) -> DeviceArray:
    """An array of ones; see ``full_like``."""
    return full_like(x, 1, dtype=dtype, device=device)


empty_like = zeros_like


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: npt.DTypeLike | None = None,
    device: ComputeDevice | None = None,
) -> DeviceArray:
    """Numbers from a start to before a stop, or from 0 to before the start; computed on the host and uploaded."""
    values = np.arange(0, start, step) if stop is None else np.arange(start, stop, step)
    return DeviceArray.from_numpy(default_type(values) if dtype is None else values.astype(dtype), device)


def linspace(
    start: float,
    stop: float,
    num: int,
    *,
    dtype: npt.DTypeLike | None = None,
    device: ComputeDevice | None = None,
    endpoint: bool = True,
) -> DeviceArray:
    """So many numbers from a start to a stop, evenly spaced; computed on the host and uploaded."""
    values = np.linspace(start, stop, num, endpoint=endpoint)
    return DeviceArray.from_numpy(values.astype(DEFAULT_FLOAT if dtype is None else dtype), device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    *,
    k: int = 0,
    dtype: npt.DTypeLike | None = None,
    device: ComputeDevice | None = None,
) -> DeviceArray:
    """A matrix with ones on its k-th diagonal, counted upward from the main one, and zeros elsewhere."""
    return _with_diagonals(zeros((n_rows, n_rows if n_cols is None else n_cols), dtype=dtype, device=device), 1, k, k + 1)


@numpys("tril")
def tril(x: DeviceArray, k: int = 0) -> DeviceArray:
    """Matrices with zeros above the k-th diagonal."""
    x = _matrices("tril", x)
    return _with_diagonals(x, 0, k + 1, max(x.shape[-1], k + 1))


@numpys("triu")
def triu(x: DeviceArray, k: int = 0) -> DeviceArray:
    """Matrices with zeros below the k-th diagonal."""
    x = _matrices("triu", x)
    return _with_diagonals(x, 0, min(-x.shape[-2], k), k)


def _matrices(name: str, x: DeviceArray) -> DeviceArray:
    if on_device(name, x).ndim < 2:
        raise InvalidArgumentError("must have two dimensions or more", operator=name, field="shape", value=x.shape)
    return x


def _with_diagonals(x: DeviceArray, value: int, begin: int, end: int) -> DeviceArray:
    """Matrices with a value on the diagonals from one to before another."""
    if not x.size:
        return x
    rows, columns = x.shape[-2:]
    begin, end = (min(max(diagonal, -rows), columns) for diagonal in (begin, end))
    flat = reshaped(x, (x.size // (rows * columns), rows, columns))
    result = run(
        ops.DiagonalMatrix1,
        {"input_tensor": flat},
        x.dtype,
        flat.shape,
        value_data_type=x.data_type,
        value=value,
        diagonal_fill_begin=begin,
        diagonal_fill_end=end,
    )
    return reshaped(result, x.shape)


def meshgrid(*arrays: DeviceArray, indexing: str = "xy") -> tuple[DeviceArray, ...]:
    """Coordinates of a grid, one array for each vector of them; "xy" swaps the first two dimensions, "ij" does not."""
    if indexing not in ("xy", "ij"):
        raise InvalidArgumentError('must be "xy" or "ij"', operator="meshgrid", field="indexing", value=indexing)
    count = len(arrays)
    places = [1, 0, *range(2, count)] if indexing == "xy" and count > 1 else list(range(count))
    views = []
    for array, at in zip(arrays, places, strict=True):
        views.append(reshaped(on_device("meshgrid", array), (1,) * at + (array.size,) + (1,) * (count - 1 - at)))
    sizes = common_sizes("meshgrid", *(view.shape for view in views))
    return tuple(broadcast(view, sizes).copy() for view in views)
