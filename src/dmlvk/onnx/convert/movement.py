"""Operators that move elements without looking at them. What needs no copy is a view or the input itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dmlvk.engine.launches import Range
from dmlvk.graph.views import Sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.model import Array, data_type_of
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import always, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import DepthSpaceOrder, PaddingMode, TensorDataType
from dmlvk.spec.schema import NUMERIC

_ANY = (TensorDataType.FLOAT64, *NUMERIC)

_MODES = {
    "constant": PaddingMode.CONSTANT,
    "edge": PaddingMode.EDGE,
    "reflect": PaddingMode.REFLECTION,
    "wrap": PaddingMode.WRAP,
}


@converts("Slice", 1, types=_ANY, moves=always)
def slice_of_attributes(node: Conversion) -> Value:
    starts, ends = (list(node.attribute(name, ())) for name in ("starts", "ends"))
    return _slice(node, starts, ends, node.attribute("axes", None), None)


@converts("Slice", 10, 11, 13, types=_ANY, moves=always, host_inputs=(1, 2, 3, 4))
def slice_(node: Conversion) -> Value:
    """A scalar counts as a list of one: PyTorch's exporter by tracing writes some."""
    axes, steps = (None if found is None else found.ravel().tolist() for found in (node.host(3), node.host(4)))
    return _slice(node, node.known(1).ravel().tolist(), node.known(2).ravel().tolist(), axes, steps)


def _slice(
    node: Conversion, starts: list[int], ends: list[int], axes: Sequence[int] | None, steps: Sequence[int] | None
) -> Value:
    x = node[0]
    chosen = list(range(len(starts)) if axes is None else axes)
    steps = [1] * len(chosen) if steps is None else steps
    if not len(starts) == len(ends) == len(chosen) == len(steps):
        rule = f"starts, ends and steps must have one entry for each of the axes {chosen}"
        raise node.invalid(rule, (list(starts), list(ends), list(steps)))
    ranges = [(0, size, 1) for size in x.sizes]
    for axis, start, end, step in zip(_axes(node, chosen), starts, ends, steps, strict=True):
        if step == 0:
            raise node.invalid("no step may be 0", list(steps))
        ranges[axis] = _range(x.sizes[axis], start, end, step)
    return node.sliced(x, ranges)


def _range(size: int, start: int, end: int, step: int) -> Range:
    """ONNX's clamping: a start before the first element is the first one, for steps back too, where Python has none."""
    first, last = (0, size) if step > 0 else (-1, size - 1)
    start, end = (place + size if place < 0 else place for place in (start, end))
    start, end = min(max(start, 0), last), min(max(end, first), last)
    count = max(-((start - end) // step), 0)
    return (start, count, step) if count > 1 else (start, count, 1)


@converts("Split", 2, 11, types=_ANY, moves=always)
@converts("Split", 13, 18, types=_ANY, moves=always, host_inputs=(1,))
def split(node: Conversion) -> tuple[Value, ...]:
    """One launch writes all pieces; a piece that is the whole input is the input."""
    x = node[0]
    axis = node.axis(node.attribute("axis", 0), x.rank)
    lengths = _lengths(node, x.sizes[axis])
    if len(lengths) != len(node.node.outputs) or min(lengths) < 0 or sum(lengths) != x.sizes[axis]:
        rule = f"there must be a length for each of {len(node.node.outputs)} outputs, {x.sizes[axis]} elements together"
        raise node.invalid(rule, lengths)
    if x.sizes[axis] in lengths:
        return tuple(x if length else x.shorten(axis, 0) for length in lengths)
    pieces = tuple(node.new(x.shorten(axis, length).sizes, x.dtype) for length in lengths)
    if 0 not in x.sizes:
        node.launch(ops.Split, x, output_tensors=tuple(piece for piece in pieces if 0 not in piece.sizes), axis=axis)
    return pieces


def _lengths(node: Conversion, size: int) -> list[int]:
    """The lengths that Split splits into: those given, or equal ones with the last piece the shortest."""
    given = node.host(1) if node.node.version >= 13 else node.attribute("split", None)
    if given is not None:
        return [int(length) for length in given]
    count = node.attribute("num_outputs", len(node.node.outputs))
    if count != len(node.node.outputs):
        raise node.invalid("num_outputs must be the number of outputs", count, len(node.node.outputs))
    length = -(-size // count) if count > 0 else 0
    if size % max(count, 1) and node.node.version < 18:
        raise node.invalid(f"{size} elements must divide evenly among the outputs", count)
    return [max(min(length, size - length * index), 0) for index in range(count)]


@converts("Concat", 4, 11, 13, types=_ANY, moves=always)
def concat(node: Conversion) -> Value:
    return joined(node, [node[index] for index in range(node.input_count)], node.attribute("axis", 1))


def joined(node: Conversion, values: Sequence[Value], axis: int) -> Value:
    """Values one after the other along an axis."""
    first = values[0]
    axis = node.axis(axis, first.rank)
    if any(value.rank != first.rank or value.shorten(axis, 0).sizes != first.shorten(axis, 0).sizes for value in values):
        rule = f"inputs must have equal sizes, except along axis {axis}"
        raise node.invalid(rule, [value.sizes for value in values])
    pieces = tuple(value for value in values if 0 not in value.sizes)
    if len(pieces) < 2:
        return pieces[0] if pieces else first.shorten(axis, sum(value.sizes[axis] for value in values))
    sizes = first.shorten(axis, sum(piece.sizes[axis] for piece in pieces)).sizes
    return node.launch(ops.Join, input_tensors=pieces, output_tensor=node.new(sizes, first.dtype), axis=axis)


def _refuse_wrapping(node: NodeFacts) -> None:
    if node.attribute("mode", "constant") == "wrap" and node.node.version < 19:
        raise node.invalid("mode 'wrap' must be of opset 19 or newer", node.node.version)


@converts("Pad", 2, types=_ANY, moves=always, check=_refuse_wrapping)
def pad_of_attributes(node: Conversion) -> Value:
    value = node[0].dtype.type(node.attribute("value", 0.0))
    return _padded(node, node.attribute("mode", "constant"), list(node.attribute("pads", ())), value, None)


@converts(
    "Pad",
    *(11, 13, 18, 19, 21, 23, 24, 25),
    types=_ANY,
    moves=always,
    host_inputs=(1, 2, 3),
    check=_refuse_wrapping,
)
def pad(node: Conversion) -> Value:
    value, axes = node.host(2), node.host(3)
    number = node[0].dtype.type(0 if value is None or value.size == 0 else value.item())
    chosen = None if axes is None else axes.tolist()
    return _padded(node, node.attribute("mode", "constant"), node.known(1).ravel().tolist(), number, chosen)


@converts("CenterCropPad", 18, types=_ANY, moves=always, host_inputs=(1,))
def center_crop_pad(node: Conversion) -> Value:
    """Zeros around, or the middle of each dimension; the odd element is the last."""
    x = node[0]
    axes, wanted = _axes(node, node.attribute("axes", range(x.rank))), node.known(1).tolist()
    if len(wanted) != len(axes) or min(wanted, default=0) < 0:
        raise node.invalid(f"there must be one size of at least 0 for each of the axes {axes}", wanted)
    missing = [size - x.sizes[axis] for axis, size in zip(axes, wanted, strict=True)]
    starts = [count // 2 if count > 0 else -(-count // 2) for count in missing]
    ends = [count - start for count, start in zip(missing, starts, strict=True)]
    return _padded(node, "constant", starts + ends, x.dtype.type(0), axes)


def _padded(node: Conversion, mode: str, pads: list[int], value: np.generic, axes: Sequence[int] | None) -> Value:
    """``pads``: first the elements before each of the axes, then those after; negative ones are cut off, first of all."""
    x = node[0]
    chosen = _axes(node, range(x.rank) if axes is None else axes)
    if len(pads) != 2 * len(chosen):
        raise node.invalid(f"pads must have two entries for each of {len(chosen)} axes", pads)
    before, after = [0] * x.rank, [0] * x.rank
    for axis, start, end in zip(chosen, pads[: len(chosen)], pads[len(chosen) :], strict=True):
        before[axis], after[axis] = start, end
    dimensions = list(zip(before, x.sizes, after, strict=True))
    kept = [(max(-start, 0), min(start, 0) + size + min(end, 0), 1) for start, size, end in dimensions]
    if min((count for _, count, _ in kept), default=0) < 0:
        raise node.invalid(f"negative pads must not cut off more than the sizes {x.sizes} have", pads)
    x = node.sliced(x, kept)
    starts, ends = (tuple(max(count, 0) for count in counts) for counts in (before, after))
    sizes = tuple(start + size + end for start, size, end in zip(starts, x.sizes, ends, strict=True))
    if sizes == x.sizes:
        return x
    if 0 in x.sizes and 0 not in sizes:
        if mode != "constant":
            raise node.invalid(f"mode must be 'constant' for an input without elements, of sizes {x.sizes}", mode)
        return node.fill(sizes, value)
    data_type = data_type_of(x.dtype)
    assert data_type is not None, "the registry let the input through"
    return node.launch(
        ops.Padding1,
        x,
        output_tensor=node.new(sizes, x.dtype),
        padding_mode=_MODES[mode],
        padding_value_data_type=data_type,
        padding_value=int(value) if value.dtype.kind == "b" else value.item(),
        start_padding=starts,
        end_padding=ends,
    )


@converts("Tile", 6, 13, types=_ANY, moves=always, host_inputs=(1,))
def tile(node: Conversion) -> Value:
    """A broadcast view where only dimensions of one element are repeated."""
    x, repeats = node[0], tuple(int(count) for count in node.known(1))
    if len(repeats) != x.rank or min(repeats, default=0) < 0:
        raise node.invalid(f"repeats must have one number of at least 0 for each dimension of {x.sizes}", repeats)
    sizes = tuple(size * count for size, count in zip(x.sizes, repeats, strict=True))
    if all(1 in (size, count) for size, count in zip(x.sizes, repeats, strict=True)):
        return x.broadcast_to(sizes)
    y = node.new(sizes, x.dtype)
    # DirectML's Tile has no FLOAT64; only an element's size matters.
    plain = np.dtype(np.uint64) if x.dtype == np.float64 else x.dtype
    node.launch(ops.Tile, x.reinterpret(plain), output_tensor=y.reinterpret(plain), repeats=repeats)
    return y


@converts("DepthToSpace", 1, 11, 13, types=_ANY, moves=always)
def depth_to_space(node: Conversion) -> Value:
    order = _order(node)
    block, (batch, channels, height, width) = _block(node)
    if channels % block**2:
        raise node.invalid(f"the channels must be a multiple of the square of blocksize, {block}", channels)
    y = node.new((batch, channels // block**2, height * block, width * block), node[0].dtype)
    return node.launch(ops.DepthToSpace1, node[0], output_tensor=y, block_size=block, order=order)


@converts("SpaceToDepth", 1, 13, 28, types=_ANY, moves=always)
def space_to_depth(node: Conversion) -> Value:
    order = _order(node)
    block, (batch, channels, height, width) = _block(node)
    if height % block or width % block:
        raise node.invalid(f"height and width must be multiples of blocksize, {block}", (height, width))
    y = node.new((batch, channels * block**2, height // block, width // block), node[0].dtype)
    return node.launch(ops.SpaceToDepth1, node[0], output_tensor=y, block_size=block, order=order)


def _order(node: Conversion) -> DepthSpaceOrder:
    columns_first = node.attribute("mode", "DCR") == "CRD"
    return DepthSpaceOrder.COLUMN_ROW_DEPTH if columns_first else DepthSpaceOrder.DEPTH_COLUMN_ROW


def _block(node: Conversion) -> tuple[int, Sizes]:
    if node[0].rank != 4:
        raise node.invalid("the input must have 4 dimensions", node[0].sizes)
    return node.attribute("blocksize", 1), node[0].sizes


@converts("ReverseSequence", 10, types=_ANY, moves=always)
def reverse_sequence(node: Conversion) -> Value:
    """The lengths, one for each element of the batch, count for all other dimensions: a broadcast view."""
    x, lengths = node[0], node[1]
    time = node.axis(node.attribute("time_axis", 0), x.rank)
    batch = node.axis(node.attribute("batch_axis", 1), x.rank)
    if time == batch or lengths.sizes != (x.sizes[batch],):
        rule = f"time_axis {time} must not be batch_axis {batch}, and there must be a length for each element of the batch"
        raise node.invalid(rule, lengths.sizes, (x.sizes[batch],))
    along_batch = node.reshape(lengths, tuple(size if axis == batch else 1 for axis, size in enumerate(x.sizes)))
    return node.launch(
        ops.ReverseSubsequences,
        x,
        along_batch.broadcast_to(x.shorten(time, 1).sizes).reinterpret(np.dtype(np.uint64)),
        output_tensor=node.new(x.sizes, x.dtype),
        axis=time,
    )


def _axes(node: Conversion, axes: Sequence[int] | Array) -> list[int]:
    """Axes counted from the front."""
    found = [node.axis(int(axis), node[0].rank) for axis in axes]
    if len(set(found)) != len(found):
        raise node.invalid("axes may name a dimension only once", list(axes))
    return found
