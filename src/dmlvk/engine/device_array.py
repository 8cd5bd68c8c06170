"""``DeviceArray``: an array on a device that computes there with DirectML's operators, by the array API's rules."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from dmlvk.engine.indices import Chosen, expanded, forward, places, without_masks
from dmlvk.engine.numpy_types import HALF_BYTES, data_type_of
from dmlvk.engine.single_operators import bound, packed, single_operator
from dmlvk.engine.stored_array import Index, StoredArray
from dmlvk.graph.views import Sizes, View, broadcast_sizes
from dmlvk.runtime.device import ComputeDevice
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction
from dmlvk.spec.errors import InvalidArgumentError, other_device
from dmlvk.spec.functions import input_fields
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, element_bits

_BOOL: Final = np.dtype(bool)
_FLOAT: Final = np.dtype(np.float32)
_MATRIX_DIMENSIONS: Final = 4
_INDEX: Final = np.dtype(np.int32)

Number = bool | int | float
Axes = int | tuple[int, ...] | None


class DeviceArray(StoredArray):
    """An array on a device. Slicing, ``transpose`` and ``T`` give views of the same buffer. Whatever computes does so on the
    device: it gives a new array there, and does not wait for it.

    A view may start at any element, while DirectML binds tensors at multiples of 16 bytes: ``binding`` copies a view that
    starts elsewhere into a buffer of its own, on the device, and ``is_bindable`` tells beforehand.

    Types follow the array API standard: two arrays give the smallest type of their kind that holds both, integers and floats
    do not mix, and a Python number takes the array's type. A numpy array among the operands is uploaded. Integers become
    float32 where only floats make sense (``/``, ``mean``, ``np.sqrt``). numpy's functions that an operator computes, such as
    ``np.add``, run on the device, and others refuse. ``a += b`` makes a new array and leaves views of ``a`` as they are.

    Attributes:
        device: The device that it lives on.
        buffer: The memory, shared with the views.
        offset: Bytes from the buffer's start to the first element.
        data_type: The type of the elements.
        is_bool: Whether the elements, of UINT8, are truth values: 0 or 1, and bool for numpy.
        shape: Elements a dimension; () for a single element.
        strides: Elements (not bytes) between neighbours of each dimension.
    """

    __slots__ = ()

    # -- conversions

    @classmethod
    def from_dlpack(cls, array: Any, device: ComputeDevice | None = None) -> DeviceArray:
        """Uploads an array of another library that is in host memory and has DLPack's protocol; see ``from_numpy``."""
        return cls.from_numpy(np.from_dlpack(array), device)

    def astype(self, dtype: npt.DTypeLike, *, copy: bool = True) -> DeviceArray:
        """The elements in another type. A float becomes an integer toward zero, within the type's range.

        Args:
            dtype: A numpy type that tensors have.
            copy: Whether an array of this type already is copied.

        Raises:
            InvalidArgumentError: another type.
        """
        kind = np.dtype(dtype)
        data_type_of(kind)
        return packed(self) if copy and kind == self.dtype and self.size else _converted(self, kind)

    def copy(self) -> DeviceArray:
        """A packed copy, on the device."""
        return packed(self) if self.size else self

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceArray:
        return self.copy()

    def __reduce__(self) -> tuple[Callable[..., DeviceArray], tuple[Any, ...]]:
        """Pickles the values; they are unpickled to the default device."""
        data_type = self.data_type if self.data_type in HALF_BYTES else None
        return DeviceArray.from_numpy, (self.numpy(), None, data_type)

    def item(self) -> Number:
        """The one element as a Python number. Waits for it.

        Raises:
            InvalidArgumentError: not one element.
        """
        if self.size != 1:
            raise InvalidArgumentError("the array must have one element", operator="item", value=self.shape)
        return cast(Number, self.numpy().item())

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers. Waits for them."""
        return self.numpy().tolist()

    @property
    def itemsize(self) -> int:
        """Bytes of an element for numpy."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements on the device, without what lies between them."""
        return -(-self.size * element_bits(self.data_type) // 8)

    def __bool__(self) -> bool:
        if self.size != 1:
            rule = "the array must have one element: of others use any() or all()"
            raise InvalidArgumentError(rule, operator="bool", value=self.shape)
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if self.shape or self.dtype.kind not in "iu":
            raise TypeError(
                f"only an integer array without dimensions is an index; this one is {self.dtype} of {self.shape}"
            )
        return int(self.item())

    # -- elements

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """numpy's protocol: runs the function on the device.

        Raises:
            TypeError: no operator computes it, or it is asked for in another way than by a plain call.
        """
        if method != "__call__" or options or not (ufunc in _RULES or ufunc in _COMPOSED):
            asked = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
            wanted = f"numpy.{asked}" + (f" with {', '.join(options)}" if options else "")
            raise TypeError(f"{wanted} does not run on a device: give it numpy.asarray(array), which copies to the host")
        return _applied(ufunc, *inputs)

    def __eq__(self, other: object) -> DeviceArray:  # type: ignore[override]  # an array, as numpy's
        return _applied(np.equal, self, other)

    def __ne__(self, other: object) -> DeviceArray:  # type: ignore[override]
        return _applied(np.not_equal, self, other)

    __hash__ = None  # type: ignore[assignment]  # what compares by elements has none

    def __contains__(self, value: object) -> bool:
        return bool((self == value).any())

    def __lt__(self, other: Any) -> DeviceArray:
        return _applied(np.less, self, other)

    def __le__(self, other: Any) -> DeviceArray:
        return _applied(np.less_equal, self, other)

    def __gt__(self, other: Any) -> DeviceArray:
        return _applied(np.greater, self, other)

    def __ge__(self, other: Any) -> DeviceArray:
        return _applied(np.greater_equal, self, other)

    def __add__(self, other: Any) -> DeviceArray:
        return _applied(np.add, self, other)

    def __radd__(self, other: Any) -> DeviceArray:
        return _applied(np.add, other, self)

    def __sub__(self, other: Any) -> DeviceArray:
        return _applied(np.subtract, self, other)

    def __rsub__(self, other: Any) -> DeviceArray:
        return _applied(np.subtract, other, self)

    def __mul__(self, other: Any) -> DeviceArray:
        return _applied(np.multiply, self, other)

    def __rmul__(self, other: Any) -> DeviceArray:
        return _applied(np.multiply, other, self)

    def __truediv__(self, other: Any) -> DeviceArray:
        return _applied(np.true_divide, self, other)

    def __rtruediv__(self, other: Any) -> DeviceArray:
        return _applied(np.true_divide, other, self)

    def __floordiv__(self, other: Any) -> DeviceArray:
        return _applied(np.floor_divide, self, other)

    def __rfloordiv__(self, other: Any) -> DeviceArray:
        return _applied(np.floor_divide, other, self)

    def __mod__(self, other: Any) -> DeviceArray:
        return _applied(np.remainder, self, other)

    def __rmod__(self, other: Any) -> DeviceArray:
        return _applied(np.remainder, other, self)

    def __pow__(self, other: Any) -> DeviceArray:
        return _applied(np.power, self, other)

    def __rpow__(self, other: Any) -> DeviceArray:
        return _applied(np.power, other, self)

    def __matmul__(self, other: Any) -> DeviceArray:
        return _applied(np.matmul, self, other)

    def __rmatmul__(self, other: Any) -> DeviceArray:
        return _applied(np.matmul, other, self)

    def __and__(self, other: Any) -> DeviceArray:
        return _applied(np.bitwise_and, self, other)

    def __rand__(self, other: Any) -> DeviceArray:
        return _applied(np.bitwise_and, other, self)

    def __or__(self, other: Any) -> DeviceArray:
        return _applied(np.bitwise_or, self, other)

    def __ror__(self, other: Any) -> DeviceArray:
        return _applied(np.bitwise_or, other, self)

    def __xor__(self, other: Any) -> DeviceArray:
        return _applied(np.bitwise_xor, self, other)

    def __rxor__(self, other: Any) -> DeviceArray:
        return _applied(np.bitwise_xor, other, self)

    def __neg__(self) -> DeviceArray:
        return _applied(np.negative, self)

    def __pos__(self) -> DeviceArray:
        return _applied(np.positive, self)

    def __abs__(self) -> DeviceArray:
        return _applied(np.absolute, self)

    def __invert__(self) -> DeviceArray:
        return _applied(np.invert, self)

    # -- reductions

    def sum(
        self, axis: Axes = None, dtype: npt.DTypeLike | None = None, out: None = None, *, keepdims: bool = False
    ) -> DeviceArray:
        """The sum over one axis, several, or all of them. Integers and truth values are summed in 64 bits.

        Args:
            axis: The axes; negative ones count from the end.
            dtype: The type to sum in, where not that one.
            out: None, as numpy hands it on.
            keepdims: Whether the axes stay, with size 1.

        Raises:
            InvalidArgumentError: axes that the array does not have, an ``out``, or a type that the reduction does not take.
        """
        return _reduced(self, "sum", ReduceFunction.SUM, axis, dtype, out, keepdims)

    def prod(
        self, axis: Axes = None, dtype: npt.DTypeLike | None = None, out: None = None, *, keepdims: bool = False
    ) -> DeviceArray:
        """The product; see ``sum``."""
        return _reduced(self, "prod", ReduceFunction.MULTIPLY, axis, dtype, out, keepdims)

    def mean(
        self, axis: Axes = None, dtype: npt.DTypeLike | None = None, out: None = None, *, keepdims: bool = False
    ) -> DeviceArray:
        """The mean, of integers in float32; see ``sum``."""
        return _reduced(self, "mean", ReduceFunction.AVERAGE, axis, dtype, out, keepdims)

    def max(self, axis: Axes = None, out: None = None, *, keepdims: bool = False) -> DeviceArray:
        """The largest element; see ``sum``."""
        return _reduced(self, "max", ReduceFunction.MAX, axis, None, out, keepdims)

    def min(self, axis: Axes = None, out: None = None, *, keepdims: bool = False) -> DeviceArray:
        """The least element; see ``sum``."""
        return _reduced(self, "min", ReduceFunction.MIN, axis, None, out, keepdims)

    def any(self, axis: Axes = None, out: None = None, *, keepdims: bool = False) -> DeviceArray:
        """Whether some element is not 0; see ``sum``."""
        return _reduced(self, "any", ReduceFunction.MAX, axis, _BOOL, out, keepdims)

    def all(self, axis: Axes = None, out: None = None, *, keepdims: bool = False) -> DeviceArray:
        """Whether no element is 0; see ``sum``."""
        return _reduced(self, "all", ReduceFunction.MIN, axis, _BOOL, out, keepdims)

    # -- indices

    def __getitem__(self, index: Any) -> DeviceArray:
        """numpy's indices. Integers, slices with positive steps, ``None`` and ``...`` give a view. Negative steps, arrays or
        lists of integers, and masks of bool give a copy, made on the device.

        A mask is read first, and so are arrays of integers on the device where there are several. One such array is not
        read: what is out of range in it is clamped.

        Raises:
            IndexError: out of range, or too many indices.
            TypeError: an index of another kind.
        """
        items = expanded(index, self.ndim)
        if any(isinstance(item, (np.ndarray, StoredArray)) for item in items):
            return _gathered(self, without_masks(items, self.shape))
        sizes = iter(self.shape)
        plain: list[Index] = []
        steps: list[int] = []
        for item in items:
            assert not isinstance(item, (np.ndarray, StoredArray)), "there are none"
            size = 1 if item is None else next(sizes)
            is_backward = isinstance(item, slice) and item.step is not None and item.step < 0
            plain.append(forward(item, size) if isinstance(item, slice) and is_backward else item)
            steps += [] if isinstance(item, int) else [-1 if is_backward else 1]
        view = self.viewed(plain)
        if -1 not in steps:
            return view
        window = {"input_window_offsets": (0,) * view.ndim, "input_window_sizes": view.shape}
        return _run(ops.Slice1, {"input_tensor": view}, self.dtype, view.shape, **window, input_window_strides=tuple(steps))


def _run(
    row: type[OperatorDesc], inputs: Mapping[str, DeviceArray], dtype: np.dtype[Any], sizes: Sizes, **attributes: Any
) -> DeviceArray:
    """One operator, by itself: compiled once for each distinct desc, as calls of functions for operators are.

    Args:
        row: The operator.
        inputs: Its tensors by field.
        dtype, sizes: The type and the shape of its output. Nothing runs where that has no elements.
        attributes: Its attributes.
    """
    device = next(iter(inputs.values())).device
    data_type, is_bool = data_type_of(dtype), dtype == _BOOL
    if 0 in sizes:
        return DeviceArray.from_numpy(np.empty(sizes, dtype), device)

    def describe() -> OperatorDesc:
        tensors = {name: array.desc for name, array in inputs.items()}
        return row(**tensors, output_tensor=TensorDesc(data_type, sizes or (1,)), **attributes)

    about = tuple((name, array.data_type, array.shape, array.strides) for name, array in inputs.items())
    prepared = single_operator(device, ("array", row, about, data_type, sizes, repr(attributes)), describe)
    ranges = [bound(inputs[spec.name]) if spec.name in inputs else None for spec in input_fields(row)]
    (buffer,) = prepared.run(device, ranges)
    assert buffer is not None, "an operator that gives one array has an output"
    return DeviceArray(device, buffer, data_type, sizes, is_bool=is_bool)


@dataclass(frozen=True)
class _Rule:
    """How one operator computes one of numpy's functions.

    Attributes:
        row: The operator.
        takes: Kinds of numpy types that it takes.
        otherwise: The type that arrays of other kinds are converted to, None where they are refused.
        is_test: Whether it answers yes or no, so that its result is of bool.
    """

    row: type[OperatorDesc]
    takes: str = "iuf"
    otherwise: np.dtype[Any] | None = None
    is_test: bool = False


def _of_floats(row: type[OperatorDesc]) -> _Rule:
    return _Rule(row, "f", _FLOAT)


def _comparison(row: type[OperatorDesc]) -> _Rule:
    return _Rule(row, "biuf", is_test=True)


_RULES: Final[Mapping[np.ufunc, _Rule]] = {
    np.add: _Rule(ops.ElementWiseAdd),
    np.subtract: _Rule(ops.ElementWiseSubtract),
    np.multiply: _Rule(ops.ElementWiseMultiply),
    np.true_divide: _of_floats(ops.ElementWiseDivide),
    np.remainder: _Rule(ops.ElementWiseModulusFloor),
    np.fmod: _Rule(ops.ElementWiseModulusTruncate),
    np.power: _Rule(ops.ElementWisePow),
    np.maximum: _Rule(ops.ElementWiseMax),
    np.minimum: _Rule(ops.ElementWiseMin),
    np.arctan2: _of_floats(ops.ElementWiseAtanYx),
    np.equal: _comparison(ops.ElementWiseLogicalEquals),
    np.less: _comparison(ops.ElementWiseLogicalLessThan),
    np.less_equal: _comparison(ops.ElementWiseLogicalLessThanOrEqual),
    np.greater: _comparison(ops.ElementWiseLogicalGreaterThan),
    np.greater_equal: _comparison(ops.ElementWiseLogicalGreaterThanOrEqual),
    np.logical_and: _Rule(ops.ElementWiseLogicalAnd, "b", _BOOL),
    np.logical_or: _Rule(ops.ElementWiseLogicalOr, "b", _BOOL),
    np.logical_xor: _Rule(ops.ElementWiseLogicalXor, "b", _BOOL),
    np.logical_not: _Rule(ops.ElementWiseLogicalNot, "b", _BOOL),
    np.bitwise_and: _Rule(ops.ElementWiseBitAnd, "biu"),
    np.bitwise_or: _Rule(ops.ElementWiseBitOr, "biu"),
    np.bitwise_xor: _Rule(ops.ElementWiseBitXor, "biu"),
    np.isnan: _Rule(ops.ElementWiseIsNan, "f", is_test=True),
    np.isinf: _Rule(ops.ElementWiseIsInfinity, "f", is_test=True),
    np.sign: _Rule(ops.ElementWiseSign),
    np.sqrt: _of_floats(ops.ElementWiseSqrt),
    np.exp: _of_floats(ops.ElementWiseExp),
    np.log: _of_floats(ops.ElementWiseLog),
    np.sin: _of_floats(ops.ElementWiseSin),
    np.cos: _of_floats(ops.ElementWiseCos),
    np.tan: _of_floats(ops.ElementWiseTan),
    np.arcsin: _of_floats(ops.ElementWiseAsin),
    np.arccos: _of_floats(ops.ElementWiseAcos),
    np.arctan: _of_floats(ops.ElementWiseAtan),
    np.sinh: _of_floats(ops.ElementWiseSinh),
    np.cosh: _of_floats(ops.ElementWiseCosh),
    np.tanh: _of_floats(ops.ElementWiseTanh),
    np.arcsinh: _of_floats(ops.ElementWiseAsinh),
    np.arccosh: _of_floats(ops.ElementWiseAcosh),
    np.arctanh: _of_floats(ops.ElementWiseAtanh),
    np.floor: _of_floats(ops.ElementWiseFloor),
    np.ceil: _of_floats(ops.ElementWiseCeil),
    np.rint: _of_floats(ops.ElementWiseRound),
    np.reciprocal: _of_floats(ops.ElementWiseRecip),
}
"""numpy's functions that one operator computes."""


def _applied(ufunc: np.ufunc, *operands: Any) -> DeviceArray:
    """One of numpy's functions of arrays and numbers, on the device; NotImplemented for operands of other types."""
    if not all(isinstance(item, (DeviceArray, np.ndarray, np.generic, bool, int, float)) for item in operands):
        return NotImplemented  # type: ignore[no-any-return]  # which Python and numpy ask for
    arrays = _together(ufunc.__name__, operands)
    return _COMPOSED[ufunc](*arrays) if ufunc in _COMPOSED else _computed(ufunc, *arrays)


def _computed(ufunc: np.ufunc, *arrays: DeviceArray) -> DeviceArray:
    """One of numpy's functions by its operator. The arrays have one type."""
    rule = _RULES[ufunc]
    dtype = arrays[0].dtype
    if dtype.kind not in rule.takes:
        if rule.otherwise is None:
            raise _wrong_type(ufunc.__name__, dtype)
        dtype = rule.otherwise
        arrays = tuple(_converted(array, dtype) for array in arrays)
    sizes = _broadcast_sizes(ufunc.__name__, *(array.shape for array in arrays))
    fields = (spec.name for spec in input_fields(rule.row))
    inputs = {name: _broadcast(array, sizes) for name, array in zip(fields, arrays, strict=True)}
    return _run(rule.row, inputs, _BOOL if rule.is_test else dtype, sizes)


def _wrong_type(name: str, dtype: np.dtype[Any]) -> InvalidArgumentError:
    rule = "must be a type that the operation is defined for: convert the arrays with astype"
    return InvalidArgumentError(rule, operator=name, field="dtype", value=dtype)


def _together(name: str, operands: tuple[Any, ...]) -> list[DeviceArray]:
    """Operands as arrays of one type on one device, of which at least one is there already.

    Raises:
        InvalidArgumentError: types that have none in common.
        StateError: arrays of two devices.
    """
    arrays = [item for item in operands if isinstance(item, DeviceArray)]
    for array in arrays:
        if array.device is not arrays[0].device:
            raise other_device("an operand", array.device, "the operands before it", arrays[0].device)
        if array.data_type in HALF_BYTES:
            rule = "must not be a 4-bit type: those are only stored and dequantized"
            raise InvalidArgumentError(rule, operator=name, field="dtype", value=array.data_type)
    types = [item.dtype for item in operands if isinstance(item, (DeviceArray, np.ndarray, np.generic))]
    dtype = _common_type(name, types)
    found = []
    for item in operands:
        if not isinstance(item, DeviceArray):
            given = np.asarray(item) if isinstance(item, (np.ndarray, np.generic)) else _number(name, item, dtype)
            item = DeviceArray.from_numpy(given, arrays[0].device)
        found.append(_converted(item, dtype))
    return found


def _common_type(name: str, types: list[np.dtype[Any]]) -> np.dtype[Any]:
    """The type that arrays of these give together."""
    numbers = [dtype for dtype in types if dtype != _BOOL]
    if not numbers:
        return _BOOL
    common = np.result_type(*numbers)
    if any((dtype.kind == "f") != (common.kind == "f") for dtype in numbers):
        rule = "must be integers, or all floats, with a type that holds them all: convert some with astype"
        raise InvalidArgumentError(rule, operator=name, field="dtype", value=[str(dtype) for dtype in numbers])
    return common


def _number(name: str, value: Number, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A Python number in an array's type."""
    kind = "b" if isinstance(value, bool) else "iu" if isinstance(value, int) else "f"
    fits = dtype.kind in "biuf"["biuf".index(kind[0]) :]
    if fits and dtype.kind in "iu":
        fits = np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
    if not fits:
        rule = f"a Python number must fit the array's type, which is {dtype}: convert the array with astype"
        raise InvalidArgumentError(rule, operator=name, value=value)
    return np.asarray(value, dtype)


def _converted(array: DeviceArray, dtype: np.dtype[Any]) -> DeviceArray:
    """The elements in another type, the array itself where that is its own."""
    if array.dtype == dtype:
        return array
    if dtype == _BOOL:
        zero = DeviceArray.from_numpy(np.zeros((), array.dtype), array.device)
        return _not_equal(array, zero)
    if array.size and data_type_of(dtype) == array.data_type:  # truth values as numbers
        return DeviceArray(array.device, array.buffer, array.data_type, array.shape, array.strides, array.offset)
    return _run(ops.Cast, {"input_tensor": array}, dtype, array.shape)


def _broadcast_sizes(name: str, *shapes: Sizes) -> Sizes:
    sizes = broadcast_sizes(*shapes)
    if sizes is None:
        rule = "shapes must broadcast together: each size equal or 1, from the last dimension on"
        raise InvalidArgumentError(rule, operator=name, field="shape", value=shapes)
    return sizes


def _broadcast(array: DeviceArray, sizes: Sizes) -> DeviceArray:
    view = array.view.broadcast(sizes)
    assert view is not None, "the sizes are those of all arrays together"
    return array.seen(view)


def _reshaped(array: DeviceArray, sizes: Sizes) -> DeviceArray:
    """The elements under other sizes: a view, or one of a copy where strides cannot say it."""
    view = array.view.reshaped(sizes)
    return packed(array).seen(View.packed(sizes)) if view is None else array.seen(view)


# -- functions of several operators


def _not_equal(a: DeviceArray, b: DeviceArray) -> DeviceArray:
    return _computed(np.logical_not, _computed(np.equal, a, b))


def _floor_divide(a: DeviceArray, b: DeviceArray) -> DeviceArray:
    if a.dtype.kind == "f":
        return _computed(np.floor, _computed(np.true_divide, a, b))
    if a.dtype.kind == "i":  # the operator's quotient goes toward zero, so that of what b divides without rest is the floor
        a = _computed(np.subtract, a, _computed(np.remainder, a, b))
    sizes = _broadcast_sizes("floor_divide", a.shape, b.shape)
    return _run(ops.ElementWiseDivide, {"a_tensor": _broadcast(a, sizes), "b_tensor": _broadcast(b, sizes)}, a.dtype, sizes)


def _negative(array: DeviceArray) -> DeviceArray:
    if array.dtype.kind in "bu":
        return _computed(np.subtract, DeviceArray.from_numpy(np.zeros((), array.dtype), array.device), array)
    return _run(ops.ElementWiseNegate, {"input_tensor": array}, array.dtype, array.shape)


def _absolute(array: DeviceArray) -> DeviceArray:
    if array.dtype.kind in "bu":
        return array.copy()
    return _run(ops.ElementWiseAbs, {"input_tensor": array}, array.dtype, array.shape)


def _invert(array: DeviceArray) -> DeviceArray:
    if array.is_bool:
        return _computed(np.logical_not, array)
    if array.dtype.kind == "f":
        raise _wrong_type("invert", array.dtype)
    return _run(ops.ElementWiseBitNot, {"input_tensor": array}, array.dtype, array.shape)


def _matmul(a: DeviceArray, b: DeviceArray) -> DeviceArray:
    """numpy's product of matrices: a vector counts as one row or one column, leading dimensions broadcast."""
    if a.dtype.kind != "f":
        raise _wrong_type("matmul", a.dtype)
    if not a.shape or not b.shape:
        raise InvalidArgumentError("must have dimensions", operator="matmul", field="shape", value=(a.shape, b.shape))
    left = _reshaped(a, (1, *a.shape)) if a.ndim == 1 else a
    right = _reshaped(b, (*b.shape, 1)) if b.ndim == 1 else b
    if left.shape[-1] != right.shape[-2]:
        rule = f"of shapes {a.shape} and {b.shape}, the second must have as many rows as the first has columns"
        raise InvalidArgumentError(rule, operator="matmul", value=right.shape[-2], expected=left.shape[-1])
    batch = _broadcast_sizes("matmul", left.shape[:-2], right.shape[:-2])
    sizes = (*batch, left.shape[-2], right.shape[-1])
    wanted = batch + left.shape[-2:-1] * (a.ndim > 1) + right.shape[-1:] * (b.ndim > 1)
    if 0 in sizes or left.shape[-1] == 0:
        return DeviceArray.from_numpy(np.zeros(wanted, a.dtype), a.device)
    left, right = (_broadcast(item, (*batch, *item.shape[-2:])) for item in (left, right))
    if len(sizes) > _MATRIX_DIMENSIONS:
        left, right = (_reshaped(item, (math.prod(batch), *item.shape[-2:])) for item in (left, right))
        sizes = (left.shape[0], *sizes[-2:])
    product = _run(ops.Gemm, {"a_tensor": left, "b_tensor": right}, a.dtype, sizes)
    return _reshaped(product, wanted)


_COMPOSED: Final[Mapping[np.ufunc, Callable[..., DeviceArray]]] = {
    np.not_equal: _not_equal,
    np.floor_divide: _floor_divide,
    np.negative: _negative,
    np.positive: DeviceArray.copy,
    np.absolute: _absolute,
    np.invert: _invert,
    np.square: lambda array: _computed(np.multiply, array, array),
    np.matmul: _matmul,
}
"""numpy's functions that take more than one operator, or another one for some types."""


# -- reductions


def _reduced(
    array: DeviceArray,
    name: str,
    function: ReduceFunction,
    axis: Axes,
    dtype: npt.DTypeLike | None,
    out: None,
    keepdims: bool,
) -> DeviceArray:
    """A function over some axes; see ``DeviceArray.sum``."""
    if out is not None:
        raise InvalidArgumentError("must be None: a result is a new array", operator=name, field="out", value=type(out))
    axes = _axes(name, axis, array.ndim)
    array = _converted(array, _reduced_type(function, array.dtype) if dtype is None else np.dtype(dtype))
    kept = tuple(1 if at in axes else size for at, size in enumerate(array.shape))
    final = kept if keepdims else tuple(size for at, size in enumerate(array.shape) if at not in axes)
    if array.size == 0:
        empty = {"sum": 0, "prod": 1, "any": False, "all": True}
        if 0 not in kept and name not in empty:
            raise InvalidArgumentError("must have elements", operator=name, field="shape", value=array.shape)
        return DeviceArray.from_numpy(np.full(final, empty.get(name, 0), array.dtype), array.device)
    if not axes:
        return array.copy()
    given = {"input_tensor": _reshaped(array, array.shape or (1,))}
    result = _run(ops.Reduce, given, array.dtype, kept or (1,), function=function, axes=axes)
    return _reshaped(result, final)


def _reduced_type(function: ReduceFunction, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that a reduction computes in by itself."""
    if function == ReduceFunction.AVERAGE:
        return dtype if dtype.kind == "f" else _FLOAT
    if function in (ReduceFunction.SUM, ReduceFunction.MULTIPLY) and dtype.kind != "f":
        return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    return dtype


def _axes(name: str, axis: Axes, rank: int) -> tuple[int, ...]:
    """Axes as the operator has them: each once, from 0, in order."""
    if axis is None:
        return tuple(range(rank))
    try:
        given = [operator.index(item) for item in (axis if isinstance(axis, tuple) else (axis,))]
    except TypeError:
        given = [rank]
    axes = sorted(item + rank if item < 0 else item for item in given)
    if len(set(axes)) < len(axes) or not all(0 <= item < rank for item in axes):
        rule = f"must be dimensions of the array, which has {rank}, each once"
        raise InvalidArgumentError(rule, operator=name, field="axis", value=axis)
    return tuple(axes)


# -- indices that are arrays


def _gathered(array: DeviceArray, items: list[Index | Chosen]) -> DeviceArray:
    """What arrays of integers, among other indices, take from an array: numpy's rules, by one ``Gather``."""
    axes = [at for at, item in enumerate(items) if isinstance(item, (int, np.ndarray, StoredArray))]
    chosen = [item for item in items if isinstance(item, (int, np.ndarray, StoredArray))]
    view = array[tuple(slice(None) if at in axes else item for at, item in enumerate(items))]
    at = axes[0]
    if axes != list(range(at, at + len(axes))):  # what indices that stand apart take comes first
        at = 0
        view = view.transpose(*axes, *(axis for axis in range(view.ndim) if axis not in axes))
    before, sizes, after = view.shape[:at], view.shape[at : at + len(axes)], view.shape[at + len(axes) :]
    indices = chosen[0]
    if len(chosen) > 1 or not isinstance(indices, DeviceArray):
        indices = DeviceArray.from_numpy(places(chosen, sizes), array.device)
    if indices.dtype.itemsize < _INDEX.itemsize:
        indices = _converted(indices, _INDEX)
    wanted = before + indices.shape + after
    if 0 in wanted:
        return DeviceArray.from_numpy(np.empty(wanted, array.dtype), array.device)
    flat = _reshaped(view, (math.prod(before), math.prod(sizes), math.prod(after)))
    inputs = {"input_tensor": flat, "indices_tensor": _reshaped(indices, (1, 1, indices.size))}
    taken = (flat.shape[0], indices.size, flat.shape[2])
    return _reshaped(_run(ops.Gather, inputs, array.dtype, taken, axis=1, index_dimensions=1), wanted)
