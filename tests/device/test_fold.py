"""Blocks of images against oracles of others: the specification's figures, PyTorch, ONNX's reference and the order of sums;
and random windows against our own."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import pathlib
from types import ModuleType
from typing import Any

import numpy as np
import onnx.reference
import pytest
from drawing import draw_tensor, examples
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper

import dmlvk
from dmlvk import TensorDataType, eager
from dmlvk.kernels.lowering import possible_rules
from dmlvk.spec import ops
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import Case, any_bits, normal
from dmlvk.verify.cases.problem import Variation, build
from dmlvk.verify.check import check_problem

Array = NDArray[Any]
EXAMPLES = [
    entry
    for entry in json.loads((pathlib.Path(__file__).parent.parent / "data" / "examples.json").read_text())["examples"]
    if entry["operator"] in ("DML_OPERATOR_FOLD", "DML_OPERATOR_UNFOLD")
]
FIELDS = {
    "window_sizes": "WindowSizes",
    "strides": "Strides",
    "dilations": "Dilations",
    "start_padding": "StartPadding",
    "end_padding": "EndPadding",
}


def array(entry: dict[str, Any]) -> Array:
    return np.array(entry["data"], np.dtype(entry["dtype"].lower())).reshape(entry["sizes"])


def windows(window: tuple[int, ...], **given: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Attributes of both operators: without strides, dilations and padding unless given."""
    ones, zeros = (1,) * len(window), (0,) * len(window)
    plain = {"strides": ones, "dilations": ones, "start_padding": zeros, "end_padding": zeros}
    return {"window_sizes": window, **plain, **given}


@pytest.mark.parametrize("entry", EXAMPLES, ids=lambda entry: entry["id"])
def test_the_specifications_example(device: dmlvk.Device, entry: dict[str, Any]) -> None:
    x, expected = array(entry["inputs"]["InputTensor"]), array(entry["outputs"]["OutputTensor"])
    attributes = {name: tuple(entry["params"][field]) for name, field in FIELDS.items()}
    if entry["operator"] == "DML_OPERATOR_UNFOLD":
        found = eager.unfold(x, **attributes, device=device)
    else:
        found = eager.fold(x, **attributes, output_sizes=expected.shape, device=device)
    np.testing.assert_array_equal(found, expected)


def test_there_are_examples_of_both() -> None:
    assert len(EXAMPLES) == 5


GEOMETRIES = {
    "plain": windows((3, 2)),
    "padded": windows((3, 4), start_padding=(1, 2), end_padding=(1, 2)),
    "strided": windows((2, 3), strides=(3, 2), start_padding=(1, 0), end_padding=(1, 0)),
    "dilated": windows((3, 2), strides=(2, 1), dilations=(2, 3), start_padding=(2, 1), end_padding=(2, 1)),
    "both, not coprime": windows((3, 4), strides=(4, 6), dilations=(2, 3), start_padding=(3, 5), end_padding=(3, 5)),
    "side by side": windows((4, 4), strides=(4, 4)),
}


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_agrees_with_torch(device: dmlvk.Device, torch: ModuleType, geometry: str, kind: Any) -> None:
    attributes = GEOMETRIES[geometry]
    # Small integers: every order of additions gives the same.
    x = np.random.default_rng(1).integers(-8, 9, (2, 3, 16, 20)).astype(kind)
    named = {
        "kernel_size": attributes["window_sizes"],
        "stride": attributes["strides"],
        "dilation": attributes["dilations"],
        "padding": attributes["start_padding"],
    }
    columns = torch.nn.functional.unfold(torch.from_numpy(x), **named)
    found = eager.unfold(x, **attributes, device=device)
    np.testing.assert_array_equal(found, columns.numpy())
    expected = torch.nn.functional.fold(columns, (16, 20), **named).numpy()
    np.testing.assert_array_equal(eager.fold(found, **attributes, output_sizes=x.shape, device=device), expected)


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_folds_agree_with_the_onnx_reference(device: dmlvk.Device, rank: int) -> None:
    image, window = (7, 6, 5, 4)[:rank], (3, 2, 2, 3)[:rank]
    pads, strides, dilations = (1, 0, 2, 0)[:rank], (2, 1, 3, 1)[:rank], (2, 3, 1, 1)[:rank]
    blocks = math.prod(
        (size + 2 * pad - gap * (taps - 1) - 1) // step + 1
        for size, taps, pad, step, gap in zip(image, window, pads, strides, dilations, strict=True)
    )
    x = np.random.default_rng(rank).integers(-50, 50, (2, 3 * math.prod(window), blocks)).astype(np.float32)
    node = helper.make_node(
        "Col2Im", ["x", "i", "b"], ["y"], pads=(*pads, *pads), strides=list(strides), dilations=list(dilations)
    )
    (expected,) = onnx.reference.ReferenceEvaluator(node).run(None, {"x": x, "i": np.array(image), "b": np.array(window)})
    attributes = windows(window, strides=strides, dilations=dilations, start_padding=pads, end_padding=pads)
    np.testing.assert_array_equal(
        eager.fold(x, **attributes, output_sizes=(2, 3, *image), device=device), np.asarray(expected)
    )


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5, 6])
def test_one_is_the_others_transpose(device: dmlvk.Device, rank: int) -> None:
    rng = np.random.default_rng(rank)
    image = (6, 2, 3, 4, 3, 5)[-rank:]
    attributes = windows(
        (2, 1, 2, 2, 1, 3)[-rank:],
        strides=(1, 2, 1, 2, 1, 2)[-rank:],
        dilations=(2, 1, 1, 3, 1, 1)[-rank:],
        start_padding=(0, 1, 0, 1, 0, 2)[-rank:],
        end_padding=(1, 0, 0, 1, 2, 0)[-rank:],
    )
    x = rng.integers(-9, 9, (2, 2, *image)).astype(np.float32)
    columns = eager.unfold(x, **attributes, device=device)
    other = rng.integers(-9, 9, columns.shape).astype(np.float32)
    folded = eager.fold(other, **attributes, output_sizes=x.shape, device=device)
    assert np.vdot(columns, other) == np.vdot(x, folded) != 0


@pytest.mark.parametrize("window", [(3, 3), (5, 4), (2, 13), (11, 12), (1, 40)])
def test_sums_are_in_the_order_of_the_window(device: dmlvk.Device, window: tuple[int, int]) -> None:
    """Float32 sums of numbers of all sizes, which depend on the order, to the bit."""
    rng = np.random.default_rng(math.prod(window))
    image = (window[0] + 4, window[1] + 5)
    blocks = (5, 6)
    x = rng.standard_normal((1, math.prod(window), *blocks)) * 10.0 ** rng.integers(-3, 4, (1, math.prod(window), *blocks))
    x = x.astype(np.float32)
    expected = np.zeros((1, 1, *image), np.float32)
    for k, (h, w) in enumerate(itertools.product(*map(range, window))):
        expected[0, 0, h : h + blocks[0], w : w + blocks[1]] += x[0, k]
    found = eager.fold(x.reshape(1, -1, 30), **windows(window), output_sizes=expected.shape, device=device)
    np.testing.assert_array_equal(found, expected)


def test_what_no_block_covers_is_zero(device: dmlvk.Device) -> None:
    x = np.ones((1, 4, 4), np.float32)
    found = eager.fold(x, **windows((2, 2), strides=(3, 4)), output_sizes=(1, 1, 6, 7), device=device)
    expected = np.zeros((6, 7))
    for row, column in itertools.product((0, 1, 3, 4), (0, 1, 4, 5)):
        expected[row, column] = 1
    np.testing.assert_array_equal(found[0, 0], expected)


# -- random windows

TYPES = {
    ops.Fold: (TensorDataType.FLOAT32, TensorDataType.FLOAT16),
    ops.Unfold: (TensorDataType.FLOAT32, TensorDataType.INT64, TensorDataType.UINT8, TensorDataType.FLOAT16),
}
LENGTHS = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 33])


@examples(60)
@given(data=st.data())
def test_random_windows(device: dmlvk.Device, data: st.DataObject) -> None:
    """Any windows and layouts, by any rule."""
    draw = data.draw
    row = draw(st.sampled_from(list(TYPES)))
    rank = draw(st.sampled_from([1, 2, 2, 2, 3, 4]))
    arrays: dict[str, list[int]] = {name: [] for name in FIELDS}
    image, blocks = [], []
    for _ in range(rank):
        size = draw(LENGTHS) if math.prod(image) < 40 else draw(st.integers(1, 3))
        start, end = (draw(st.sampled_from([0, 0, 1, 2, 5])) for _ in range(2))
        # Windows of at most 60 elements: no more additions than the tolerance has room for.
        window = draw(st.integers(1, min(size + start + end, 5, 60 // math.prod(arrays["window_sizes"]))))
        most = (size + start + end - 1) // max(window - 1, 1)
        dilation = draw(st.sampled_from([gap for gap in (1, 1, 2, 3, 4, 6) if gap <= max(most, 1)]))
        stride = draw(st.sampled_from([1, 1, 2, 3, 4, 6]))
        for name, value in zip(FIELDS, (window, stride, dilation, start, end), strict=True):
            arrays[name].append(value)
        image.append(size)
        blocks.append((size + start + end - dilation * (window - 1) - 1) // stride + 1)
    attributes = {name: tuple(values) for name, values in arrays.items()}
    head = (draw(st.integers(1, 2)), draw(st.integers(1, 3)))
    ones = [(1,) * draw(st.integers(0, 6 - rank)) for _ in range(2)]
    tensors = [
        (*ones[0], *head, *image),
        (*ones[1], head[0], head[1] * math.prod(attributes["window_sizes"]), math.prod(blocks)),
    ]
    if row is ops.Fold:
        tensors.reverse()
    case = Case(
        f"random {draw(st.integers(0, 2**32))}",
        inputs={"input_tensor": tensors[0]},
        attributes=attributes,
        outputs={"output_tensor": tensors[1]},
        domains={"": normal if row is ops.Fold else any_bits},
    )

    def place(
        data_type: TensorDataType, sizes: tuple[int, ...], layout: str, turn: int, *, is_output: bool
    ) -> GuardedTensor:
        return draw_tensor(draw, data_type, sizes, is_output=is_output)

    variation = Variation(case, draw(st.sampled_from(TYPES[row])), "packed")
    problem = build(row, variation, place)
    rule = draw(st.sampled_from(possible_rules(problem.desc, device.capabilities)))
    outcome = check_problem(device, all_cases()[row], dataclasses.replace(variation, rule=rule), problem)
    assert outcome.passed, f"{outcome.operator}, {outcome.variation}: {outcome.detail}\n{problem.desc}"
    assert not outcome.unsupported


@pytest.mark.parametrize(("stride", "dilation"), [(100_003, 99_991), (65_537, 65_535), (200_006, 199_982)])
def test_strides_beyond_16_bits(device: dmlvk.Device, stride: int, dilation: int) -> None:
    """Solving for the pairs that meet at a position takes products of more than 32 bits."""
    x = np.arange(1, 13, dtype=np.float32).reshape(1, 3, 4)
    size = 3 * stride + 2 * dilation + 1
    y = eager.fold(x, **windows((3,), strides=(stride,), dilations=(dilation,)), output_sizes=((1, 1, size),))
    expected = np.zeros(size, np.float32)
    for tap, block in itertools.product(range(3), range(4)):
        expected[block * stride + tap * dilation] += x[0, tap, block]
    assert np.array_equal(y[0, 0], expected)
