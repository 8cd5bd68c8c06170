"""Tensor data types as numpy's and back, and numpy arrays as tensors see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import DmlvkError, InvalidArgumentError

_DTYPES: Final[dict[TensorDataType, np.dtype[Any]]] = {
    TensorDataType[name.upper()]: np.dtype(name)
    for name in (
        "float64",
        "float32",
        "float16",
        "uint64",
        "uint32",
        "uint16",
        "uint8",
        "int64",
        "int32",
        "int16",
        "int8",
    )
}
_DATA_TYPES: Final = {dtype: data_type for data_type, dtype in _DTYPES.items()} | {np.dtype(bool): TensorDataType.UINT8}
HALF_BYTES: Final = {TensorDataType.INT4: np.dtype(np.int8), TensorDataType.UINT4: np.dtype(np.uint8)}
"""The 4-bit types, and the numpy types that their numbers come in."""


def data_type_of(dtype: npt.DTypeLike) -> TensorDataType:
    """The tensor data type of a numpy type; bool is UINT8, as DirectML's logical operators have it.

    Raises:
        InvalidArgumentError: a numpy type that no tensor has (complex, object, foreign byte order, ...).
    """
    kind = np.dtype(dtype)
    if kind not in _DATA_TYPES:
        names = ", ".join(str(known) for known in _DATA_TYPES)
        raise InvalidArgumentError(f"must be one of {names}", field="dtype", value=kind)
    return _DATA_TYPES[kind]


def array_of(value: npt.ArrayLike, name: Callable[[], str], dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    """A value as numpy sees it.

    Args:
        value: An array, or what numpy makes one of.
        name: Gives the name of the argument, for the error.
        dtype: The type to make, None for what numpy takes.

    Raises:
        InvalidArgumentError: numpy makes none of it, as of lists of different lengths.
    """
    try:
        return np.asarray(value, dtype)
    except DmlvkError:  # a device's, where the value is on one
        raise
    except Exception as error:  # whatever the value's own conversion raises
        rule = f"must be an array, or what numpy makes one of ({error})"
        raise InvalidArgumentError(rule, field=name(), value=type(value)) from error


def dtype_of(data_type: TensorDataType) -> np.dtype[Any]:
    """The numpy type of a tensor data type; of a 4-bit one, which numpy lacks, int8 or uint8: a number a byte.

    Raises:
        InvalidArgumentError: an unknown type.
    """
    dtype = _DTYPES.get(data_type) or HALF_BYTES.get(data_type)
    if dtype is None:
        raise InvalidArgumentError("must be a data type of known size", field="DataType", value=data_type)
    return dtype


def element_strides(array: npt.NDArray[Any]) -> tuple[int, ...] | None:
    """An array's strides in elements; None where no tensor can have them: negative, or no multiple of the element."""
    item = array.itemsize
    if any(step < 0 or step % item for step in array.strides):
        return None
    return tuple(step // item for step in array.strides)


def memory_span(array: npt.NDArray[Any], strides: tuple[int, ...]) -> npt.NDArray[Any]:
    """The memory between an array's first and last element as a flat array; no copy. Broadcast elements appear once."""
    if array.flags.c_contiguous:
        return array.reshape(-1)  # as_strided takes ten times as long
    last = sum((size - 1) * step for size, step in zip(array.shape, strides, strict=True))
    return np.lib.stride_tricks.as_strided(array, (last + 1,), (array.itemsize,), writeable=False)
