"""The gradients of normalizations against PyTorch's autograd, and what the shared cases cannot reach."""

from __future__ import annotations

import dataclasses
import itertools
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from crossed import crossed
from numpy.typing import NDArray

import dmlvk
from dmlvk import TensorDataType, TensorDesc
from dmlvk.kernels.lowering import possible_rules
from dmlvk.kernels.normalization import shares
from dmlvk.kernels.normalization_gradient import lowering
from dmlvk.spec import ops
from dmlvk.spec.tensor import calculate_strides
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.model import NUMPY_TYPES, Case, generator
from dmlvk.verify.cases.problem import Problem, Variation, build
from dmlvk.verify.check import check, run

Array = NDArray[Any]
FLOAT32, FLOAT16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16
EPSILON = 2.0**-10
LONG = ("split", "columns_split")
"""The rules of rows of any length."""
CLOSE = {FLOAT32: 2e-6, FLOAT16: 4e-3}
"""The tolerance, as a share of an output's largest; a FLOAT16 mean and variance are off by half a thousandth already."""


def values(name: str, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    return generator(name, sizes).standard_normal(sizes).astype(NUMPY_TYPES[data_type])


def gradients(device: dmlvk.Device, desc: dmlvk.OperatorDesc, arrays: list[Array], rule: str) -> list[Array]:
    """The outputs of a desc for these inputs, by a rule."""
    inputs = []
    for slot, array in zip(desc.input_slots(), arrays, strict=True):
        assert slot.tensor is not None
        inputs.append(GuardedTensor(slot.tensor, 0))
        inputs[-1].view()[...] = array
    outputs = tuple(GuardedTensor(slot.tensor, 0) for slot in desc.output_slots() if slot.tensor is not None)
    found = run(device, Problem(desc, tuple(inputs), outputs), rule).buffers
    return [output.view(data) for output, data in zip(outputs, found, strict=True) if data is not None]


def batch_desc(
    row: type[Any], sizes: tuple[int, ...], own: tuple[int, ...], data_type: TensorDataType, strides: Any = None
) -> Any:
    tensor, side = TensorDesc(data_type, sizes, strides), TensorDesc(data_type, own)
    names = ("mean_tensor", "variance_tensor", "scale_tensor", "output_scale_gradient_tensor", "output_bias_gradient_tensor")
    data = dict.fromkeys(("input_tensor", "input_gradient_tensor", "output_gradient_tensor"), tensor)
    return row(**data, **dict.fromkeys(names, side), epsilon=EPSILON)


BATCHES: dict[str, tuple[tuple[int, ...], tuple[int, ...], str]] = {
    "channels": ((5, 7, 6, 4), (1, 7, 1, 1), "NCHW"),
    "channels of odd lengths": ((3, 5, 7, 3), (1, 5, 1, 1), "NCHW"),
    "channels last": ((5, 8, 6, 7), (1, 8, 1, 1), "NHWC"),
    "rows": ((129, 37), (1, 37), ""),
    "images": ((3, 5, 11, 13), (3, 1, 1, 1), ""),
    "other dimensions": ((3, 4, 5, 8), (1, 4, 1, 8), ""),
    "long": ((2, 3, 9001), (1, 3, 1), ""),
}


BATCH_ROWS = (ops.BatchNormalizationTrainingGrad, ops.BatchNormalizationGrad)


@pytest.mark.parametrize(("name", "form"), crossed(BATCHES, itertools.product(BATCH_ROWS, [FLOAT32, FLOAT16])))
def test_batch_gradients_agree_with_autograd(
    device: dmlvk.Device, torch: ModuleType, name: str, form: tuple[type[Any], TensorDataType]
) -> None:
    row, data_type = form
    sizes, own, layout = BATCHES[name]
    training = row is ops.BatchNormalizationTrainingGrad
    axes = tuple(axis for axis, size in enumerate(own) if size == 1)
    x, dy = (values(f"{part} of {name}", sizes, data_type) for part in ("x", "dy"))
    scale = values(f"scale of {name}", own, data_type)
    wide = torch.from_numpy(x.astype(np.float64)).requires_grad_()
    variance, mean = torch.var_mean(wide, axes, correction=0, keepdim=True)
    if not training:
        variance, mean = variance.detach() + 0.5, mean.detach() - 0.25
    rounded = [given.detach().numpy().astype(x.dtype) for given in (mean, variance)]
    if not training:
        mean, variance = (torch.from_numpy(given.astype(np.float64)) for given in rounded)
    weight = torch.from_numpy(scale.astype(np.float64)).requires_grad_()
    offset = torch.zeros(own, dtype=torch.float64, requires_grad=True)
    y = weight * (wide - mean) / torch.sqrt(variance + EPSILON) + offset
    expected = torch.autograd.grad(y, (wide, weight, offset), torch.from_numpy(dy.astype(np.float64)))

    desc = batch_desc(row, sizes, own, data_type, calculate_strides(layout, sizes) if layout else None)
    for rule in possible_rules(desc, device.capabilities):
        found = gradients(device, desc, [x, dy, *rounded, scale], rule)
        for output, wanted in zip(found, (gradient.numpy() for gradient in expected), strict=True):
            assert float(np.abs(output - wanted).max() / np.abs(wanted).max()) < CLOSE[data_type], rule


def test_training_gradient_agrees_with_torchs_operator(device: dmlvk.Device, torch: ModuleType) -> None:
    """The statistics are those that the forward operators give, as in training."""
    x, dy = (values(part, (4, 6, 5, 3), FLOAT32) for part in ("x", "dy"))
    scale, bias = (values(part, (1, 6, 1, 1), FLOAT32) for part in ("scale", "bias"))
    _, mean, variance = dmlvk.eager.batch_normalization_training(x, scale, bias, epsilon=EPSILON, device=device)
    found = dmlvk.eager.batch_normalization_training_grad(x, dy, mean, variance, scale, epsilon=EPSILON, device=device)
    data, weight, offset = (torch.from_numpy(a).requires_grad_() for a in (x, scale.reshape(-1), bias.reshape(-1)))
    y = torch.nn.functional.batch_norm(data, None, None, weight, offset, training=True, eps=EPSILON)
    for mine, theirs in zip(found, torch.autograd.grad(y, (data, weight, offset), torch.from_numpy(dy)), strict=True):
        np.testing.assert_allclose(mine.reshape(theirs.shape), theirs.numpy(), rtol=1e-4, atol=1e-5)


def test_what_does_not_wait_gives_the_same_bits(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workgroups whose patience has ended make their row's sums themselves, whether they are there or not."""
    sizes, own = (4, 5, 1500), (1, 5, 1)
    desc = batch_desc(ops.BatchNormalizationTrainingGrad, sizes, own, FLOAT32)
    arrays = [values(f"input {i}", sizes if i < 2 else own, FLOAT32) for i in range(5)]
    arrays[3] = np.abs(arrays[3]) + 0.5
    by_waiting = gradients(device, desc, arrays, "together")
    monkeypatch.setattr(lowering, "_PATIENCE", 0)
    alone = gradients(device, desc, arrays, "together")
    assert all(np.isfinite(one).all() for one in alone)
    for one, other in zip(by_waiting, alone, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize(
    "row",
    [ops.BatchNormalizationTrainingGrad, pytest.param(ops.BatchNormalizationGrad, marks=pytest.mark.full)],
    ids=lambda row: row.__name__,
)
def test_every_rule_on_a_small_device(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, row: type[Any]) -> None:
    """A GPU of few invocations a workgroup: many loads in flight, and chunks of several tiles as in a row of gigabytes."""
    small = dataclasses.replace(device.capabilities, workgroup_invocations=64, is_cpu=False)
    monkeypatch.setattr(device, "capabilities", small)
    monkeypatch.setattr(lowering, "_WORKGROUPS", 16)
    monkeypatch.setattr(shares, "MOST_CHUNKS", 8)
    entry = all_cases()[row]

    def longest(name: str, sizes: tuple[int, ...], own: tuple[int, ...]) -> Case:
        case = next(case for case in entry.cases if case.name == "channels last")
        inputs = {field: sizes if field in ("input_tensor", "input_gradient_tensor") else own for field in case.inputs}
        return dataclasses.replace(case, name=name, inputs=inputs)

    long = (longest("chunks of tiles", (2, 20_008), (2, 1)), longest("chunks of tiles of columns", (2003, 24), (1, 24)))
    wanted = ("channels of whole words", "channels last, odd", "each element")
    for case in (*long, *(case for case in entry.cases if case.name in wanted)):
        variation = Variation(case, FLOAT32, "packed")
        rules = possible_rules(build(row, variation).desc, small)
        for rule in [rule for rule in rules if case not in long or rule in LONG]:
            outcome = check(device, entry, dataclasses.replace(variation, rule=rule))
            assert outcome.passed and not outcome.unsupported, f"{outcome.variation}: {outcome.detail}"


def test_one_dispatch_where_a_channel_fits_a_workgroup(device: dmlvk.Device, count_dispatches: Any) -> None:
    x, own = values("x", (8, 3, 4, 4), FLOAT32), np.ones((1, 3, 1, 1), np.float32)
    with count_dispatches() as count:
        dmlvk.eager.batch_normalization_training_grad(x, x, own, own, own, device=device)
    assert count.dispatches == 1
