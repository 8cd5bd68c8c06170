"""Lowering of the resampling rows: which rule, one pipeline for many shapes, exact positions."""

from __future__ import annotations

import random
import struct
from fractions import Fraction

import pytest

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.kernels.common.plan import Dispatch
from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.kernels.lowering import explain, lower
from dmlvk.kernels.resample.rules import ResampleProblem
from dmlvk.spec import ops
from dmlvk.spec.enums import AxisDirection, InterpolationMode, TensorDataType
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.schema import Size2D
from dmlvk.spec.tensor import TensorDesc, calculate_strides

FLOAT32, FLOAT16, UINT8 = TensorDataType.FLOAT32, TensorDataType.FLOAT16, TensorDataType.UINT8
NEAREST, LINEAR = InterpolationMode.NEAREST_NEIGHBOR, InterpolationMode.LINEAR
CAPS = Capabilities(features=SUBGROUPS | {"storage16", "storage8"}, storage_buffer_bytes=2**32 - 1)


def resample(
    sizes: tuple[int, ...],
    output: tuple[int, ...],
    *,
    data_type: TensorDataType = FLOAT32,
    mode: InterpolationMode = LINEAR,
    offsets: tuple[float, float] = (0.5, -0.5),
    scales: tuple[float, ...] = (),
    layout: str = "",
    antialiased: bool = False,
    direction: AxisDirection = AxisDirection.INCREASING,
) -> ops.Resample3:
    tensors = [TensorDesc(data_type, own, calculate_strides(layout, own) if layout else None) for own in (sizes, output)]
    desc = ops.Resample3(
        input_tensor=tensors[0],
        output_tensor=tensors[1],
        interpolation_mode=mode,
        rounding_direction=direction,
        scales=scales or tuple(new / old for new, old in zip(output, sizes, strict=True)),
        input_pixel_offsets=(offsets[0],) * len(sizes),
        output_pixel_offsets=(offsets[1],) * len(sizes),
        antialiased=antialiased,
    )
    desc.validate()
    return desc


def problem_of(desc: ops.Resample3) -> ResampleProblem:
    problem = LOWERINGS[ops.Resample3].problem(desc)
    assert isinstance(problem, ResampleProblem)
    return problem


def dispatch_of(desc: ops.Resample3 | ops.Upsample2d) -> Dispatch:
    (dispatch,) = lower(desc, CAPS).dispatches
    return dispatch


def rule_of(desc: ops.Resample3) -> str:
    return next(rule.name for rule, holds in explain(desc, CAPS) if holds)


@pytest.mark.parametrize(
    ("desc", "rule"),
    [
        (resample((2, 3, 8, 16), (2, 3, 16, 32)), "whole"),
        (resample((2, 3, 8, 16), (2, 3, 11, 48), data_type=UINT8), "groups"),
        (resample((2, 3, 8, 16), (2, 3, 11, 64), data_type=UINT8), "whole"),
        (resample((2, 3, 8, 16), (2, 3, 16, 32), mode=NEAREST, offsets=(1.0, -0.5)), "whole"),
        (resample((2, 3, 8, 16), (2, 3, 16, 80)), "groups"),
        (resample((2, 3, 8, 16), (2, 3, 16, 33)), "groups"),
        (resample((2, 3, 8, 16), (2, 3, 4, 8)), "groups"),
        (resample((2, 3, 8, 16), (2, 3, 16, 32), offsets=(3.5, -0.5)), "groups"),
        (resample((2, 16, 8, 9), (2, 16, 16, 18), layout="NHWC"), "shared"),
        (resample((2, 3, 8, 16), (2, 3, 16, 16)), "shared"),
        (resample((2, 3, 8, 16), (2, 3, 5, 16), antialiased=True), "shared"),
        (resample((2, 3, 8, 16), (2, 3, 5, 7), antialiased=True), "elements"),
        (resample((2, 3, 8, 1), (2, 3, 16, 2)), "elements"),
    ],
)
def test_rules(desc: ops.Resample3, rule: str) -> None:
    assert rule_of(desc) == rule


def test_shapes_share_a_pipeline() -> None:
    sizes = [(2, 3, 8, 16), (7, 64, 100, 44), (1, 2, 5, 128)]
    twice = [resample(own, (*own[:2], 2 * own[2], 2 * own[3])) for own in sizes]
    assert len({dispatch_of(desc).kernel for desc in twice}) == 1
    other = [resample(own, (*own[:2], 3 * own[2] - 1, 5 * own[3])) for own in sizes]
    assert len({dispatch_of(desc).kernel for desc in other}) == 1


def test_nearest_forms_of_one_enlargement_share_a_pipeline() -> None:
    forms = [((1.0, -0.5), AxisDirection.INCREASING), ((0.0, 0.0), AxisDirection.DECREASING)]
    kernels = {
        dispatch_of(resample((2, 3, 8, 16), (2, 3, 16, 32), mode=NEAREST, offsets=own, direction=way)).kernel
        for own, way in forms
    }
    assert len(kernels) == 1


def test_what_is_not_scaled_costs_nothing() -> None:
    problem = problem_of(resample((2, 3, 8, 16), (2, 3, 16, 32)))
    assert [dimension.outputs for dimension in problem.dimensions] == [6, 16, 32]
    assert [dimension.mapped for dimension in problem.dimensions] == [False, True, True]
    (copied,) = problem_of(resample((2, 3, 8, 16), (2, 3, 8, 16))).dimensions
    assert (copied.outputs, copied.mapped) == (768, False)
    repeated = problem_of(resample((5, 1), (5, 9))).dimensions[-1]
    assert (repeated.input_step, repeated.mapped) == (0, False)


def test_positions_are_the_fractions_of_the_sizes() -> None:
    """The step is InputSize / OutputSize though no float32 is; ratios of corners likewise."""
    inputs, outputs = 99_991, 100_003
    last = problem_of(resample((2, inputs), (2, outputs))).dimensions[-1]
    assert Fraction(last.step, last.parts) == Fraction(inputs, outputs)
    assert Fraction(last.start, last.parts) == Fraction(inputs, 2 * outputs) - Fraction(1, 2)
    corners = (1.0, (outputs - 1) / 4998)
    last = problem_of(resample((2, 4999), (2, outputs), offsets=(0.0, 0.0), scales=corners)).dimensions[-1]
    assert Fraction(last.step, last.parts) == Fraction(4998, outputs - 1)


def test_random_scales_are_the_simplest_fractions() -> None:
    rng = random.Random(7)
    for _ in range(200):
        wanted = Fraction(rng.randrange(1, 1500), rng.randrange(1, 1500))
        (value,) = struct.unpack("<f", struct.pack("<f", float(wanted)))
        last = problem_of(resample((2, 1009), (2, 1013), offsets=(0.0, 0.0), scales=(1.0, value))).dimensions[-1]
        assert Fraction(last.parts, last.step) == wanted


@pytest.mark.parametrize("scale", [0.7182818, 31.415926, 1e-4, 1e9, -0.3333])
def test_parameters_fit_32_bits(scale: float) -> None:
    for offsets in ((0.5, -0.5), (0.1234567, 7.654321), (-1e4, 3e3)):
        desc = resample((3, 1009), (3, 1013), offsets=offsets, scales=(1.0, scale))
        last = problem_of(desc).dimensions[-1]
        assert 0 < last.parts <= 2**29
        assert dispatch_of(desc).params


def test_far_positions_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="along dimension 1"):
        lower(resample((3, 1009), (3, 1013), scales=(1.0, 1e-7)), CAPS)


def test_five_dimensions_of_upsampling() -> None:
    tensors = [TensorDesc(FLOAT16, sizes) for sizes in ((2, 3, 4, 5, 16), (2, 3, 4, 10, 32))]
    desc = ops.Upsample2d(
        input_tensor=tensors[0], output_tensor=tensors[1], scale_size=Size2D(2, 2), interpolation_mode=LINEAR
    )
    desc.validate()
    assert dispatch_of(desc).kernel.kernel == "resample_whole"
