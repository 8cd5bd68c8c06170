"""GridSample, AffineGrid and DeformConv beyond ONNX's node cases: every mode with every padding, images of one element a
dimension, half precision, groups of channels; against onnxruntime's CPU or ONNX's reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper

import dmlvk

f32, f16 = np.float32, np.float16


def _agrees(
    node: Any,
    feeds: dict[str, np.ndarray],
    runtime: str,
    fixtures: tuple[Callable[..., Any], ...],
    opset: int = 20,
    constants: dict[str, np.ndarray] | None = None,
    relative: float = 1e-5,
) -> None:
    make_model, make_session, reference, assert_close = fixtures
    output = next(iter(feeds.values())).dtype
    fed = {name: (array.dtype, array.shape) for name, array in feeds.items()}
    model = make_model(node, fed, opset=opset, output_types={"y": output}, constants=constants)
    session = make_session(model)
    (found,) = session.run(None, feeds)
    (wanted,) = reference(model, feeds, runtime)
    assert_close(found, wanted, relative)
    assert [record.op_type for record in session.report().gpu_nodes] == [node.op_type]


@pytest.fixture
def fixtures(make_model: Any, make_session: Any, reference: Any, assert_close: Any) -> tuple[Callable[..., Any], ...]:
    return make_model, make_session, reference, assert_close


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("image", [(5, 7), (3, 4, 5)], ids=str)
def test_grid_sample(image: tuple[int, ...], mode: str, padding: str, aligned: int, fixtures: Any) -> None:
    """Positions reach three images away. onnxruntime has no cubic volumes, and with a border takes a position between the
    image's end and its first element for one outside wherever another dimension is; for those, the slow reference."""
    points, runtime = (6, 11, 2)[: len(image)], "onnxruntime"
    if len(image) == 3 and mode == "cubic":
        image, points, runtime = (2, 3, 3), (2, 1, 3), "onnx"
    if mode == "cubic" and padding == "border":
        runtime = "onnx"
    rng = np.random.default_rng(len(image))
    x = rng.standard_normal((2, 3, *image)).astype(f32)
    grid = rng.uniform(-3, 3, (2, *points, len(image))).astype(f32)
    grid.reshape(-1)[:4] = (-1, 1, 0, 1)
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode=mode, padding_mode=padding, align_corners=aligned)
    _agrees(node, {"x": x, "g": grid}, runtime, fixtures)


def test_grid_sample_cubic_border_between_the_end_and_the_first_element(fixtures: Any) -> None:
    x = np.arange(5, dtype=f32).reshape(1, 1, 1, 5) ** 2
    grid = np.stack([np.linspace(-1.1, 1.1, 23), np.zeros(23)], axis=-1).astype(f32).reshape(1, 1, 23, 2)
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode="cubic", padding_mode="border")
    _agrees(node, {"x": x, "g": grid}, "onnx", fixtures)


def test_grid_sample_does_not_see_infinities_outside(fixtures: Any) -> None:
    x = np.full((1, 2, 2, 2), np.inf, f32)
    grid = np.array([-4, -4, 0, 0, 3, 0.5], f32).reshape(1, 1, 3, 2)
    node = helper.make_node("GridSample", ["x", "g"], ["y"])
    _agrees(node, {"x": x, "g": grid}, "onnxruntime", fixtures)


@pytest.mark.parametrize("image", [(1, 1), (1, 4)], ids=str)
@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_grid_sample_of_one_element(image: tuple[int, ...], padding: str, fixtures: Any) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((1, 1, *image)).astype(f32)
    grid = rng.uniform(-2, 2, (1, 3, 5, 2)).astype(f32)
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode="bilinear", padding_mode=padding, align_corners=1)
    _agrees(node, {"x": x, "g": grid}, "onnxruntime", fixtures, opset=16)


def test_grid_sample_in_half_precision(fixtures: Any) -> None:
    """Weighed in float32, so only the result is rounded."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((1, 3, 6, 5)).astype(f16)
    grid = rng.uniform(-1.2, 1.2, (1, 4, 4, 2)).astype(f32)
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode="cubic")
    _agrees(node, {"x": x, "g": grid}, "onnx", fixtures, relative=2**-10)


def test_grid_sample_of_integers(fixtures: Any) -> None:
    x = np.arange(30, dtype=np.int64).reshape(1, 1, 5, 6) - 7
    grid = np.random.default_rng(5).uniform(-1.3, 1.3, (1, 7, 3, 2)).astype(f32)
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode="nearest", padding_mode="reflection")
    _agrees(node, {"x": x, "g": grid}, "onnx", fixtures)


def test_grid_sample_refuses(make_model: Any, make_session: Any) -> None:
    def run(x: np.ndarray, **attributes: str) -> None:
        node = helper.make_node("GridSample", ["x", "g"], ["y"], **attributes)
        grid = np.zeros((1, 2, 2, 2), f32)
        make_session(make_model(node, {"x": (x.dtype, x.shape), "g": (f32, grid.shape)}, opset=20)).run(
            None, {"x": x, "g": grid}
        )

    with pytest.raises(dmlvk.ModelError, match=r"padding_mode must be one of .*; got 'wrap'"):
        run(np.zeros((1, 1, 2, 2), f32), padding_mode="wrap")
    with pytest.raises(dmlvk.ModelError, match="the grid must have the sizes"):
        run(np.zeros((1, 1, 2, 2, 2), f32))
    with pytest.raises(dmlvk.UnsupportedError, match="INT64; mode 'linear' takes FLOAT32"):
        run(np.zeros((1, 1, 2, 2), np.int64))


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("size", [(3, 2, 7, 4), (2, 1, 3, 5, 4)], ids=str)
def test_affine_grid(size: tuple[int, ...], aligned: int, fixtures: Any) -> None:
    rank = len(size) - 2
    theta = np.random.default_rng(6).standard_normal((size[0], rank, rank + 1)).astype(f32)
    node = helper.make_node("AffineGrid", ["t", "s"], ["y"], align_corners=aligned)
    _agrees(node, {"t": theta}, "onnxruntime", fixtures, constants={"s": np.array(size)})


@pytest.mark.parametrize(
    ("channels", "filters", "attributes", "masked"),
    [
        ((4, 6), (3, 2), {"group": 2, "offset_group": 2}, True),
        ((3, 2), (2, 3), {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2]}, False),
        ((2, 4), (3, 3), {"offset_group": 2, "pads": [1, 1, 1, 1]}, False),
    ],
    ids=["groups", "geometry", "offset-groups"],
)
def test_deform_conv(
    channels: tuple[int, int], filters: tuple[int, int], attributes: dict[str, Any], masked: bool, fixtures: Any
) -> None:
    rng = np.random.default_rng(7)
    inputs, outputs = channels
    groups, shared = attributes.get("group", 1), attributes.get("offset_group", 1)
    pads, strides = attributes.get("pads", [0] * 4), attributes.get("strides", [1, 1])
    dilations, image = attributes.get("dilations", [1, 1]), (6, 7)
    count = filters[0] * filters[1]
    sizes = tuple(
        (image[i] + pads[i] + pads[i + 2] - (filters[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(2)
    )
    feeds = {
        "x": rng.standard_normal((2, inputs, *image)),
        "w": rng.standard_normal((outputs, inputs // groups, *filters)),
        "o": rng.uniform(-2, 2, (2, shared * count * 2, *sizes)),
        "b": rng.standard_normal(outputs),
    }
    names = ["x", "w", "o", "b"]
    if masked:
        feeds["m"] = rng.uniform(0, 1, (2, shared * count, *sizes))
        names.append("m")
    node = helper.make_node("DeformConv", names, ["y"], **attributes)
    _agrees(node, {name: array.astype(f32) for name, array in feeds.items()}, "onnx", fixtures)
