"""ROI align against oracles of others: the specification's figure, ONNX's reference, ONNX Runtime, crop-and-resize."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import dmlvk
from dmlvk import InterpolationMode, ReduceFunction, eager
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.problem import Problem
from dmlvk.verify.check import run

Array = NDArray[Any]
UINT_MAX = 2**32 - 1
EXAMPLES = json.loads((pathlib.Path(__file__).parent.parent / "data" / "examples.json").read_text())["examples"]


def align(device: dmlvk.Device, image: Array, boxes: Array, batch: Array, size: tuple[int, int], **attributes: Any) -> Array:
    shape = (len(boxes), image.shape[1], *size)
    result = eager.roi_align1(image, boxes, batch, output_sizes=shape, device=device, **attributes)
    assert isinstance(result, np.ndarray)
    return result


def onnx_model(image: Array, boxes: Array, size: tuple[int, int], opset: int, **attributes: Any) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(image.dtype)
    node = helper.make_node(
        "RoiAlign", ["x", "rois", "batch"], ["y"], output_height=size[0], output_width=size[1], **attributes
    )
    graph = helper.make_graph(
        [node],
        "roi_align",
        [
            helper.make_tensor_value_info("x", kind, image.shape),
            helper.make_tensor_value_info("rois", kind, boxes.shape),
            helper.make_tensor_value_info("batch", TensorProto.INT64, (len(boxes),)),
        ],
        [helper.make_tensor_value_info("y", kind, (len(boxes), image.shape[1], *size))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def as_onnx(
    device: dmlvk.Device,
    image: Array,
    boxes: Array,
    batch: Array,
    size: tuple[int, int],
    *,
    half_pixel: bool,
    spatial_scale: float,
    sampling_ratio: int,
    mode: str = "avg",
) -> Array:
    """ONNX's RoiAlign in terms of the operator, as the row's docstring says."""
    scale = spatial_scale
    if not half_pixel:
        boxes = boxes * np.float32(spatial_scale)
        boxes = np.concatenate([boxes[:, :2], np.maximum(boxes[:, 2:], boxes[:, :2] + 1)], 1)
        scale = 1.0
    return align(
        device,
        image,
        boxes,
        batch.astype(np.uint64),
        size,
        reduction_function=ReduceFunction.MAX if mode == "max" else ReduceFunction.AVERAGE,
        spatial_scale_x=scale,
        spatial_scale_y=scale,
        input_pixel_offset=0.5 if half_pixel else 0.0,
        minimum_samples_per_output=sampling_ratio or 1,
        maximum_samples_per_output=sampling_ratio or UINT_MAX,
    )


def example_problem() -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(5)
    image = rng.standard_normal((3, 4, 17, 23)).astype(np.float32)
    low = rng.uniform(-9, 70, (11, 2))
    boxes = np.concatenate([low, low + rng.uniform(0.5, 60, (11, 2))], 1).astype(np.float32)
    return image, boxes, rng.integers(0, 3, 11)


def test_the_specifications_figure(device: dmlvk.Device) -> None:
    example = next(entry for entry in EXAMPLES if entry["id"] == "roi_align1_nearest_1")
    arrays = [
        np.array(tensor["data"], np.dtype(tensor["dtype"].lower())).reshape(tensor["sizes"])
        for tensor in (*example["inputs"].values(), *example["outputs"].values())
    ]
    *inputs, expected = arrays
    found = align(
        device,
        *inputs,
        expected.shape[2:],
        interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR,
        minimum_samples_per_output=1,
        maximum_samples_per_output=1,
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("sampling_ratio", [0, 1, 2, 3])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
def test_onnx_opset_16(device: dmlvk.Device, coordinates: str, sampling_ratio: int) -> None:
    image, boxes, batch = example_problem()
    shared = {"spatial_scale": 0.25, "sampling_ratio": sampling_ratio}
    found = as_onnx(device, image, boxes, batch, (5, 3), half_pixel=coordinates == "half_pixel", **shared)
    model = onnx_model(image, boxes, (5, 3), 16, coordinate_transformation_mode=coordinates, **shared)
    feeds = {"x": image, "rois": boxes, "batch": batch}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(found, session.run(None, feeds)[0], rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(found, ReferenceEvaluator(model).run(None, feeds)[0], rtol=1e-5, atol=2e-6)


def test_onnx_opset_10_is_output_half_pixel(device: dmlvk.Device) -> None:
    image, boxes, batch = example_problem()
    shared = {"spatial_scale": 0.5, "sampling_ratio": 2}
    found = as_onnx(device, image, boxes, batch, (4, 4), half_pixel=False, **shared)
    model = onnx_model(image, boxes, (4, 4), 10, **shared)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": image, "rois": boxes, "batch": batch})[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)


def test_the_maximum_agrees_with_onnx_where_samples_are_pixels(device: dmlvk.Device) -> None:
    """Elsewhere ONNX takes the maximum over weighted pixels, DirectML over samples."""
    image = np.abs(example_problem()[0])
    boxes = np.array([[1.5, 2.5, 9.5, 8.5], [4.5, 0.5, 6.5, 12.5]], np.float32)
    batch = np.array([0, 2])
    shared = {"spatial_scale": 1.0, "sampling_ratio": 0, "mode": "max"}
    found = as_onnx(device, image, boxes, batch, (2, 2), half_pixel=False, **shared)
    model = onnx_model(image, boxes, (2, 2), 16, coordinate_transformation_mode="output_half_pixel", **shared)
    expected = ReferenceEvaluator(model).run(None, {"x": image, "rois": boxes, "batch": batch})[0]
    np.testing.assert_array_equal(found, expected)


def crop_and_resize(image: Array, box: Array, size: tuple[int, int]) -> Array:
    """TensorFlow's operator for one normalized box (y1, x1, y2, x2) of one {C, H, W} image, from its documentation."""

    def axis(start: float, end: float, count: int, pixels: int) -> tuple[Array, Array, Array]:
        steps = np.linspace(start, end, count) if count > 1 else np.array([(start + end) / 2])
        at = steps * (pixels - 1)
        return np.floor(at).astype(int), np.ceil(at).astype(int), at - np.floor(at)

    top, bottom, y = axis(box[0], box[2], size[0], image.shape[1])
    left, right, x = axis(box[1], box[3], size[1], image.shape[2])
    rows = image[:, top] * (1 - y)[:, None] + image[:, bottom] * y[:, None]
    return np.asarray(rows[:, :, left] * (1 - x) + rows[:, :, right] * x)


@pytest.mark.parametrize("size", [(5, 4), (1, 3), (1, 1)])
def test_corners_are_crop_and_resize(device: dmlvk.Device, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(9)
    image = rng.standard_normal((2, 3, 11, 14)).astype(np.float32)
    normalized = np.array([[0, 0, 1, 1], [0.125, 0.25, 0.75, 0.5], [0.875, 0.75, 0.25, 0.125]], np.float32)
    batch = np.array([1, 0, 1], np.uint32)
    found = align(
        device,
        image,
        normalized[:, [1, 0, 3, 2]],
        batch,
        size,
        spatial_scale_x=image.shape[3] - 1.0,
        spatial_scale_y=image.shape[2] - 1.0,
        input_pixel_offset=0.0,
        output_pixel_offset=0.0,
        minimum_samples_per_output=1,
        maximum_samples_per_output=1,
        align_regions_to_corners=True,
    )
    expected = [crop_and_resize(image[batch[i]].astype(np.float64), box, size) for i, box in enumerate(normalized)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_mirrored_box_gives_the_mirrored_output(device: dmlvk.Device) -> None:
    image, boxes, batch = example_problem()
    samples = {"minimum_samples_per_output": 2, "maximum_samples_per_output": 2, "spatial_scale_x": 0.25}
    straight = align(device, image, boxes, batch.astype(np.uint32), (4, 6), **samples)
    mirrored = align(device, image, boxes[:, [2, 1, 0, 3]], batch.astype(np.uint32), (4, 6), **samples)
    np.testing.assert_allclose(mirrored, straight[..., ::-1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rule", ["columns", "outputs"])
def test_a_huge_box_costs_no_more_than_the_image(device: dmlvk.Device, rule: str) -> None:
    """Two million samples an axis, of which 8 and 7 lie on the image or within a pixel of it."""
    float32, uint32 = dmlvk.TensorDataType.FLOAT32, dmlvk.TensorDataType.UINT32
    descs = [
        dmlvk.TensorDesc(float32, (1, 1, 5, 6)),
        dmlvk.TensorDesc(float32, (1, 4)),
        dmlvk.TensorDesc(uint32, (1,)),
        dmlvk.TensorDesc(float32, (1, 1, 1, 1)),
    ]
    tensors = [GuardedTensor(desc, 0) for desc in descs]
    tensors[0].view()[...] = 1
    tensors[1].view()[...] = [-1e6, -1e6, 1e6, 1e6]
    tensors[2].view()[...] = 0
    names = ("input_tensor", "roi_tensor", "batch_indices_tensor", "output_tensor")
    operator = dmlvk.RoiAlign(**dict(zip(names, descs, strict=True)))
    (data,), *_ = run(device, Problem(operator, tuple(tensors[:3]), tuple(tensors[3:])), rule)
    assert tensors[3].view(data).item() == pytest.approx(8 * 7 / 2e6**2, rel=1e-5)


@pytest.mark.parametrize(
    ("width", "first", "last"), [(70_001, 0.0, 69_998.0), (80_000, 100.0, 65_000.0), (65_537, -7.0, 140_000.0)]
)
def test_more_cells_than_16_bits_count(device: dmlvk.Device, width: int, first: float, last: float) -> None:
    """Where a cell begins takes products of more than 32 bits."""
    pixels = 70_000
    image = np.random.default_rng(width).standard_normal((1, 1, 2, pixels)).astype(np.float32)
    region = np.array([[[[0, first, 0, last, 1]]]], np.float32)
    y = eager.roi_pooling(image, region, spatial_scale=1.0, pooled_size=dmlvk.Size2D(width, 1))
    size, cell = int(last) - int(first) + 1, np.arange(width, dtype=np.int64)
    start = np.clip(int(first) + cell * size // width, 0, pixels)
    end = np.clip(int(first) + ((cell + 1) * size + width - 1) // width, 0, pixels)
    column = np.append(image[0, 0].max(0), -np.inf)
    reach = np.maximum.reduce([column[np.minimum(start + step, np.maximum(end - 1, start))] for step in range(4)])
    assert (end - start).max() <= 4
    assert np.array_equal(y[0, 0, 0], np.where(start < end, reach, 0))


@pytest.mark.parametrize("function", [ReduceFunction.AVERAGE, ReduceFunction.MAX])
def test_an_output_of_more_samples_than_a_cpus_loops_have_rounds(device: dmlvk.Device, function: ReduceFunction) -> None:
    image = np.random.default_rng(7).standard_normal((1, 1, 300, 290)).astype(np.float32)
    region = np.array([[0, 0, 290, 300]], np.float32)
    y = eager.roi_align1(
        image,
        region,
        np.zeros(1, np.uint32),
        reduction_function=function,
        interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR,
        output_sizes=((1, 1, 1, 1),),
    )
    expected = image.max() if function == ReduceFunction.MAX else image.mean(dtype=np.float64)
    assert abs(y.item() - expected) < 1e-6
