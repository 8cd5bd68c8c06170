"""Scatters that add, multiply or compare, with repeated places, computed and known indices; against onnxruntime's CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper

import dmlvk

f32 = np.float32
REDUCTIONS = ("add", "mul", "max", "min")


@pytest.fixture
def agrees(make_model: Any, make_session: Any, reference: Any, assert_close: Any) -> Callable[..., None]:
    def check(op_type: str, x: np.ndarray, indices: np.ndarray, updates: np.ndarray, known: bool, **attributes: Any) -> None:
        arrays = {"x": x, "i": indices, "u": updates}
        constants = {"i": indices} if known else {}
        feeds = {name: array for name, array in arrays.items() if name not in constants}
        model = make_model(
            helper.make_node(op_type, ["x", "i", "u"], ["y"], **attributes),
            {name: (array.dtype, array.shape) for name, array in feeds.items()},
            constants=constants,
            opset=18,
            output_types={"y": x.dtype},
        )
        session = make_session(model)
        (found,) = session.run(None, feeds)
        (wanted,) = reference(model, feeds, "onnxruntime")
        assert_close(found, wanted)
        np.testing.assert_array_equal(found, session.run(None, feeds)[0])
        assert len(session.report().gpu_nodes) == 1

    return check


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_elements(axis: int, reduction: str, known: bool, agrees: Callable[..., None]) -> None:
    """Fewer updates than elements along the other axes, more along the axis, some counted from the end."""
    rng = np.random.default_rng(1)
    sizes = [4, 5, 6]
    shape = [2, 3, 5]
    shape[axis] = 19
    x, updates = (rng.uniform(0.5, 1.5, size).astype(f32) for size in (sizes, shape))
    indices = rng.integers(-sizes[axis], sizes[axis], shape)
    agrees("ScatterElements", x, indices, updates, known, axis=axis, reduction=reduction)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_scatter_nd(length: int, reduction: str, known: bool, agrees: Callable[..., None]) -> None:
    rng = np.random.default_rng(2)
    sizes = (3, 2, 4)
    x, updates = (rng.uniform(0.5, 1.5, size).astype(f32) for size in (sizes, (7, 3, *sizes[length:])))
    indices = np.stack([rng.integers(-size, size, (7, 3)) for size in sizes[:length]], axis=-1)
    agrees("ScatterND", x, indices, updates, known, reduction=reduction)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("repeated", [False, True])
def test_places_in_order(repeated: bool, known: bool, agrees: Callable[..., None]) -> None:
    indices = np.array([0, 2, 2, 2, 2, 6] if repeated else [0, 1, 3, 5, 6, 7])
    agrees("ScatterElements", np.arange(8, dtype=f32), indices, np.full(6, 0.5, f32), known, reduction="add")


def test_many_updates_of_few_places(agrees: Callable[..., None]) -> None:
    rng = np.random.default_rng(3)
    indices, updates = rng.integers(0, 7, (5000, 1)), rng.standard_normal((5000, 3)).astype(f32)
    agrees("ScatterND", np.zeros((7, 3), f32), indices, updates, False, reduction="add")


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers(dtype: Any, agrees: Callable[..., None]) -> None:
    rng = np.random.default_rng(4)
    x, updates = rng.integers(-9, 9, 5).astype(dtype), rng.integers(-9, 9, 40).astype(dtype)
    agrees("ScatterElements", x, rng.integers(0, 5, 40), updates, False, reduction="add")


def test_refused(agrees: Callable[..., None]) -> None:
    x = np.zeros(4, f32)
    with pytest.raises(dmlvk.ModelError, match=r"reduction must be .*; got 'mean'"):
        agrees("ScatterElements", x, np.array([0]), np.ones(1, f32), True, reduction="mean")
    with pytest.raises(dmlvk.ModelError, match="indices must be inside the sizes"):
        agrees("ScatterElements", x, np.array([4]), np.ones(1, f32), True, reduction="add")
