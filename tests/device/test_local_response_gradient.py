"""The gradient of local response normalization against PyTorch's differentiation, and launches that need large tensors."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dmlvk
from dmlvk import eager
from dmlvk.kernels.local_response import lowering
from dmlvk.kernels.lowering import possible_rules
from dmlvk.spec import ops
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.model import generator
from dmlvk.verify.cases.problem import Variation, build
from dmlvk.verify.check import check

Array = NDArray[Any]
FLOATS = pytest.mark.parametrize("dtype", [np.float32, np.float16])
CLOSE = {np.float32: {"rtol": 2e-6, "atol": 2e-6}, np.float16: {"rtol": 1e-3, "atol": 1e-3}}


def values(name: str, *sizes: int, dtype: Any = np.float32) -> Array:
    return generator(name, sizes).standard_normal(sizes).astype(dtype)


def region_sums(torch: ModuleType, x: Any, axis: int, size: int) -> Any:
    """Sums of ``size`` neighbours along an axis, one fewer before than after where the size is even."""
    pads = [0] * (2 * x.ndim)
    pads[2 * (x.ndim - 1 - axis)] = (size - 1) // 2
    pads[2 * (x.ndim - 1 - axis) + 1] = size // 2
    return torch.nn.functional.pad(x, pads).unfold(axis, size, 1).sum(-1)


@FLOATS
def test_torch_differentiates_its_own(torch: ModuleType, device: dmlvk.Device, dtype: Any) -> None:
    x, gradient = (values(name, 2, 11, 3, 8, dtype=dtype) for name in ("x", "gradient"))
    wide = torch.from_numpy(x).double().requires_grad_()
    y = torch.nn.functional.local_response_norm(wide, 5, alpha=0.5, beta=0.75, k=2.0)
    (expected,) = torch.autograd.grad(y, wide, torch.from_numpy(gradient).double())
    found = eager.local_response_normalization_grad(x, gradient, local_size=5, alpha=0.5, bias=2.0, device=device)
    np.testing.assert_allclose(found, expected.numpy(), **CLOSE[dtype])


@FLOATS
@pytest.mark.parametrize("size", [2, 3, 6, 21])
@pytest.mark.parametrize("axes", [(1,), (2, 3)], ids=["channels", "space"])
def test_torch_differentiates_the_formula(
    torch: ModuleType, device: dmlvk.Device, dtype: Any, size: int, axes: tuple[int, ...]
) -> None:
    x, gradient = (values(name, 2, 9, 6, 8, dtype=dtype) for name in ("x", "gradient"))
    wide = torch.from_numpy(x).double().requires_grad_()
    sums = wide * wide
    for axis in axes:
        sums = region_sums(torch, sums, axis, size)
    y = wide / (0.5 + 0.25 / size * sums) ** 1.5
    (expected,) = torch.autograd.grad(y, wide, torch.from_numpy(gradient).double())
    attributes = {"cross_channel": axes == (1,), "local_size": size, "alpha": 0.25, "beta": 1.5, "bias": 0.5}
    found = eager.local_response_normalization_grad(x, gradient, **attributes, device=device)
    np.testing.assert_allclose(found, expected.numpy(), **CLOSE[dtype])


@pytest.mark.parametrize("items", [1, 3])
def test_several_items_an_invocation(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, items: int) -> None:
    """What only large tensors on a GPU would have, and what small ones there have, by every rule."""
    monkeypatch.setattr(lowering, "_several", lambda *_: items)
    monkeypatch.setattr(lowering, "_run", lambda *_: items)
    entry = all_cases()[ops.LocalResponseNormalizationGrad]
    for case in entry.cases:
        if case.name in ("channels", "even", "even space", "channels of whole words"):
            for layout in ("packed", "strided"):
                variation = Variation(case, dmlvk.TensorDataType.FLOAT32, layout)
                for rule in possible_rules(build(entry.operator, variation).desc, device.capabilities):
                    outcome = check(device, entry, dataclasses.replace(variation, rule=rule))
                    assert outcome.passed and not outcome.unsupported, f"{outcome.variation}: {outcome.detail}"
