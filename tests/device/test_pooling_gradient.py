"""Gradients of pooling against the specification's figures and PyTorch's autograd; and random windows against our oracle."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from crossed import crossed
from drawing import draw_tensor, examples
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

import dmlvk
from dmlvk import TensorDataType, TensorDesc, eager
from dmlvk.kernels.lowering import possible_rules
from dmlvk.kernels.pooling_gradient import lanes as pooling_gradient_lanes
from dmlvk.kernels.pooling_gradient.rules import GRADIENT_TILE_WORDS
from dmlvk.spec import ops
from dmlvk.spec.tensor import calculate_strides
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import Case, normal, special
from dmlvk.verify.cases.pooling_gradient import equals
from dmlvk.verify.cases.problem import Variation, build
from dmlvk.verify.check import check_problem

Array = NDArray[Any]
EXAMPLES = json.loads((pathlib.Path(__file__).parent.parent / "data" / "examples.json").read_text())["examples"]
FIELDS = {
    "Strides": "strides",
    "WindowSize": "window_size",
    "StartPadding": "start_padding",
    "EndPadding": "end_padding",
    "Dilations": "dilations",
}


def example(name: str) -> tuple[dict[str, Array], dict[str, tuple[int, ...]]]:
    """Tensors and windows of one of the specification's examples."""
    entry = next(entry for entry in EXAMPLES if entry["id"] == name)
    tensors = {
        tensor: np.array(found["data"], np.float32).reshape(found["sizes"])
        for tensor, found in (entry["inputs"] | entry["outputs"]).items()
    }
    return tensors, {field: tuple(entry["params"][key]) for key, field in FIELDS.items() if key in entry["params"]}


def test_the_specifications_average(device: dmlvk.Device) -> None:
    tensors, windows = example("average_pooling_grad_1")
    expected = tensors["OutputGradientTensor"]
    for include_padding in (False, True):  # there is none
        found = eager.average_pooling_grad(
            tensors["InputGradientTensor"],
            **windows,
            include_padding=include_padding,
            output_sizes=expected.shape,
            device=device,
        )
        np.testing.assert_array_equal(found, expected)


def test_the_specifications_maximum(device: dmlvk.Device) -> None:
    tensors, windows = example("max_pooling_grad_1")
    found = eager.max_pooling_grad(tensors["InputTensor"], tensors["InputGradientTensor"], **windows, device=device)
    np.testing.assert_array_equal(found, tensors["OutputGradientTensor"])


# Sizes, window, steps, padding (PyTorch has the same on both sides), dilations.
GEOMETRIES: dict[str, tuple[tuple[int, ...], ...]] = {
    "halves": ((2, 3, 8, 16), (2, 2), (2, 2), (0, 0), (1, 1)),
    "every other": ((2, 8, 12, 16), (3, 3), (2, 2), (1, 1), (1, 1)),
    "every one": ((2, 8, 9, 11), (3, 3), (1, 1), (1, 1), (1, 1)),
    "uneven": ((2, 5, 13, 17), (4, 3), (3, 2), (2, 1), (1, 1)),
    "gaps between windows": ((1, 3, 11, 14), (2, 1), (3, 2), (0, 0), (1, 1)),
    "whole planes": ((3, 4, 7, 7), (7, 7), (1, 1), (0, 0), (1, 1)),
    "volumes": ((1, 2, 5, 6, 7), (2, 3, 2), (1, 2, 2), (0, 1, 1), (1, 1, 1)),
    "dilated": ((1, 3, 13, 11), (3, 2), (1, 2), (1, 1), (2, 3)),
}
FORMS = list(itertools.product([np.float32, np.float16], ["NCHW", "NHWC"]))
"""Types and layouts: each geometry takes the next, because each is pipelines of its own."""


def laid_out(values: Array, layout: str) -> Array:
    """The same numbers, in memory as the layout says."""
    if layout == "NHWC":
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(values, 1, -1)), -1, 1)
    return np.ascontiguousarray(values)


def fields(window: tuple[int, ...], steps: tuple[int, ...], padding: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    return {"window_size": window, "strides": steps, "start_padding": padding, "end_padding": padding}


@pytest.mark.parametrize("round_up", [False, True])
@pytest.mark.parametrize("include_padding", [False, True])
@pytest.mark.parametrize(("name", "form"), crossed([name for name in GEOMETRIES if name != "dilated"], FORMS))
def test_average_agrees_with_autograd(
    device: dmlvk.Device, torch: ModuleType, name: str, include_padding: bool, round_up: bool, form: tuple[type, str]
) -> None:
    data_type, layout = form
    sizes, window, steps, padding, _ = GEOMETRIES[name]
    pool = getattr(torch.nn.functional, f"avg_pool{len(window)}d")
    x = torch.zeros(sizes, dtype=torch.float64, requires_grad=True)
    y = pool(x, window, steps, padding, ceil_mode=round_up, count_include_pad=include_padding)
    dy = np.random.default_rng(1).standard_normal(y.shape).astype(data_type)
    y.backward(torch.from_numpy(dy.astype(np.float64)))
    found = eager.average_pooling_grad(
        laid_out(dy, layout),
        **fields(window, steps, padding),
        include_padding=include_padding,
        output_sizes=sizes,
        device=device,
    )
    unit = np.finfo(data_type).eps
    np.testing.assert_allclose(found.astype(np.float64), x.grad.numpy(), rtol=4 * unit, atol=2 * unit)


@pytest.mark.parametrize("round_up", [False, True])
@pytest.mark.parametrize("values", ["all different", "few"])
@pytest.mark.parametrize(("name", "form"), crossed(GEOMETRIES, FORMS))
def test_maximum_agrees_with_autograd(
    device: dmlvk.Device, torch: ModuleType, name: str, values: str, round_up: bool, form: tuple[type, str]
) -> None:
    """With few numbers windows hold their largest several times: PyTorch, too, takes the first."""
    data_type, layout = form
    sizes, window, steps, padding, dilations = GEOMETRIES[name]
    rng = np.random.default_rng(2)
    own = rng.integers(-2, 2, sizes) if values == "few" else rng.permutation(int(np.prod(sizes))).reshape(sizes) / 32
    own = own.astype(data_type)
    pool = getattr(torch.nn.functional, f"max_pool{len(window)}d")
    x = torch.tensor(own.astype(np.float64), requires_grad=True)
    y = pool(x, window, steps, padding, dilations, ceil_mode=round_up)
    dy = rng.standard_normal(y.shape).astype(data_type)
    y.backward(torch.from_numpy(dy.astype(np.float64)))
    found = eager.max_pooling_grad(
        laid_out(own, layout), laid_out(dy, layout), **fields(window, steps, padding), dilations=dilations, device=device
    )
    unit = np.finfo(data_type).eps
    np.testing.assert_allclose(found.astype(np.float64), x.grad.numpy(), rtol=4 * unit, atol=2 * unit)


# -- random windows

# Sizes in groups of lanes and not; few windows, because each is a pipeline of its own.
SIZES = st.sampled_from([1, 4, 7, 8, 9, 16, 24])
PLANES = st.sampled_from(
    [((3, 3), (1, 1)), ((3, 3), (2, 2)), ((2, 4), (3, 1)), ((1, 3), (2, 4)), ((5, 1), (1, 2)), ((2, 2), (2, 2))]
)
PADDINGS = st.sampled_from([(1, 1), (1, 1), (0, 0), (2, 1), (3, 5)])


@examples(20)
@given(data=st.data())
def test_random_windows(device: dmlvk.Device, data: st.DataObject) -> None:
    """Any rule and, of tiles, any size; packed, channels last, and layouts that are neither."""
    draw = data.draw
    row = draw(st.sampled_from([ops.AveragePoolingGrad, ops.MaxPoolingGrad]))
    (window, steps), start, end = draw(PLANES), draw(PADDINGS), draw(PADDINGS)
    plane = (draw(SIZES), draw(SIZES))
    rooms = [size + a + b - taps for size, a, b, taps in zip(plane, start, end, window, strict=True)]
    assume(min(rooms) >= 0)
    up = draw(st.booleans())
    counts = tuple((-(-room // step) if up else room // step) + 1 for room, step in zip(rooms, steps, strict=True))
    head = (draw(st.integers(1, 2)), draw(st.sampled_from([1, 3, 8, 16])))
    sizes, gradient = (*head, *plane), (*head, *counts)
    arrays: dict[str, object] = {"window_size": window, "strides": steps, "start_padding": start, "end_padding": end}
    if row is ops.AveragePoolingGrad:
        inputs, attributes = {}, {**arrays, "include_padding": draw(st.booleans())}
    else:
        inputs, attributes = {"input_tensor": sizes}, {**arrays, "dilations": (1, 1)}
    case = Case(
        f"random {draw(st.integers(0, 2**32))}",
        inputs={**inputs, "input_gradient_tensor": gradient},
        attributes=attributes,
        outputs={"output_gradient_tensor": sizes},
        domains={"input_tensor": draw(st.sampled_from([normal, special, equals]))} if inputs else {},
    )

    def place(
        data_type: TensorDataType, sizes: tuple[int, ...], layout: str, turn: int, *, is_output: bool
    ) -> GuardedTensor:
        how = draw(st.sampled_from(["packed", "packed", "NHWC", "NHWC", "any"]))
        if how == "any":
            return draw_tensor(draw, data_type, sizes, is_output=is_output)
        strides = calculate_strides("NHWC", sizes) if how == "NHWC" else None
        return GuardedTensor(TensorDesc(data_type, sizes, strides), 16 * draw(st.integers(0, 3)))

    variation = Variation(case, draw(st.sampled_from([TensorDataType.FLOAT32, TensorDataType.FLOAT16])), "packed")
    problem = build(row, variation, place)
    assert isinstance(problem.desc, (ops.AveragePoolingGrad, ops.MaxPoolingGrad))
    rules = possible_rules(problem.desc, device.capabilities)
    rule = draw(st.sampled_from([*(rule for rule in rules if rule == "lanes"), *rules]))
    with pytest.MonkeyPatch.context() as patch:
        if rule == "lanes":
            fit = [tile for tile in pooling_gradient_lanes.tiles(problem.desc) if tile.words <= GRADIENT_TILE_WORDS]
            tile = draw(st.sampled_from(fit))
            patch.setattr(pooling_gradient_lanes, "chosen_tile", lambda *_: tile)
        outcome = check_problem(device, all_cases()[row], dataclasses.replace(variation, rule=rule), problem)
    assert outcome.passed, f"{outcome.operator}, {outcome.variation}: {outcome.detail}\n{problem.desc}"
    assert not outcome.unsupported
