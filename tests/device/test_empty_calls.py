"""Tensors of size 0 at the doors of ``dmlvk.eager`` and ``dmlvk.Graph``: numpy's answers, and nothing is launched where
there is nothing to compute. DirectML's own sizes stay at least 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import DeviceArray, Graph, TensorDataType, eager
from dmlvk.runtime.recorder import Recording
from dmlvk.spec.enums import AxisDirection, PaddingMode, ReduceFunction
from dmlvk.spec.tensor import TensorDesc

f32, i64 = np.float32, np.int64


def ones(*sizes: int, dtype: Any = f32) -> Any:
    return np.ones(sizes, dtype)


NEAREST = dmlvk.spec.enums.InterpolationMode.NEAREST_NEIGHBOR
WINDOW = {"strides": (1, 1), "dilations": (1, 1), "start_padding": (0, 0), "end_padding": (0, 0)}
ROWS = ones(0, 4, dtype=i64)
CALLS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], list[Any]]] = {
    "pointwise": ("element_wise_add", (ones(0, 3), ones(0, 3)), {}, [ones(0, 3)]),
    "compared": ("element_wise_logical_equals", (ones(0), ones(0)), {}, [ones(0, dtype=np.uint8)]),
    "cast": ("cast", (ones(2, 0),), {"output_data_types": TensorDataType.INT32}, [ones(2, 0, dtype=np.int32)]),
    "made": (
        "fill_value_constant",
        (),
        {"output_sizes": np.array([0, 3]), "value_data_type": TensorDataType.FLOAT32, "value": 1},
        [ones(0, 3)],
    ),
    "no images": (
        "convolution",
        (ones(0, 3, 8, 8), ones(4, 3, 3, 3)),
        {**WINDOW, "output_padding": (0, 0)},
        [ones(0, 4, 6, 6)],
    ),
    "no channels": (
        "convolution",
        (ones(1, 0, 4, 4), ones(2, 0, 3, 3), ones(1, 2, 1, 1)),
        {**WINDOW, "output_padding": (0, 0)},
        [ones(1, 2, 2, 2)],
    ),
    "no rows": ("gemm", (ones(0, 2), ones(2, 3)), {}, [ones(0, 3)]),
    "sums of nothing": ("gemm", (ones(2, 0), ones(0, 3), ones(2, 3)), {"beta": 0.5}, [ones(2, 3) / 2]),
    "the least of nothing": (
        "reduce",
        (ones(2, 0),),
        {"function": ReduceFunction.MIN, "axes": (1,)},
        [np.full((2, 1), f32(np.inf))],
    ),
    "the product of nothing": ("reduce", (ones(2, 0),), {"function": ReduceFunction.MULTIPLY, "axes": (1,)}, [ones(2, 1)]),
    "joined": ("join", ((ones(2, 0), 2 * ones(2, 3), ones(2, 0)),), {"axis": 1}, [2 * ones(2, 3)]),
    "split": ("split", (ones(2, 3),), {"axis": 1, "output_sizes": [(2, 0), (2, 3)]}, [ones(2, 0), ones(2, 3)]),
    "scattered": ("scatter_elements", (ones(3, 4), ROWS, ones(0, 4)), {"axis": 0}, [ones(3, 4)]),
    "gathered": ("gather_elements", (ones(3, 4), ROWS), {"axis": 0}, [ones(0, 4)]),
    "padded": (
        "padding",
        (ones(0, 2),),
        {"padding_mode": PaddingMode.CONSTANT, "padding_value": 3.0, "start_padding": (1, 0), "end_padding": (0, 0)},
        [3 * ones(1, 2)],
    ),
    "counted": ("nonzero_coordinates", (ones(0, 3),), {}, [np.zeros((1, 1), np.uint32), ones(0, 2, dtype=np.uint32)]),
    "scaled": (
        "upsample_2d",
        (ones(1, 1, 0, 4),),
        {"scale_size": dmlvk.Size2D(2, 3), "interpolation_mode": NEAREST},
        [ones(1, 1, 0, 8)],
    ),
    "several outputs": (
        "top_k1",
        (ones(0, 4),),
        {
            "axis": 1,
            "k": 2,
            "axis_direction": AxisDirection.DECREASING,
            "output_data_types": (TensorDataType.FLOAT32, TensorDataType.UINT32),
        },
        [ones(0, 2), ones(0, 2, dtype=np.uint32)],
    ),
}
LAUNCHING = {"no channels", "sums of nothing", "joined", "split", "scattered"}
"""Calls whose outputs have elements that a kernel computes or copies."""


@pytest.fixture
def submissions(monkeypatch: pytest.MonkeyPatch) -> list[Recording]:
    """What has been handed to the device."""
    found: list[Recording] = []
    submit = Recording.submit

    def noted(self: Recording, **options: Any) -> None:
        found.append(self)
        submit(self, **options)

    monkeypatch.setattr(Recording, "submit", noted)
    return found


def _check(found: Any, wanted: list[Any]) -> None:
    for mine, array in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(mine), array, strict=True)


@pytest.mark.parametrize("name", CALLS)
def test_eager(name: str, device: dmlvk.Device, submissions: list[Recording]) -> None:
    function, operands, attributes, wanted = CALLS[name]
    _check(getattr(eager, function)(*operands, **attributes, device=device), wanted)
    assert bool(submissions) == (name in LAUNCHING)


def _nested(operands: tuple[Any, ...], make: Callable[[Any], Any]) -> tuple[Any, ...]:
    return tuple(_nested(item, make) if isinstance(item, tuple) else make(item) for item in operands)


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"made"}))
def test_eager_on_the_device(name: str, device: dmlvk.Device) -> None:
    function, operands, attributes, wanted = CALLS[name]
    found = getattr(eager, function)(*_nested(operands, lambda array: DeviceArray.from_numpy(array, device)), **attributes)
    for array in found if isinstance(found, tuple) else (found,):
        assert isinstance(array, DeviceArray)
    _check(found, wanted)


@pytest.mark.parametrize("name", CALLS)
def test_graph(name: str, device: dmlvk.Device) -> None:
    function, operands, attributes, wanted = CALLS[name]
    graph = Graph(device)
    fed: list[Any] = []

    def entered(array: Any) -> Any:
        fed.append(array)
        return graph.input(array.shape, dmlvk.engine.numpy_types.data_type_of(array.dtype))

    made = getattr(graph, function)(*_nested(operands, entered), **attributes)
    _check(graph.compile(*(made if isinstance(made, tuple) else (made,)))(*fed), wanted)


def test_expressions(device: dmlvk.Device) -> None:
    graph = Graph(device)
    x, w, b = graph.input((0, 4)), graph.input((4, 3), owned_by_dml=True), graph.constant(ones(3))
    y = x @ w + b
    assert (y.shape, y.T.shape, y.reshape(3, 0, 7).shape) == ((0, 3), (3, 0), (3, 0, 7))
    assert (y.T @ x).shape == (3, 4)
    wide = graph.input((1, 3)).broadcast_to(0, 3)
    function = graph.compile(y.T @ x, wide * 2, -x)
    _check(function(ones(0, 4), ones(1, 3)), [np.zeros((3, 4), f32), ones(0, 3), ones(0, 4)])
    with pytest.raises(dmlvk.StateError, match="without elements has no operator"):
        _ = graph.compile(x).operator


def test_what_stays_an_error(device: dmlvk.Device) -> None:
    with pytest.raises(dmlvk.InvalidArgumentError, match="all tensors must have the same sizes"):
        eager.element_wise_add(ones(0, 3), ones(0, 4), device=device)
    with pytest.raises(dmlvk.UnsupportedError, match=r"REDUCE: an output has sizes \(2, 1\)"):
        eager.reduce(
            ones(2, 0), function=ReduceFunction.ARGMAX, axes=(1,), output_data_types=TensorDataType.INT64, device=device
        )
    desc = DeviceArray.from_numpy(ones(0, 3), device).desc
    with pytest.raises(dmlvk.InvalidArgumentError, match="every size must be at least 1"):
        device.create_operator(dmlvk.ElementWiseIdentity(input_tensor=desc, output_tensor=desc))
    with pytest.raises(dmlvk.InvalidArgumentError, match="every size must be at least 1"):
        TensorDesc(TensorDataType.FLOAT32, (0, 3))
