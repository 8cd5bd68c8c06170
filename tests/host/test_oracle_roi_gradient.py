"""The gradients of ROI align against central differences of the forward operator, both of them the oracles.

Boxes lie so that float32 positions are exact (distances of samples are multiples of 1/16) and no whole pixels, where the
forward operator has kinks and steps (corners are odd multiples of 1/64), nor is a size one at which the number of samples
steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dmlvk.spec.enums import InterpolationMode, ReduceFunction, TensorDataType
from dmlvk.spec.ops.roi import RoiAlign1
from dmlvk.spec.ops.roi_gradient import RoiAlignGrad
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.oracle.roi import roi_align1
from dmlvk.verify.oracle.roi_gradient import roi_align_grad

Array = NDArray[Any]
FLOAT32, UINT32 = TensorDataType.FLOAT32, TensorDataType.UINT32

RNG = np.random.default_rng(3)
IMAGE = RNG.standard_normal((2, 3, 9, 11))
GRADIENT = RNG.standard_normal((5, 3, 2, 4))
BATCH = np.array([0, 1, 1, 0, 2], np.uint32)  # the last has no image
_CORNERS = np.array([(1, 2), (0, 0), (9, 6), (-6, -5), (3, 1)]) + 1 / 64
_SIZES = np.array([(7.5, 3.5), (4.5, 7.5), (-7.5, -3.5), (15, 15), (4.5, 3.5)])  # mirrored, and partly outside
BOXES = np.concatenate([_CORNERS, _CORNERS + _SIZES], axis=1)
STEP = 3 * 2.0**-9
"""The step of the boxes: so small that no sample passes a whole pixel, and a multiple of three, into which corners divide
it."""

VARIANTS = [
    {"reduction_function": reduction, **attributes}
    for reduction in (ReduceFunction.AVERAGE, ReduceFunction.MAX)
    for attributes in (
        {},
        {"minimum_samples_per_output": 2, "maximum_samples_per_output": 2},
        {"spatial_scale_x": 0.5, "spatial_scale_y": 2.0, "maximum_samples_per_output": 2},
        {"input_pixel_offset": 0.1875, "output_pixel_offset": 0.5, "maximum_samples_per_output": 1},
        {"interpolation_mode": InterpolationMode.NEAREST_NEIGHBOR},
        {"align_regions_to_corners": True, "output_pixel_offset": 0.0, "maximum_samples_per_output": 1},
    )
]


def forward(attributes: dict[str, Any], image: Array, boxes: Array) -> float:
    """The number whose gradients are looked for: the sum of dy times the output."""
    desc = RoiAlign1(
        input_tensor=TensorDesc(FLOAT32, image.shape),
        roi_tensor=TensorDesc(FLOAT32, boxes.shape),
        batch_indices_tensor=TensorDesc(UINT32, BATCH.shape),
        output_tensor=TensorDesc(FLOAT32, GRADIENT.shape),
        **attributes,
    )
    return float(np.sum(GRADIENT * roi_align1(desc, image, boxes, BATCH).value))


def backward(attributes: dict[str, Any], image: Array, boxes: Array) -> tuple[Array, Array]:
    tensors = {name: TensorDesc(FLOAT32, image.shape) for name in ("input_tensor", "output_gradient_tensor")}
    tensors |= {name: TensorDesc(FLOAT32, boxes.shape) for name in ("roi_tensor", "output_roi_gradient_tensor")}
    desc = RoiAlignGrad(
        **tensors,
        input_gradient_tensor=TensorDesc(FLOAT32, GRADIENT.shape),
        batch_indices_tensor=TensorDesc(UINT32, BATCH.shape),
        **attributes,
    )
    desc.validate()
    images, moves = roi_align_grad(desc, image, GRADIENT, boxes, BATCH)
    assert images is not None and moves is not None
    return images.value, moves.value


def difference(function: Any, at: Array, step: Array) -> float:
    """A central difference: by how much the function grows from `at` to `at + step`."""
    return float(function(at + step) - function(at - step)) / 2


@pytest.mark.parametrize("attributes", VARIANTS, ids=lambda attributes: ", ".join(map(str, attributes.values())))
def test_images(attributes: dict[str, Any]) -> None:
    gradient = backward(attributes, IMAGE, BOXES)[0]
    assert np.count_nonzero(gradient) > 40
    for seed in range(20):
        direction = np.random.default_rng(seed).standard_normal(IMAGE.shape)
        found = difference(lambda image: forward(attributes, image, BOXES), IMAGE, 1e-6 * direction)
        assert found * 1e6 == pytest.approx(np.sum(gradient * direction), abs=1e-7)


@pytest.mark.parametrize("attributes", VARIANTS, ids=lambda attributes: ", ".join(map(str, attributes.values())))
def test_boxes(attributes: dict[str, Any]) -> None:
    maximum = attributes["reduction_function"] == ReduceFunction.MAX
    step = STEP / 64 if maximum else STEP  # another sample may become the largest
    moves = backward(attributes, IMAGE, BOXES)[1]
    for index in np.ndindex(BOXES.shape):
        direction = np.zeros(BOXES.shape)
        direction[index] = step
        found = difference(lambda boxes: forward(attributes, IMAGE, boxes), BOXES, direction) / step
        assert found == pytest.approx(moves[index], abs=1e-9)
    nearest = attributes.get("interpolation_mode") == InterpolationMode.NEAREST_NEIGHBOR
    assert np.all(moves == 0) if nearest else np.count_nonzero(moves) > 8


def test_a_sample_on_a_pixel_has_no_slope() -> None:
    """The specification's pseudo-code takes the difference of floor and ceil, which are one pixel there."""
    boxes = BOXES.copy()
    boxes[:, :2], boxes[:, 2:] = (1, 2), (5, 4)
    attributes = {"maximum_samples_per_output": 1}
    assert np.all(backward(attributes, IMAGE, boxes)[1] == 0)
    boxes[:, 0] += 0.5
    moves = backward(attributes, IMAGE, boxes)[1]
    assert np.all(moves[:4, [0, 2]] != 0) and np.all(moves[:, [1, 3]] == 0)
