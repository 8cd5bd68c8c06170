"""Slices and their gradients, splits, joins, padding, tiles, blocks and reversed sequences. Other transposes are with other
copies (``pointwise``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dmlvk
from bench.problems.model import FLOAT32, FLOATS, UINT8, Problem, nbytes
from dmlvk import DepthSpaceOrder, PaddingMode, TensorDataType, TensorDesc, calculate_strides
from dmlvk.schema import OperatorDesc

_Sizes = tuple[int, ...]
_Rival = Callable[..., Any]
_MOVED = 0.9
"""The share of the copy bandwidth for what moves rows."""


def _problem(
    name: str,
    desc: OperatorDesc,
    rival: _Rival,
    moved: Sequence[TensorDesc] = (),
    fill: dict[str, Callable[..., Any]] | None = None,
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
        fill=fill or {},
        tolerance=0.0,
    )


def _join(data_type: TensorDataType, name: str, first: _Sizes, second: _Sizes, axis: int) -> Problem:
    inputs = (TensorDesc(data_type, first), TensorDesc(data_type, second))
    sizes = tuple(a + b if index == axis else a for index, (a, b) in enumerate(zip(first, second, strict=True)))
    desc = dmlvk.Join(input_tensors=inputs, output_tensor=TensorDesc(data_type, sizes), axis=axis)
    return _problem(f"join, {name}", desc, lambda torch, *pieces: torch.cat(pieces, axis), copy_target=_MOVED)


def _split(data_type: TensorDataType, sizes: _Sizes, axis: int, lengths: Sequence[int]) -> Problem:
    source = TensorDesc(data_type, sizes)
    outputs = tuple(TensorDesc(data_type, (*sizes[:axis], length, *sizes[axis + 1 :])) for length in lengths)

    def rival(torch: Any, x: Any) -> Any:
        pieces = [piece.clone(memory_format=torch.contiguous_format) for piece in torch.split(x, lengths, axis)]
        return pieces[0]

    desc = dmlvk.Split(input_tensor=source, output_tensors=outputs, axis=axis)
    return _problem(f"split in {len(lengths)} along {axis}", desc, rival, copy_target=_MOVED)


def _slice(data_type: TensorDataType, name: str, start: int, count: int, steps: tuple[int, int], rival: _Rival) -> Problem:
    """A window of so many columns of a matrix."""
    rows, columns = 8192, 16384
    output = TensorDesc(data_type, (rows, count))
    desc = dmlvk.Slice1(
        input_tensor=TensorDesc(data_type, (rows, columns)),
        output_tensor=output,
        input_window_offsets=(0, start),
        input_window_sizes=(rows, count),
        input_window_strides=steps,
    )
    return _problem(f"slice, {name}", desc, rival, (output, output), copy_target=_MOVED)


def _slice_grad(data_type: TensorDataType, name: str, axis: int, start: int, step: int) -> Problem:
    """The gradient of a slice of a matrix's rows (axis 0) or columns, as autograd's own kernels make it."""
    sizes = (8192, 16384)
    end = sizes[axis] - start
    counts = [*sizes]
    counts[axis] = -(-(end - start) // step)
    desc = dmlvk.SliceGrad(
        input_gradient_tensor=TensorDesc(data_type, counts),
        output_gradient_tensor=TensorDesc(data_type, sizes),
        input_window_offsets=tuple(start if own == axis else 0 for own in range(2)),
        input_window_sizes=tuple(end - start if own == axis else size for own, size in enumerate(sizes)),
        input_window_strides=tuple(step if own == axis else 1 for own in range(2)),
    )

    def rival(torch: Any, dy: Any) -> Any:
        return torch.ops.aten.slice_backward(dy, sizes, axis, start, end, step)

    return _problem(f"gradient of a slice, {name}", desc, rival)


def _padding(data_type: TensorDataType, name: str, mode: PaddingMode, padding: _Sizes, rival: _Rival) -> Problem:
    image = (32, 64, 112, 112)
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


def _tile(data_type: TensorDataType, sizes: _Sizes, repeats: _Sizes) -> Problem:
    output = TensorDesc(data_type, tuple(size * count for size, count in zip(sizes, repeats, strict=True)))
    desc = dmlvk.Tile(input_tensor=TensorDesc(data_type, sizes), output_tensor=output, repeats=repeats)
    return _problem(f"tile {'x'.join(map(str, repeats))}", desc, lambda torch, x: x.repeat(repeats), copy_target=_MOVED)


_BATCH, _CHANNELS, _HEIGHT, _WIDTH = _SPACE = (16, 64, 224, 224)
_DEPTH = (16, 256, 112, 112)


def _to_space(data_type: TensorDataType, order: DepthSpaceOrder) -> Problem:
    def rival(torch: Any, x: Any) -> Any:
        if order == DepthSpaceOrder.COLUMN_ROW_DEPTH:
            return torch.pixel_shuffle(x, 2)
        pixels = x.reshape(_BATCH, 2, 2, _CHANNELS, _HEIGHT // 2, _WIDTH // 2)
        return pixels.permute(0, 3, 4, 1, 5, 2).reshape(_SPACE)

    tensors = TensorDesc(data_type, _DEPTH), TensorDesc(data_type, _SPACE)
    desc = dmlvk.DepthToSpace1(input_tensor=tensors[0], output_tensor=tensors[1], block_size=2, order=order)
    return _problem(f"depth to space, {order.name.lower()}", desc, rival)


def _to_depth(data_type: TensorDataType, order: DepthSpaceOrder) -> Problem:
    def rival(torch: Any, x: Any) -> Any:
        if order == DepthSpaceOrder.COLUMN_ROW_DEPTH:
            return torch.pixel_unshuffle(x, 2)
        pixels = x.reshape(_BATCH, _CHANNELS, _HEIGHT // 2, 2, _WIDTH // 2, 2)
        return pixels.permute(0, 3, 5, 1, 2, 4).reshape(_DEPTH)

    tensors = TensorDesc(data_type, _SPACE), TensorDesc(data_type, _DEPTH)
    desc = dmlvk.SpaceToDepth1(input_tensor=tensors[0], output_tensor=tensors[1], block_size=2, order=order)
    return _problem(f"space to depth, {order.name.lower()}", desc, rival)


def _channels(data_type: TensorDataType, *, to_first: bool) -> Problem:
    """Images whose channels become the first dimension, or the last."""
    sizes = (64, 3, 512, 512)
    first, last = (calculate_strides(layout, sizes) for layout in ("NCHW", "NHWC"))
    source, target = (last, first) if to_first else (first, last)
    desc = dmlvk.ElementWiseIdentity(
        input_tensor=TensorDesc(data_type, sizes, source), output_tensor=TensorDesc(data_type, sizes, target)
    )

    def rival(torch: Any, x: Any) -> Any:
        return x.contiguous(memory_format=torch.contiguous_format if to_first else torch.channels_last)

    return _problem("images, NHWC to NCHW" if to_first else "images, NCHW to NHWC", desc, rival)


def _reverse(data_type: TensorDataType, sizes: tuple[int, int, int]) -> Problem:
    """Sequences of vectors: a length for each sequence."""
    batch, time, channels = sizes
    tensor = TensorDesc(data_type, sizes)
    lengths = TensorDesc(TensorDataType.UINT32, (batch, 1, channels), (1, 0, 0))
    desc = dmlvk.ReverseSubsequences(input_tensor=tensor, sequence_lengths_tensor=lengths, output_tensor=tensor, axis=1)

    def rival(torch: Any, x: Any, lengths: Any) -> Any:
        limits = lengths[:, 0, :1]
        places = torch.arange(time, device=x.device)[None]
        places = torch.where(places < limits, limits - 1 - places, places)
        return x[torch.arange(batch, device=x.device)[:, None], places]

    def fill(torch: Any, size: _Sizes, kind: Any) -> Any:
        return torch.randint(0, time + 1, size, dtype=kind)

    return _problem("reverse subsequences", desc, rival, fill={"sequence_lengths_tensor": fill})


def problems() -> list[Problem]:
    """Every problem, in the order of the report."""
    found = []
    for data_type in FLOATS:
        scale = 1 if data_type is TensorDataType.FLOAT32 else 2

        def pad(padding: _Sizes, mode: str) -> _Rival:
            more = {"value": 0.5} if mode == "constant" else {}
            return lambda torch, x: torch.nn.functional.pad(x, padding, mode, **more)

        found += [
            _join(data_type, "rows", (4096 * scale, 8192), (4096 * scale, 8192), 0),
            _join(data_type, "columns", (8192 * scale, 4096), (8192 * scale, 4096), 1),
            _join(data_type, "columns, no row on a word", (4096 * scale, 8191), (4096 * scale, 8193), 1),
            _split(data_type, (8192 * scale, 12288), 1, (4096, 4096, 4096)),
            _split(data_type, (12288 * scale, 8192), 0, (4096 * scale,) * 3),
            _slice(data_type, "columns on words", 4096, 8192, (1, 1), lambda torch, x: x[:, 4096:12288].contiguous()),
            _slice(data_type, "columns from 1", 1, 8192, (1, 1), lambda torch, x: x[:, 1:8193].contiguous()),
            _slice(data_type, "reversed rows", 0, 16384, (-1, 1), lambda torch, x: x.flip(0)),
            _slice(data_type, "reversed columns", 0, 16384, (1, -1), lambda torch, x: x.flip(1)),
            _slice_grad(data_type, "columns from 1", 1, 1, 1),
            _slice_grad(data_type, "every other row", 0, 0, 2),
            _slice_grad(data_type, "every other column", 1, 0, 2),
            _padding(data_type, "height and width", PaddingMode.CONSTANT, (0, 0, 1, 1), pad((1, 1, 1, 1), "constant")),
            _padding(data_type, "channels", PaddingMode.CONSTANT, (0, 1, 0, 0), pad((0, 0, 0, 0, 1, 1), "constant")),
            _padding(data_type, "reflected", PaddingMode.REFLECTION, (0, 0, 1, 1), pad((1, 1, 1, 1), "reflect")),
            _tile(data_type, (4096 * scale, 8192), (2, 1)),
            _tile(data_type, (8192 * scale, 4096), (1, 2)),
            *(_to_space(data_type, order) for order in DepthSpaceOrder),
            *(_to_depth(data_type, order) for order in DepthSpaceOrder),
            _reverse(data_type, (64, 512 * scale, 1024)),
        ]
    return found + [_channels(data_type, to_first=to_first) for data_type in (UINT8, FLOAT32) for to_first in (True, False)]
