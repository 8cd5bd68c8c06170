"""Matrix products against numpy, ONNX Runtime's semantics being numpy's, and PyTorch."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import onnx.reference
import pytest
from numpy.typing import NDArray
from onnx import helper

import dmlvk
from dmlvk import MatrixTransform, eager

Array = NDArray[Any]
NONE, TRANSPOSE = MatrixTransform


def random(*sizes: int) -> Array:
    return np.random.default_rng(sizes).standard_normal(sizes).astype(np.float32)


def assert_close(found: Array, expected: Array) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=4e-6 * np.abs(expected).max())


@pytest.mark.parametrize("trans_a", [NONE, TRANSPOSE])
@pytest.mark.parametrize("trans_b", [NONE, TRANSPOSE])
def test_agrees_with_the_onnx_reference(device: dmlvk.Device, trans_a: MatrixTransform, trans_b: MatrixTransform) -> None:
    a, b, c = random(*((19, 33) if trans_a else (33, 19))), random(*((27, 19) if trans_b else (19, 27))), random(27)
    node = helper.make_node("Gemm", ["a", "b", "c"], ["y"], alpha=0.5, beta=2.0, transA=int(trans_a), transB=int(trans_b))
    results: Any = onnx.reference.ReferenceEvaluator(node).run(None, {"a": a, "b": b, "c": c})
    expected = results[0]
    found = eager.gemm(
        a,
        b,
        np.broadcast_to(c, expected.shape),
        trans_a=trans_a,
        trans_b=trans_b,
        alpha=0.5,
        beta=2.0,
        device=device,
    )
    assert_close(found, expected)


@pytest.mark.parametrize("rows", [1, 4, 5, 70])
@pytest.mark.parametrize("columns", [1, 3, 65])
def test_batches_agree_with_torch(device: dmlvk.Device, torch: ModuleType, rows: int, columns: int) -> None:
    a, b = random(2, 3, rows, 21), random(2, 3, 21, columns)
    expected = torch.matmul(torch.from_numpy(a), torch.from_numpy(b)).numpy()
    assert_close(eager.gemm(a, b, device=device), expected)


def test_a_matrix_shared_by_the_batch_is_a_zero_stride(device: dmlvk.Device) -> None:
    a, b = random(3, 9, 12), random(12, 10)
    found = eager.gemm(a, np.broadcast_to(b, (3, 12, 10)), device=device)
    assert_close(found, a @ b)


def test_float16_sums_in_float32(device: dmlvk.Device) -> None:
    """2048 + 1 is 2048 in float16: a sum kept there would stop growing."""
    a, b = np.ones((2, 4096), np.float16), np.ones((4096, 3), np.float16)
    np.testing.assert_array_equal(eager.gemm(a, b, device=device), np.full((2, 3), 4096, np.float16))


def test_a_fused_softmax_is_the_softmax(device: dmlvk.Device) -> None:
    a, b = random(7, 16), random(16, 33)
    plain = eager.gemm(a, b, device=device)
    fused = eager.gemm(a, b, fused_activation=dmlvk.ActivationSoftmax(), device=device)
    np.testing.assert_array_equal(fused, eager.activation_softmax(plain, device=device))
