"""ROI align's gradients against the specification's figure and PyTorch, whose autograd differentiates a ROI align of its own
``grid_sample``."""

from __future__ import annotations

import json
import pathlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from crossed import crossed
from numpy.typing import NDArray

import dmlvk
from dmlvk import InterpolationMode, ReduceFunction, eager
from dmlvk.verify.cases.layouts import GuardedTensor
from dmlvk.verify.cases.problem import Problem
from dmlvk.verify.check import run

Array = NDArray[Any]
EXAMPLES = json.loads((pathlib.Path(__file__).parent.parent / "data" / "examples.json").read_text())["examples"]
BOTH = ("output_gradient_tensor", "output_roi_gradient_tensor")


def gradients(
    device: dmlvk.Device, image: Array, gradient: Array, boxes: Array, batch: Array, **attributes: Any
) -> tuple[Array, Array]:
    images, moves = eager.roi_align_grad(image, gradient, boxes, batch, outputs=BOTH, device=device, **attributes)
    return images, moves


def test_the_specifications_figure(device: dmlvk.Device) -> None:
    example = next(entry for entry in EXAMPLES if entry["id"] == "roi_align_grad_1")
    gradient, boxes, batch, expected = (
        np.array(tensor["data"], np.dtype(tensor["dtype"].lower())).reshape(tensor["sizes"])
        for tensor in (*example["inputs"].values(), *example["outputs"].values())
    )
    found = eager.roi_align_grad(
        None,
        gradient,
        boxes,
        batch,
        outputs=["output_gradient_tensor"],
        output_sizes=expected.shape,
        device=device,
        interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR,
        maximum_samples_per_output=1,
    )
    np.testing.assert_array_equal(found, expected)


def torch_roi_align(torch: ModuleType, images: Any, boxes: Any, batch: Array, size: tuple[int, int], samples: int) -> Any:
    """The samples {region, channel, H, W, samples} of a ROI align with pixels at their centres, in ``grid_sample``'s terms:
    coordinates from -1 to 1 between the centres of the outer pixels, and its border."""

    def axis(start: Any, end: Any, count: int, pixels: int) -> tuple[Any, Any]:
        total = count * samples
        at = start[:, None] + (end - start)[:, None] * (torch.arange(total, dtype=torch.float64) + 0.5) / total - 0.5
        return 2 * at / (pixels - 1) - 1, (at >= -1) & (at <= pixels)

    x, inside_x = axis(boxes[:, 0], boxes[:, 2], size[1], images.shape[3])
    y, inside_y = axis(boxes[:, 1], boxes[:, 3], size[0], images.shape[2])
    grid = torch.stack(torch.broadcast_tensors(x[:, None, :], y[:, :, None]), dim=-1)
    chosen = images[torch.from_numpy(batch.astype(np.int64))]
    found = torch.nn.functional.grid_sample(chosen, grid, padding_mode="border", align_corners=True)
    found = torch.where(inside_y[:, None, :, None] & inside_x[:, None, None, :], found, 0.0)
    split = found.reshape(*found.shape[:2], size[0], samples, size[1], samples).permute(0, 1, 2, 4, 3, 5)
    return split.reshape(*found.shape[:2], *size, samples**2)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("kind", "reduction", "samples"),
    crossed([np.float32, np.float16], [ReduceFunction.AVERAGE, ReduceFunction.MAX], [1, 2, 3]),
)
def test_torch_autograd(
    device: dmlvk.Device, torch: ModuleType, kind: type[Any], reduction: ReduceFunction, samples: int
) -> None:
    rng = np.random.default_rng(samples)
    image = rng.standard_normal((3, 5, 21, 43)).astype(kind)
    low = rng.uniform(-4, 30, (13, 2))
    boxes = np.concatenate([low, low + rng.uniform(-9, 25, (13, 2))], 1).astype(kind)
    batch = rng.integers(0, 3, 13).astype(np.uint32)
    gradient = rng.standard_normal((13, 5, 4, 6)).astype(kind)
    counts = {"minimum_samples_per_output": samples, "maximum_samples_per_output": samples}
    found = gradients(device, image, gradient, boxes, batch, reduction_function=reduction, **counts)

    leaves = [torch.from_numpy(array.astype(np.float64)).requires_grad_() for array in (image, boxes)]
    values = torch_roi_align(torch, *leaves, batch, gradient.shape[2:], samples)
    output = values.mean(-1) if reduction == ReduceFunction.AVERAGE else values.max(-1).values
    expected = torch.autograd.grad(output, leaves, torch.from_numpy(gradient.astype(np.float64)))
    for own, other in zip(found, expected, strict=True):
        # torch's positions are float64, ours float32: weights differ by a part in 2**19 at coordinates up to 64.
        scale = float(other.abs().max())
        np.testing.assert_allclose(own, other.numpy(), rtol=0, atol=scale * (1e-5 if kind is np.float32 else 1e-3))


def test_the_gradient_of_an_average_keeps_its_sum(device: dmlvk.Device) -> None:
    """Samples inside the images have weights that add up to 1. Whole numbers, so that sums are exact."""
    rng = np.random.default_rng(0)
    gradient = rng.integers(-8, 8, (300, 2, 7, 7)).astype(np.float32)
    low = rng.integers(4, 40, (300, 2))
    boxes = np.concatenate([low, low + 7], 1).astype(np.float32)
    (images, moves) = gradients(
        device, np.ones((1, 2, 50, 70), np.float32), gradient, boxes, np.zeros(300, np.uint32), maximum_samples_per_output=1
    )
    np.testing.assert_array_equal(images.sum((2, 3)), gradient.sum((0, 2, 3))[None])
    assert np.all(moves == 0), "no slope anywhere"


def test_a_huge_box_costs_no_more_than_the_image(device: dmlvk.Device) -> None:
    """Two million samples an axis, of which 7 and 6 lie on the image or within a pixel of it."""
    float32, uint32 = dmlvk.TensorDataType.FLOAT32, dmlvk.TensorDataType.UINT32
    sizes = {"input_tensor": (1, 1, 5, 6), "input_gradient_tensor": (1, 1, 1, 1), "roi_tensor": (1, 4)}
    sizes |= {"output_gradient_tensor": (1, 1, 5, 6), "output_roi_gradient_tensor": (1, 4)}
    descs = {name: dmlvk.TensorDesc(float32, size) for name, size in sizes.items()}
    descs["batch_indices_tensor"] = dmlvk.TensorDesc(uint32, (1,))
    tensors = {name: GuardedTensor(desc, 0) for name, desc in descs.items()}
    tensors["input_tensor"].view()[...] = np.arange(6)
    tensors["input_gradient_tensor"].view()[...] = 2e6**2
    tensors["roi_tensor"].view()[...] = [-1e6 + 0.25, -1e6 + 0.25, 1e6 + 0.25, 1e6 + 0.25]
    tensors["batch_indices_tensor"].view()[...] = 0
    operator = dmlvk.RoiAlignGrad(**descs)
    inputs, outputs = (
        tuple(tensors[slot.field.name] for slot in slots) for slots in (operator.input_slots(), operator.output_slots())
    )
    images, boxes = run(device, Problem(operator, inputs, outputs)).buffers
    # Samples lie a quarter of a pixel past the pixels; the outer ones move to the image's edge.
    expected = np.outer([1.75, 1, 1, 1, 1.25], [1.75, 1, 1, 1, 1, 1.25])
    np.testing.assert_allclose(tensors["output_gradient_tensor"].view(images)[0, 0], expected, rtol=1e-5)
    # In each of 6 rows the 5 samples between columns grow by 1, all of them halfway along the box.
    np.testing.assert_allclose(tensors["output_roi_gradient_tensor"].view(boxes)[0], [15, 0, 15, 0], rtol=1e-4)
