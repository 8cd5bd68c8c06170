"""PyDirectML's tensors: their descs, and the numbers that scripts give and get."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from dmlvk.engine.numpy_types import dtype_of
from dmlvk.spec import tensor_policy
from dmlvk.spec.enums import TensorDataType, TensorFlags
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.tensor import TensorDesc as EngineDesc


class Dimensions:
    """The sizes of a tensor, as signatures call them: scripts give and get lists."""

    def __init__(self) -> None:
        raise TypeError("Dimensions has no constructor")


class TensorPolicy:
    """How a tensor lies whose strides are not given: ``default``, packed, or ``interleaved_channel``; no others."""

    default: ClassVar[TensorPolicy]
    interleaved_channel: ClassVar[TensorPolicy]

    def __init__(self, policy: tensor_policy.TensorPolicy, /) -> None:
        self._policy = policy


TensorPolicy.default = TensorPolicy(tensor_policy.TensorPolicy.default())
TensorPolicy.interleaved_channel = TensorPolicy(tensor_policy.TensorPolicy.interleaved_channel())

OVERLOADS: Final = (
    ("data_type", "sizes", "tensor_policy"),
    ("data_type", "flags", "sizes", "tensor_policy"),
    ("data_type", "sizes", "strides"),
    ("data_type", "flags", "sizes", "strides", "total_tensor_size_in_bytes", "guaranteed_base_offset_alignment"),
)
"""The arguments of each of a desc's constructors, in the order in which they are tried. A policy may be left out."""


def _is_dimensions(value: object) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


_FITS: Final[Mapping[str, Callable[[object], bool]]] = {
    "data_type": lambda value: isinstance(value, TensorDataType),
    "flags": lambda value: isinstance(value, TensorFlags),
    "sizes": _is_dimensions,
    "strides": lambda value: value is None or _is_dimensions(value),
    "tensor_policy": lambda value: isinstance(value, TensorPolicy),
    "total_tensor_size_in_bytes": lambda value: isinstance(value, int),
    "guaranteed_base_offset_alignment": lambda value: isinstance(value, int),
}


class TensorDesc:
    """A tensor: type, flags, sizes and strides, in one of four ways.

    - ``TensorDesc(data_type, sizes, tensor_policy=TensorPolicy.default)``
    - ``TensorDesc(data_type, flags, sizes, tensor_policy=TensorPolicy.default)``
    - ``TensorDesc(data_type, sizes, strides)``
    - ``TensorDesc(data_type, flags, sizes, strides, total_tensor_size_in_bytes, guaranteed_base_offset_alignment)``

    Attributes:
        data_type, flags, sizes, strides, total_tensor_size_in_bytes, guaranteed_base_offset_alignment: As DirectML has them;
            sizes and strides are lists, and ``strides`` is None of a packed tensor.

    Raises:
        TypeError: arguments of none of the four.
        InvalidArgumentError: no tensor can be so.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        for names in OVERLOADS:
            given = dict(zip(names, args, strict=False)) | named
            complete = {"tensor_policy": TensorPolicy.default} | given if "tensor_policy" in names else given
            is_called_so = len(args) + len(named) == len(given) and set(complete) == set(names)
            if is_called_so and all(_FITS[name](value) for name, value in complete.items()):
                self._desc = _desc(**complete)
                return
        ways = "".join(f"\n    TensorDesc({', '.join(names)})" for names in OVERLOADS)
        raise TypeError(f"TensorDesc(): the arguments fit none of its ways:{ways}\ngot {args} {named or ''}")

    @classmethod
    def _of(cls, desc: EngineDesc) -> TensorDesc:
        made = cls.__new__(cls)
        made._desc = desc
        return made

    @property
    def data_type(self) -> TensorDataType:
        return self._desc.data_type

    @property
    def flags(self) -> TensorFlags:
        return self._desc.flags

    @property
    def sizes(self) -> list[int]:
        return list(self._desc.sizes)

    @property
    def strides(self) -> list[int] | None:
        return None if self._desc.strides is None else list(self._desc.strides)

    @property
    def total_tensor_size_in_bytes(self) -> int:
        return self._desc.total_tensor_size_in_bytes

    @property
    def guaranteed_base_offset_alignment(self) -> int:
        return self._desc.guaranteed_base_offset_alignment

    def __repr__(self) -> str:
        sizes = ",".join(map(str, self.sizes))
        return f"dml.TensorDesc of type {int(self.data_type)} and shape [{sizes}] with flags {int(self.flags)}"


def _desc(
    data_type: TensorDataType,
    sizes: Sequence[int],
    flags: TensorFlags = TensorFlags.NONE,
    strides: Sequence[int] | None = None,
    tensor_policy: TensorPolicy | None = None,
    total_tensor_size_in_bytes: int = 0,
    guaranteed_base_offset_alignment: int = 0,
) -> EngineDesc:
    if tensor_policy is not None:
        return tensor_policy._policy.desc(data_type, flags, sizes)
    kept = None if strides is None else tuple(strides)
    return EngineDesc(data_type, tuple(sizes), kept, total_tensor_size_in_bytes, flags, guaranteed_base_offset_alignment)


class TensorData(np.ndarray[Any, np.dtype[Any]]):
    """Numbers that PyDirectML hands out: an array over memory of its own, for ``numpy.array``.

    Args:
        data: Numbers, which are copied as float32.
    """

    def __new__(cls, data: npt.ArrayLike) -> TensorData:
        return np.array(data, np.float32, order="C").view(cls)

    @classmethod
    def _of(cls, data: npt.NDArray[Any], desc: EngineDesc) -> TensorData:
        """The bytes of an array as a tensor. Elements of 4 bytes are seen as float32, as PyDirectML sees all."""
        return _elements(data, desc, np.dtype(np.float32)).view(cls)


class Binding:
    """Numbers for an input of a graph. They are copied.

    Args:
        expr: The input.
        data: Its numbers, as they lie in memory: of a tensor with strides, no more than these reach. float32 of exactly the
            tensor's bytes is taken as bits, whatever the tensor's type; other numbers are converted to it.

    Raises:
        InvalidArgumentError: fewer numbers than the tensor has in memory.
    """

    def __init__(self, expr: Any, data: npt.ArrayLike) -> None:
        self._desc: EngineDesc = expr.get_output_desc()._desc
        nbytes = self._desc.total_tensor_size_in_bytes
        values = np.asarray(data)
        if values.dtype != np.float32 or values.nbytes != nbytes:
            values = values.astype(dtype_of(self._desc.data_type))
        held = values.tobytes()  # in C order
        held = held.ljust(-(-len(held) // 4) * 4, b"\0")
        if len(held) < nbytes:
            rule = f"must have the {nbytes} bytes of the tensor {self._desc}"
            raise InvalidArgumentError(rule, operator="Binding", field="data", value=f"{len(held)} bytes")
        self._data = np.frombuffer(held, np.uint8)[:nbytes]

    def _array(self) -> npt.NDArray[Any]:
        """The numbers under the tensor's sizes and strides."""
        return _elements(self._data, self._desc, dtype_of(self._desc.data_type))


def _elements(data: npt.NDArray[Any], desc: EngineDesc, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Bytes as the elements of a tensor, of a type if it is as wide as the tensor's own."""
    own = dtype_of(desc.data_type)
    held = own if own.itemsize != dtype.itemsize else dtype
    strides = [step * held.itemsize for step in desc.effective_strides]
    return np.ndarray(desc.sizes, held, np.ascontiguousarray(data).view(np.uint8).reshape(-1), strides=strides)
