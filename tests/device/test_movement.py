"""Slices, splits, joins, padding, tiles, blocks and reversed sequences against numpy, the ONNX reference and PyTorch, for
every type and rank, bit for bit.

DirectML's printed examples run in ``test_examples.py``."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import onnx.reference
import pytest
from crossed import crossed
from numpy.typing import NDArray
from onnx import helper

import dmlvk
from dmlvk import BufferBinding, DepthSpaceOrder, PaddingMode, TensorDataType, TensorDesc, eager
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.engine.numpy_types import data_type_of
from dmlvk.runtime.recorder import Recording
from dmlvk.spec import ops
from dmlvk.verify.cases.model import NUMPY_TYPES, any_bits

Array = NDArray[Any]
TYPES = [NUMPY_TYPES[data_type] for data_type in dmlvk.Slice1.fields[0].data_types]
OF_EACH_SIZE = [np.uint8, np.float16, np.int32, np.float64]
RANKS = range(1, 9)


def array(kind: Any, *sizes: int) -> Array:
    """Random bits, of floats many of them NaN."""
    dtype = np.dtype(kind)
    return any_bits(np.random.default_rng(sizes), sizes, data_type_of(dtype))


def assert_same_bits(actual: Array, expected: Array) -> None:
    assert actual.dtype == expected.dtype
    unsigned = f"u{actual.dtype.itemsize}"
    np.testing.assert_array_equal(actual.view(unsigned), np.ascontiguousarray(expected).view(unsigned))


def random_sizes(rank: int, most: int, seed: int) -> tuple[int, ...]:
    """Sizes of about ``most`` elements together, each at least 1."""
    rng = np.random.default_rng((rank, seed))
    limit = max(round(most ** (1 / rank) * 1.4), 2)
    return tuple(int(size) for size in rng.integers(1, limit + 1, rank))


def windows(sizes: Sequence[int], parts: Sequence[slice]) -> dict[str, list[int]]:
    """The attributes of a Slice1 that takes these parts of a tensor."""
    found = [part.indices(size) for part, size in zip(parts, sizes, strict=True)]
    places = [range(*part) for part in found]
    return {
        "input_window_offsets": [min(own[0], own[-1]) for own in places],
        "input_window_sizes": [abs(own[-1] - own[0]) + 1 for own in places],
        "input_window_strides": [step for _, _, step in found],
    }


def cropped(device: dmlvk.Device, x: Array, parts: Sequence[slice]) -> Array:
    """``x[parts]`` by Slice1."""
    result: Array = eager.slice1(x, **windows(x.shape, parts), device=device)
    return result


def random_parts(sizes: tuple[int, ...], seed: int) -> tuple[slice, ...]:
    """A part of each dimension, never empty, in steps from -3 to 3."""
    rng = np.random.default_rng((seed, *sizes))
    parts = []
    for size in sizes:
        first, last = sorted(int(place) for place in rng.integers(0, size, 2))
        step = int(rng.choice([-3, -2, -1, 1, 1, 2, 3]))
        parts.append(slice(first, last + 1, step) if step > 0 else slice(last, first - 1 if first else None, step))
    return tuple(parts)


# -- slices


@pytest.mark.parametrize(("rank", "kind"), crossed(RANKS, OF_EACH_SIZE))
def test_slices_of_every_rank(device: dmlvk.Device, rank: int, kind: Any) -> None:
    for seed in range(4):
        x = array(kind, *random_sizes(rank, 600, seed))
        parts = random_parts(x.shape, seed)
        assert_same_bits(cropped(device, x, parts), x[parts])


@pytest.mark.quick
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_slices_of_every_type(device: dmlvk.Device, kind: Any) -> None:
    x = array(kind, 9, 35)
    for start in range(5):
        assert_same_bits(cropped(device, x, (slice(1, 8), slice(start, 33))), x[1:8, start:33])
    assert_same_bits(cropped(device, x, (slice(None, None, -1), slice(None, 2, -2))), x[::-1, :2:-2])


@pytest.mark.parametrize("start", range(17))
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 31, 32, 33, 48])
def test_rows_of_bytes_from_every_place_in_a_word(device: dmlvk.Device, start: int, length: int) -> None:
    x = array(np.uint8, 5, 67)
    assert_same_bits(cropped(device, x, (slice(None), slice(start, start + length))), x[:, start : start + length])


def test_a_slice_of_a_strided_input(device: dmlvk.Device) -> None:
    x = array(np.int16, 14, 11, 26)[::2, :, 1::5].transpose(2, 0, 1)
    parts = (slice(1, 4), slice(None, 1, -2), slice(2, 10, 3))
    assert_same_bits(cropped(device, x, parts), x[parts])


def test_slice_is_slice1_of_positive_steps(device: dmlvk.Device) -> None:
    x = array(np.float32, 6, 13, 9)
    y = eager.slice(x, offsets=(1, 0, 2), sizes=(2, 13, 3), strides=(4, 1, 2), device=device)
    assert_same_bits(y, x[1:6:4, :, 2:7:2])


# -- gradients of slices


def put_back(device: dmlvk.Device, dy: Array, sizes: tuple[int, ...], parts: Sequence[slice]) -> Array:
    """What SliceGrad makes of the gradient of ``x[parts]``."""
    result: Array = eager.slice_grad(dy, **windows(sizes, parts), output_sizes=[sizes], device=device)
    return result


def among_zeros(dy: Array, sizes: tuple[int, ...], parts: Sequence[slice]) -> Array:
    """The gradient of ``x[parts]`` by numpy."""
    dx = np.zeros(sizes, dy.dtype)
    dx[tuple(parts)] = dy
    return dx


@pytest.mark.parametrize(("rank", "kind"), crossed(RANKS, OF_EACH_SIZE))
def test_gradients_of_slices_of_every_rank(device: dmlvk.Device, rank: int, kind: Any) -> None:
    for seed in range(4):
        sizes = random_sizes(rank, 600, seed)
        parts = random_parts(sizes, seed)
        dy = array(kind, *np.empty(sizes)[parts].shape)
        assert_same_bits(put_back(device, dy, sizes, parts), among_zeros(dy, sizes, parts))


@pytest.mark.quick
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_gradients_of_slices_of_every_type(device: dmlvk.Device, kind: Any) -> None:
    for step in (1, -1, 2, -3):
        parts = (slice(1, 8), slice(3, 33, step) if step > 0 else slice(32, 2, step))
        dy = array(kind, 7, len(range(*parts[1].indices(35))))
        assert_same_bits(put_back(device, dy, (9, 35), parts), among_zeros(dy, (9, 35), parts))


def test_a_strided_gradient_goes_back_as_it_is(device: dmlvk.Device) -> None:
    dy = array(np.int16, 14, 11, 26)[::2, :, 1::5].transpose(2, 0, 1)
    sizes, parts = (9, 14, 11), (slice(1, 6), slice(None, None, 2), slice(None, None, -1))
    assert_same_bits(put_back(device, dy, sizes, parts), among_zeros(dy, sizes, parts))


def test_what_the_slice_left_out_of_its_window_gets_zeros(device: dmlvk.Device) -> None:
    dy = array(np.float32, 2, 3)
    attributes = windows((6, 11), (slice(1, 6, 2), slice(None, None, -2)))
    dx = eager.slice_grad(dy, **attributes, output_sizes=[(6, 11)], device=device)
    assert_same_bits(dx, among_zeros(dy, (6, 11), (slice(1, 4, 2), slice(10, 5, -2))))


def test_gradients_of_slices_agree_with_torch(device: dmlvk.Device, torch: ModuleType) -> None:
    """PyTorch differentiates slices in steps, and a step back as a slice that is flipped."""
    rng = np.random.default_rng(6)
    for parts in (
        (slice(2, 9), slice(1, 18)),
        (slice(1, 9, 2), slice(None)),
        (slice(None), slice(0, 19, 3)),
        (slice(8, 1, -2), slice(17, 3, -1)),
    ):
        x = torch.zeros((9, 19), requires_grad=True)
        y = x
        for axis, part in enumerate(parts):
            places = range(*part.indices(x.shape[axis]))
            ends = (min(places[0], places[-1]), max(places[0], places[-1]) + 1)
            own = [slice(None), slice(None)]
            own[axis] = slice(*ends, abs(places.step))
            y = y[tuple(own)].flip(axis) if places.step < 0 else y[tuple(own)]
        dy = rng.standard_normal(tuple(y.shape)).astype(np.float32)
        y.backward(torch.from_numpy(dy))
        assert_same_bits(put_back(device, dy, (9, 19), parts), x.grad.numpy())


# -- pieces


def cuts(size: int, count: int, seed: int) -> list[int]:
    """Lengths of so many pieces, or fewer, of at least 1."""
    places = np.random.default_rng((size, count, seed)).integers(1, max(size, 2), count - 1)
    ends = sorted({0, size, *(int(place) for place in places if place < size)})
    return [after - before for before, after in itertools.pairwise(ends)]


def divided(device: dmlvk.Device, x: Array, axis: int, lengths: Sequence[int]) -> tuple[Array, ...]:
    sizes = [(*x.shape[:axis], length, *x.shape[axis + 1 :]) for length in lengths]
    pieces = eager.split(x, axis=axis, output_sizes=sizes, device=device)
    return pieces if isinstance(pieces, tuple) else (pieces,)


@pytest.mark.parametrize(("rank", "kind"), crossed(RANKS, OF_EACH_SIZE))
def test_pieces_of_every_rank_along_every_axis(device: dmlvk.Device, rank: int, kind: Any) -> None:
    for axis in range(rank):
        x = array(kind, *random_sizes(rank, 700, axis))
        lengths = cuts(x.shape[axis], 1 + axis % 5, rank)
        pieces = divided(device, x, axis, lengths)
        expected = np.split(x, np.cumsum(lengths)[:-1], axis)
        for piece, wanted in zip(pieces, expected, strict=True):
            assert_same_bits(piece, wanted)
        assert_same_bits(eager.join(pieces, axis=axis, device=device), x)


@pytest.mark.quick
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_pieces_of_every_type(device: dmlvk.Device, kind: Any) -> None:
    x = array(kind, 7, 61)
    pieces = divided(device, x, 1, [1, 16, 17, 27])
    assert_same_bits(pieces[2], x[:, 17:34])
    assert_same_bits(eager.join(pieces, axis=1, device=device), x)


def test_one_piece_and_many(device: dmlvk.Device) -> None:
    x = array(np.float32, 3, 100)
    assert_same_bits(divided(device, x, 1, [100])[0], x)
    assert_same_bits(eager.join(divided(device, x, 1, [1] * 100), axis=1, device=device), x)


def test_an_input_may_be_joined_to_itself_and_be_strided(device: dmlvk.Device) -> None:
    x = array(np.int16, 5, 12)
    y = eager.join((x, x[:, ::3], x), axis=1, device=device)
    assert_same_bits(y, np.concatenate((x, x[:, ::3], x), 1))


# -- padding


def padded(device: dmlvk.Device, x: Array, pads: Sequence[tuple[int, int]], mode: PaddingMode, value: Any = 0) -> Array:
    result: Array = eager.padding1(
        x,
        padding_mode=mode,
        padding_value_data_type=data_type_of(x.dtype),
        padding_value=value,
        start_padding=[start for start, _ in pads],
        end_padding=[end for _, end in pads],
        device=device,
    )
    return result


NUMPY_MODES = {
    PaddingMode.CONSTANT: "constant",
    PaddingMode.EDGE: "edge",
    PaddingMode.REFLECTION: "reflect",
    PaddingMode.SYMMETRIC: "symmetric",
    PaddingMode.WRAP: "wrap",
}


def by_numpy(x: Array, pads: Sequence[tuple[int, int]], mode: PaddingMode) -> Array:
    """numpy's own padding, of the bits, each dimension on its own."""
    bits: Array = np.pad(x.view(f"u{x.dtype.itemsize}"), pads, NUMPY_MODES[mode])  # type: ignore[call-overload]
    return bits.view(x.dtype)


@pytest.mark.parametrize(("rank", "mode"), crossed(RANKS, PaddingMode))
def test_padding_of_every_rank(device: dmlvk.Device, rank: int, mode: PaddingMode) -> None:
    """Some dimensions have one element, and some pads are several times as large as the input."""
    for seed, kind in enumerate(OF_EACH_SIZE):
        x = array(kind, *random_sizes(rank, 40, seed))
        most = {1: 60, 2: 17, 3: 7}.get(rank, 2)
        pads = [(int(a), int(b)) for a, b in np.random.default_rng(seed).integers(0, most + 1, (rank, 2))]
        assert_same_bits(padded(device, x, pads, mode), by_numpy(x, pads, mode))


@pytest.mark.parametrize(("kind", "mode"), crossed(TYPES, PaddingMode))
def test_padding_of_every_type(device: dmlvk.Device, kind: Any, mode: PaddingMode) -> None:
    x = array(kind, 4, 19)
    pads = [(2, 1), (3, 5)]
    assert_same_bits(padded(device, x, pads, mode), by_numpy(x, pads, mode))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("mode", PaddingMode)
def test_pads_of_every_length(device: dmlvk.Device, size: int, mode: PaddingMode) -> None:
    x = array(np.uint8, 3, size)
    for pad in range(1, 30, 3):
        pads = [(0, 0), (pad, 30 - pad)]
        assert_same_bits(padded(device, x, pads, mode), by_numpy(x, pads, mode))


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_padding_values_are_of_the_type(device: dmlvk.Device, kind: Any) -> None:
    x = array(kind, 2, 5)
    numbers: list[Any]
    if x.dtype.kind == "f":
        numbers = [np.nan, -np.inf, -0.0, 1.2345678901234567, np.finfo(x.dtype).max, np.finfo(x.dtype).smallest_subnormal]
    else:
        limits = np.iinfo(x.dtype)
        numbers = [limits.min, limits.max, limits.max // 3]
    for number in numbers:
        y = padded(device, x, [(0, 1), (2, 3)], PaddingMode.CONSTANT, float(number) if x.dtype.kind == "f" else number)
        assert_same_bits(y[2], np.full(10, number, x.dtype))
        assert_same_bits(y[:2, 2:7], x)


@pytest.mark.parametrize(
    ("kind", "value", "held"),
    [
        (np.int8, 300.7, 127),
        (np.int8, -1.9, -1),
        (np.uint16, -3.0, 0),
        (np.int64, np.inf, 2**63 - 1),
        (np.float16, 7e4, np.inf),
    ],
)
def test_a_float_padding_value_becomes_the_types(device: dmlvk.Device, kind: Any, value: float, held: Any) -> None:
    y = eager.padding(array(kind, 3), padding_value=value, start_padding=(0,), end_padding=(2,), device=device)
    assert_same_bits(y[3:], np.full(2, held, kind))


def test_padding_by_nothing_is_a_copy(device: dmlvk.Device) -> None:
    x = array(np.float32, 5, 7).T
    for mode in PaddingMode:
        assert_same_bits(padded(device, x, [(0, 0), (0, 0)], mode), x)


# -- tiles


@pytest.mark.parametrize(("rank", "kind"), crossed(RANKS, [np.int8, np.float16, np.float32, np.uint64]))
def test_tiles_of_every_rank(device: dmlvk.Device, rank: int, kind: Any) -> None:
    for seed in range(3):
        x = array(kind, *random_sizes(rank, 40, seed))
        repeats = [int(count) for count in np.random.default_rng((rank, seed)).integers(1, 4 if rank < 5 else 3, rank)]
        assert_same_bits(eager.tile(x, repeats=repeats, device=device), np.tile(x, repeats))


# -- blocks


@pytest.mark.parametrize(("kind", "order"), crossed(TYPES, DepthSpaceOrder))
def test_blocks_there_and_back(device: dmlvk.Device, kind: Any, order: DepthSpaceOrder) -> None:
    for block, sizes in ((1, (2, 3, 4, 5)), (2, (2, 3, 6, 34)), (3, (1, 2, 3, 27)), (5, (1, 1, 10, 5))):
        x = array(kind, *sizes)
        depth = eager.space_to_depth1(x, block_size=block, order=order, device=device)
        assert depth.shape == (sizes[0], sizes[1] * block**2, sizes[2] // block, sizes[3] // block)
        assert_same_bits(eager.depth_to_space1(depth, block_size=block, order=order, device=device), x)


@pytest.mark.quick
@pytest.mark.parametrize(("order", "mode"), list(zip(DepthSpaceOrder, ("DCR", "CRD"), strict=True)))
def test_blocks_agree_with_the_onnx_reference(device: dmlvk.Device, order: DepthSpaceOrder, mode: str) -> None:
    x = np.random.default_rng(3).standard_normal((2, 36, 5, 7)).astype(np.float32)
    node = helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=3, mode=mode)
    expected: Any = onnx.reference.ReferenceEvaluator(node).run(None, {"x": x})
    assert_same_bits(eager.depth_to_space1(x, block_size=3, order=order, device=device), expected[0])


def test_blocks_agree_with_torch(device: dmlvk.Device, torch: ModuleType) -> None:
    x = np.random.default_rng(4).standard_normal((2, 8, 6, 18)).astype(np.float32)
    order = DepthSpaceOrder.COLUMN_ROW_DEPTH
    expected = torch.pixel_shuffle(torch.from_numpy(x), 2).numpy()
    assert_same_bits(eager.depth_to_space1(x, block_size=2, order=order, device=device), expected)
    expected = torch.pixel_unshuffle(torch.from_numpy(x), 3).numpy()
    assert_same_bits(eager.space_to_depth1(x, block_size=3, order=order, device=device), expected)


def test_the_older_operators_have_one_order(device: dmlvk.Device) -> None:
    x = array(np.float16, 1, 2, 4, 6)
    depth = eager.space_to_depth(x, block_size=2, device=device)
    assert_same_bits(depth, eager.space_to_depth1(x, block_size=2, order=DepthSpaceOrder.DEPTH_COLUMN_ROW, device=device))
    assert_same_bits(eager.depth_to_space(depth, block_size=2, device=device), x)


# -- reversed sequences


def reversed_by_hand(x: Array, lengths: Array, axis: int) -> Array:
    """``x`` with the first elements of each sequence along an axis reversed, one sequence after the other."""
    y = np.moveaxis(x.copy(), axis, -1)
    each = np.moveaxis(lengths, axis, -1)[..., 0]
    for index in np.ndindex(each.shape):
        length = min(int(each[index]), y.shape[-1])
        y[index][:length] = y[index][:length][::-1].copy()
    return np.moveaxis(y, -1, axis)


def sequences(rank: int, kind: Any, length_kind: Any) -> Iterator[tuple[Array, Array, int]]:
    for axis in range(rank):
        x = array(kind, *random_sizes(rank, 500, axis))
        sizes = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        lengths = np.random.default_rng((rank, axis)).integers(0, x.shape[axis] + 3, sizes)
        yield x, lengths.astype(length_kind), axis


@pytest.mark.parametrize(("rank", "kind"), crossed(RANKS, OF_EACH_SIZE))
def test_reversed_sequences_of_every_rank_along_every_axis(device: dmlvk.Device, rank: int, kind: Any) -> None:
    for x, lengths, axis in sequences(rank, kind, (np.uint32, np.uint64)[rank % 2]):
        y = eager.reverse_subsequences(x, lengths, axis=axis, device=device)
        assert_same_bits(y, reversed_by_hand(x, lengths, axis))


@pytest.mark.quick
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_reversed_sequences_of_every_type(device: dmlvk.Device, kind: Any) -> None:
    for x, lengths, axis in sequences(3, kind, np.uint32):
        y = eager.reverse_subsequences(x, lengths, axis=axis, device=device)
        assert_same_bits(y, reversed_by_hand(x, lengths, axis))


def test_lengths_are_read_whole_and_clamped(device: dmlvk.Device) -> None:
    x = array(np.float32, 6, 5)
    lengths = np.array([[0], [1], [5], [6], [2**32], [2**64 - 1]], np.uint64)
    y = eager.reverse_subsequences(x, lengths, axis=1, device=device)
    assert_same_bits(y, np.concatenate((x[:2], x[2:, ::-1])))


def test_reversed_sequences_agree_with_the_onnx_reference(device: dmlvk.Device) -> None:
    x = np.random.default_rng(5).standard_normal((7, 4, 3)).astype(np.float32)
    lengths = np.array([7, 2, 3, 1])  # the reference cannot read a length of 0
    node = helper.make_node("ReverseSequence", ["x", "lengths"], ["y"])
    expected: Any = onnx.reference.ReferenceEvaluator(node).run(None, {"x": x, "lengths": lengths})
    own = np.broadcast_to(lengths.astype(np.uint32)[None, :, None], (1, 4, 3))
    assert_same_bits(eager.reverse_subsequences(x, own, axis=0, device=device), expected[0])


# -- what only devices other than this one do


@pytest.mark.parametrize("kind", OF_EACH_SIZE)
def test_several_units_an_invocation(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    """Copies as a GPU makes large ones, and through the tiles in which it transposes a matrix."""
    monkeypatch.setattr(device, "capabilities", dataclasses.replace(device.capabilities, is_cpu=False))
    x = array(kind, 1031, 2053)
    parts = (slice(None, None, -1), slice(5, None, 1))
    assert_same_bits(cropped(device, x, parts), x[parts])
    parts = (slice(None), slice(None, None, -1))
    assert_same_bits(cropped(device, x, parts), x[parts])
    turned = x.T
    parts = (slice(16, 2048), slice(0, 1031))
    assert_same_bits(cropped(device, turned, parts), turned[parts])


# -- what is refused


X = np.zeros((4, 6), np.float32)


@pytest.mark.parametrize(
    ("name", "inputs", "fields", "message"),
    [
        ("slice", (X,), {"offsets": (0, 3), "sizes": (4, 2), "strides": (1, 3)}, r"SLICE\.Offsets: .*below the size"),
        (
            "slice",
            (X,),
            {"offsets": (0, 0), "sizes": (4, 0), "strides": (1, 1)},
            r"SLICE\.Sizes: no entry of sizes may be 0",
        ),
        ("slice", (X,), {"offsets": (0, 0), "sizes": (4, 6), "strides": (1, 0)}, r"SLICE\.Strides: .*\(1, 0\)"),
        (
            "slice1",
            (X,),
            {"input_window_offsets": (0, 3), "input_window_sizes": (4, 4), "input_window_strides": (1, 1)},
            r"SLICE1\.InputWindowOffsets: .*\(0, 3\)",
        ),
        (
            "slice1",
            (X,),
            {"input_window_offsets": (0,), "input_window_sizes": (4, 4), "input_window_strides": (1, 1)},
            r"SLICE1\.InputWindowOffsets: .*one entry for each dimension",
        ),
        (
            "slice1",
            (X,),
            {
                "input_window_offsets": (0, 0),
                "input_window_sizes": (4, 6),
                "input_window_strides": (1, -2),
                "output_sizes": (4, 4),
            },
            r"SLICE1\.OutputTensor: .*1 \+ \(input window size - 1\)",
        ),
        (
            "slice_grad",
            (X,),
            {"input_window_offsets": (0, 1), "input_window_sizes": (4, 6), "input_window_strides": (1, 1)},
            r"SLICE_GRAD\.OutputGradientTensor: must be given",
        ),
        (
            "slice_grad",
            (X,),
            {
                "input_window_offsets": (0, 1),
                "input_window_sizes": (4, 6),
                "input_window_strides": (1, 1),
                "output_sizes": [(4, 6)],
            },
            r"SLICE_GRAD\.InputWindowOffsets: offset \+ size .* output_gradient_tensor .*\(0, 1\)",
        ),
        (
            "slice_grad",
            (X,),
            {
                "input_window_offsets": (0, 1),
                "input_window_sizes": (4, 6),
                "input_window_strides": (1, 2),
                "output_sizes": [(4, 7)],
            },
            r"SLICE_GRAD\.InputGradientTensor: .*1 \+ \(input window size - 1\)",
        ),
        ("split", (X,), {"axis": 1, "output_sizes": [(4, 3), (4, 2)]}, r"SPLIT\.OutputTensors: .*add up.*\[3, 2\]"),
        ("split", (X,), {"axis": 1, "output_sizes": [(4, 3), (3, 3)]}, r"SPLIT\.OutputTensors: .*except along axis"),
        ("split", (X,), {"axis": 1}, r"SPLIT\.OutputTensors: must be given"),
        ("join", ((X, X),), {"axis": 2}, r"JOIN\.Axis: .*2"),
        ("join", ((X, X[:, :5]),), {"axis": 0}, r"JOIN\.InputTensors: .*except along axis"),
        (
            "padding",
            (X,),
            {"start_padding": (1,), "end_padding": (1, 1)},
            r"PADDING\.StartPadding: .*one entry for each dimension",
        ),
        ("tile", (X,), {"repeats": (1, 0)}, r"TILE\.Repeats: .*\(1, 0\)"),
        ("space_to_depth1", (X[None, None],), {"block_size": 3}, r"SPACE_TO_DEPTH1\.BlockSize: .*divide .*3"),
        ("depth_to_space1", (X[None, None],), {"block_size": 2}, r"DEPTH_TO_SPACE1\.BlockSize: .*divide .*2"),
        (
            "reverse_subsequences",
            (X, np.zeros((1, 6), np.uint32)),
            {"axis": 1},
            r"REVERSE_SUBSEQUENCES\.SequenceLengthsTensor: .*1 along axis",
        ),
    ],
)
def test_what_lies_outside_is_refused(
    device: dmlvk.Device, name: str, inputs: tuple[Any, ...], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(dmlvk.InvalidArgumentError, match=message):
        getattr(eager, name)(*inputs, **fields, device=device)


def test_joined_pieces_wait_for_what_was_before_and_not_for_each_other(device: dmlvk.Device) -> None:
    """Nine pieces one column wide, of which each has to be computed first; the whole is read afterwards."""
    column, whole = TensorDesc(TensorDataType.FLOAT32, (40, 1)), TensorDesc(TensorDataType.FLOAT32, (40, 9))
    values = np.random.default_rng(5).random((9, 40), np.float32)
    given = [BufferBinding(device.create_buffer(160)) for _ in range(9)]
    computed = [BufferBinding(device.create_buffer(160)) for _ in range(9)]
    joined, result = (BufferBinding(device.create_buffer(1440)) for _ in range(2))
    for binding, own in zip(given, values, strict=True):
        binding.buffer.write(own)
    negate = ReadyOperator(device, ops.ElementWiseNegate(input_tensor=column, output_tensor=column))
    join = ReadyOperator(device, ops.Join(input_tensors=(column,) * 9, output_tensor=whole, axis=1))
    last = ReadyOperator(device, ops.ElementWiseNegate(input_tensor=whole, output_tensor=whole))
    commands = device.create_command_list()
    for x, y in zip(given, computed, strict=True):
        negate.record(commands, [x], [y])
    join.record(commands, computed, [joined])
    last.record(commands, [joined], [result])
    (recording,) = commands._segments
    assert isinstance(recording, Recording)
    assert recording.native.barrier_count == 2
    commands.submit()
    assert np.array_equal(result.buffer.read().view(np.float32).reshape(40, 9), values.T)
