"""Lowering of resampling's gradients: which rule, one pipeline for many shapes, tiles that fit; and their oracle."""

from __future__ import annotations

import dataclasses
import random
import struct

import numpy as np
import pytest

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.kernels.common.plan import Dispatch
from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.kernels.lowering import explain, lower, possible_rules
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.resample_gradient.rules import PATTERN_TAPS, ResampleGradientProblem
from dmlvk.spec import ops
from dmlvk.spec.enums import AxisDirection, InterpolationMode, TensorDataType
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.tensor import TensorDesc, calculate_strides
from dmlvk.verify.oracle.resample import resample2, weights
from dmlvk.verify.oracle.resample_gradient import resample_grad1

FLOAT32, FLOAT16 = TensorDataType.FLOAT32, TensorDataType.FLOAT16
NEAREST, LINEAR = InterpolationMode.NEAREST_NEIGHBOR, InterpolationMode.LINEAR
CAPS = Capabilities(features=SUBGROUPS | {"storage16"}, storage_buffer_bytes=2**32 - 1)
GPU = dataclasses.replace(CAPS, shared_memory_bytes=49152, workgroup_invocations=1024)


def gradient(
    sizes: tuple[int, ...],
    output: tuple[int, ...],
    *,
    data_type: TensorDataType = FLOAT32,
    mode: InterpolationMode = LINEAR,
    offsets: tuple[float, float] = (0.5, -0.5),
    scales: tuple[float, ...] = (),
    layout: str = "",
    direction: AxisDirection = AxisDirection.INCREASING,
) -> ops.ResampleGrad1:
    """The gradient of a resampling of `sizes` to `output`."""
    tensors = [TensorDesc(data_type, own, calculate_strides(layout, own) if layout else None) for own in (output, sizes)]
    desc = ops.ResampleGrad1(
        input_gradient_tensor=tensors[0],
        output_gradient_tensor=tensors[1],
        interpolation_mode=mode,
        rounding_direction=direction,
        scales=scales or tuple(new / old for new, old in zip(output, sizes, strict=True)),
        input_pixel_offsets=(offsets[0],) * len(sizes),
        output_pixel_offsets=(offsets[1],) * len(sizes),
    )
    desc.validate()
    return desc


def problem_of(desc: ops.ResampleGrad1) -> ResampleGradientProblem:
    problem = LOWERINGS[ops.ResampleGrad1].problem(desc)
    assert isinstance(problem, ResampleGradientProblem)
    return problem


def dispatch_of(desc: ops.ResampleGrad1, caps: Capabilities = GPU, rule: str = "") -> Dispatch:
    (dispatch,) = lower(desc, caps, force=rule).dispatches
    assert isinstance(dispatch, Dispatch)
    return dispatch


@pytest.mark.parametrize(
    ("desc", "rule"),
    [
        (gradient((2, 3, 8, 16), (2, 3, 16, 32)), "whole"),
        (gradient((2, 3, 8, 16), (2, 3, 32, 32), mode=NEAREST, offsets=(1.0, -0.5)), "whole"),
        (gradient((2, 16, 8, 9), (2, 16, 16, 18), layout="NHWC"), "whole"),
        (gradient((2, 3, 8, 16), (2, 3, 16, 16)), "whole"),
        (gradient((2, 3, 8, 16), (2, 3, 8, 64)), "whole"),
        (gradient((2, 3, 8, 14), (2, 3, 16, 28), data_type=FLOAT16), "whole"),
        (gradient((2, 3, 8, 15), (2, 3, 16, 30)), "tiles"),
        (gradient((2, 15, 8, 9), (2, 15, 16, 18), layout="NHWC"), "tiles"),
        (gradient((2, 3, 8, 16), (2, 3, 16, 32), offsets=(7.5, -0.5), scales=(1, 1, 2, 2)), "elements"),
        (gradient((8, 16), (16, 32), offsets=(2.5, -0.5)), "tiles"),
        (gradient((2, 3, 8, 16), (2, 3, 13, 37), mode=NEAREST), "tiles"),
        (gradient((2, 3, 80, 160), (2, 3, 40, 80), data_type=FLOAT16), "spread"),
        (gradient((2, 3, 80, 160), (2, 3, 20, 160), mode=NEAREST), "spread"),
        (gradient((80, 160), (40, 80), offsets=(1.25, -0.5)), "tiles"),
        (gradient((2, 3, 80, 162), (2, 3, 40, 81)), "spread"),
        (gradient((2, 16, 8, 9), (2, 16, 13, 18), layout="NHWC"), "tiles"),
        (gradient((2, 3, 8, 16), (2, 3, 64, 320)), "tiles"),
        (gradient((2, 3, 8, 16), (2, 3, 16, 640)), "elements"),
        (gradient((2, 3, 4, 16), (2, 3, 160, 36)), "elements"),
        (gradient((2, 16, 4, 9), (2, 16, 160, 18), layout="NHWC"), "shared"),
        (gradient((3, 8, 16), (6, 16, 32)), "elements"),
        (gradient((2, 3, 8, 16), (2, 3, 16, 32), scales=(1, 1, 2, -2), offsets=(-15, 0)), "elements"),
        (gradient((2, 3, 8, 16), (2, 3, 8, 16)), "shared"),
    ],
)
def test_rules(desc: ops.ResampleGrad1, rule: str) -> None:
    assert next(name for name, holds in [(rule.name, holds) for rule, holds in explain(desc, GPU)] if holds) == rule


@pytest.mark.parametrize(
    ("rule", "rows", "columns"), [("whole", 2, 2), ("tiles", 3, 2), ("tiles", 2, 1.5), ("elements", 3, 1.5)]
)
def test_shapes_share_a_pipeline(rule: str, rows: float, columns: float) -> None:
    sizes = [(2, 3, 8, 16), (7, 64, 100, 48), (1, 2, 5, 128)]
    descs = [gradient(own, (*own[:2], int(own[2] * rows), int(own[3] * columns))) for own in sizes]
    assert len({dispatch_of(desc, rule=rule).kernel for desc in descs}) == 1


def test_what_is_not_scaled_is_one_dimension() -> None:
    assert [dimension.inputs for dimension in problem_of(gradient((2, 3, 8, 16), (2, 3, 16, 32))).dimensions] == [6, 8, 16]
    (copied,) = problem_of(gradient((2, 3, 8, 16), (2, 3, 8, 16))).dimensions
    assert (copied.inputs, copied.mapped) == (768, False)


def test_a_mirrored_dimension_is_walked_backwards() -> None:
    problem = problem_of(gradient((3, 8), (3, 16), scales=(1, -2), offsets=(-7, 0)))
    assert problem.start == 15
    assert [dimension.output_step for dimension in problem.dimensions] == [16, -1]
    assert all(dimension.step >= 0 for dimension in problem.dimensions)


def random_gradient(rng: random.Random) -> ops.ResampleGrad1:
    sizes = tuple(rng.choice([1, 2, 5, 16, 31, 64, 97]) for _ in range(4))
    output = tuple(max(1, int(size * rng.choice([0.3, 0.5, 1, 1, 1.5, 2, 3, 7]))) for size in sizes)
    scales = tuple(rng.choice([0.4, 1.0, 2.5]) for _ in sizes) if rng.random() < 0.3 else ()
    return gradient(
        sizes,
        output,
        data_type=rng.choice([FLOAT32, FLOAT16]),
        mode=rng.choice([NEAREST, LINEAR]),
        offsets=rng.choice([(0.5, -0.5), (0.0, 0.0), (3.25, 1.5), (-4.0, -2.0)]),
        scales=scales,
        layout=rng.choice(["NCHW", "NHWC"]),
        direction=rng.choice(list(AxisDirection)),
    )


def test_reach_is_what_the_forward_operator_reads() -> None:
    """Against the oracle's matrices: no element, and no group of neighbours, is read by more outputs."""
    rng = random.Random(3)
    for _ in range(60):
        desc = random_gradient(rng)
        forward, problem = desc.forward().upgrade(), problem_of(desc)
        for axis, size in enumerate(desc.tensor("output_gradient_tensor").sizes):
            matrix = weights(forward, axis) != 0
            found = [d for d in problem.dimensions if (d.inputs, d.outputs) == (size, matrix.shape[0]) and d.mapped]
            if len(found) != 1:
                continue
            for count in (1, 2, 7):
                windows = [np.flatnonzero(matrix[:, i : i + count].any(1)) for i in range(max(size - count + 1, 1))]
                most = max(int(window[-1] - window[0]) + 1 if window.size else 0 for window in windows)
                assert most <= problem.reach(found[0], count) <= most + 2 or found[0].outputs == 1, (desc, axis, count)


@pytest.mark.parametrize("offset", [-0.75, -0.5, -0.25, 0.0, 0.125, 0.5, 1.0])
@pytest.mark.parametrize("direction", list(AxisDirection), ids=lambda direction: direction.name)
@pytest.mark.parametrize("mode", [NEAREST, LINEAR], ids=lambda mode: mode.name)
def test_patterns_are_the_forward_operators_weights(
    mode: InterpolationMode, direction: AxisDirection, offset: float
) -> None:
    found = 0
    for factor, size in ((1, 2), (1, 9), (2, 2), (2, 7), (4, 2), (4, 5)):
        desc = gradient((size,), (factor * size,), mode=mode, direction=direction, offsets=(offset, 0.0))
        problem = problem_of(desc)
        pattern = problem.pattern(problem.dimensions[0], 4)
        if pattern is None:
            continue
        found += 1
        matrix = np.zeros((factor * size, size))
        for i in range(size):
            weights_here = pattern.weights[PATTERN_TAPS * (0 if i == 0 else 2 if i == size - 1 else 1) :]
            for k in range(pattern.taps):
                matrix[min(max(pattern.factor * i - pattern.left + k, 0), factor * size - 1), i] += weights_here[k]
        np.testing.assert_array_equal(matrix, weights(desc.forward().upgrade(), 0))
    assert found or abs(offset) > 0.5 or mode == NEAREST


def parameters(dispatch: Dispatch) -> dict[str, tuple[int, ...]]:
    """The integer members of a dispatch's parameter block."""
    found, at = {}, 0
    for member in KERNELS[dispatch.kernel.kernel].members:
        length = max(member.length, 1)
        found[member.name] = struct.unpack_from(f"<{length}I", dispatch.params, at)
        at += 4 * length
    return found


@pytest.mark.parametrize("caps", [CAPS, GPU], ids=["least", "usual"])
def test_tiles_fit_shared_memory_and_its_tables(caps: Capabilities) -> None:
    rng, tiled = random.Random(4), 0
    for _ in range(300):
        desc = random_gradient(rng)
        largest = max(
            tensor.total_tensor_size_in_bytes for tensor in (desc.input_gradient_tensor, desc.output_gradient_tensor)
        )
        if largest > caps.storage_buffer_bytes or "tiles" not in possible_rules(desc, caps):
            continue
        tiled += 1
        dispatch = dispatch_of(desc, caps, "tiles")
        constants = dict(dispatch.kernel.constants)
        found = {name: values[0] for name, values in parameters(dispatch).items()}
        lines = problem_of(desc).lines
        assert lines is not None
        problem = problem_of(desc)
        assert found["rows"] * found["width"] * found["together"] <= constants["TILE"]
        assert problem.reach(lines.row, found["rows"]) <= constants["ROW_TABLE"]
        assert found["columns"] <= constants["COLUMN_TABLE"]
        assert found["columns"] * constants["TAPS"] <= constants["WEIGHT_TABLE"]
        assert problem.reach(lines.column, found["columns"]) * found["chunk"] <= found["width"]
        floats = constants["TILE"] + constants["WEIGHT_TABLE"]
        assert 4 * floats + 16 * constants["ROW_TABLE"] + 8 * constants["COLUMN_TABLE"] <= caps.shared_memory_bytes
    assert tiled > 30


def test_what_a_cpu_would_compute_wrongly_is_refused() -> None:
    desc = gradient((1, 1), (300, 300), scales=(1.0, 1.0), offsets=(0.0, 0.0))
    with pytest.raises(UnsupportedError, match="65535 rounds"):
        lower(desc, dataclasses.replace(GPU, is_cpu=True))
    assert lower(desc, GPU).dispatches


def test_positions_too_far_away_are_refused_in_its_own_name() -> None:
    with pytest.raises(UnsupportedError, match=r"RESAMPLE_GRAD1.*at most 1073741824 elements"):
        lower(gradient((3, 1009), (3, 1013), scales=(1.0, 1e-7)), GPU)


@pytest.mark.parametrize("mode", [NEAREST, LINEAR], ids=lambda mode: mode.name)
@pytest.mark.parametrize(
    ("sizes", "output", "scales", "offsets"),
    [
        ((2, 3, 5), (2, 6, 10), (), (0.5, -0.5)),
        ((2, 7, 9), (3, 4, 13), (), (0.5, -0.5)),
        ((1, 5, 6), (1, 9, 4), (1, -2, 0.6), (-3.0, 1.25)),
    ],
)
def test_the_oracle_is_the_forward_oracles_derivative(
    sizes: tuple[int, ...],
    output: tuple[int, ...],
    scales: tuple[float, ...],
    offsets: tuple[float, float],
    mode: InterpolationMode,
) -> None:
    """Central differences of sum(dy * forward(x)) in float64."""
    rng = np.random.default_rng(1)
    desc = gradient(sizes, output, mode=mode, scales=scales, offsets=offsets)
    x, dy = rng.standard_normal(sizes), rng.standard_normal(output)
    found = np.zeros(sizes)
    for at in np.ndindex(*sizes):
        step = np.zeros(sizes)
        step[at] = 0.5
        ends = [resample2(desc.forward(), x + way * step) for way in (1, -1)]
        found[at] = sum(way * np.sum(dy * end.value) for way, end in zip((1, -1), ends, strict=True))  # type: ignore[union-attr]
    np.testing.assert_allclose(resample_grad1(desc, dy).value, found, rtol=0, atol=1e-12)


def tile(desc: ops.ResampleGrad1, caps: Capabilities = GPU) -> dict[str, int]:
    """The parameters of the kernel of tiles, and its constant TILE."""
    dispatch = dispatch_of(desc, caps, "tiles")
    return {name: values[0] for name, values in parameters(dispatch).items()} | {
        "TILE": dict(dispatch.kernel.constants)["TILE"]
    }


def test_tiles_have_32_channels_and_16_rows_at_most() -> None:
    found = tile(gradient((2, 64, 8, 9), (2, 64, 13, 18), layout="NHWC"))
    assert (found["chunk"], found["chunks"]) == (32, 2)
    assert tile(gradient((2, 3, 64, 3), (2, 3, 64, 9)))["rows"] == 16


def test_tiles_are_halved_where_a_workgroup_has_no_room_for_two() -> None:
    desc = gradient((2, 3, 64, 9), (2, 3, 64, 27))
    for memory, elements in ((32_768, 4096), (32_767, 2048)):
        assert tile(desc, dataclasses.replace(GPU, shared_memory_bytes=memory))["TILE"] == elements


def test_workgroups_beyond_32_a_processor_are_rounds_of_others() -> None:
    assert GPU.model.processors == 32
    for images, rounds, workgroups in ((64, 1, 512), (512, 4, 32 * 32), (2048, 8, 2048)):
        found = tile(gradient((images, 3, 64, 64), (images, 3, 160, 160)))
        assert (found["rounds"], found["count"]) == (rounds, workgroups)


def test_a_search_leaves_64_rounds_to_a_cpu() -> None:
    cpu = dataclasses.replace(GPU, is_cpu=True)
    lower(gradient((1,), (65_470,)), cpu, force="elements")
    with pytest.raises(UnsupportedError, match="65535 rounds"):
        lower(gradient((1,), (65_471,)), cpu, force="elements")


def test_a_dimension_that_is_not_scaled_reads_itself() -> None:
    problem = problem_of(gradient((2, 3, 8, 16), (2, 3, 16, 16)))
    (own, *_) = (dimension for dimension in problem.dimensions if not dimension.mapped)
    pattern = problem.pattern(own, 4)
    assert pattern is not None and pattern.weights == (1.0, *(0.0,) * (PATTERN_TAPS - 1)) * 3
