"""The arithmetic of shapes and of small constants: tensors of numbers, by the operators with which exporters compute sizes,
positions and tables.

A tensor whose elements are sizes that record what is computed of them is an array of objects, which knows the type that ONNX
sees. No index and no count can be such a size. Floats that record are whole numbers, which a float holds exactly: they are
only moved here, and whatever is computed of them the device computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dmlvk.graph.views import Sizes
from dmlvk.onnx.model import Array, Node, element_type
from dmlvk.onnx.node_facts import invalid_node
from dmlvk.spec.errors import ModelError
from dmlvk.spec.size import Size

_INT64: Final = np.dtype(np.int64)
_Inputs = Sequence[Array | None]
_Rule = Callable[[Node, Any], Any]


class NotPlainError(Exception):
    """What a node makes has a length, or is chosen by an index, that is a size which records; or it is computed where sizes
    cannot record."""


def has_rule(node: Node) -> bool:
    """Whether the node's operator is computed here, of whatever plain numbers it is given; and not with a broadcast along an
    axis, as before opset 7."""
    along_axis = {"axis", "broadcast"} <= node.attributes.keys()
    return node.domain == "" and node.op_type in _RULES and not along_axis


def has_types(node: Node, inputs: _Inputs) -> bool:
    """Whether the inputs of a node that has a rule are of types with which numpy computes, or of one that is only moved."""
    others = _others(inputs)
    data = _data(node, inputs)
    return not others or (node.op_type in _MOVING and len(others) == 1 and (data is None or data.dtype in others))


def _data(node: Node, inputs: _Inputs) -> Array | None:
    return inputs[1 if node.op_type == "Where" else 0] if inputs else None


def _others(inputs: _Inputs) -> set[np.dtype[Any]]:
    """The types of inputs that numpy does not compute with."""
    return {array.dtype for array in inputs if array is not None and not _is_plain(array.dtype)}


def evaluate(node: Node, inputs: _Inputs) -> list[Array] | None:
    """The outputs of a node that has a rule; None where it makes a type that numpy does not have.

    Args:
        node: The node, which ``has_types``.
        inputs: Its inputs, None for an absent one.

    Raises:
        NotPlainError: only ``plain`` inputs can be computed with here.
        ModelError: the node does not fit its inputs.
    """
    present = [array for array in inputs if array is not None]
    recording = [array for array in present if records(array)]
    if recording and node.op_type not in _RECORDING:
        raise NotPlainError
    if any(element_of(array).kind == "f" for array in recording) and node.op_type not in _OF_FLOATS:
        raise NotPlainError
    data, others = _data(node, inputs), _others(inputs)
    try:
        with np.errstate(all="ignore"):
            made = _RULES[node.op_type](node, [_as_bits(array) for array in inputs])
    except ModelError:
        raise
    except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
        raise ModelError(f"node {node.name!r} ({node.op_type}) does not fit its inputs: {error}") from error
    if made is None:
        return None
    target = element_type(node.attributes["to"])[1] if node.op_type == "Cast" else None
    results = [_settled(item, target or (element_of(data) if data is not None else None)) for item in _listed(made)]
    return [item.view(dtype) for dtype in others for item in results] or results


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether numpy computes with the type, or it stands for sizes that record; narrow floats and 4-bit integers have names
    or are types of another package."""
    return dtype.kind in "biufO" and dtype.names is None


def _as_bits(array: Array | None) -> Array | None:
    """A tensor of a type that numpy does not compute with as integers of the same size."""
    return array if array is None or _is_plain(array.dtype) else array.view(f"u{array.dtype.itemsize}")


def _listed(made: Any) -> Sequence[Any]:
    return made if isinstance(made, list) else [made]


class _Recording(np.ndarray[Any, Any]):
    """A tensor with sizes among its elements that record what is computed of them.

    Attributes:
        element: The type of its elements as ONNX sees it.
    """

    element: np.dtype[Any] = np.dtype(np.int64)


def whole_numbers(values: Sequence[int], dtype: np.dtype[Any] = _INT64, sizes: Sizes | None = None) -> Array:
    """A tensor of plain whole numbers or of sizes that record; of one dimension where no sizes are given."""
    return _settled(np.array(values, object).reshape(len(values) if sizes is None else sizes), dtype)


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
            raise TypeError(f"elements of the types {', '.join(str(element_of(array)) for array in inputs)}")
        result = function(inputs[0]) if getattr(function, "nin", 2) == 1 else inputs[0]
        for other in inputs[1:]:
            result = function(result, other)
        return result

    return rule


def _compared(function: Callable[..., Any]) -> _Rule:
    def rule(_: Node, inputs: Sequence[Array]) -> Any:
        if not _same_type(*inputs):
            raise TypeError("its inputs have several types")
        return np.asarray(function(*inputs), bool)

    return rule


def _check_divisor(b: Array) -> None:
    if b.dtype.kind in "iu" and (b == 0).any():
        raise ZeroDivisionError("an integer is divided by 0")


def _divided(a: Any, b: Any) -> Any:
    if a.dtype.kind == "f":
        return a / b
    _check_divisor(b)
    quotient = np.floor_divide(a, b)
    exact = np.equal(quotient * b, a)
    return quotient + np.where(exact | np.greater_equal(quotient, 0), 0, 1).astype(a.dtype)  # towards zero


def _remainder(node: Node, inputs: Sequence[Array]) -> Any:
    a, b = inputs
    _check_divisor(b)
    return np.fmod(a, b) if node.attributes.get("fmod", 0) and a.dtype.kind != "O" else np.mod(a, b)


def _chosen(_: Node, inputs: Sequence[Array]) -> Any:
    condition, a, b = inputs
    if not _same_type(a, b):
        raise TypeError("its inputs have several types")
    return np.where(condition.astype(bool), a, b)


def _cast(node: Node, inputs: Sequence[Array]) -> Any:
    (x,) = inputs
    _, dtype = element_type(node.attributes["to"])
    if dtype is None or not _is_plain(dtype):
        return None
    is_kept = records(x) and (dtype in (np.int32, np.int64) or _holds(dtype, x.flat))
    return x if is_kept else _told(x).astype(dtype)


def _holds(dtype: np.dtype[Any], numbers: Iterable[int]) -> bool:
    """Whether a float, and a 32-bit integer, hold these whole numbers and all between them and 0 exactly."""
    most = exact_whole_numbers(dtype) if dtype.kind == "f" else 0
    return all(-most <= number <= most for number in numbers)


def exact_whole_numbers(dtype: np.dtype[Any]) -> int:
    """The bound up to which a float type holds every whole number, as does a 32-bit integer."""
    return min(1 << np.finfo(dtype).nmant + 1, 2**31 - 1)


def _gathered(node: Node, inputs: Sequence[Array]) -> Any:
    x, indices = inputs
    axis = node.attributes.get("axis", 0)
    if records(indices) and not all(-x.shape[axis] <= index < x.shape[axis] for index in indices.flat):
        raise invalid_node(node, f"indices must be inside the {x.shape[axis]} elements along the axis", indices.tolist())
    return np.take(x, _told(indices), axis=axis)


def _sliced(node: Node, inputs: _Inputs) -> Any:
    x, *rest = inputs
    assert x is not None, "it is required"
    bounds: list[Any] = [None if array is None else _told(array).reshape(-1).tolist() for array in rest]
    if not bounds:  # before opset 10
        bounds = [node.attributes.get(name) for name in ("starts", "ends", "axes")]
    starts, ends, axes, steps = (*bounds, None, None)[:4]
    chosen = [slice(None)] * x.ndim
    for axis, start, end, stride in zip(axes or range(len(starts)), starts, ends, steps or [1] * len(starts), strict=True):
        chosen[axis] = slice(start, end, stride)
    return x[tuple(chosen)]


def _axes(node: Node, inputs: _Inputs) -> list[int] | None:
    """The axes that a node has as an attribute or, in newer versions, as an input; None for none."""
    given = inputs[1] if len(inputs) > 1 else None
    if given is not None:
        return [int(axis) for axis in _told(given).reshape(-1)]
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
    if not _same_type(*inputs):
        raise TypeError("its inputs have several types")
    return np.concatenate(inputs, axis=node.attributes["axis"])


def _counted(_: Node, inputs: Sequence[Array]) -> Any:
    start, limit, delta = (array.reshape(-1)[0] for array in inputs)
    if inputs[0].dtype.kind == "f":
        count: Any = max(0, math.ceil((float(limit) - float(start)) / float(delta)))
    else:
        count = max(0, -((start - limit) // delta))
    if isinstance(count, Size):
        raise NotPlainError
    dtype = inputs[0].dtype
    if dtype.kind != "f":  # sizes that record are no numbers of numpy's
        return start + np.arange(count).astype(dtype) * delta
    wide = np.promote_types(dtype, np.float32)  # stash_type of Range
    return (start.astype(wide) + np.arange(count).astype(wide) * delta.astype(wide)).astype(dtype)


def _filled(node: Node, inputs: Sequence[Array]) -> Any:
    value = node.attributes.get("value", np.zeros(1, np.float32))
    return np.full(_told(inputs[0]).tolist(), value.reshape(-1)[0], value.dtype)


def _expanded(_: Node, inputs: Sequence[Array]) -> Any:
    x, shape = inputs
    return np.array(np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(_told(shape).tolist()))))


def _reduced(function: Callable[..., Any], *, typed: bool) -> _Rule:
    def rule(node: Node, inputs: _Inputs) -> Any:
        x, axes = inputs[0], _axes(node, inputs)
        assert x is not None, "it is required"
        if not axes and node.attributes.get("noop_with_empty_axes", 0):
            return x
        if x.size == 0:
            return None  # the device's operators say what the function of nothing is
        more = {"dtype": x.dtype} if typed else {}
        return function(x, axis=tuple(axes) if axes else None, keepdims=bool(node.attributes.get("keepdims", 1)), **more)

    return rule


# -- of plain numbers only


def _power(_: Node, inputs: Sequence[Array]) -> Any:
    a, b = inputs
    if a.dtype.kind in "iu" and (b.dtype.kind == "f" or (b < 0).any()):
        return None
    return np.power(a, b).astype(a.dtype)


def _clipped(node: Node, inputs: _Inputs) -> Any:
    x, low, high = (*inputs, None, None)[:3]
    assert x is not None, "it is required"
    low, high = (node.attributes.get(name, bound) for name, bound in (("min", low), ("max", high)))
    raised = x if low is None else np.maximum(x, low)
    return (raised if high is None else np.minimum(raised, high)).astype(x.dtype)


def _gathered_elements(node: Node, inputs: Sequence[Array]) -> Any:
    x, indices = inputs
    return x[_places(node, x, indices)]


def _places(node: Node, x: Array, indices: Array) -> tuple[Array, ...]:
    """The element of a tensor that each of some indices along an axis stands for."""
    axis = node.attributes.get("axis", 0)
    places: list[Array] = [*np.indices(indices.shape, sparse=True)]
    if indices.ndim != x.ndim:
        raise ValueError(f"indices of {indices.ndim} dimensions for {x.ndim}")
    places[axis] = indices
    return tuple(places)


def _gathered_blocks(node: Node, inputs: Sequence[Array]) -> Any:
    x, indices = inputs
    own, length = node.attributes.get("batch_dims", 0), indices.shape[-1]
    batch = math.prod(indices.shape[:own])
    tuples = indices.reshape(batch, -1, length)
    rows = np.broadcast_to(np.arange(batch)[:, None], tuples.shape[:2])
    blocks = x.reshape(batch, *x.shape[own:])[(rows, *np.moveaxis(tuples, -1, 0))]
    return blocks.reshape(*indices.shape[:-1], *x.shape[own + length :])


def _scattered_elements(node: Node, inputs: Sequence[Array]) -> Any:
    if node.attributes.get("reduction", "none") != "none":
        return None
    x, indices, updates = inputs
    y = x.copy()
    y[_places(node, x, indices)] = updates
    return y


def _scattered_blocks(node: Node, inputs: Sequence[Array]) -> Any:
    if node.attributes.get("reduction", "none") != "none":
        return None
    x, indices, updates = inputs
    y = x.copy()
    y[tuple(np.moveaxis(indices, -1, 0))] = updates
    return y


def _split(node: Node, inputs: _Inputs) -> Any:
    x, sizes = (*inputs, None)[:2]
    assert x is not None, "it is required"
    axis, count = node.attributes.get("axis", 0), len(node.outputs)
    given = node.attributes.get("split") if sizes is None else _told(sizes).tolist()
    whole = -(-x.shape[axis] // count)
    ends = np.cumsum([whole] * count if given is None else given)
    if len(ends) != count or (given is not None and ends[-1] != x.shape[axis]):
        raise ValueError(f"parts of {given} elements of {x.shape[axis]}")
    return np.split(x, np.minimum(ends[:-1], x.shape[axis]), axis)


def _flattened(node: Node, inputs: Sequence[Array]) -> Any:
    axis = node.attributes.get("axis", 1)
    return inputs[0].reshape(math.prod(inputs[0].shape[:axis]), math.prod(inputs[0].shape[axis:]))


def _triangle(node: Node, inputs: Sequence[Array]) -> Any:
    diagonal = int(inputs[1].item()) if len(inputs) > 1 else 0
    return (np.triu if node.attributes.get("upper", 1) else np.tril)(inputs[0], diagonal)


def _summed_up(node: Node, inputs: Sequence[Array]) -> Any:
    x, axis = inputs[0], int(inputs[1].item())
    backwards = slice(None, None, -1 if node.attributes.get("reverse", 0) else 1)
    along = tuple(backwards if at == axis % x.ndim else slice(None) for at in range(x.ndim))
    sums = np.cumsum(x[along], axis, dtype=x.dtype)
    if node.attributes.get("exclusive", 0):
        first = np.zeros_like(np.take(sums, [0], axis))
        sums = np.concatenate([first, np.delete(sums, -1, axis)], axis)
    return sums[along]


def _cast_like(_: Node, inputs: Sequence[Array]) -> Any:
    return inputs[0].astype(inputs[1].dtype)


_NUMBERS: Final = "iufO"
_RECORDING: Final[Mapping[str, _Rule]] = {
    "Abs": _elementwise(np.abs, _NUMBERS),
    "Add": _elementwise(np.add, _NUMBERS),
    "And": _elementwise(np.logical_and, "b"),
    "Cast": _cast,
    "Concat": _joined,
    "ConstantOfShape": _filled,
    "Div": _elementwise(_divided, _NUMBERS),
    "Equal": _compared(np.equal),
    "Expand": _expanded,
    "Gather": _gathered,
    "Greater": _compared(np.greater),
    "GreaterOrEqual": _compared(np.greater_equal),
    "Identity": lambda node, inputs: inputs[0],
    "Less": _compared(np.less),
    "LessOrEqual": _compared(np.less_equal),
    "Max": _elementwise(np.maximum, _NUMBERS),
    "Min": _elementwise(np.minimum, _NUMBERS),
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
    "Split": _split,
    "Squeeze": _squeezed,
    "Sub": _elementwise(np.subtract, _NUMBERS),
    "Transpose": _transposed,
    "Unsqueeze": _unsqueezed,
    "Where": _chosen,
}
"""What sizes that record go through as well."""
_RULES: Final[Mapping[str, _Rule]] = {
    **_RECORDING,
    "CastLike": _cast_like,
    "Ceil": _elementwise(np.ceil, "f"),
    "Clip": _clipped,
    "Cos": _elementwise(np.cos, "f"),
    "CumSum": _summed_up,
    "Exp": _elementwise(np.exp, "f"),
    "Flatten": _flattened,
    "Floor": _elementwise(np.floor, "f"),
    "GatherElements": _gathered_elements,
    "GatherND": _gathered_blocks,
    "Log": _elementwise(np.log, "f"),
    "NonZero": lambda node, inputs: np.array(np.nonzero(np.atleast_1d(inputs[0])), np.int64),
    "Pow": _power,
    "Reciprocal": _elementwise(np.reciprocal, "f"),
    "ReduceMean": _reduced(np.mean, typed=True),
    "Round": _elementwise(np.rint, "f"),
    "ScatterElements": _scattered_elements,
    "ScatterND": _scattered_blocks,
    "Sign": _elementwise(np.sign, "iuf"),
    "Sin": _elementwise(np.sin, "f"),
    "Sqrt": _elementwise(np.sqrt, "f"),
    "Sum": _elementwise(np.add, "f"),
    "Tile": lambda node, inputs: np.tile(inputs[0], inputs[1].tolist()),
    "Trilu": _triangle,
    "Xor": _elementwise(np.logical_xor, "b"),
}
_MOVING: Final = frozenset(
    {
        *("Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice", "Split"),
        *("Squeeze", "Tile", "Transpose", "Unsqueeze"),
    }
)
_OF_FLOATS: Final = _MOVING | {"Cast"}
"""What floats that record go through as well."""
