"""The arithmetic of shapes: small tensors of numbers, by the operators with which exporters compute sizes and positions.

It is done at each new size, so not by ``onnx.reference``, which is slower. A tensor whose elements are sizes that record
what is computed of them is an array of objects, which knows the type that ONNX sees. No index and no count can be such a
size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dmlvk.onnx.model import Array, Node, element_type
from dmlvk.onnx.node_facts import invalid_node
from dmlvk.spec.errors import ModelError
from dmlvk.spec.size import Size

_MOST: Final = 1 << 16
"""Elements that a node may make here; what makes more is no arithmetic of shapes."""

_Inputs = Sequence[Array | None]
_Rule = Callable[[Node, Any], Any]


class NotPlainError(Exception):
    """What a node makes has a length, or is chosen by an index, that is a size which records; or it is computed where sizes
    cannot record."""


def evaluate(node: Node, inputs: _Inputs) -> Array | None:
    """The node's only output; None where the node is none that is computed here, or does not fit its inputs.

    Args:
        node: The node.
        inputs: Its inputs, None for an absent one.

    Raises:
        NotPlainError: only ``plain`` inputs can be computed with here.
        ModelError: sizes that record choose elements that are not there.
    """
    rule = _RULES.get(node.op_type) if node.domain == "" else None
    present = [array for array in inputs if array is not None]
    if rule is None or len(node.outputs) != 1 or any(array.dtype.kind not in "biufO" for array in present):
        return None
    if math.prod(max(array.size, 1) for array in present) > _MOST:
        return None
    try:
        with np.errstate(all="raise"):
            result = rule(node, inputs)
    except ModelError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None  # the reference says what is wrong, or what comes of it all the same
    if result is None:
        return None
    data = inputs[1 if node.op_type == "Where" else 0]
    assert data is not None, "a rule has read it"
    return _settled(result, element_type(node.attributes["to"])[1] if node.op_type == "Cast" else element_of(data))


class _Recording(np.ndarray[Any, Any]):
    """A tensor with sizes among its elements that record what is computed of them.

    Attributes:
        element: The type of its elements as ONNX sees it.
    """

    element: np.dtype[Any] = np.dtype(np.int64)


def whole_numbers(values: Sequence[int]) -> Array:
    """A tensor of one dimension, of INT64 or of sizes that record."""
    return _settled(np.array(values, object), np.dtype(np.int64))


def plain(array: Array) -> Array:
    """The tensor with plain numbers only, to which sizes that record are pinned."""
    return np.asarray(array).astype(element_of(array)) if records(array) else array


def records(array: Array) -> bool:
    """Whether sizes that record are among the elements."""
    return array.dtype == object


def element_of(array: Array) -> np.dtype[Any]:
    """The type of the elements as ONNX sees it."""
    return array.element if isinstance(array, _Recording) else array.dtype


def _told(array: Array) -> Array:
    """A tensor that says lengths or places."""
    if records(array):
        raise NotPlainError
    return array


def _settled(result: Any, element: np.dtype[Any] | None) -> Array:
    """An array, of objects only while one of them records."""
    array: Array = np.asarray(result) if isinstance(result, np.ndarray | np.generic) else np.asarray(result, object)
    if array.dtype != object:
        return array
    if all(isinstance(item, int | np.integer) for item in array.flat):
        return array.astype(element)
    recording = array.view(_Recording)
    recording.element = element or recording.element
    return recording


def _same_type(*arrays: Array) -> bool:
    """Whether operands are of one type, as ONNX wants them."""
    return len({element_of(array) for array in arrays}) == 1


def _elementwise(function: Callable[..., Any], kinds: str) -> _Rule:
    """A function of numpy's, applied from left to right to operands of one type, which is one of some kinds."""

    def rule(_: Node, inputs: Sequence[Array]) -> Any:
        if not _same_type(*inputs) or inputs[0].dtype.kind not in kinds:
            return None
        result = inputs[0] if len(inputs) > 1 else function(inputs[0])
        for other in inputs[1:]:
            result = function(result, other)
        return result

    return rule


def _compared(function: Callable[..., Any]) -> _Rule:
    def rule(_: Node, inputs: Sequence[Array]) -> Any:
        return np.asarray(function(*inputs), bool) if _same_type(*inputs) else None

    return rule


def _divided(a: Any, b: Any) -> Any:
    if a.dtype.kind == "f":
        return a / b
    quotient = np.floor_divide(a, b)
    exact = np.equal(quotient * b, a)
    return quotient + np.where(exact | np.greater_equal(quotient, 0), 0, 1).astype(a.dtype)  # towards zero


def _remainder(node: Node, inputs: Sequence[Array]) -> Any:
    a, b = inputs
    return np.mod(a, b) if _same_type(a, b) and not node.attributes.get("fmod", 0) and a.dtype.kind in "iuO" else None


def _chosen(_: Node, inputs: Sequence[Array]) -> Any:
    condition, a, b = inputs
    return np.where(condition.astype(bool), a, b) if _same_type(a, b) else None


def _cast(node: Node, inputs: Sequence[Array]) -> Any:
    (x,) = inputs
    _, dtype = element_type(node.attributes["to"])
    if dtype is None or dtype.kind not in "biuf":
        return None
    return x if x.dtype == object and dtype in (np.int32, np.int64) else _told(x).astype(dtype)


def _gathered(node: Node, inputs: Sequence[Array]) -> Any:
    x, indices = inputs
    axis = node.attributes.get("axis", 0)
    if records(indices) and not all(-x.shape[axis] <= index < x.shape[axis] for index in indices.flat):
        raise invalid_node(node, f"indices must be inside the {x.shape[axis]} elements along the axis", indices.tolist())
    return np.take(x, _told(indices), axis=axis)


def _sliced(node: Node, inputs: _Inputs) -> Any:
    x, starts, ends, *rest = inputs
    if x is None or starts is None or ends is None:
        return None
    axes, steps = (*rest, None, None)[:2]
    chosen = [slice(None)] * x.ndim
    bounds = [_told(array).tolist() for array in (starts, ends)]
    named = range(len(bounds[0])) if axes is None else _told(axes).tolist()
    strides = [1] * len(bounds[0]) if steps is None else _told(steps).tolist()
    for axis, start, end, stride in zip(named, *bounds, strides, strict=True):
        chosen[axis] = slice(start, end, stride)
    return x[tuple(chosen)]


def _axes(node: Node, inputs: _Inputs) -> list[int] | None:
    """The axes that a node has as an attribute or, in newer versions, as an input; None for none."""
    given = inputs[1] if len(inputs) > 1 else None
    if given is not None:
        return [int(axis) for axis in _told(given)]
    found: Sequence[int] | None = node.attributes.get("axes")
    return None if found is None else list(found)


def _squeezed(node: Node, inputs: _Inputs) -> Any:
    axes = _axes(node, inputs)
    return np.squeeze(inputs[0], None if axes is None else tuple(axes))  # type: ignore[arg-type]  # it is required


def _unsqueezed(node: Node, inputs: _Inputs) -> Any:
    axes = _axes(node, inputs)
    return None if axes is None else np.expand_dims(inputs[0], tuple(axes))  # type: ignore[arg-type]  # it is required


def _reshaped(node: Node, inputs: Sequence[Array]) -> Any:
    x, shape = inputs
    keeps = not node.attributes.get("allowzero", 0)
    sizes = [x.shape[axis] if size == 0 and keeps else size for axis, size in enumerate(_told(shape).tolist())]
    return x.reshape(sizes)


def _transposed(node: Node, inputs: Sequence[Array]) -> Any:
    return np.ascontiguousarray(np.transpose(inputs[0], node.attributes.get("perm")))


def _joined(node: Node, inputs: Sequence[Array]) -> Any:
    return np.concatenate(inputs, axis=node.attributes["axis"]) if _same_type(*inputs) else None


def _counted(_: Node, inputs: Sequence[Array]) -> Any:
    start, limit, delta = (array.reshape(-1)[0] for array in inputs)
    if not _same_type(*inputs) or inputs[0].dtype.kind not in "iO" or any(array.size > 1 for array in inputs):
        return None
    count = max(0, -((start - limit) // delta))
    if isinstance(count, Size):
        raise NotPlainError
    return start + np.arange(count).astype(inputs[0].dtype) * delta if count <= _MOST else None


def _filled(node: Node, inputs: Sequence[Array]) -> Any:
    value = node.attributes.get("value", np.zeros(1, np.float32))
    sizes = _told(inputs[0]).tolist()
    return np.full(sizes, value.reshape(-1)[0]) if math.prod(sizes) <= _MOST else None


def _expanded(_: Node, inputs: Sequence[Array]) -> Any:
    x, shape = inputs
    sizes = np.broadcast_shapes(x.shape, tuple(_told(shape).tolist()))
    return np.array(np.broadcast_to(x, sizes)) if math.prod(sizes) <= _MOST else None


def _reduced(function: Callable[..., Any], *, typed: bool) -> _Rule:
    def rule(node: Node, inputs: _Inputs) -> Any:
        x, axes = inputs[0], _axes(node, inputs)
        if x is None or x.dtype.kind not in "iuO" or not x.size:
            return None
        if not axes and node.attributes.get("noop_with_empty_axes", 0):
            return x
        more = {"dtype": x.dtype} if typed else {}
        return function(x, axis=tuple(axes) if axes else None, keepdims=bool(node.attributes.get("keepdims", 1)), **more)

    return rule


_NUMBERS: Final = "iufO"
_RULES: Final[Mapping[str, _Rule]] = {
    "Abs": _elementwise(np.abs, "iO"),
    "Add": _elementwise(np.add, _NUMBERS),
    "And": _elementwise(np.logical_and, "b"),
    "Cast": _cast,
    "Ceil": _elementwise(np.ceil, "f"),
    "Concat": _joined,
    "ConstantOfShape": _filled,
    "Div": _elementwise(_divided, _NUMBERS),
    "Equal": _compared(np.equal),
    "Expand": _expanded,
    "Floor": _elementwise(np.floor, "f"),
    "Gather": _gathered,
    "Greater": _compared(np.greater),
    "GreaterOrEqual": _compared(np.greater_equal),
    "Identity": lambda node, inputs: inputs[0],
    "Less": _compared(np.less),
    "LessOrEqual": _compared(np.less_equal),
    "Max": _elementwise(np.maximum, "iuO"),
    "Min": _elementwise(np.minimum, "iuO"),
    "Mod": _remainder,
    "Mul": _elementwise(np.multiply, _NUMBERS),
    "Neg": _elementwise(np.negative, "ifO"),
    "Not": _elementwise(np.logical_not, "b"),
    "Or": _elementwise(np.logical_or, "b"),
    "Range": _counted,
    "ReduceMax": _reduced(np.max, typed=False),
    "ReduceMin": _reduced(np.min, typed=False),
    "ReduceProd": _reduced(np.prod, typed=True),
    "ReduceSum": _reduced(np.sum, typed=True),
    "Reshape": _reshaped,
    "Slice": _sliced,
    "Squeeze": _squeezed,
    "Sub": _elementwise(np.subtract, _NUMBERS),
    "Transpose": _transposed,
    "Unsqueeze": _unsqueezed,
    "Where": _chosen,
}
