"""What all functions of the namespace share: which arrays they take, and what numpy calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from dmlvk.engine.array_functions import together as engine_together
from dmlvk.engine.array_reductions import axes_of
from dmlvk.engine.device_array import DeviceArray
from dmlvk.spec.errors import InvalidArgumentError

DEFAULT_FLOAT: Final = np.dtype(np.float32)
DEFAULT_INTEGER: Final = np.dtype(np.int64)
NUMPYS: Final[dict[Callable[..., Any], Callable[..., Any]]] = {}
"""numpy's functions that run on a device, and what computes them there: numpy asks ``DeviceArray`` for it."""

Made = TypeVar("Made", bound=Callable[..., Any])


def numpys(*names: str) -> Callable[[Made], Made]:
    """Says by name which of numpy's functions a function stands for; it takes their arguments in their order. Names that
    this version of numpy lacks are left out."""

    def register(own: Made) -> Made:
        NUMPYS.update({getattr(np, name): own for name in names if hasattr(np, name)})
        return own

    return register


def on_device(name: str, x: object) -> DeviceArray:
    """An argument that is an array on a device.

    Raises:
        InvalidArgumentError: it is something else, such as numpy's array: nothing is uploaded unasked.
    """
    if not isinstance(x, DeviceArray):
        rule = "must be a DeviceArray: dmlvk.xp.asarray uploads"
        raise InvalidArgumentError(rule, operator=name, field="x", value=type(x))
    return x


def together(name: str, operands: Sequence[Any], beside: DeviceArray | None = None) -> list[DeviceArray]:
    """Operands as arrays of one type on one device; numbers take that type, and numpy's arrays are uploaded.

    Args:
        name: The function, for errors.
        operands: Arrays and numbers.
        beside: An array whose device is meant where no operand is on one.

    Raises:
        InvalidArgumentError: no array, or types that have none in common.
        StateError: arrays of two devices.
    """
    if beside is None and not any(isinstance(item, DeviceArray) for item in operands):
        on_device(name, operands[0] if operands else None)
    return engine_together(DeviceArray, name, tuple(operands), beside)


def one_axis(name: str, axis: int, rank: int) -> int:
    """An axis counted from 0.

    Raises:
        InvalidArgumentError: there is none.
    """
    (found,) = axes_of(name, axis, rank)
    return found


def like(array: DeviceArray, values: npt.NDArray[Any]) -> DeviceArray:
    """Values on an array's device."""
    return DeviceArray.from_numpy(values, array.device)


def default_type(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Values that Python gave, in the namespace's default types."""
    kind = values.dtype.kind
    return values.astype(DEFAULT_FLOAT if kind == "f" else DEFAULT_INTEGER if kind == "i" else values.dtype, copy=False)
