"""Resampling against oracles of others (PyTorch, ONNX's reference), and where coordinates must be exact."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper
from onnx.reference import ReferenceEvaluator

import dmlvk
from dmlvk import AxisDirection, InterpolationMode, eager

Array = NDArray[Any]
NEAREST, LINEAR = InterpolationMode.NEAREST_NEIGHBOR, InterpolationMode.LINEAR


def resample(
    device: dmlvk.Device,
    x: Array,
    sizes: tuple[int, ...],
    mode: InterpolationMode = LINEAR,
    offsets: tuple[float, float] = (0.5, -0.5),
    scales: tuple[float, ...] = (),
    **attributes: Any,
) -> Array:
    """``Resample3``, by the scales of the sizes unless given."""
    result = eager.resample3(
        x,
        interpolation_mode=mode,
        scales=scales or tuple(new / old for new, old in zip(sizes, x.shape, strict=True)),
        input_pixel_offsets=(offsets[0],) * x.ndim,
        output_pixel_offsets=(offsets[1],) * x.ndim,
        output_sizes=sizes,
        device=device,
        **attributes,
    )
    assert isinstance(result, np.ndarray)
    return result


def image(*sizes: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(11).standard_normal(sizes).astype(dtype)


POSITIONS = {"rtol": 1e-5, "atol": 1e-5}
"""PyTorch's positions are float32: up to 40 they are off by 4e-6."""

PLANES = [((2, 3, 9, 14), (18, 28)), ((1, 3, 9, 14), (31, 17)), ((2, 2, 23, 40), (7, 30)), ((1, 5, 1, 8), (4, 32))]


@pytest.mark.parametrize(("sizes", "output"), PLANES)
def test_bilinear_is_pytorchs(device: dmlvk.Device, torch: ModuleType, sizes: Any, output: Any) -> None:
    x = image(*sizes)
    wanted = torch.nn.functional.interpolate(torch.from_numpy(x), output, mode="bilinear").numpy()
    np.testing.assert_allclose(resample(device, x, wanted.shape), wanted, **POSITIONS)


@pytest.mark.parametrize(("sizes", "output"), PLANES[:3])
def test_aligned_corners_are_a_scale(device: dmlvk.Device, torch: ModuleType, sizes: Any, output: Any) -> None:
    x = image(*sizes)
    wanted = torch.nn.functional.interpolate(torch.from_numpy(x), output, mode="bilinear", align_corners=True).numpy()
    scales = (1.0, 1.0, *((new - 1) / (old - 1) for new, old in zip(output, sizes[2:], strict=True)))
    found = resample(device, x, wanted.shape, offsets=(0.0, 0.0), scales=scales)
    np.testing.assert_allclose(found, wanted, **POSITIONS)


def test_one_and_three_dimensions_are_pytorchs(device: dmlvk.Device, torch: ModuleType) -> None:
    x = image(3, 5, 6, 7)
    wanted = torch.nn.functional.interpolate(torch.from_numpy(x)[None], (8, 5, 20), mode="trilinear")[0].numpy()
    np.testing.assert_allclose(resample(device, x, wanted.shape), wanted, **POSITIONS)
    line = image(2, 3, 101)
    wanted = torch.nn.functional.interpolate(torch.from_numpy(line), 263, mode="linear").numpy()
    np.testing.assert_allclose(resample(device, line, wanted.shape), wanted, rtol=5e-5, atol=5e-5)  # positions up to 100


@pytest.mark.parametrize(("sizes", "output"), PLANES)
def test_nearest_is_pytorchs(device: dmlvk.Device, torch: ModuleType, sizes: Any, output: Any) -> None:
    """nearest-exact rounds halves up, which is DECREASING and half a pixel; nearest is asymmetric and rounds down."""
    x = image(*sizes, dtype=np.float16)
    for mode, offsets in (("nearest-exact", (0.0, -0.5)), ("nearest", (0.0, 0.0))):
        wanted = torch.nn.functional.interpolate(torch.from_numpy(x), output, mode=mode).numpy()
        found = resample(device, x, wanted.shape, NEAREST, offsets, rounding_direction=AxisDirection.DECREASING)
        np.testing.assert_array_equal(found, wanted)


def test_bytes_are_pytorchs_within_its_rounding(device: dmlvk.Device, torch: ModuleType) -> None:
    x = np.random.default_rng(3).integers(0, 256, (1, 3, 17, 23), dtype=np.uint8)
    wanted = torch.nn.functional.interpolate(torch.from_numpy(x), (40, 61), mode="bilinear").numpy()
    assert np.abs(resample(device, x, wanted.shape).astype(int) - wanted.astype(int)).max() <= 1


@pytest.mark.parametrize(("size", "output"), [((37, 50), (12, 10)), ((64, 33), (32, 47))])
def test_antialiasing_is_pytorchs_but_for_edges(device: dmlvk.Device, torch: ModuleType, size: Any, output: Any) -> None:
    x = image(2, 3, *size)
    wanted = torch.nn.functional.interpolate(torch.from_numpy(x), output, mode="bilinear", antialias=True).numpy()
    found = resample(device, x, wanted.shape, antialiased=True)
    inside = np.s_[..., 1:-1, 1:-1]
    np.testing.assert_allclose(found[inside], wanted[inside], rtol=1e-5, atol=1e-5)
    assert np.abs(found - wanted).max() > 1e-3, "PyTorch leaves out elements outside of the input"


@pytest.mark.parametrize("antialias", [0, 1])
@pytest.mark.parametrize("output", [(4, 3), (3, 13), (11, 14), (1, 1)])
def test_linear_is_onnxs_reference(device: dmlvk.Device, output: tuple[int, int], antialias: int) -> None:
    x = image(1, 2, 11, 7)
    sizes = (*x.shape[:2], *output)
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", antialias=antialias)
    inputs = [helper.make_tensor_value_info("x", 1, x.shape), helper.make_tensor_value_info("sizes", 7, (4,))]
    graph = helper.make_graph([node], "resize", inputs, [helper.make_tensor_value_info("y", 1, sizes)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x, "sizes": np.array(sizes)})
    np.testing.assert_allclose(resample(device, x, sizes, antialiased=bool(antialias)), wanted, rtol=2e-5, atol=2e-6)


INPUTS, OUTPUTS = 3_000_017, 4_000_037


def test_coordinates_are_exact_at_any_size(device: dmlvk.Device) -> None:
    """Millions of elements: products of sizes pass 2^32, and float32 coordinates would be off by a quarter of an element."""
    x = np.arange(INPUTS, dtype=np.float32)  # exact
    o = np.arange(OUTPUTS, dtype=np.int64)
    found = resample(device, x, (OUTPUTS,), NEAREST, (0.0, -0.5), rounding_direction=AxisDirection.DECREASING)
    np.testing.assert_array_equal(found, ((2 * o + 1) * INPUTS // (2 * OUTPUTS)).astype(np.float32))
    found = resample(device, x, (OUTPUTS,), NEAREST, (0.0, 0.0), rounding_direction=AxisDirection.INCREASING)
    np.testing.assert_array_equal(found, np.minimum(-(-o * INPUTS // OUTPUTS), INPUTS - 1).astype(np.float32))
    # 0, 1, 0, 1, ...: what comes out is how far a position is from the next even element.
    positions = np.clip((2 * o + 1) * INPUTS / (2 * OUTPUTS) - 0.5, 0, INPUTS - 1)
    found = resample(device, x % 2, (OUTPUTS,))
    np.testing.assert_allclose(found, 1 - np.abs(positions % 2 - 1), rtol=0, atol=2e-7)


@pytest.mark.parametrize("factor", [3, 7, 10, 49])
def test_a_rounded_scale_counts_as_what_it_stands_for(device: dmlvk.Device, factor: int) -> None:
    """float32 has no 1/3: positions 3 o must not fall short of their element, though the input has a rest."""
    x = np.arange(25 * factor + factor - 1, dtype=np.float32)
    found = resample(
        device, x, (25,), NEAREST, (0.0, 0.0), scales=(1 / factor,), rounding_direction=AxisDirection.DECREASING
    )
    np.testing.assert_array_equal(found, factor * np.arange(25))


def test_halves_round_to_even(device: dmlvk.Device) -> None:
    x = np.array([0, 1, 2, 3, 254, 255], np.uint8)
    found = resample(device, x, (11,), offsets=(0.0, 0.0), scales=(2.0,))
    np.testing.assert_array_equal(found, [0, 0, 1, 2, 2, 2, 3, 128, 254, 254, 255])
    (found,) = resample(device, np.array([[-5, -4]], np.int8), (1, 1), scales=(1.0, 0.5))
    np.testing.assert_array_equal(found, [-4])


def test_an_endless_scale_repeats_one_position(device: dmlvk.Device) -> None:
    x = image(2, 5)
    found = resample(device, x, (2, 9), offsets=(0.0, 0.0), scales=(1.0, float(np.finfo(np.float32).max)))
    np.testing.assert_array_equal(found, np.repeat(x[:, :1], 9, 1))


def test_positions_too_far_away_are_refused(device: dmlvk.Device) -> None:
    with pytest.raises(dmlvk.UnsupportedError, match=r"RESAMPLE3.*at most 1073741824 elements .* dimension 1"):
        resample(device, image(2, 5), (2, 9), scales=(1.0, 1e-20))
    with pytest.raises(dmlvk.UnsupportedError, match="antialiasing"):
        resample(device, image(2, 5), (2, 1), offsets=(0.0, 0.0), scales=(1.0, 1e-20), antialiased=True)
