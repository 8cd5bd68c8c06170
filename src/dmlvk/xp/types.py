"""Data types, constants, and what the namespace says of itself."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dmlvk.engine.array_functions import common_type, number
from dmlvk.engine.default_device import default_device
from dmlvk.engine.device_array import DeviceArray
from dmlvk.engine.numpy_types import data_type_of
from dmlvk.kernels.common.data_types import needed_features
from dmlvk.runtime.device import ComputeDevice
from dmlvk.spec import ops
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.xp.operands import DEFAULT_FLOAT, DEFAULT_INTEGER, numpys, on_device

bool = np.dtype(np.bool_)
int8, int16, int32, int64 = (np.dtype(name) for name in ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = (np.dtype(name) for name in ("uint8", "uint16", "uint32", "uint64"))
float16, float32, float64 = (np.dtype(name) for name in ("float16", "float32", "float64"))
e, pi, inf, nan, newaxis = float(np.e), float(np.pi), float("inf"), float("nan"), None

_KINDS: Final = {
    "bool": (bool,),
    "signed integer": (int8, int16, int32, int64),
    "unsigned integer": (uint8, uint16, uint32, uint64),
    "real floating": (float32, float64),
    "complex floating": (),
}
_WIDER: Final = {"integral": ("signed integer", "unsigned integer"), "numeric": tuple(_KINDS)[1:]}
_MOST_DIMENSIONS: Final = 8


def kinds(kind: Any) -> list[np.dtype[Any]]:
    """The types of a kind, or of several.

    Raises:
        InvalidArgumentError: there is no such kind.
    """
    if isinstance(kind, tuple):
        return [dtype for one in kind for dtype in kinds(one)]
    names = _WIDER.get(kind, (kind,)) if isinstance(kind, str) else ()
    if not names or not set(names) <= set(_KINDS):
        rule = f"must be a kind of types: {', '.join((*_KINDS, *_WIDER))}"
        raise InvalidArgumentError(rule, operator="isdtype", field="kind", value=kind)
    return [dtype for name in names for dtype in _KINDS[name]]


def astype(x: DeviceArray, dtype: npt.DTypeLike, *, copy: builtins.bool = True, device: ComputeDevice | None = None) -> Any:
    """The elements in another type; see ``DeviceArray.astype``."""
    converted = on_device("astype", x).astype(dtype, copy=copy)
    return converted if device is None else converted.to_device(device)


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """The type that arrays, types and Python numbers give together.

    Raises:
        InvalidArgumentError: they give none, as integers and floats do.
    """
    numbers = [item for item in arrays_and_dtypes if isinstance(item, (builtins.bool, int, float))]
    rest = [item for item in arrays_and_dtypes if not isinstance(item, (builtins.bool, int, float))]
    dtype = common_type("result_type", [item.dtype if hasattr(item, "dtype") else np.dtype(item) for item in rest])
    for value in numbers:
        number("result_type", value, dtype)
    return dtype


@numpys("can_cast")
def can_cast(from_: Any, to: npt.DTypeLike) -> builtins.bool:
    """Whether a type, or that of an array, becomes another one without loss."""
    return np.can_cast(getattr(from_, "dtype", from_), np.dtype(to))


def isdtype(dtype: npt.DTypeLike, kind: Any) -> builtins.bool:
    """Whether a type is another one, or of a kind such as "integral", or among several of either."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    return np.dtype(dtype) in kinds(kind) if isinstance(kind, str) else np.dtype(dtype) == np.dtype(kind)


@dataclass(frozen=True)
class FloatInfo:
    """What ``finfo`` tells of a type: its bits, the step at 1, its least, largest and least normal numbers."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class IntegerInfo:
    """What ``iinfo`` tells of a type: its bits, its largest and least numbers."""

    bits: int
    max: int
    min: int
    dtype: np.dtype[Any]


def finfo(type: Any) -> FloatInfo:
    """What a type of floats, or that of an array, can hold."""
    dtype = np.dtype(getattr(type, "dtype", type))
    found = np.finfo(dtype)
    eps, most, least, normal = (float(value) for value in (found.eps, found.max, found.min, found.smallest_normal))
    return FloatInfo(found.bits, eps, most, least, normal, dtype)


def iinfo(type: Any) -> IntegerInfo:
    """What a type of integers, or that of an array, can hold."""
    dtype = np.dtype(getattr(type, "dtype", type))
    found = np.iinfo(dtype)
    return IntegerInfo(found.bits, int(found.max), int(found.min), dtype)


class Information:
    """What ``__array_namespace_info__`` gives: devices and types."""

    def capabilities(self) -> dict[str, Any]:
        """What the standard leaves open: masks are indices, and shapes may follow from values."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": _MOST_DIMENSIONS}

    def default_device(self) -> ComputeDevice:
        """The device of arrays where none is named."""
        return default_device()

    def devices(self) -> tuple[ComputeDevice, ...]:
        """The devices that are there without being opened: the default one. Every open ``dmlvk.Device`` may be named."""
        return (default_device(),)

    def default_dtypes(self, *, device: ComputeDevice | None = None) -> dict[str, np.dtype[Any]]:
        """The types of arrays where none is named."""
        return {"real floating": DEFAULT_FLOAT, "integral": DEFAULT_INTEGER, "indexing": DEFAULT_INTEGER}

    def dtypes(self, *, device: ComputeDevice | None = None, kind: Any = None) -> dict[str, np.dtype[Any]]:
        """The standard's types that a device has, by name; some want what not every device has."""
        features = (default_device() if device is None else device).capabilities.features
        found = kinds(tuple(_KINDS) if kind is None else kind)
        needed = {**needed_features(ops.ElementWiseIf), **needed_features(ops.ElementWiseAdd)}
        return {dtype.name: dtype for dtype in found if needed[data_type_of(dtype)] <= features}
