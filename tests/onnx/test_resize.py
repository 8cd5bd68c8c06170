"""Resize by matrices of weights: cubic kernels, filters cut off at the border, and widened ones, in every coordinate
transformation; against onnxruntime's CPU, which has cubic images only, or ONNX's reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper

import dmlvk

f32 = np.float32
TRANSFORMATIONS = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)


@pytest.fixture
def agrees(make_model: Any, make_session: Any, reference: Any, assert_close: Any) -> Callable[..., None]:
    def check(x: np.ndarray, runtime: str, relative: float = 1e-5, **attributes: Any) -> None:
        constants = {name: attributes.pop(name) for name in ("roi", "scales", "sizes") if name in attributes}
        names = ["x", *(name if name in constants else "" for name in ("roi", "scales", "sizes"))]
        while not names[-1]:
            names.pop()
        node = helper.make_node("Resize", names, ["y"], **attributes)
        model = make_model(node, {"x": (x.dtype, x.shape)}, constants=constants, opset=19, output_types={"y": x.dtype})
        session = make_session(model)
        (found,) = session.run(None, {"x": x})
        (wanted,) = reference(model, {"x": x}, runtime)
        assert_close(found, wanted.astype(x.dtype), relative)
        assert session.report().dispatches > 0

    return check


@pytest.mark.parametrize("exclude", [0, 1])
@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
@pytest.mark.parametrize("scales", [(2.7, 1.3), (0.6, 0.8), (0.4, 3.0)], ids=str)
def test_cubic(scales: tuple[float, float], transformation: str, exclude: int, agrees: Callable[..., None]) -> None:
    x = np.random.default_rng(1).standard_normal((1, 1, 9, 7)).astype(f32)
    wanted: dict[str, Any] = {"scales": np.array([1, 1, *scales], f32)}
    if transformation == "tf_crop_and_resize":  # by sizes: with scales the reference divides by sizes that are not whole
        wanted = {"roi": np.array([0, 0, 0.1, -0.25, 1, 1, 1.1, 0.8], f32), "sizes": np.array([1, 1, 14, 8])}
    agrees(
        x,
        # onnxruntime takes other positions for these, in its linear mode too
        "onnx" if transformation in ("half_pixel_symmetric", "align_corners", "tf_crop_and_resize") else "onnxruntime",
        mode="cubic",
        coordinate_transformation_mode=transformation,
        exclude_outside=exclude,
        cubic_coeff_a=-0.6,
        extrapolation_value=7.0,
        **wanted,
    )


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("transformation", ["half_pixel", "align_corners", "asymmetric"])
def test_widened(mode: str, transformation: str, agrees: Callable[..., None]) -> None:
    x = np.random.default_rng(2).standard_normal((1, 1, 13, 12)).astype(f32)
    agrees(
        x,
        "onnx",
        sizes=np.array([1, 1, 5, 7]),
        mode=mode,
        antialias=1,
        coordinate_transformation_mode=transformation,
        exclude_outside=1,
    )


def test_linear_cut_off_along_one_axis(agrees: Callable[..., None]) -> None:
    x = np.random.default_rng(3).standard_normal((3, 5, 4)).astype(f32)
    agrees(x, "onnx", scales=np.array([1.7], f32), axes=[1], mode="linear", exclude_outside=1)


def test_cubic_volume_in_half_precision(agrees: Callable[..., None]) -> None:
    x = np.random.default_rng(4).standard_normal((1, 1, 3, 4, 2)).astype(np.float16)
    agrees(x, "onnx", relative=2**-9, sizes=np.array([1, 1, 4, 3, 3]), mode="cubic")


def test_integers_are_refused(agrees: Callable[..., None]) -> None:
    with pytest.raises(dmlvk.UnsupportedError, match="interpolation by weights takes FLOAT32, FLOAT16"):
        agrees(np.zeros((1, 1, 4, 4), np.int8), "onnx", sizes=np.array([1, 1, 2, 2]), mode="cubic")
