"""Slices and their gradients, splits, joins, padding, tiles, blocks and reversed sequences. Other transposes are with other
copies (``pointwise``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dmlvk
from dmlvk.spec.enums import DepthSpaceOrder, PaddingMode, TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, calculate_strides
from dmlvk.verify.cases.model import Domain, uniform
from dmlvk_bench.problems.model import FLOAT32, FLOATS, UINT8, Problem, nbytes
from dmlvk_bench.problems.scale import Scale, Sizes

_Rival = Callable[..., Any]
_MOVED = 0.9
"""The share of the copy bandwidth for what moves rows."""


def _problem(
    name: str,
    desc: OperatorDesc,
    rival: _Rival,
    moved: Sequence[TensorDesc] = (),
    domains: Mapping[str, Domain] | None = None,
    copy_target: float = 0.0,
) -> Problem:
    """``moved``: what is read and written, where that is not every tensor whole."""
    tensors = [slot.tensor for slot in desc.input_slots() + desc.output_slots() if slot.tensor is not None]
    output = desc.output_slots()[0].tensor
    assert output is not None
    return Problem(
        f"{name} {output.data_type.name} to {'x'.join(map(str, output.sizes))}",
        desc,
        rival,
        target=1.0,
        bytes_moved=nbytes(*(moved or tensors)),
        copy_target=copy_target,
        domains=domains or {},
        tolerance=0.0,
    )


def _join(scale: Scale, data_type: TensorDataType, name: str, first: Sizes, second: Sizes, axis: int) -> Problem:
    if axis == 0:
        first, second = scale.fit(first, 0), scale.fit(second, 0)
    else:
        (rows, _) = scale.fit((first[0], first[1] + second[1]), 0)
        first, second = (rows, first[1]), (rows, second[1])
    inputs = (TensorDesc(data_type, first), TensorDesc(data_type, second))
    sizes = tuple(a + b if index == axis else a for index, (a, b) in enumerate(zip(first, second, strict=True)))
    desc = dmlvk.Join(input_tensors=inputs, output_tensor=TensorDesc(data_type, sizes), axis=axis)
    return _problem(f"join, {name}", desc, lambda torch, *pieces: torch.cat(pieces, axis), copy_target=_MOVED)


def _join_channels(scale: Scale, data_type: TensorDataType, channels: Sizes, plane: int) -> Problem:
    """Images of so many channels each, joined along the channels, as networks of dense blocks do."""
    batch, *_ = scale.fit((32, sum(channels), plane, plane), 0)
    inputs = tuple(TensorDesc(data_type, (batch, own, plane, plane)) for own in channels)
    desc = dmlvk.Join(
        input_tensors=inputs, output_tensor=TensorDesc(data_type, (batch, sum(channels), plane, plane)), axis=1
    )
    return _problem(f"join, {len(channels)} along channels", desc, lambda torch, *pieces: torch.cat(pieces, 1))


def _split(scale: Scale, data_type: TensorDataType, sizes: Sizes, axis: int, lengths: Sequence[int]) -> Problem:
    sizes = scale.fit(sizes, 0)
    lengths = (sizes[0] // 3,) * 3 if axis == 0 else lengths
    source = TensorDesc(data_type, sizes)
    outputs = tuple(TensorDesc(data_type, (*sizes[:axis], length, *sizes[axis + 1 :])) for length in lengths)

    def rival(torch: Any, x: Any) -> Any:
        pieces = [piece.clone(memory_format=torch.contiguous_format) for piece in torch.split(x, lengths, axis)]
        return pieces[0]

    desc = dmlvk.Split(input_tensor=source, output_tensors=outputs, axis=axis)
    return _problem(f"split in {len(lengths)} along {axis}", desc, rival, copy_target=_MOVED)


def _slice(
    scale: Scale, data_type: TensorDataType, name: str, start: int, count: int, steps: tuple[int, int], rival: _Rival
) -> Problem:
    """A window of so many columns of a matrix."""
    rows, columns = scale.fit((8192, 16384), 0)
    output = TensorDesc(data_type, (rows, count))
    desc = dmlvk.Slice1(
        input_tensor=TensorDesc(data_type, (rows, columns)),
        output_tensor=output,
        input_window_offsets=(0, start),
        input_window_sizes=(rows, count),
        input_window_strides=steps,
    )
    return _problem(f"slice, {name}", desc, rival, (output, output), copy_target=_MOVED)


def _slice_grad(scale: Scale, data_type: TensorDataType, name: str, axis: int, start: int, step: int) -> Problem:
    """The gradient of a slice of a matrix's rows (axis 0) or columns, as autograd's own kernels make it."""
    sizes = scale.fit((8192, 16384), 0)
    end = sizes[axis] - start
    counts = [*sizes]
    counts[axis] = -(-(end - start) // step)
    desc = dmlvk.SliceGrad(
        input_gradient_tensor=TensorDesc(data_type, tuple(counts)),
        output_gradient_tensor=TensorDesc(data_type, sizes),
        input_window_offsets=tuple(start if own == axis else 0 for own in range(2)),
        input_window_sizes=tuple(end - start if own == axis else size for own, size in enumerate(sizes)),
        input_window_strides=tuple(step if own == axis else 1 for own in range(2)),
    )

    def rival(torch: Any, dy: Any) -> Any:
        return torch.ops.aten.slice_backward(dy, sizes, axis, start, end, step)

    return _problem(f"gradient of a slice, {name}", desc, rival)


def _padding(
    scale: Scale, data_type: TensorDataType, name: str, mode: PaddingMode, padding: Sizes, rival: _Rival
) -> Problem:
    image = scale.fit((32, 64, 112, 112), 0, 1)
    desc = dmlvk.Padding1(
        input_tensor=TensorDesc(data_type, image),
        output_tensor=TensorDesc(data_type, tuple(size + 2 * own for size, own in zip(image, padding, strict=True))),
        padding_mode=mode,
        padding_value_data_type=data_type,
        padding_value=0.5,
        start_padding=padding,
        end_padding=padding,
    )
    return _problem(f"padding, {name}", desc, rival, copy_target=_MOVED if mode == PaddingMode.CONSTANT else 0.0)


def _tile(scale: Scale, data_type: TensorDataType, sizes: Sizes, repeats: Sizes) -> Problem:
    sizes = scale.fit(sizes, 0)
    output = TensorDesc(data_type, tuple(size * count for size, count in zip(sizes, repeats, strict=True)))
    desc = dmlvk.Tile(input_tensor=TensorDesc(data_type, sizes), output_tensor=output, repeats=repeats)
    return _problem(f"tile {'x'.join(map(str, repeats))}", desc, lambda torch, x: x.repeat(repeats), copy_target=_MOVED)


_SPACE = (16, 64, 224, 224)
_BLOCK = 2


def _in_depth(space: Sizes) -> Sizes:
    batch, channels, height, width = space
    return batch, channels * _BLOCK**2, height // _BLOCK, width // _BLOCK


def _to_space(scale: Scale, data_type: TensorDataType, order: DepthSpaceOrder) -> Problem:
    batch, channels, height, width = space = scale.fit(_SPACE, 0, 1)

    def rival(torch: Any, x: Any) -> Any:
        if order == DepthSpaceOrder.COLUMN_ROW_DEPTH:
            return torch.pixel_shuffle(x, _BLOCK)
        pixels = x.reshape(batch, 2, 2, channels, height // 2, width // 2)
        return pixels.permute(0, 3, 4, 1, 5, 2).reshape(space)

    tensors = TensorDesc(data_type, _in_depth(space)), TensorDesc(data_type, space)
    desc = dmlvk.DepthToSpace1(input_tensor=tensors[0], output_tensor=tensors[1], block_size=_BLOCK, order=order)
    return _problem(f"depth to space, {order.name.lower()}", desc, rival)


def _to_depth(scale: Scale, data_type: TensorDataType, order: DepthSpaceOrder) -> Problem:
    batch, channels, height, width = space = scale.fit(_SPACE, 0, 1)

    def rival(torch: Any, x: Any) -> Any:
        if order == DepthSpaceOrder.COLUMN_ROW_DEPTH:
            return torch.pixel_unshuffle(x, _BLOCK)
        pixels = x.reshape(batch, channels, height // 2, 2, width // 2, 2)
        return pixels.permute(0, 3, 5, 1, 2, 4).reshape(_in_depth(space))

    tensors = TensorDesc(data_type, space), TensorDesc(data_type, _in_depth(space))
    desc = dmlvk.SpaceToDepth1(input_tensor=tensors[0], output_tensor=tensors[1], block_size=_BLOCK, order=order)
    return _problem(f"space to depth, {order.name.lower()}", desc, rival)


def _channels(scale: Scale, data_type: TensorDataType, *, to_first: bool) -> Problem:
    """Images whose channels become the first dimension, or the last."""
    sizes = scale.fit((64, 3, 512, 512), 0, 2)
    first, last = (calculate_strides(layout, sizes) for layout in ("NCHW", "NHWC"))
    source, target = (last, first) if to_first else (first, last)
    desc = dmlvk.ElementWiseIdentity(
        input_tensor=TensorDesc(data_type, sizes, source), output_tensor=TensorDesc(data_type, sizes, target)
    )

    def rival(torch: Any, x: Any) -> Any:
        return x.contiguous(memory_format=torch.contiguous_format if to_first else torch.channels_last)

    return _problem("images, NHWC to NCHW" if to_first else "images, NCHW to NHWC", desc, rival)


def _reverse(scale: Scale, data_type: TensorDataType, sizes: Sizes) -> Problem:
    """Sequences of vectors: a length for each sequence."""
    batch, time, channels = sizes = scale.fit(sizes, 0, 1)
    tensor = TensorDesc(data_type, sizes)
    lengths = TensorDesc(TensorDataType.UINT32, (batch, 1, channels), (1, 0, 0))
    desc = dmlvk.ReverseSubsequences(input_tensor=tensor, sequence_lengths_tensor=lengths, output_tensor=tensor, axis=1)

    def rival(torch: Any, x: Any, lengths: Any) -> Any:
        limits = lengths[:, 0, :1]
        places = torch.arange(time, device=x.device)[None]
        places = torch.where(places < limits, limits - 1 - places, places)
        return x[torch.arange(batch, device=x.device)[:, None], places]

    return _problem("reverse subsequences", desc, rival, domains={"sequence_lengths_tensor": uniform(0, time)})


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    found = []
    for data_type in FLOATS:
        more = 1 if data_type is TensorDataType.FLOAT32 else 2

        def pad(padding: Sizes, mode: str) -> _Rival:
            value = 0.5 if mode == "constant" else None
            return lambda torch, x: torch.nn.functional.pad(x, padding, mode, value)

        found += [
            _join(scale, data_type, "rows", (4096 * more, 8192), (4096 * more, 8192), 0),
            _join(scale, data_type, "columns", (8192 * more, 4096), (8192 * more, 4096), 1),
            _join(scale, data_type, "columns, no row on a word", (4096 * more, 8191), (4096 * more, 8193), 1),
            _join_channels(scale, data_type, (64, 128, 64), 56),
            _join_channels(scale, data_type, (256, 128, 64), 28),
            _split(scale, data_type, (8192 * more, 12288), 1, (4096, 4096, 4096)),
            _split(scale, data_type, (12288 * more, 8192), 0, (4096 * more,) * 3),
            _slice(scale, data_type, "columns on words", 4096, 8192, (1, 1), lambda torch, x: x[:, 4096:12288].contiguous()),
            _slice(scale, data_type, "columns from 1", 1, 8192, (1, 1), lambda torch, x: x[:, 1:8193].contiguous()),
            _slice(scale, data_type, "reversed rows", 0, 16384, (-1, 1), lambda torch, x: x.flip(0)),
            _slice(scale, data_type, "reversed columns", 0, 16384, (1, -1), lambda torch, x: x.flip(1)),
            _slice_grad(scale, data_type, "columns from 1", 1, 1, 1),
            _slice_grad(scale, data_type, "every other row", 0, 0, 2),
            _slice_grad(scale, data_type, "every other column", 1, 0, 2),
            _padding(
                scale, data_type, "height and width", PaddingMode.CONSTANT, (0, 0, 1, 1), pad((1, 1, 1, 1), "constant")
            ),
            _padding(scale, data_type, "channels", PaddingMode.CONSTANT, (0, 1, 0, 0), pad((0, 0, 0, 0, 1, 1), "constant")),
            _padding(scale, data_type, "reflected", PaddingMode.REFLECTION, (0, 0, 1, 1), pad((1, 1, 1, 1), "reflect")),
            _tile(scale, data_type, (4096 * more, 8192), (2, 1)),
            _tile(scale, data_type, (8192 * more, 4096), (1, 2)),
            *(_to_space(scale, data_type, order) for order in DepthSpaceOrder),
            *(_to_depth(scale, data_type, order) for order in DepthSpaceOrder),
            _reverse(scale, data_type, (64, 512 * more, 1024)),
        ]
    return found + [
        _channels(scale, data_type, to_first=to_first) for data_type in (UINT8, FLOAT32) for to_first in (True, False)
    ]
