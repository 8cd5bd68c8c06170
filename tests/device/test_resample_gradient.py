"""Gradients of resampling against PyTorch's autograd, and as the transpose of this library's own forward operator."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from crossed import crossed
from numpy.typing import NDArray

import dmlvk
from dmlvk import AxisDirection, InterpolationMode, TensorDataType, TensorDesc, eager
from dmlvk.kernels.lowering import possible_rules
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.problem import Problem
from dmlvk.verify.check import run

Array = NDArray[Any]
NEAREST, LINEAR = InterpolationMode.NEAREST_NEIGHBOR, InterpolationMode.LINEAR
DOWN = AxisDirection.DECREASING


def gradient(
    device: dmlvk.Device,
    dy: Array,
    sizes: tuple[int, ...],
    mode: InterpolationMode = LINEAR,
    offsets: tuple[float, float] = (0.5, -0.5),
    scales: tuple[float, ...] = (),
    **attributes: Any,
) -> Array:
    """``ResampleGrad1`` of an input of these sizes, by the scales of the sizes unless given."""
    result = eager.resample_grad1(
        dy,
        interpolation_mode=mode,
        scales=scales or tuple(new / old for new, old in zip(dy.shape, sizes, strict=True)),
        input_pixel_offsets=(offsets[0],) * dy.ndim,
        output_pixel_offsets=(offsets[1],) * dy.ndim,
        output_sizes=sizes,
        device=device,
        **attributes,
    )
    assert isinstance(result, np.ndarray)
    return result


def image(*sizes: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(11).standard_normal(sizes).astype(dtype)


def autograd(torch: ModuleType, sizes: tuple[int, ...], dy: Array, **how: Any) -> Array:
    """What PyTorch propagates back through ``interpolate``, in float64."""
    x = torch.zeros(sizes, dtype=torch.float64, requires_grad=True)
    y = torch.nn.functional.interpolate(x, dy.shape[2:], **how)
    (found,) = torch.autograd.grad(y, x, torch.from_numpy(dy.astype(np.float64)))
    assert isinstance(found.numpy(), np.ndarray)
    return np.asarray(found.numpy())


PLANES = [((2, 3, 9, 14), (18, 28)), ((1, 3, 9, 14), (31, 17)), ((2, 2, 23, 40), (7, 30)), ((1, 5, 1, 8), (4, 32))]
CLOSE = {"rtol": 1e-5, "atol": 2e-6}


@pytest.mark.parametrize(("sizes", "output"), PLANES)
def test_bilinear_is_autograds(device: dmlvk.Device, torch: ModuleType, sizes: Any, output: Any) -> None:
    dy = image(*sizes[:2], *output)
    np.testing.assert_allclose(gradient(device, dy, sizes), autograd(torch, sizes, dy, mode="bilinear"), **CLOSE)


@pytest.mark.parametrize(("sizes", "output"), PLANES[:3])
def test_aligned_corners_are_a_scale(device: dmlvk.Device, torch: ModuleType, sizes: Any, output: Any) -> None:
    dy = image(*sizes[:2], *output)
    scales = (1.0, 1.0, *((new - 1) / (old - 1) for new, old in zip(output, sizes[2:], strict=True)))
    found = gradient(device, dy, sizes, offsets=(0.0, 0.0), scales=scales)
    np.testing.assert_allclose(found, autograd(torch, sizes, dy, mode="bilinear", align_corners=True), **CLOSE)


def test_one_and_three_dimensions_are_autograds(device: dmlvk.Device, torch: ModuleType) -> None:
    dy = image(1, 3, 8, 5, 20)
    wanted = autograd(torch, (1, 3, 5, 6, 7), dy, mode="trilinear")[0]
    np.testing.assert_allclose(gradient(device, dy[0], (3, 5, 6, 7)), wanted, **CLOSE)
    line = image(2, 3, 263)
    np.testing.assert_allclose(
        gradient(device, line, (2, 3, 101)), autograd(torch, (2, 3, 101), line, mode="linear"), **CLOSE
    )


@pytest.mark.parametrize(("sizes", "output"), PLANES)
@pytest.mark.parametrize(("name", "before"), [("nearest", 0.0), ("nearest-exact", 0.5)])
def test_nearest_is_autograds(
    device: dmlvk.Device, torch: ModuleType, sizes: Any, output: Any, name: str, before: float
) -> None:
    """nearest rounds down at whole positions; nearest-exact takes centres, and of two neighbours as near the upper one."""
    dy = image(*sizes[:2], *output)
    offsets = (0.0, 0.0) if name == "nearest" else (0.0, -0.5)
    found = gradient(device, dy, sizes, NEAREST, offsets, rounding_direction=DOWN)
    np.testing.assert_allclose(found, autograd(torch, sizes, dy, mode=name), **CLOSE)


def by_rule(device: dmlvk.Device, desc: dmlvk.ResampleGrad1, dy: Array, rule: str) -> Array:
    source, target = (GuardedTensor(desc.tensor(spec.name), 0) for spec in desc.fields if spec.kind.is_tensor)
    source.view()[...] = dy
    (data,) = run(device, Problem(desc, (source,), (target,)), rule).buffers
    assert data is not None
    return target.view(data)


GEOMETRIES: list[tuple[Any, ...]] = [
    ((2, 7, 33, 45), (2, 7, 66, 90), (), (0.5, -0.5)),
    ((1, 40, 21, 18), (1, 40, 35, 27), (), (0.25, -0.75)),
    ((2, 3, 50, 61), (2, 3, 17, 30), (), (0.5, -0.5)),
    ((1, 2, 9, 300), (1, 2, 40, 640), (1, 1, 4, -2), (0.0, 3.0)),
    ((3, 2, 70, 20), (3, 2, 70, 20), (1, 1, 0.5, 1.5), (-3.25, 2.0)),
    ((1, 3, 4, 5), (1, 3, 90, 70), (), (0.5, -0.5)),
]
"""Sizes, those of the output, scales where they are not the quotients, and pixel offsets."""


@pytest.mark.parametrize(("geometry", "mode", "layout"), crossed(GEOMETRIES, [NEAREST, LINEAR], ["NCHW", "NHWC"]))
def test_every_rule_is_the_transpose_of_the_forward_operator(
    device: dmlvk.Device, geometry: tuple[Any, ...], mode: InterpolationMode, layout: str
) -> None:
    """sum(dy * forward(x)) == sum(gradient(dy) * x), for any dy and x."""
    sizes, output, scales, offsets = geometry
    rng = np.random.default_rng(5)
    given = {
        "interpolation_mode": mode,
        "rounding_direction": DOWN,
        "scales": scales or tuple(new / old for new, old in zip(output, sizes, strict=True)),
        "input_pixel_offsets": (0.5, 0.5, *(offsets[0],) * 2),
        "output_pixel_offsets": (-0.5, -0.5, *(offsets[1],) * 2),
    }

    def tensor(own: tuple[int, ...]) -> TensorDesc:
        return TensorDesc(TensorDataType.FLOAT32, own, dmlvk.calculate_strides(layout, own))

    x, dy = (rng.integers(-8, 9, own).astype(np.float32) for own in (sizes, output))
    y, magnitude = (eager.resample2(values, **given, output_sizes=output, device=device) for values in (x, np.abs(x)))
    desc = dmlvk.ResampleGrad1(input_gradient_tensor=tensor(output), output_gradient_tensor=tensor(sizes), **given)
    wanted = float(np.sum(dy.astype(np.float64) * y))
    terms = float(np.sum(np.abs(dy).astype(np.float64) * magnitude))
    for rule in possible_rules(desc, device.capabilities):
        dx = by_rule(device, desc, dy, rule)
        assert abs(float(np.sum(dx.astype(np.float64) * x)) - wanted) <= 2e-6 * terms, rule
