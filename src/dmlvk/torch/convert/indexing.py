"""Elements, rows and blocks chosen by tensors of indices, and what is written or added where they say.

PyTorch refuses an index out of range when it runs. A device does not look: what is read there is the nearest element, and
what is written there is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from dmlvk.engine.scatters import joined, replaced
from dmlvk.engine.values import Value
from dmlvk.graph.views import Sizes
from dmlvk.spec import ops
from dmlvk.spec.schema import OperatorDesc
from dmlvk.torch.conversion import Conversion, Number
from dmlvk.torch.convert.elementwise import BOOL, FLOAT, chosen, compared, minus, over, plus, times
from dmlvk.torch.convert.movement import taken, wide_index
from dmlvk.torch.registry import converter

_INT: Final = np.dtype(np.int32)
_REDUCTIONS: Final[dict[str, type[OperatorDesc]]] = {
    "sum": ops.ElementWiseAdd,
    "mean": ops.ElementWiseAdd,
    "prod": ops.ElementWiseMultiply,
    "amax": ops.ElementWiseMax,
    "amin": ops.ElementWiseMin,
}


@converter("aten.index_select.default", moves=True)
def index_select(node: Conversion, x: Value, dim: int, index: Value) -> Value:
    line = x if x.rank else node.reshape(x, (1,))
    return node.reshape(taken(node, line, node.reshape(index, (math.prod(index.sizes),)), dim % line.rank), node.sizes)


@converter("aten.embedding.default", moves=True)
def embedding(
    node: Conversion,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    return taken(node, weight, indices, 0)


@converter("aten.gather.default", moves=True)
def gather(node: Conversion, x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    """Along the other dimensions there may be fewer indices than elements."""
    if not x.rank or not index.rank:
        return node.reshape(x, node.sizes)
    axis = dim % x.rank
    for at, size in enumerate(index.sizes):
        x = x if at == axis else x.shorten(at, size)
    places = wide_index(node, index)
    return node.launch(ops.GatherElements, x, places, output_tensor=node.new(index.sizes, x.dtype), axis=axis)


# -- places by several tensors of indices


class _Places(NamedTuple):
    """Places in some dimensions of a tensor.

    Attributes:
        axes: These dimensions, in order.
        places: The places, of the indices' common sizes: in one dimension as they are given, else among the elements of all
            of them, row-major.
        at: The dimension of the result at which those of the indices begin.
    """

    axes: tuple[int, ...]
    places: Value
    at: int

    @property
    def is_apart(self) -> bool:
        """Whether other dimensions stand between them."""
        return self.axes != tuple(range(self.axes[0], self.axes[0] + len(self.axes)))


def _places(node: Conversion, x: Value, indices: Sequence[Value | None]) -> _Places:
    axes = tuple(axis for axis, index in enumerate(indices) if index is not None)
    given = [index for index in indices if index is not None]
    if any(index.dtype in (BOOL, np.uint8) for index in given):
        raise node.unsupported("an index by truth values is not supported: how many elements it takes depends on them")
    spread = node.broadcast(*given)
    total = spread[0]
    if len(axes) > 1:
        columns = [_from_the_front(node, index, x.sizes[axis]) for axis, index in zip(axes, spread, strict=True)]
        total = columns[0]
        for axis, column in zip(axes[1:], columns[1:], strict=True):
            total = plus(node, times(node, total, node.tensor(x.sizes[axis], total.dtype)), column)
    places = _Places(axes, total, axes[0])
    return _Places(axes, total, 0) if places.is_apart else places


def _from_the_front(node: Conversion, index: Value, size: int) -> Value:
    """Places with those below 0 counted from the end, of int32 where all of them fit it."""
    index = node.cast(index, _INT) if size <= np.iinfo(_INT).max else index
    is_negative = compared(node, ops.ElementWiseLogicalLessThan, index, 0)
    return chosen(node, is_negative, plus(node, index, node.tensor(size, index.dtype)), index, index.dtype)


@converter("aten.index.Tensor", "aten._unsafe_index.Tensor", moves=True)
def index(node: Conversion, x: Value, indices: Sequence[Value | None]) -> Value:
    masks = [item for item in indices if item is not None and item.dtype in (BOOL, np.uint8)]
    if masks:
        raise node.unsupported("an index by truth values is not supported: how many elements it takes depends on them")
    places = _places(node, x, indices)
    if places.is_apart:
        order = (*places.axes, *(axis for axis in range(x.rank) if axis not in places.axes))
        x = x.transpose(order)
    at, count = places.at, len(places.axes)
    merged = (*x.sizes[:at], math.prod(x.sizes[at : at + count]), *x.sizes[at + count :])
    return node.reshape(taken(node, node.reshape(x, merged), places.places, at), node.sizes)


@converter("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(node: Conversion, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    """Of several values for one place the last stays, or with ``accumulate`` all are added."""
    given = [item for item in indices if item is not None]
    if len(given) == 1 and given[0].dtype in (BOOL, np.uint8):
        return _masked_put(node, x, indices, values, accumulate)
    places = _places(node, x, indices)
    count, own = len(places.axes), places.places.sizes
    order = (*places.axes, *(axis for axis in range(x.rank) if axis not in places.axes))
    rest = tuple(x.sizes[axis] for axis in order[count:])
    before = 0 if places.is_apart else places.axes[0]
    block = (*rest[:before], *own, *rest[before:])
    values = node.tensor(values, x.dtype).broadcast_to(block)
    turned = (*range(before, before + len(own)), *range(before), *range(before + len(own), len(block)))
    number, row = math.prod(own), math.prod(rest)
    updates = node.reshape(values.transpose(turned), (number, row))
    if not number or not row:
        return x
    blocks = math.prod(x.sizes[axis] for axis in places.axes)
    target = node.reshape(x.transpose(order), (blocks, row))
    if accumulate:
        made = added(node, target, places.places, updates, blocks)
    else:
        index = node.reshape(wide_index(node, places.places), (number, 1))
        made = node.new(target.sizes, x.dtype)
        node.launch(
            ops.ScatterNd,
            target,
            index,
            updates,
            output_tensor=made,
            input_dimension_count=2,
            indices_dimension_count=2,
        )
    back = node.reshape(made, tuple(x.sizes[axis] for axis in order))
    return back.transpose(tuple(order.index(axis) for axis in range(x.rank)))


def added(node: Conversion, target: Value, index: Value, updates: Value, count: int) -> Value:
    """Rows with updates added at places among ``count`` of them; sums of FLOAT16 are rounded once."""
    if target.dtype == BOOL:
        return node.cast(added(node, node.cast(target, _INT), index, node.cast(updates, _INT), count), BOOL)
    number = updates.sizes[0]
    places = node.cast(node.reshape(_from_the_front(node, index, count), (number, 1)), _INT)
    wide = FLOAT if target.dtype == np.float16 else target.dtype
    made = joined(node, node.cast(target, wide), places, node.cast(updates, wide), ops.ElementWiseAdd, 0)
    return node.cast(made, target.dtype)


def _masked_put(node: Conversion, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool) -> Value:
    """Values where truth values say: one for all, or one after the other."""
    axis, mask = next((axis, item) for axis, item in enumerate(indices) if item is not None)
    mask = node.cast(mask, BOOL)
    after = x.rank - axis - mask.rank
    shown = node.reshape(mask, (*(1,) * axis, *mask.sizes, *(1,) * after))
    values = node.tensor(values, x.dtype)
    if math.prod(values.sizes) == 1:
        values = node.reshape(values, ())
    elif axis or values.rank != 1 + after:
        raise node.unsupported("values for an index by truth values, of more than one element, must be one a place")
    else:
        values = _by_turns(node, mask, values)
    if accumulate:
        values = plus(node, x, values)
    return chosen(node, shown.broadcast_to(x.sizes), values, x, x.dtype)


def _by_turns(node: Conversion, mask: Value, values: Value) -> Value:
    """The values in order for the places of a mask that are true; for others any."""
    flat = node.cast(node.reshape(mask, (math.prod(mask.sizes),)), _INT)
    counted = node.launch(ops.CumulativeSummation, flat, output_tensor=node.new(flat.sizes, _INT), axis=0)
    turns = node.elementwise(ops.ElementWiseMax, minus(node, counted, node.tensor(1, _INT)), node.tensor(0, _INT))
    return node.reshape(taken(node, values, turns, 0), (*mask.sizes, *values.sizes[1:]))


@converter("aten.masked_scatter.default")
def masked_scatter(node: Conversion, x: Value, mask: Value, source: Value) -> Value:
    x, mask = node.broadcast(x, mask)
    if not math.prod(source.sizes):
        return x
    values = _by_turns(node, node.packed(mask), node.reshape(source, (math.prod(source.sizes),)))
    return chosen(node, mask, values, x, x.dtype)


# -- places along a dimension, one for each element


def _lines(
    node: Conversion, x: Value, dim: int, index: Value, source: Value | None
) -> tuple[Value, int, Value, Value | None]:
    """x, the dimension, the indices and the updates, of one dimension or more; as many updates as indices."""
    sizes: Sizes = x.sizes or (1,)
    if not x.rank:
        x, index = node.reshape(x, (1,)), node.reshape(index, (math.prod(index.sizes),))
        source = None if source is None else node.reshape(source, (math.prod(source.sizes),))
    if source is not None:
        for at, size in enumerate(index.sizes):
            source = source.shorten(at, size)
    return x, dim % len(sizes), index, source


@converter("aten.scatter.src")
def scatter(node: Conversion, x: Value, dim: int, index: Value, source: Value) -> Value:
    line, axis, index, updates = _lines(node, x, dim, index, node.tensor(source, x.dtype))
    if updates is None or 0 in index.sizes:
        return x
    return node.reshape(replaced(node, line, wide_index(node, index), updates, axis), x.sizes)


@converter("aten.scatter.value")
def scatter_value(node: Conversion, x: Value, dim: int, index: Value, value: Number) -> Value:
    return scatter(node, x, dim, index, node.tensor(value, x.dtype).broadcast_to(index.sizes))


@converter("aten.scatter_add.default")
def scatter_add(node: Conversion, x: Value, dim: int, index: Value, source: Value) -> Value:
    return scatter_reduce(node, x, dim, index, source, "sum")


@converter("aten.scatter_reduce.two")
def scatter_reduce(
    node: Conversion, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """The updates of one place together, and what stood there unless it is left out."""
    line, axis, index, updates = _lines(node, x, dim, index, source)
    if updates is None or 0 in index.sizes:
        return x
    dtype = x.dtype
    wide = FLOAT if dtype == np.float16 else _INT if dtype.kind in "biu" and dtype.itemsize < 4 else dtype
    line, updates = node.cast(line, wide), node.cast(updates, wide)
    places, row = node.cast(index, _INT), _REDUCTIONS[reduce]
    if not include_self:
        neutral = _neutral(reduce, wide)
        line = replaced(node, line, places, node.tensor(neutral, wide).broadcast_to(updates.sizes), axis)
    made = joined(node, line, places, updates, row, axis)
    if reduce == "mean":
        made = _meant(node, made, places, axis, include_self)
    return node.reshape(node.cast(made, dtype), x.sizes)


def _neutral(reduce: str, dtype: np.dtype[Any]) -> Number:
    """The number that changes nothing."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if dtype.kind == "f":
        return -math.inf if reduce == "amax" else math.inf
    limits = np.iinfo(dtype)
    return int(limits.min if reduce == "amax" else limits.max)


def _meant(node: Conversion, sums: Value, places: Value, axis: int, include_self: bool) -> Value:
    """Sums over how many numbers they are of."""
    kind = sums.dtype
    ones = node.tensor(1, kind).broadcast_to(places.sizes)
    before = node.copy(node.tensor(1, kind).broadcast_to(sums.sizes))
    if not include_self:
        before = replaced(node, before, places, node.tensor(0, kind).broadcast_to(places.sizes), axis)
    counts = joined(node, before, places, ones, ops.ElementWiseAdd, axis)
    if kind.kind == "f":
        return over(node, sums, counts)
    quotient = over(node, sums, counts)
    rest = minus(node, sums, times(node, quotient, counts))
    below = compared(node, ops.ElementWiseLogicalLessThan, rest, 0)
    return minus(node, quotient, node.cast(below, kind))
