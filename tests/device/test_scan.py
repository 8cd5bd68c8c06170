"""Running sums and products against the ONNX reference and PyTorch, over long rows, and where products leave the range.

DirectML's printed examples run in ``test_examples.py``."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import onnx.reference
import pytest
from numpy.typing import NDArray
from onnx import helper

import dmlvk
from dmlvk import AxisDirection, TensorDataType, TensorDesc, eager
from dmlvk.directml.ready_operator import ReadyOperator
from dmlvk.runtime.memory import BufferBinding

Array = NDArray[Any]
DECREASING = AxisDirection.DECREASING


def random(*sizes: int) -> Array:
    return np.random.default_rng(sizes).standard_normal(sizes).astype(np.float32)


def summed_by(device: dmlvk.Device, x: Array, rule: str) -> Array:
    """The running sums of a vector by a rule of the caller's choice."""
    tensor = TensorDesc(TensorDataType.FLOAT32, x.shape)
    operator = ReadyOperator(device, dmlvk.CumulativeSummation(input_tensor=tensor, output_tensor=tensor, axis=0), rule)
    buffer = device.create_buffer(x.nbytes)
    buffer.write(x)
    commands = device.create_command_list()
    operator.record(commands, [BufferBinding(buffer)], [BufferBinding(buffer)])
    device.execute(commands)
    return buffer.read().view(np.float32)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
def test_agrees_with_the_onnx_reference(device: dmlvk.Device, axis: int, reverse: int, exclusive: int) -> None:
    x = random(5, 12, 8).astype(np.float64)
    node = helper.make_node("CumSum", ["x", "axis"], ["y"], reverse=reverse, exclusive=exclusive)
    results: Any = onnx.reference.ReferenceEvaluator(node).run(None, {"x": x, "axis": np.array(axis)})
    found = eager.cumulative_summation(
        x.astype(np.float32),
        axis=axis,
        axis_direction=AxisDirection(reverse),
        has_exclusive_sum=bool(exclusive),
        device=device,
    )
    np.testing.assert_allclose(found, results[0], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1])
def test_agrees_with_torch(device: dmlvk.Device, torch: ModuleType, axis: int) -> None:
    x = random(33, 132)
    wide = torch.from_numpy(x).double()
    sums = eager.cumulative_summation(x, axis=axis, device=device)
    np.testing.assert_allclose(sums, torch.cumsum(wide, axis).numpy(), rtol=1e-6, atol=2e-5)
    products = eager.cumulative_product(x, axis=axis, device=device)
    np.testing.assert_allclose(products, torch.cumprod(wide, axis).numpy(), rtol=3e-6, atol=2e-38)
    counts = (x * 100).astype(np.int32)
    wrapped = eager.cumulative_product(counts, axis=axis, device=device)
    np.testing.assert_array_equal(wrapped, torch.cumprod(torch.from_numpy(counts), axis, dtype=torch.int32).numpy())


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "count"), [("rows", 10**6), ("chunks", 10**7)])
def test_millions_of_terms(device: dmlvk.Device, rule: str, count: int) -> None:
    """A float32 sum of 0.1 in turn would be off by percents here."""
    x = np.full(count, 0.1, np.float32)
    expected = np.cumsum(x, dtype=np.float64)
    found = summed_by(device, x, rule)
    # Inside a tile at most 3 additions in a unit, 5 over a subgroup, 4 over units and 16 over subgroups, half a ULP each.
    assert np.abs(found / expected - 1).max() < 28 * 2.0**-25
    np.testing.assert_array_equal(found, summed_by(device, x, rule))


@pytest.mark.parametrize("sizes", [(1, 300), (300, 2)])
def test_products_leave_the_range_and_come_back(device: dmlvk.Device, sizes: tuple[int, int]) -> None:
    """Factors of 2^20 and then 2^-20, along either axis: the middle overflows, the end does not."""
    axis = int(np.argmax(sizes))
    factors = np.array([2.0**20] * 150 + [2.0**-20] * 150, np.float32)
    x = np.broadcast_to(np.expand_dims(factors, 1 - axis), sizes)
    found = eager.cumulative_product(np.ascontiguousarray(x), axis=axis, device=device)
    exponents = np.cumsum(np.log2(factors))
    with np.errstate(over="ignore"):
        expected = (2.0 ** np.minimum(exponents, 1000)).astype(np.float32)
    np.testing.assert_array_equal(found, np.broadcast_to(np.expand_dims(expected, 1 - axis), sizes))
    assert np.isinf(expected).sum() > 200 and expected[-1] == 1


def test_infinity_nan_and_zero_from_their_place_on(device: dmlvk.Device) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[1, inf, 2, -inf, 3, 4, 5, 6], [1, 2, 0, 3, inf, 4, nan, 5]], np.float32)
    sums = [[1, inf, inf, nan, nan, nan, nan, nan], [1, 3, 3, 6, inf, inf, nan, nan]]
    products = [[1, inf, inf, -inf, -inf, -inf, -inf, -inf], [1, 2, 0, 0, nan, nan, nan, nan]]
    for kind in (np.float32, np.float16):
        given = x.astype(kind)
        np.testing.assert_array_equal(eager.cumulative_summation(given, axis=1, device=device), np.array(sums, kind))
        np.testing.assert_array_equal(eager.cumulative_product(given, axis=1, device=device), np.array(products, kind))
    found = eager.cumulative_summation(x[:, ::-1].copy(), axis=1, axis_direction=DECREASING, device=device)
    np.testing.assert_array_equal(found, np.array(sums, np.float32)[:, ::-1])


def test_float16_is_summed_in_float32(device: dmlvk.Device) -> None:
    x = np.full((1, 4096), 1 + 2**-10, np.float16)
    expected = np.cumsum(x, 1, dtype=np.float64).astype(np.float16)
    np.testing.assert_array_equal(eager.cumulative_summation(x, axis=1, device=device), expected)
    over = np.array([[60000, 60000, -60000]], np.float16)
    found = eager.cumulative_summation(over, axis=1, device=device)
    np.testing.assert_array_equal(found, np.array([[60000, np.inf, 60000]], np.float16))
