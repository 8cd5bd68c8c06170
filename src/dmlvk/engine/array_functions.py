"""Functions of numpy's that a ``DeviceArray`` computes element by element, each by DirectML's operators on its device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dmlvk.engine.array_runs import run
from dmlvk.engine.numpy_types import HALF_BYTES, array_of, data_type_of
from dmlvk.engine.single_operators import Stored, packed
from dmlvk.engine.stored_array import StoredArray
from dmlvk.graph.views import Sizes, View, broadcast_sizes
from dmlvk.spec import ops
from dmlvk.spec.errors import InvalidArgumentError, other_device
from dmlvk.spec.functions import input_fields
from dmlvk.spec.schema import OperatorDesc

_BOOL: Final = np.dtype(bool)
_FLOAT: Final = np.dtype(np.float32)

Number = bool | int | float


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
    np.isnan: _Rule(ops.ElementWiseIsNan, "f", _FLOAT, is_test=True),
    np.isinf: _Rule(ops.ElementWiseIsInfinity, "f", _FLOAT, is_test=True),
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


def check_writable(name: str, into: StoredArray) -> None:
    """Checks that elements can be written to an array.

    Raises:
        InvalidArgumentError: they are of 4 bits, or some lie in the same memory, as in a broadcast array.
    """
    if into.data_type in HALF_BYTES:
        rule = "must not be a 4-bit type: those are only stored and dequantized"
        raise InvalidArgumentError(rule, operator=name, field="dtype", value=into.data_type)
    if into.size and into.desc.has_overlapping_elements:
        rule = "must be of elements that lie apart, so no broadcast array: write to a copy"
        raise InvalidArgumentError(rule, operator=name, field="strides", value=into.strides)


def check_result(name: str, dtype: np.dtype[Any], sizes: Sizes, into: StoredArray) -> None:
    """Checks that an array has the type and the shape of a result that is to be written to it.

    Raises:
        InvalidArgumentError: it has others.
    """
    if dtype != into.dtype:
        rule = "the result must have the type of the array that it is written to"
        raise InvalidArgumentError(rule, operator=name, field="dtype", value=dtype, expected=into.dtype)
    if sizes != into.shape:
        rule = "the result must have the shape of the array that it is written to"
        raise InvalidArgumentError(rule, operator=name, field="shape", value=sizes, expected=into.shape)


def is_operator(ufunc: np.ufunc) -> bool:
    """Whether one operator computes one of numpy's functions."""
    return ufunc in _RULES


def computed(ufunc: np.ufunc, *arrays: Stored, into: Stored | None = None) -> Stored:
    """One of numpy's functions by its operator.

    Args:
        ufunc: The function.
        arrays: Its operands, of one type.
        into: An array to write to; see ``run``.
    """
    rule = _RULES[ufunc]
    dtype = arrays[0].dtype
    if dtype.kind not in rule.takes:
        if rule.otherwise is None:
            raise wrong_type(ufunc.__name__, dtype)
        dtype = rule.otherwise
        arrays = tuple(converted(array, dtype) for array in arrays)
    sizes = common_sizes(ufunc.__name__, *(array.shape for array in arrays))
    fields = (spec.name for spec in input_fields(rule.row))
    inputs = {name: broadcast(array, sizes) for name, array in zip(fields, arrays, strict=True)}
    result = _BOOL if rule.is_test else dtype
    if into is not None:
        check_result(ufunc.__name__, result, sizes, into)
    return run(rule.row, inputs, result, sizes, into)


def wrong_type(name: str, dtype: np.dtype[Any]) -> InvalidArgumentError:
    """The error for arrays of a type that an operation does not take."""
    rule = "must be a type that the operation is defined for: convert the arrays with astype"
    return InvalidArgumentError(rule, operator=name, field="dtype", value=dtype)


def together(kind: type[Stored], name: str, operands: tuple[Any, ...], into: Stored | None) -> list[Stored]:
    """Operands as arrays of one type on one device, where at least one of them is already, or what they are written to.

    Raises:
        InvalidArgumentError: types that have none in common.
        StateError: arrays of two devices.
    """
    arrays = [item for item in (*operands, into) if isinstance(item, kind)]
    for array in arrays:
        if array.device is not arrays[0].device:
            raise other_device("an operand", array.device, "the operands before it", arrays[0].device)
        if array.data_type in HALF_BYTES:
            rule = "must not be a 4-bit type: those are only stored and dequantized"
            raise InvalidArgumentError(rule, operator=name, field="dtype", value=array.data_type)
    types = [item.dtype for item in operands if isinstance(item, (StoredArray, np.ndarray, np.generic))]
    dtype = common_type(name, types)
    found = []
    for item in operands:
        if not isinstance(item, kind):
            given = np.asarray(item) if isinstance(item, (np.ndarray, np.generic)) else number(name, item, dtype)
            item = kind.from_numpy(given, arrays[0].device)
        found.append(converted(item, dtype))
    return found


def common_type(name: str, types: list[np.dtype[Any]]) -> np.dtype[Any]:
    """The type that arrays of some types give together.

    Raises:
        InvalidArgumentError: they give none.
    """
    numbers = [dtype for dtype in types if dtype != _BOOL]
    if not numbers:
        return _BOOL
    common = np.result_type(*numbers)
    if any((dtype.kind == "f") != (common.kind == "f") for dtype in numbers):
        rule = "must be integers, or all floats, with a type that holds them all: convert some with astype"
        raise InvalidArgumentError(rule, operator=name, field="dtype", value=[str(dtype) for dtype in numbers])
    return common


def number(name: str, value: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A Python number, or nested lists of such, in an array's type."""
    values = array_of(value, lambda: name)
    fits = values.dtype.kind in "biuf" and dtype.kind in "biuf"["biuf".index(values.dtype.kind) :].replace("u", "iu")
    if fits and values.size and dtype.kind in "iu":
        fits = np.iinfo(dtype).min <= int(values.min()) and int(values.max()) <= np.iinfo(dtype).max
    if not fits:
        rule = f"a Python number must fit the array's type, which is {dtype}: convert the array with astype"
        raise InvalidArgumentError(rule, operator=name, value=value)
    return values.astype(dtype)


def converted(array: Stored, dtype: np.dtype[Any]) -> Stored:
    """The elements in another type, the array itself where that is its own."""
    if array.dtype == dtype:
        return array
    if dtype == _BOOL:
        zero = type(array).from_numpy(np.zeros((), array.dtype), array.device)
        return computed(np.logical_not, computed(np.equal, array, zero))
    if array.size and data_type_of(dtype) == array.data_type:  # truth values as numbers
        return type(array)(array.device, array.buffer, array.data_type, array.shape, array.strides, array.offset)
    return run(ops.Cast, {"input_tensor": array}, dtype, array.shape)


def common_sizes(name: str, *shapes: Sizes) -> Sizes:
    """The sizes that arrays of some shapes have together.

    Raises:
        InvalidArgumentError: they have none.
    """
    sizes = broadcast_sizes(*shapes)
    if sizes is None:
        rule = "shapes must broadcast together: each size equal or 1, from the last dimension on"
        raise InvalidArgumentError(rule, operator=name, field="shape", value=shapes)
    return sizes


def broadcast(array: Stored, sizes: Sizes) -> Stored:
    """A view over the sizes that an array has together with others."""
    view = array.view.broadcast(sizes)
    assert view is not None, "the sizes are those of all arrays together"
    return array.seen(view)


def reshaped(array: Stored, sizes: Sizes) -> Stored:
    """The elements under other sizes, of as many: a view, or one of a copy where strides cannot say it."""
    view = array.view.reshaped(sizes)
    return packed(array).seen(View.packed(sizes)) if view is None else array.seen(view)


def copied(array: Stored) -> Stored:
    """A packed copy, on the device."""
    return packed(array) if array.size else array
