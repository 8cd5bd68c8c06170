"""What a ``DeviceArray`` computes: numpy's functions, reductions and indices, each by DirectML's operators on its device."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dmlvk.engine.indices import Chosen, expanded, forward, places, without_masks
from dmlvk.engine.numpy_types import HALF_BYTES, data_type_of
from dmlvk.engine.single_operators import Stored, bound, packed, single_operator
from dmlvk.engine.stored_array import Index, StoredArray
from dmlvk.graph.views import Sizes, View, broadcast_sizes
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction
from dmlvk.spec.errors import InvalidArgumentError, other_device
from dmlvk.spec.functions import input_fields
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc

_BOOL: Final = np.dtype(bool)
_FLOAT: Final = np.dtype(np.float32)
_MATRIX_DIMENSIONS: Final = 4
_INDEX: Final = np.dtype(np.int32)

Number = bool | int | float
Axes = int | tuple[int, ...] | None


def _run(
    row: type[OperatorDesc], inputs: Mapping[str, Stored], dtype: np.dtype[Any], sizes: Sizes, **attributes: Any
) -> Stored:
    """One operator, by itself: compiled once for each distinct desc, as calls of functions for operators are.

    Args:
        row: The operator.
        inputs: Its tensors by field.
        dtype, sizes: The type and the shape of its output. Nothing runs where that has no elements.
        attributes: Its attributes.
    """
    first = next(iter(inputs.values()))
    data_type, is_bool = data_type_of(dtype), dtype == _BOOL
    if 0 in sizes:
        return type(first).from_numpy(np.empty(sizes, dtype), first.device)

    def describe() -> OperatorDesc:
        tensors = {name: array.desc for name, array in inputs.items()}
        return row(**tensors, output_tensor=TensorDesc(data_type, sizes or (1,)), **attributes)

    about = tuple((name, array.data_type, array.shape, array.strides) for name, array in inputs.items())
    prepared = single_operator(first.device, ("array", row, about, data_type, sizes, repr(attributes)), describe)
    ranges = [bound(inputs[spec.name]) if spec.name in inputs else None for spec in input_fields(row)]
    (buffer,) = prepared.run(first.device, ranges)
    assert buffer is not None, "an operator that gives one array has an output"
    return type(first)(first.device, buffer, data_type, sizes, is_bool=is_bool)


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


def runs(ufunc: np.ufunc) -> bool:
    """Whether one of numpy's functions runs on a device."""
    return ufunc in _RULES or ufunc in _COMPOSED


def applied(kind: type[Stored], ufunc: np.ufunc, *operands: Any) -> Stored:
    """One of numpy's functions that run on a device, of arrays and numbers; NotImplemented for operands of other types.

    Args:
        kind: The type of arrays on a device, of which at least one operand is.
        ufunc: The function.
        operands: Its operands.

    Raises:
        InvalidArgumentError: types or shapes that do not go together, or that the function is not defined for.
        StateError: arrays of two devices.
    """
    if not all(isinstance(item, (StoredArray, np.ndarray, np.generic, bool, int, float)) for item in operands):
        return NotImplemented  # type: ignore[no-any-return]  # which Python and numpy ask for
    arrays = _together(kind, ufunc.__name__, operands)
    return _COMPOSED[ufunc](*arrays) if ufunc in _COMPOSED else _computed(ufunc, *arrays)


def _computed(ufunc: np.ufunc, *arrays: Stored) -> Stored:
    """One of numpy's functions by its operator. The arrays have one type."""
    rule = _RULES[ufunc]
    dtype = arrays[0].dtype
    if dtype.kind not in rule.takes:
        if rule.otherwise is None:
            raise _wrong_type(ufunc.__name__, dtype)
        dtype = rule.otherwise
        arrays = tuple(converted(array, dtype) for array in arrays)
    sizes = _broadcast_sizes(ufunc.__name__, *(array.shape for array in arrays))
    fields = (spec.name for spec in input_fields(rule.row))
    inputs = {name: _broadcast(array, sizes) for name, array in zip(fields, arrays, strict=True)}
    return _run(rule.row, inputs, _BOOL if rule.is_test else dtype, sizes)


def _wrong_type(name: str, dtype: np.dtype[Any]) -> InvalidArgumentError:
    rule = "must be a type that the operation is defined for: convert the arrays with astype"
    return InvalidArgumentError(rule, operator=name, field="dtype", value=dtype)


def _together(kind: type[Stored], name: str, operands: tuple[Any, ...]) -> list[Stored]:
    """Operands as arrays of one type on one device, of which at least one is there already.

    Raises:
        InvalidArgumentError: types that have none in common.
        StateError: arrays of two devices.
    """
    arrays = [item for item in operands if isinstance(item, kind)]
    for array in arrays:
        if array.device is not arrays[0].device:
            raise other_device("an operand", array.device, "the operands before it", arrays[0].device)
        if array.data_type in HALF_BYTES:
            rule = "must not be a 4-bit type: those are only stored and dequantized"
            raise InvalidArgumentError(rule, operator=name, field="dtype", value=array.data_type)
    types = [item.dtype for item in operands if isinstance(item, (StoredArray, np.ndarray, np.generic))]
    dtype = _common_type(name, types)
    found = []
    for item in operands:
        if not isinstance(item, kind):
            given = np.asarray(item) if isinstance(item, (np.ndarray, np.generic)) else _number(name, item, dtype)
            item = kind.from_numpy(given, arrays[0].device)
        found.append(converted(item, dtype))
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


def converted(array: Stored, dtype: np.dtype[Any]) -> Stored:
    """The elements in another type, the array itself where that is its own."""
    if array.dtype == dtype:
        return array
    if dtype == _BOOL:
        zero = type(array).from_numpy(np.zeros((), array.dtype), array.device)
        return _not_equal(array, zero)
    if array.size and data_type_of(dtype) == array.data_type:  # truth values as numbers
        return type(array)(array.device, array.buffer, array.data_type, array.shape, array.strides, array.offset)
    return _run(ops.Cast, {"input_tensor": array}, dtype, array.shape)


def _broadcast_sizes(name: str, *shapes: Sizes) -> Sizes:
    sizes = broadcast_sizes(*shapes)
    if sizes is None:
        rule = "shapes must broadcast together: each size equal or 1, from the last dimension on"
        raise InvalidArgumentError(rule, operator=name, field="shape", value=shapes)
    return sizes


def _broadcast(array: Stored, sizes: Sizes) -> Stored:
    view = array.view.broadcast(sizes)
    assert view is not None, "the sizes are those of all arrays together"
    return array.seen(view)


def _reshaped(array: Stored, sizes: Sizes) -> Stored:
    """The elements under other sizes: a view, or one of a copy where strides cannot say it."""
    view = array.view.reshaped(sizes)
    return packed(array).seen(View.packed(sizes)) if view is None else array.seen(view)


def copied(array: Stored) -> Stored:
    """A packed copy, on the device."""
    return packed(array) if array.size else array


# -- functions of several operators


def _not_equal(a: Stored, b: Stored) -> Stored:
    return _computed(np.logical_not, _computed(np.equal, a, b))


def _floor_divide(a: Stored, b: Stored) -> Stored:
    if a.dtype.kind == "f":
        return _computed(np.floor, _computed(np.true_divide, a, b))
    if a.dtype.kind == "i":  # the operator's quotient goes toward zero, so that of what b divides without rest is the floor
        a = _computed(np.subtract, a, _computed(np.remainder, a, b))
    sizes = _broadcast_sizes("floor_divide", a.shape, b.shape)
    return _run(ops.ElementWiseDivide, {"a_tensor": _broadcast(a, sizes), "b_tensor": _broadcast(b, sizes)}, a.dtype, sizes)


def _negative(array: Stored) -> Stored:
    if array.dtype.kind in "bu":
        return _computed(np.subtract, type(array).from_numpy(np.zeros((), array.dtype), array.device), array)
    return _run(ops.ElementWiseNegate, {"input_tensor": array}, array.dtype, array.shape)


def _absolute(array: Stored) -> Stored:
    if array.dtype.kind in "bu":
        return copied(array)
    return _run(ops.ElementWiseAbs, {"input_tensor": array}, array.dtype, array.shape)


def _invert(array: Stored) -> Stored:
    if array.is_bool:
        return _computed(np.logical_not, array)
    if array.dtype.kind == "f":
        raise _wrong_type("invert", array.dtype)
    return _run(ops.ElementWiseBitNot, {"input_tensor": array}, array.dtype, array.shape)


def _matmul(a: Stored, b: Stored) -> Stored:
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
        return type(a).from_numpy(np.zeros(wanted, a.dtype), a.device)
    left, right = (_broadcast(item, (*batch, *item.shape[-2:])) for item in (left, right))
    if len(sizes) > _MATRIX_DIMENSIONS:
        left, right = (_reshaped(item, (math.prod(batch), *item.shape[-2:])) for item in (left, right))
        sizes = (left.shape[0], *sizes[-2:])
    product = _run(ops.Gemm, {"a_tensor": left, "b_tensor": right}, a.dtype, sizes)
    return _reshaped(product, wanted)


_COMPOSED: Final[Mapping[np.ufunc, Callable[..., Any]]] = {
    np.not_equal: _not_equal,
    np.floor_divide: _floor_divide,
    np.negative: _negative,
    np.positive: copied,
    np.absolute: _absolute,
    np.invert: _invert,
    np.square: lambda array: _computed(np.multiply, array, array),
    np.matmul: _matmul,
}
"""numpy's functions that take more than one operator, or another one for some types."""


# -- reductions


def reduced(
    array: Stored,
    name: str,
    function: ReduceFunction,
    axis: Axes,
    dtype: npt.DTypeLike | None,
    out: None,
    keepdims: bool,
) -> Stored:
    """A function over some axes; see ``DeviceArray.sum``."""
    if out is not None:
        raise InvalidArgumentError("must be None: a result is a new array", operator=name, field="out", value=type(out))
    axes = _axes(name, axis, array.ndim)
    array = converted(array, _reduced_type(function, array.dtype) if dtype is None else np.dtype(dtype))
    kept = tuple(1 if at in axes else size for at, size in enumerate(array.shape))
    final = kept if keepdims else tuple(size for at, size in enumerate(array.shape) if at not in axes)
    if array.size == 0:
        empty = {"sum": 0, "prod": 1, "any": False, "all": True}
        if 0 not in kept and name not in empty:
            raise InvalidArgumentError("must have elements", operator=name, field="shape", value=array.shape)
        return type(array).from_numpy(np.full(final, empty.get(name, 0), array.dtype), array.device)
    if not axes:
        return copied(array)
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


# -- indices


def indexed(array: Stored, index: object) -> Stored:
    """What an index takes from an array; see ``DeviceArray.__getitem__``."""
    items = expanded(index, array.ndim)
    if any(isinstance(item, (np.ndarray, StoredArray)) for item in items):
        return _gathered(array, without_masks(items, array.shape))
    sizes = iter(array.shape)
    plain: list[Index] = []
    steps: list[int] = []
    for item in items:
        assert not isinstance(item, (np.ndarray, StoredArray)), "there are none"
        size = 1 if item is None else next(sizes)
        is_backward = isinstance(item, slice) and item.step is not None and item.step < 0
        plain.append(forward(item, size) if isinstance(item, slice) and is_backward else item)
        steps += [] if isinstance(item, int) else [-1 if is_backward else 1]
    view = array.viewed(plain)
    if -1 not in steps:
        return view
    window = {"input_window_offsets": (0,) * view.ndim, "input_window_sizes": view.shape}
    return _run(ops.Slice1, {"input_tensor": view}, array.dtype, view.shape, **window, input_window_strides=tuple(steps))


def _gathered(array: Stored, items: list[Index | Chosen]) -> Stored:
    """What arrays of integers, among other indices, take from an array: numpy's rules, by one ``Gather``."""
    axes = [at for at, item in enumerate(items) if isinstance(item, (int, np.ndarray, StoredArray))]
    chosen = [item for item in items if isinstance(item, (int, np.ndarray, StoredArray))]
    view = indexed(array, tuple(slice(None) if at in axes else item for at, item in enumerate(items)))
    at = axes[0]
    if axes != list(range(at, at + len(axes))):  # what indices that stand apart take comes first
        at = 0
        view = view.transpose(*axes, *(axis for axis in range(view.ndim) if axis not in axes))
    before, sizes, after = view.shape[:at], view.shape[at : at + len(axes)], view.shape[at + len(axes) :]
    indices = chosen[0]
    if len(chosen) > 1 or not isinstance(indices, type(array)):
        indices = type(array).from_numpy(places(chosen, sizes), array.device)
    if indices.dtype.itemsize < _INDEX.itemsize:
        indices = converted(indices, _INDEX)
    wanted = before + indices.shape + after
    if 0 in wanted:
        return type(array).from_numpy(np.empty(wanted, array.dtype), array.device)
    flat = _reshaped(view, (math.prod(before), math.prod(sizes), math.prod(after)))
    inputs = {"input_tensor": flat, "indices_tensor": _reshaped(indices, (1, 1, indices.size))}
    taken = (flat.shape[0], indices.size, flat.shape[2])
    return _reshaped(_run(ops.Gather, inputs, array.dtype, taken, axis=1, index_dimensions=1), wanted)
