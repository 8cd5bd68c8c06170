"""Top-k against numpy, the ONNX reference and PyTorch: ties, NaN, every bit of a value, and K too large for shared memory.

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
from dmlvk.kernels.lowering import possible_rules
from dmlvk.runtime.memory import BufferBinding

Array = NDArray[Any]
INCREASING, DECREASING = AxisDirection.INCREASING, AxisDirection.DECREASING


def random(*sizes: int) -> Array:
    return np.random.default_rng(sizes).standard_normal(sizes).astype(np.float32)


def top_k(
    device: dmlvk.Device, x: Array, k: int, axis: int = -1, direction: AxisDirection = DECREASING
) -> tuple[Array, Array]:
    results: tuple[Array, Array] = eager.top_k1(
        x,
        axis=axis % x.ndim,
        k=k,
        axis_direction=direction,
        output_data_types=(dmlvk.engine.numpy_types.data_type_of(x.dtype), TensorDataType.UINT32),
        device=device,
    )
    return results


def chosen_by(device: dmlvk.Device, x: Array, k: int, rule: str) -> tuple[Array, Array]:
    """The largest elements of each row of a float32 matrix by a rule of the caller's choice."""
    rows, length = x.shape
    desc = dmlvk.TopK1(
        input_tensor=TensorDesc(TensorDataType.FLOAT32, (rows, length)),
        output_value_tensor=TensorDesc(TensorDataType.FLOAT32, (rows, k)),
        output_index_tensor=TensorDesc(TensorDataType.UINT32, (rows, k)),
        axis=1,
        k=k,
    )
    assert rule in possible_rules(desc, device.capabilities)
    buffers = [device.create_buffer(size) for size in (x.nbytes, 4 * rows * k, 4 * rows * k)]
    buffers[0].write(x)
    source, *outputs = map(BufferBinding, buffers)
    commands = device.create_command_list()
    ReadyOperator(device, desc, rule).record(commands, [source], outputs)
    device.execute(commands)
    values, indices = (buffer.read() for buffer in buffers[1:])
    return values.view(np.float32).reshape(rows, k), indices.view(np.uint32).reshape(rows, k)


def stable(x: Array, k: int) -> Array:
    """Indices of the largest elements of each row, the first of equal ones first."""
    return np.argsort(-x, axis=1, kind="stable")[:, :k]


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("largest", [0, 1])
def test_agrees_with_the_onnx_reference(device: dmlvk.Device, axis: int, largest: int) -> None:
    x = random(6, 9, 11)
    node = helper.make_node("TopK", ["x", "k"], ["values", "indices"], axis=axis, largest=largest, sorted=1)
    expected: Any = onnx.reference.ReferenceEvaluator(node).run(None, {"x": x, "k": np.array([4])})
    for found, wanted in zip(top_k(device, x, 4, axis, AxisDirection(largest)), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int64, np.int16, np.uint8])
def test_values_agree_with_torch(device: dmlvk.Device, torch: ModuleType, kind: Any) -> None:
    x = (random(3, 1200) * 50).astype(kind) if kind != np.uint8 else (np.abs(random(3, 1200)) * 50).astype(kind)
    for direction in (INCREASING, DECREASING):
        values, indices = top_k(device, x, 30, direction=direction)
        expected = torch.topk(torch.from_numpy(x), 30, largest=direction == DECREASING)[0].numpy()
        np.testing.assert_array_equal(values, expected)
        np.testing.assert_array_equal(np.take_along_axis(x, indices.astype(np.int64), 1), values)


def test_nan_is_the_largest_and_zeros_are_equal(device: dmlvk.Device) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[0.0, nan, -0.0, -inf, 1e-45, nan, inf, -1e-45]], np.float32)
    assert top_k(device, x, 8)[1].tolist() == [[1, 5, 6, 4, 0, 2, 7, 3]]
    assert top_k(device, x, 8, direction=INCREASING)[1].tolist() == [[3, 7, 0, 2, 4, 6, 1, 5]]
    half = np.array([[0.0, nan, -0.0, -inf, 6e-8, nan, inf, -6e-8]], np.float16)
    assert top_k(device, half, 8)[1].tolist() == [[1, 5, 6, 4, 0, 2, 7, 3]]


def test_values_keep_every_bit(device: dmlvk.Device) -> None:
    bits = np.array([[0x80000000, 0x7FC12345, 0x00000001, 0xFFC00001, 0x7F800001]], np.uint32)
    values, indices = top_k(device, bits.view(np.float32), 5)
    assert indices.tolist() == [[1, 3, 4, 2, 0]]
    np.testing.assert_array_equal(values.view(np.uint32), np.take_along_axis(bits, indices.astype(np.int64), 1))


@pytest.mark.parametrize("rule", ["chunks", "select", "memory"])
@pytest.mark.parametrize("spread", [1.0, 0.002, 0.0])
def test_long_rows_with_few_and_with_many_ties(device: dmlvk.Device, rule: str, spread: float) -> None:
    x = np.round(random(2, 20011) * 1000 * spread).astype(np.float32)
    values, indices = chosen_by(device, x, 33, rule)
    np.testing.assert_array_equal(indices, stable(x, 33))
    np.testing.assert_array_equal(values, np.take_along_axis(x, stable(x, 33), 1))


@pytest.mark.parametrize("k", [2, 512, 513, 5000])
def test_any_k(device: dmlvk.Device, k: int) -> None:
    x = np.round(random(1, 5000) * 100).astype(np.float32)
    np.testing.assert_array_equal(top_k(device, x, k)[1], stable(x, k))


@pytest.mark.parametrize("length", [1, 2, 3, 31, 32, 33, 64, 1024, 1025])
def test_rows_of_any_length_are_sorted(device: dmlvk.Device, length: int) -> None:
    x = np.random.default_rng(length).integers(-50, 50, (5, length), np.int8)
    values, indices = top_k(device, x, length, direction=INCREASING)
    np.testing.assert_array_equal(indices, np.argsort(x, axis=1, kind="stable"))
    np.testing.assert_array_equal(values, np.sort(x, axis=1))
