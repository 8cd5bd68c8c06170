"""Gradients of pointwise operators and of slices against PyTorch's autograd in float64. No arithmetic: equal bit by bit."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dmlvk
from dmlvk import TensorDataType

Array = NDArray[Any]
FLOATS = pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=lambda kind: kind.__name__)


def random(*sizes: int, dtype: type = np.float32) -> Array:
    return np.random.default_rng(sizes).standard_normal(sizes).astype(dtype)


def wide(torch: ModuleType, array: Array) -> Any:
    """An array as a leaf in float64."""
    return torch.from_numpy(array.astype(np.float64)).requires_grad_()


def gradient(torch: ModuleType, y: Any, dy: Array, leaf: Any) -> Array:
    """The gradient of sum(y * dy) with respect to a leaf."""
    (found,) = torch.autograd.grad(y, leaf, torch.from_numpy(dy.astype(np.float64)))
    return np.asarray(found)


@FLOATS
def test_relu_grad(device: dmlvk.Device, torch: ModuleType, dtype: type) -> None:
    x, dy = random(3, 5, 67, dtype=dtype), random(67, 5, 3, dtype=dtype).T
    x[0, 0, :2] = 0, -0.0
    leaf = wide(torch, x)
    expected = gradient(torch, leaf.relu(), dy, leaf)
    np.testing.assert_array_equal(dmlvk.eager.activation_relu_grad(x, dy, device=device), expected)


@FLOATS
@pytest.mark.parametrize("bounds", [(-0.75, 0.5), (0.25, np.inf), (1.0, 1.0)], ids=str)
def test_clip_grads(device: dmlvk.Device, torch: ModuleType, dtype: type, bounds: tuple[float, float]) -> None:
    """Inside and outside the bounds; at them, where PyTorch's gradient is dy, DirectML's is 0, and none of x lies there."""
    x, dy = random(4, 129, dtype=dtype), random(129, 4, dtype=dtype).T
    assert not np.isin(x, bounds).any()
    leaf = wide(torch, x)
    expected = gradient(torch, leaf.clamp(*bounds), dy, leaf)
    low, high = bounds
    found = dmlvk.eager.element_wise_clip_grad(x, dy, min=low, max=high, device=device)
    np.testing.assert_array_equal(found, expected)
    data_type = TensorDataType[dtype.__name__.upper()]
    found = dmlvk.eager.element_wise_clip_grad1(x, dy, min_max_data_type=data_type, min=low, max=high, device=device)
    np.testing.assert_array_equal(found, expected)


SLICES: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    "a window": ((7, 67), (2, 3), (4, 33), (1, 1)),
    "steps": ((2, 11, 130), (1, 0, 5), (1, 11, 101), (1, 3, 4)),
    "backwards": ((5, 9, 31), (0, 1, 2), (5, 8, 27), (-1, 2, -5)),
    "everything": ((3, 4), (0, 0), (3, 4), (1, 1)),
}


@FLOATS
@pytest.mark.parametrize("name", SLICES)
def test_slice_grad(device: dmlvk.Device, torch: ModuleType, dtype: type, name: str) -> None:
    sizes, offsets, lengths, strides = SLICES[name]
    leaf = y = wide(torch, random(*sizes, dtype=dtype))
    for axis, (offset, length, stride) in enumerate(zip(offsets, lengths, strides, strict=True)):
        y = y.narrow(axis, offset, length)
        y = y if stride > 0 else y.flip(axis)
        y = y.index_select(axis, torch.arange(0, length, abs(stride)))
    dy = random(*y.shape, dtype=dtype)
    expected = gradient(torch, y, dy, leaf)
    found = dmlvk.eager.slice_grad(
        dy,
        input_window_offsets=offsets,
        input_window_sizes=lengths,
        input_window_strides=strides,
        output_sizes=sizes,
        device=device,
    )
    np.testing.assert_array_equal(found, expected)
