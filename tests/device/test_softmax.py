"""Softmax, its logarithm, hardmax and Lp normalization against the ONNX reference and PyTorch."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import numpy as np
import onnx.reference
import pytest
from crossed import crossed
from numpy.typing import NDArray
from onnx import helper

import dmlvk
from dmlvk import eager
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.kernels.lowering import lower
from dmlvk.kernels.softmax.rules import Together
from dmlvk.runtime.memory import BufferBinding
from dmlvk.spec.ops.activation import SoftmaxOrZero
from dmlvk.spec.schema import OperatorDesc

Array = NDArray[Any]


HARDMAX = "activation_hardmax1"


def random(*sizes: int) -> Array:
    return np.random.default_rng(sizes).standard_normal(sizes).astype(np.float32)


def run(device: dmlvk.Device, rule: str, row: type[OperatorDesc], x: Array, **attributes: object) -> Array:
    """An operator by the given rule."""
    tensor = dmlvk.TensorDesc(dmlvk.TensorDataType[x.dtype.name.upper()], x.shape)
    desc = row(input_tensor=tensor, output_tensor=tensor, **attributes)
    source, target = (device.create_buffer(tensor.total_tensor_size_in_bytes) for _ in range(2))
    source.write(x)
    commands = device.create_command_list()
    ReadyOperator(device, desc, rule).record(commands, [BufferBinding(source)], [BufferBinding(target)])
    device.execute(commands)
    return target.read().view(x.dtype)[: x.size].reshape(x.shape)


def special_rows() -> Array:
    """Rows that hold infinities, NaN, subnormal numbers or the largest ones."""
    inf, nan, tiny, huge = np.inf, np.nan, 1e-40, 3e38
    rows = [[-inf, 0, 0], [inf, 0, 0], [nan, 0, 0], [-inf] * 3, [huge, -huge, huge], [tiny, 0, -tiny], [-inf, -1e4, inf]]
    return np.array([*rows, [nan, inf, -inf], [-huge, -huge, -huge], [-inf, -huge, -inf]], np.float32)


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_agrees_with_the_onnx_reference(device: dmlvk.Device, op: str, axis: int) -> None:
    x = random(5, 4, 7, 9)
    node = helper.make_node(op, ["x"], ["y"], axis=axis)
    results: Any = onnx.reference.ReferenceEvaluator(node).run(None, {"x": x})
    function = getattr(eager, {"Softmax": "activation_softmax1", "LogSoftmax": "activation_log_softmax1"}.get(op, HARDMAX))
    np.testing.assert_allclose(function(x, axes=(axis,), device=device), results[0], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization_agrees_with_the_onnx_reference(device: dmlvk.Device, p: int) -> None:
    x = np.abs(random(5, 4, 7, 9))  # the reference leaves out the absolute value where p is 1
    node = helper.make_node("LpNormalization", ["x"], ["y"], axis=1, p=p)
    results: Any = onnx.reference.ReferenceEvaluator(node).run(None, {"x": x})
    found = eager.lp_normalization(x, axis=1, p=p, epsilon=0.0, device=device)
    np.testing.assert_allclose(found, results[0], rtol=1e-6)


# With these differences to the largest element float32 has no better: half a ULP of a difference of 1e4 is 5e-4, but then
# the power is 0 in every type. (1e-38: devices may flush subnormal results.)
@pytest.mark.parametrize("spread", [1.0, 20.0, 300.0, 1e4])
@pytest.mark.parametrize("sizes", [(3, 1), (3, 2), (3, 31), (40, 1000), (3, 5003), (2, 40000)], ids=str)
def test_agrees_with_torch(device: dmlvk.Device, torch: ModuleType, sizes: tuple[int, int], spread: float) -> None:
    x = random(*sizes) * np.float32(spread)
    wide = torch.from_numpy(x).double()
    softmax = eager.activation_softmax1(x, axes=(1,), device=device)
    np.testing.assert_allclose(softmax, torch.softmax(wide, 1).numpy(), rtol=5e-7, atol=2e-38)
    logarithm = eager.activation_log_softmax1(x, axes=(1,), device=device)
    np.testing.assert_allclose(logarithm, torch.log_softmax(wide, 1).numpy(), rtol=5e-7, atol=1e-14)


@pytest.mark.parametrize(
    ("size", "dtype", "shelf"),
    [
        (8400, "f4", 0),
        (10303, "f2", 5),
        *(pytest.param(*problem, marks=pytest.mark.full) for problem in ((8203, "f2", 0), (21003, "f2", 11))),
    ],
)
def test_long_rows_that_share_a_processor(
    device: dmlvk.Device, torch: ModuleType, monkeypatch: pytest.MonkeyPatch, size: int, dtype: str, shelf: int
) -> None:
    """As a GPU of one processor has them: some of a row in shared memory, and rows that start anywhere in a word. With fewer
    invocations, so that every device has memory enough."""
    few = dataclasses.replace(device.capabilities.model, processors=1)
    caps = dataclasses.replace(device.capabilities, is_cpu=False, model=few)
    monkeypatch.setattr(device, "capabilities", caps)
    shapes = {False: (Together(256, 10),), True: (Together(128, 10), Together(256, 5, 5), Together(128, 10, 11))}
    monkeypatch.setattr("dmlvk.kernels.softmax.lowering.TOGETHER", shapes)
    x = (random(3, size) * 3).astype(dtype)
    x[1, size // 2 :: 1000] = -np.inf
    x[0, -1] = x[2, 0] = x[2, 17] = 20  # what lies before and behind the middle row would be most of its sum
    tensor = dmlvk.TensorDesc(dmlvk.TensorDataType[x.dtype.name.upper()], x.shape)
    desc = dmlvk.ActivationSoftmax1(input_tensor=tensor, output_tensor=tensor, axes=(1,))
    (launch,) = lower(desc, caps).dispatches
    constants = dict(launch.kernel.constants)
    assert (constants.get("SHELF", 0), constants["LANES"]) == (shelf, constants["LOCAL_SIZE_X"])
    wide = torch.from_numpy(x).double()
    tolerance = {"rtol": 5e-7, "atol": 2e-38} if dtype == "f4" else {"rtol": 6e-4, "atol": 6e-8}
    for row, other in ((dmlvk.ActivationSoftmax1, torch.softmax), (dmlvk.ActivationLogSoftmax1, torch.log_softmax)):
        np.testing.assert_allclose(run(device, "whole", row, x, axes=(1,)), other(wide, 1).numpy(), **tolerance)
    hardmax = run(device, "whole", dmlvk.ActivationHardmax1, x, axes=(1,))
    np.testing.assert_array_equal(hardmax.argmax(1), torch.from_numpy(x).argmax(1).numpy())
    np.testing.assert_array_equal(hardmax.sum(1), 1)


@pytest.mark.parametrize(
    ("place", "dtype"),
    crossed([((3, 700, 40), 1), ((3, 64, 5), 1), ((5000, 8), 0), ((4, 10, 33), 2)], [np.float32, np.float16]),
)
def test_layouts_agree_with_torch(
    device: dmlvk.Device, torch: ModuleType, place: tuple[tuple[int, ...], int], dtype: type[np.floating[Any]]
) -> None:
    sizes, axis = place
    x = (random(*sizes) * 5).astype(dtype)
    wide = torch.from_numpy(x).double()
    rounding = 1e-6 if dtype is np.float32 else 6e-4
    for function, other in (("activation_softmax1", torch.softmax), ("activation_log_softmax1", torch.log_softmax)):
        found = getattr(eager, function)(x, axes=(axis,), device=device)
        np.testing.assert_allclose(found, other(wide, axis).numpy(), rtol=rounding, atol=6e-8)
    hardmax = eager.activation_hardmax1(x, axes=(axis,), device=device)
    np.testing.assert_array_equal(hardmax.argmax(axis), torch.from_numpy(x).argmax(axis).numpy())
    np.testing.assert_array_equal(hardmax.sum(axis), 1)
    normal = eager.lp_normalization(x, axis=axis, p=2, epsilon=1e-5, device=device)
    expected = torch.nn.functional.normalize(wide, 2.0, axis, 1e-5).numpy()
    np.testing.assert_allclose(normal, expected, rtol=rounding, atol=6e-8)


def test_infinities_and_nan(device: dmlvk.Device) -> None:
    nan, half = np.nan, np.float32(np.log(0.5))
    x = special_rows()
    third = np.float32(1 / 3)
    expected = [
        [0, 0.5, 0.5],
        [nan] * 3,
        [nan] * 3,
        [nan] * 3,
        [0.5, 0, 0.5],
        [third] * 3,
        [nan] * 3,
        [nan] * 3,
        [third] * 3,
    ]
    softmax = eager.activation_softmax(x, device=device)
    np.testing.assert_allclose(softmax, np.array([*expected, [0, 1, 0]], np.float32), rtol=2e-7)
    logarithm = eager.activation_log_softmax(x, device=device)
    np.testing.assert_allclose(logarithm[0], np.array([-np.inf, half, half], np.float32), rtol=2e-7)
    np.testing.assert_array_equal(logarithm[9], np.array([-np.inf, 0, -np.inf], np.float32))
    assert np.array_equal(np.isnan(logarithm).all(axis=1), np.isnan(softmax).all(axis=1))


def test_hardmax_of_infinities_and_nan_is_torchs_argmax(device: dmlvk.Device, torch: ModuleType) -> None:
    x = special_rows()
    found = eager.activation_hardmax(x, device=device)
    np.testing.assert_array_equal(found.argmax(axis=1), torch.from_numpy(x).argmax(1).numpy())
    np.testing.assert_array_equal(found.sum(axis=1), 1)


def test_hardmax_takes_the_first_in_row_major_order(device: dmlvk.Device) -> None:
    x = np.zeros((2, 3, 4, 5), np.float32)
    found = eager.activation_hardmax1(x, axes=(3, 1), device=device)
    expected = np.zeros_like(x)
    expected[:, 0, :, 0] = 1
    np.testing.assert_array_equal(found, expected)
    # In memory the first axis is the faster one; the order is that of the indices all the same.
    turned = np.zeros((64, 48), np.float32, order="F")
    turned[5, 7] = turned[9, 3] = 1
    found = eager.activation_hardmax1(turned, axes=(0, 1), device=device)
    assert found[5, 7] == 1 and found.sum() == 1


def test_norms_neither_overflow_nor_underflow(device: dmlvk.Device) -> None:
    x = np.array([[3e38, -3e38, 0, 0], [3e-38, 0, 0, -3e-38], [np.inf, 1, 0, 2], [0, 0, 0, 0]], np.float32)
    half = np.float32(np.sqrt(0.5))
    expected = np.array([[half, -half, 0, 0], [half, 0, 0, -half], [np.nan, 0, 0, 0], [0, 0, 0, 0]], np.float32)
    found = eager.lp_normalization(x, axis=1, p=2, epsilon=0.0, device=device)
    np.testing.assert_allclose(found, expected, rtol=3e-7)
    found = eager.lp_normalization(x, axis=1, p=2, epsilon=1.0, device=device)
    np.testing.assert_allclose(found[1], x[1], rtol=3e-7)


@pytest.mark.parametrize(("rule", "place"), crossed(["whole", "looped", "split"], [((2, 8192), 1), ((2000, 8), 0)]))
def test_peaks_that_rise_along_a_row(device: dmlvk.Device, rule: str, place: tuple[tuple[int, int], int]) -> None:
    """Every tile has a new peak, far above the last one or close to it."""
    sizes, axis = place
    steps = np.linspace(-500, 90, sizes[axis], dtype=np.float32)
    x = np.ascontiguousarray(np.broadcast_to(np.expand_dims(steps, 1 - axis), sizes))
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(axis, keepdims=True))
    total = powers.sum(axis, keepdims=True)
    softmax = run(device, rule, dmlvk.ActivationSoftmax1, x, axes=(axis,))
    np.testing.assert_allclose(softmax, powers / total, rtol=5e-7, atol=2e-38)
    logarithm = run(device, rule, dmlvk.ActivationLogSoftmax1, x, axes=(axis,))
    np.testing.assert_allclose(logarithm, wide - wide.max() - np.log(total), rtol=3e-7)
    norm = np.sqrt((wide * wide).sum(axis, keepdims=True))
    lp = run(device, rule, dmlvk.LpNormalization, x, axis=axis, p=2)
    np.testing.assert_allclose(lp, wide / norm, rtol=5e-7)
    hardmax = run(device, rule, dmlvk.ActivationHardmax1, x, axes=(axis,))
    np.testing.assert_array_equal(hardmax, x == x.max())


@pytest.mark.parametrize("rule", ["whole", "looped", "split"])
@pytest.mark.parametrize("axis", [0, 1])
def test_what_is_nan_becomes_zero(device: dmlvk.Device, rule: str, axis: int) -> None:
    """And nothing else changes a bit."""
    x = np.concatenate([special_rows(), random(7, 3)])
    x = x if axis else np.ascontiguousarray(x.T)
    plain = run(device, rule, dmlvk.ActivationSoftmax1, x, axes=(axis,))
    assert np.isnan(plain).any() and not np.isnan(plain).all()
    found = run(device, rule, SoftmaxOrZero, x, axes=(axis,))
    np.testing.assert_array_equal(found.view(np.uint32), np.where(np.isnan(plain), np.float32(0), plain).view(np.uint32))
