"""Regions of interest."""

from __future__ import annotations

from typing import Any

import numpy as np

import dmlvk
from dmlvk.spec.enums import InterpolationMode, ReduceFunction, TensorDataType
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Domain, uniform
from dmlvk_bench.problems.model import FLOAT32, FLOATS, Problem, nbytes
from dmlvk_bench.problems.scale import Scale, Sizes

IMAGES, REGIONS = (4, 256, 200, 304), 1000
_SAMPLED = 7
"""Height and width of what is made of a region."""


def shrunk(scale: Scale) -> tuple[Sizes, int]:
    """Images and regions at a scale: boxes lie where they lay, so fewer channels and regions."""
    batch, channels, regions = scale.pick((4, 256, 1000), (4, 16, 250), (2, 1, 64))
    return (batch, channels, *IMAGES[2:]), regions


def _corners(rng: np.random.Generator, count: int) -> Array:
    return rng.uniform(0, (240.0, 150.0), (count, 2))


def random_boxes(rng: np.random.Generator, sizes: Sizes, data_type: TensorDataType) -> Array:
    """Boxes of 14 to 56 x 14 to 42 pixels that lie in the images, and whose samples lie a quarter of a pixel beside pixels:
    PyTorch finds the samples of FLOAT16 boxes in float16, which elsewhere puts them up to a quarter of a pixel off."""
    corner = np.floor(_corners(rng, sizes[0])) + 0.25 + 0.5 * rng.integers(0, 2, (sizes[0], 2))
    extent = 2 * _SAMPLED * rng.integers(1, (5, 4), corner.shape)
    return np.concatenate([corner, corner + extent], 1).astype(NUMPY_TYPES[data_type])


def _whole_regions(batches: int) -> Domain:
    """Regions of whole pixels, 7 times a whole number of them each way: halves round differently, and PyTorch's cells, whose
    sizes are floats, may reach a pixel further than the specification's."""

    def domain(rng: np.random.Generator, sizes: Sizes, data_type: TensorDataType) -> Array:
        count = sizes[2]
        corner = np.floor(_corners(rng, count))
        extent = _SAMPLED * rng.integers(2, 8, corner.shape) - 1
        found = np.concatenate([rng.integers(0, batches, (count, 1)), corner, corner + extent], 1)
        return found.reshape(sizes).astype(NUMPY_TYPES[data_type])

    return domain


def _roi_align(scale: Scale, data_type: TensorDataType) -> Problem:
    sizes, regions = shrunk(scale)
    image = TensorDesc(data_type, sizes)
    boxes = TensorDesc(data_type, (regions, 4))
    batch = TensorDesc(TensorDataType.UINT32, (regions,))
    output = TensorDesc(data_type, (regions, sizes[1], _SAMPLED, _SAMPLED))

    def rival(torch: Any, image: Any, boxes: Any, batch: Any) -> Any:
        import torchvision

        # Assembled once: only the kernel is timed.
        key = (boxes.data_ptr(), boxes.dtype)
        if key not in assembled:
            assembled[key] = torch.cat([batch.to(boxes.dtype)[:, None], boxes], 1).contiguous()
        return torchvision.ops.roi_align(image, assembled[key], (_SAMPLED, _SAMPLED), 1.0, 2, aligned=True)

    assembled: dict[tuple[int, Any], Any] = {}
    return Problem(
        f"ROI align {data_type.name} {regions} of {'x'.join(map(str, sizes))} to 7x7",
        dmlvk.RoiAlign1(
            input_tensor=image,
            roi_tensor=boxes,
            batch_indices_tensor=batch,
            output_tensor=output,
            reduction_function=ReduceFunction.AVERAGE,
            interpolation_mode=InterpolationMode.LINEAR,
            spatial_scale_x=1.0,
            spatial_scale_y=1.0,
            input_pixel_offset=0.5,
            output_pixel_offset=-0.5,
            out_of_bounds_input_value=0.0,
            minimum_samples_per_output=2,
            maximum_samples_per_output=2,
            align_regions_to_corners=False,
        ),
        rival,
        1 / 0.7,
        output.total_tensor_size_in_bytes + image.total_tensor_size_in_bytes,
        domains={"roi_tensor": random_boxes, "batch_indices_tensor": uniform(0, sizes[0] - 1)},
        tolerance=1e-4 if data_type is FLOAT32 else 1e-3,
    )


def _roi_pooling(scale: Scale, data_type: TensorDataType) -> Problem:
    sizes, count = shrunk(scale)
    image = TensorDesc(data_type, sizes)
    regions = TensorDesc(data_type, (1, 1, count, 5))
    output = TensorDesc(data_type, (count, sizes[1], _SAMPLED, _SAMPLED))

    def rival(torch: Any, image: Any, regions: Any) -> Any:
        import torchvision

        return torchvision.ops.roi_pool(image, regions.reshape(-1, 5).to(image.dtype), (_SAMPLED, _SAMPLED), 1.0)

    return Problem(
        f"ROI pooling {data_type.name} {count} of {'x'.join(map(str, sizes))} to 7x7",
        dmlvk.RoiPooling(
            input_tensor=image,
            roi_tensor=regions,
            output_tensor=output,
            spatial_scale=1.0,
            pooled_size=dmlvk.Size2D(_SAMPLED, _SAMPLED),
        ),
        rival,
        0.0,
        nbytes(image, regions, output),
        domains={"roi_tensor": _whole_regions(sizes[0])},
    )


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    return [make(scale, data_type) for make in (_roi_align, _roi_pooling) for data_type in FLOATS]
