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


@pytest.mark.parametrize(
    ("axis", "start", "count", "dispatches"),
    [(0, 1, 4, 2), (0, 0, 2, 2), (1, 2, 1, 4), (2, 1, 5, 2), (2, 0, 6, 0)],
)
@pytest.mark.parametrize("dtype", [f32, np.float16, np.uint8])
def test_a_window_is_assigned_without_indices(
    axis: int, start: int, count: int, dispatches: int, dtype: Any, make_model: Any, make_session: Any
) -> None:
    """As PyTorch's exporter writes an assignment to a slice: between two transpositions, which are views here."""
    rng = np.random.default_rng(5)
    sizes = [5, 4, 6]
    x = rng.integers(0, 99, sizes).astype(dtype)
    sizes[axis] = count
    updates = rng.integers(0, 99, sizes).astype(dtype)
    order = [axis, *(other for other in range(3) if other != axis)]
    back = [order.index(other) for other in range(3)]
    nodes = [
        helper.make_node("Transpose", ["x"], ["p"], perm=order),
        helper.make_node("Transpose", ["u"], ["q"], perm=order),
        helper.make_node("ScatterND", ["p", "i", "q"], ["r"]),
        helper.make_node("Transpose", ["r"], ["y"], perm=back),
    ]
    indices = np.arange(start, start + count)[:, np.newaxis]
    indices[::2] -= x.shape[axis]  # the same places, from the end
    inputs = {"x": (dtype, x.shape), "u": (dtype, updates.shape)}
    session = make_session(make_model(nodes, inputs, constants={"i": indices}, opset=18, output_types={"y": dtype}))
    (found,) = session.run(None, {"x": x, "u": updates})
    wanted = x.copy()
    wanted[(slice(None),) * axis + (slice(start, start + count),)] = updates
    np.testing.assert_array_equal(found, wanted)
    assert session.report().dispatches == dispatches


@pytest.mark.parametrize(
    "indices",
    [[[1], [3]], [[2], [1]], [[1], [1]], [[[1, 2], [1, 3]], [[2, 2], [2, 3]]], [[[1, 0], [1, 1]], [[2, 0], [2, 2]]]],
    ids=["a gap", "backwards", "twice", "a corner", "no rows"],
)
def test_what_is_no_window_is_scattered(indices: Any, make_model: Any, make_session: Any) -> None:
    """Of several updates for one place the last counts."""
    x, indices = np.arange(24, dtype=f32).reshape(4, 6), np.array(indices)
    updates = -np.arange(1, 1 + indices[..., 0].size * (6 if indices.shape[-1] == 1 else 1), dtype=f32)
    updates = updates.reshape(*indices.shape[:-1], *x.shape[indices.shape[-1] :])
    node = helper.make_node("ScatterND", ["x", "i", "u"], ["y"])
    inputs = {"x": (f32, x.shape), "u": (f32, updates.shape)}
    session = make_session(make_model(node, inputs, constants={"i": indices}, opset=18))
    wanted = x.copy()
    for place in np.ndindex(*indices.shape[:-1]):
        wanted[tuple(indices[place])] = updates[place]
    np.testing.assert_array_equal(session.run(None, {"x": x, "u": updates})[0], wanted)
    assert session.report().dispatches == 3
