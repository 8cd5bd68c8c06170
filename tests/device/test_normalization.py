"""The normalizations against oracles of others (ONNX's reference, PyTorch), and what the shared cases cannot reach."""

from __future__ import annotations

import dataclasses
import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from crossed import crossed
from numpy.typing import NDArray
from onnx import helper
from onnx.reference import ReferenceEvaluator

import dmlvk
from dmlvk import eager
from dmlvk.kernels.local_response import lowering as local_response
from dmlvk.kernels.lowering import possible_rules
from dmlvk.kernels.normalization import lowering
from dmlvk.spec import ops
from dmlvk.spec.schema import REGISTRY
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.model import Case, generator
from dmlvk.verify.cases.problem import Variation, build
from dmlvk.verify.check import check

Array = NDArray[Any]
CLOSE = {np.dtype(np.float32): 2e-6, np.dtype(np.float16): 2e-3}
FLOATS = pytest.mark.parametrize("dtype", [np.float32, np.float16])


def values(name: str, *sizes: int, dtype: Any = np.float32) -> Array:
    return generator(name, sizes).standard_normal(sizes).astype(dtype)


def assert_close(found: Array, expected: Array) -> None:
    assert found.dtype == expected.dtype or expected.dtype == np.float32
    tolerance = CLOSE[found.dtype]
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=4 * tolerance)


def onnx_reference(op: str, inputs: dict[str, Array], opset: int, **attributes: Any) -> Array:
    graph = helper.make_graph(
        [helper.make_node(op, list(inputs), ["y"], **attributes)],
        op,
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(np.float32)), None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(None, inputs)[0]  # type: ignore[no-any-return]


def channels(x: Array) -> tuple[int, ...]:
    return (1, -1) + (1,) * (x.ndim - 2)


@pytest.mark.quick
def test_onnx_mean_variance_normalization(device: dmlvk.Device) -> None:
    x = values("mvn", 3, 5, 7, 4)
    expected = onnx_reference("MeanVarianceNormalization", {"x": x}, 13, axes=[0, 2, 3])
    found = eager.mean_variance_normalization1(x, None, None, axes=(0, 2, 3), epsilon=1e-9, device=device)
    assert_close(found, expected)


def test_onnx_instance_normalization(device: dmlvk.Device) -> None:
    x, scale, bias = values("x", 2, 6, 5, 8), values("scale", 6), values("bias", 6)
    expected = onnx_reference("InstanceNormalization", {"x": x, "scale": scale, "b": bias}, 6, epsilon=1e-3)
    side = (scale.reshape(channels(x)), bias.reshape(channels(x)))
    assert_close(eager.mean_variance_normalization1(x, *side, axes=(2, 3), epsilon=1e-3, device=device), expected)
    old = eager.mean_variance_normalization(x, *side, cross_channel=False, epsilon=1e-3, device=device)
    assert_close(old, expected)


def test_onnx_layer_normalization(device: dmlvk.Device) -> None:
    x, scale, bias = values("x", 4, 3, 40), values("scale", 3, 40), values("bias", 3, 40)
    expected = onnx_reference("LayerNormalization", {"x": x, "scale": scale, "b": bias}, 17, axis=1)
    found = eager.mean_variance_normalization1(x, scale[None], bias[None], axes=(1, 2), device=device)
    assert_close(found, expected)


@pytest.mark.quick
def test_onnx_batch_normalization(device: dmlvk.Device) -> None:
    x = values("x", 3, 5, 4, 4)
    given = {name: values(name, 5) for name in ("scale", "b", "mean")} | {"var": np.square(values("var", 5))}
    expected = onnx_reference("BatchNormalization", {"x": x, **given}, 15, epsilon=1e-4)
    mean, variance, scale, bias = (given[name].reshape(channels(x)) for name in ("mean", "var", "scale", "b"))
    assert_close(eager.batch_normalization(x, mean, variance, scale, bias, epsilon=1e-4, device=device), expected)


@FLOATS
def test_torch_layer_and_group_norm(torch: ModuleType, device: dmlvk.Device, dtype: Any) -> None:
    x, scale, bias = (values(n, *s, dtype=dtype) for n, s in (("x", (2, 6, 5, 8)), ("scale", (8,)), ("bias", (8,))))
    nn = torch.nn.functional
    expected = nn.layer_norm(*map(torch.from_numpy, (x,)), (8,), torch.from_numpy(scale), torch.from_numpy(bias))
    found = eager.mean_variance_normalization1(
        x, scale.reshape(1, 1, 1, 8), bias.reshape(1, 1, 1, 8), axes=(3,), device=device
    )
    assert_close(found, expected.numpy())

    scale, bias = values("group scale", 6, dtype=dtype), values("group bias", 6, dtype=dtype)
    expected = nn.group_norm(torch.from_numpy(x), 3, torch.from_numpy(scale), torch.from_numpy(bias))
    grouped = x.reshape(2, 3, 2, 5, 8)
    side = (scale.reshape(1, 3, 2, 1, 1), bias.reshape(1, 3, 2, 1, 1))
    found = eager.mean_variance_normalization1(grouped, *side, axes=(2, 3, 4), device=device)
    assert_close(found.reshape(x.shape), expected.numpy())


@FLOATS
def test_torch_instance_and_batch_norm(torch: ModuleType, device: dmlvk.Device, dtype: Any) -> None:
    x, nn = values("x", 3, 4, 6, 6, dtype=dtype), torch.nn.functional
    scale, bias, mean = (values(name, 4, dtype=dtype) for name in ("scale", "bias", "mean"))
    variance = np.square(values("variance", 4, dtype=dtype)) + dtype(0.25)
    tensors = {name: torch.from_numpy(a) for name, a in (("weight", scale), ("bias", bias))}
    wide = [a.reshape(channels(x)) for a in (mean, variance, scale, bias)]
    expected = nn.instance_norm(torch.from_numpy(x), **tensors)
    assert_close(eager.mean_variance_normalization1(x, *wide[2:], axes=(2, 3), device=device), expected.numpy())
    expected = nn.batch_norm(torch.from_numpy(x), torch.from_numpy(mean), torch.from_numpy(variance), **tensors)
    assert_close(eager.batch_normalization(x, *wide, device=device), expected.numpy())
    expected = nn.batch_norm(torch.from_numpy(x), None, None, **tensors, training=True)
    found, *statistics = eager.batch_normalization_training(x, *wide[2:], device=device)
    assert_close(found, expected.numpy())
    axes = torch.var_mean(torch.from_numpy(x).float(), (0, 2, 3), correction=0)
    for mine, theirs in zip(statistics, reversed(axes), strict=True):
        assert_close(mine.reshape(-1), theirs.numpy().astype(dtype))


@FLOATS
def test_torch_root_mean_square_norm(torch: ModuleType, device: dmlvk.Device, dtype: Any) -> None:
    x, scale = values("x", 5, 3, 40, dtype=dtype), values("scale", 40, dtype=dtype)
    expected = torch.nn.functional.rms_norm(torch.from_numpy(x), (40,), torch.from_numpy(scale), 1e-3)
    found = eager.mean_variance_normalization2(
        x, scale.reshape(1, 1, 40), axes=(2,), use_mean=False, epsilon=1e-3, device=device
    )
    assert_close(found, expected.numpy())


@FLOATS
def test_torch_local_response_norm(torch: ModuleType, device: dmlvk.Device, dtype: Any) -> None:
    x = values("x", 2, 11, 3, 8, dtype=dtype)
    expected = torch.nn.functional.local_response_norm(torch.from_numpy(x).float(), 5, alpha=0.5, beta=0.75, k=2.0)
    found = eager.local_response_normalization(x, local_size=5, alpha=0.5, bias=2.0, device=device)
    assert_close(found, expected.numpy())


@pytest.mark.slow
def test_every_rule_on_a_small_device(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of few invocations a workgroup: many loads in flight, and chunks of several tiles as in a row of gigabytes."""
    small = dataclasses.replace(device.capabilities, workgroup_invocations=64, is_cpu=False)
    monkeypatch.setattr(device, "capabilities", small)
    monkeypatch.setattr(lowering, "_WORKGROUPS", 16)
    side, columns = (1, 600_008), (5003, 24)
    of_row = {"input_tensor": (2, 600_008), "scale_tensor": side, "bias_tensor": side}
    of_columns = {"input_tensor": columns, "scale_tensor": (1, 24), "bias_tensor": (1, 24), "fused_add_tensor": columns}
    longest = {
        ops.MeanVarianceNormalization2: Case("chunks of tiles", of_row, {"axes": (1,)}),
        ops.BatchNormalizationTraining: Case("chunks of tiles of columns", of_columns),
    }
    wanted = ("layer", "rows side by side", "batch and space, odd", "layer of several words a lane", "channels last, long")
    for operator, long in longest.items():
        entry = all_cases()[operator]
        for case in (long, *(case for case in entry.cases if case.name in wanted)):
            variation = Variation(case, dmlvk.TensorDataType.FLOAT32, "packed")
            desc = build(entry.operator, variation).desc
            # Of the longest, only the rule that is chosen: the others are not made for so much.
            for rule in possible_rules(desc, small)[: 1 if case is long else None]:
                outcome = check(device, entry, dataclasses.replace(variation, rule=rule))
                assert outcome.passed and not outcome.unsupported, f"{outcome.variation}: {outcome.detail}"


@pytest.mark.parametrize("operator", [ops.BatchNormalization, ops.LocalResponseNormalization])
def test_several_items_an_invocation(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, operator: type[dmlvk.OperatorDesc]
) -> None:
    """What only large tensors on a GPU would have, whatever the items' number and the rows' ends."""
    monkeypatch.setattr(lowering, "_batch_items", lambda lanes, count, caps: 4)
    monkeypatch.setattr(local_response, "_several", lambda *_: 3)
    entry = all_cases()[operator]
    for turn, case in enumerate(entry.cases):
        layout = "strided" if case.layouts and turn % 2 else "packed"
        outcome = check(device, entry, Variation(case, dmlvk.TensorDataType.FLOAT32, layout))
        assert outcome.passed and not outcome.unsupported, f"{outcome.variation}: {outcome.detail}"


def test_a_batch_normalization_gives_its_statistics(device: dmlvk.Device) -> None:
    """The variance is the population's."""
    x, own = np.array([[1.0, 2.0], [3.0, 6.0]], np.float32), np.ones((1, 2), np.float32)
    y, mean, variance = eager.batch_normalization_training(x, own, 0 * own, epsilon=0.0, device=device)
    np.testing.assert_array_equal(mean, [[2, 4]])
    np.testing.assert_array_equal(variance, [[1, 4]])
    np.testing.assert_array_equal(y, [[-1, -1], [1, 1]])


def test_regions_of_a_local_response(device: dmlvk.Device) -> None:
    """An even size reaches further behind than before; in space the sum is over a square, and the divisor the size."""
    x = np.zeros((1, 5, 4, 4), np.float32)
    x[0, 2, 1, 2] = 2.0
    probe = x.copy()
    probe[x == 0] = 1e-3
    shared = {"local_size": 2, "alpha": 1.0, "beta": 1.0, "bias": 1.0, "device": device}
    across = eager.local_response_normalization(probe, cross_channel=True, **shared) / probe
    np.testing.assert_allclose(across[0, :, 1, 2], [1, 1 / 3, 1 / 3, 1, 1], rtol=1e-5)
    within = eager.local_response_normalization(probe, cross_channel=False, **shared) / probe
    expected = np.ones((4, 4))
    expected[0:2, 1:3] = 1 / 3
    np.testing.assert_allclose(within[0, 2], expected, rtol=1e-5)


def test_one_dispatch_where_a_row_fits_a_workgroup(device: dmlvk.Device, count_dispatches: Any) -> None:
    x = values("x", 4, 1000)
    with count_dispatches() as count:
        eager.mean_variance_normalization2(x, None, None, axes=(1,), device=device)
    assert count.dispatches == 1


def test_the_mean_of_distant_data_costs_no_accuracy(device: dmlvk.Device) -> None:
    """A mean of 10^6 standard deviations: the mean itself has no better float32 than a sixteenth of a deviation."""
    x = (1e6 + values("x", 4, 4096)).astype(np.float32)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    found = eager.mean_variance_normalization1(x, None, None, axes=(1,), device=device)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("fused", [True, False])
def test_the_error_of_a_gelu_after_a_batch_normalization(device: dmlvk.Device, fused: bool) -> None:
    """WebNN allows the first 6 ULP and the second 18, which is no 24 together: gelu enlarges a relative error of its input z
    by z gelu'(z) / gelu(z), about 1 - z^2 below 0. So 34 ULP, as a chain of the two was found to have, are less than what
    half a ULP of z makes at -9."""
    gelu, count = eager.activation_gelu, 4096
    x = np.linspace(-9, 3, count, dtype=np.float32).reshape(1, 1, count)
    mean, variance, scale, bias = (np.full((1, 1, 1), number, np.float32) for number in (0.3, 1.7, 1.1, -0.2))
    function = {"fused_activation": ops.ActivationGelu()} if fused else {}
    found = eager.batch_normalization(x, mean, variance, scale, bias, spatial=False, device=device, **function)
    found = found if fused else gelu(found, device=device)
    wide, m, v, s, b = (array.astype(np.float64) for array in (x, mean, variance, scale, bias))
    z = (wide - m) / np.sqrt(v + 1e-5) * s + b
    tail = 0.5 * np.vectorize(math.erfc)(-z / math.sqrt(2))
    enlarged = np.abs(1 + z * np.exp(-z * z / 2) / math.sqrt(2 * math.pi) / tail) * (np.abs(z - b) + np.abs(b)) / np.abs(z)
    errors = np.abs(found - z * tail) / np.spacing(np.abs(z * tail).astype(np.float32))
    assert errors.max() > 24
    assert (errors <= 6 * enlarged + 18).all()


@pytest.mark.parametrize(
    ("cls", "normalize_variance"), crossed([cls for cls in REGISTRY.values() if cls.fusable], [True, False])
)
def test_fused_is_unfused(device: dmlvk.Device, cls: type[dmlvk.OperatorDesc], normalize_variance: bool) -> None:
    # Two elements, so that nothing is read as whole words: where one driver mistranslated a fused hyperbolic tangent.
    x = np.array([[-0.6, 0.6]], np.float32)
    shared = {"axes": (1,), "normalize_variance": normalize_variance, "device": device}
    plain = eager.mean_variance_normalization1(x, **shared)
    expected = getattr(eager, cls.type.name.lower())(plain, device=device)
    fused = eager.mean_variance_normalization1(x, fused_activation=cls(), **shared)
    np.testing.assert_array_equal(fused, expected)
