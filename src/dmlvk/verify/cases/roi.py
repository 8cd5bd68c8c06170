"""Cases of ``ops.roi``."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from dmlvk.spec.enums import InterpolationMode, ReduceFunction, TensorDataType
from dmlvk.spec.ops.roi import RoiAlign, RoiAlign1, RoiPooling
from dmlvk.spec.schema import Size2D
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, Domain, OperatorCases, Tolerance, fixed, uniform

_NEAREST = InterpolationMode.NEAREST_NEIGHBOR
_MAX = ReduceFunction.MAX

# Sample positions are the same float32 numbers on every device, so only the values' arithmetic rounds: per sample at
# most 4 products and sums, then a sum of the samples (row by row) and one division, all counted at the magnitude of the
# values that were averaged. 32 samples of one sign along an axis give a handful of ULP; sums of more keep what rounding
# loses. float16 rounds once, at the end.
_TOLERANCE = {TensorDataType.FLOAT32: Tolerance(8), TensorDataType.FLOAT16: Tolerance(1)}


def boxes_between(least: float, most: float) -> Domain:
    """Boxes x1 < x2, y1 < y2 with all coordinates between least and most."""

    def domain(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
        low, high = np.sort(rng.uniform(least, most, (2, *sizes[:-1], 2)), axis=0)
        return np.concatenate([low, high], axis=-1).astype(NUMPY_TYPES[data_type])

    return domain


def special_pixels(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Mostly ordinary numbers, some infinities and NaN: each must show in exactly the outputs that read it."""
    values = np.array([np.inf, -np.inf, np.nan, *rng.standard_normal(37)])
    return rng.choice(values, sizes).astype(NUMPY_TYPES[data_type])


def _case(
    name: str,
    image: tuple[int, int, int, int],
    rois: int,
    output: tuple[int, int],
    *,
    boxes: Domain | None = None,
    image_values: Domain | None = None,
    indices: Domain | None = None,
    index_type: TensorDataType = TensorDataType.UINT32,
    roi_rank: int = 2,
    index_rank: int = 1,
    quick: bool = False,
    **attributes: object,
) -> Case:
    domains = {
        "roi_tensor": boxes or boxes_between(-2.0, max(image[2:]) + 2.0),
        "batch_indices_tensor": indices or uniform(0, image[0] - 1),
    }
    return Case(
        name,
        inputs={
            "input_tensor": image,
            "roi_tensor": (1,) * (roi_rank - 2) + (rois, 4),
            "batch_indices_tensor": (1,) * (index_rank - 1) + (rois,),
        },
        attributes=attributes,
        outputs={"output_tensor": (rois, image[1], *output)},
        data_types={"batch_indices_tensor": index_type},
        domains=domains if image_values is None else {**domains, "input_tensor": image_values},
        quick=quick,
    )


def equal_limits(count: int) -> dict[str, Any]:
    return {"minimum_samples_per_output": count, "maximum_samples_per_output": count}


# What these try is in the values or the counts, not in how the tensors lie.
_PACKED = (
    _case("boxes of rank 3, indices of rank 2", (2, 1, 6, 5), 3, (3, 4), roi_rank=3, index_rank=2),
    _case(
        "no such batch entry in 64 bits",
        (2, 3, 6, 5),
        4,
        (3, 4),
        indices=fixed(1, 2**32, 2**64 - 1, 0),
        index_type=TensorDataType.UINT64,
    ),
    _case("between limits", (1, 2, 40, 40), 5, (3, 4), minimum_samples_per_output=3, maximum_samples_per_output=5),
    _case(
        "mirrored and empty boxes",
        (1, 3, 9, 11),
        4,
        (3, 4),
        boxes=fixed(8, 7, 1, 2, 3, 2, 3, 2, 2.5, 8, 9, 1, 10, 4, -3, 4),
        minimum_samples_per_output=2,
    ),
    _case(
        "whole pixels and halves",
        (1, 1, 6, 6),
        4,
        (3, 4),
        interpolation_mode=_NEAREST,
        boxes=fixed(0, 0, 6, 6, 0.5, 0.5, 3.5, 5, 1, 1, 4, 4, -1, -1, 7, 7),
        **equal_limits(1),
    ),
    _case(
        "NaN and infinite boxes",
        (1, 2, 6, 6),
        4,
        (3, 4),
        maximum_samples_per_output=3,
        boxes=fixed(np.nan, 0, 4, 4, 0, 0, np.inf, 4, -np.inf, 0, 4, 4, 1, 1, 4, 4),
        out_of_bounds_input_value=0.5,
    ),
    _case(
        "infinities and NaN",
        (2, 3, 9, 9),
        7,
        (3, 4),
        image_values=special_pixels,
        boxes=boxes_between(0.0, 9.0),
        **equal_limits(2),
    ),
    _case("maximum of infinities and NaN", (2, 3, 9, 9), 7, (3, 4), image_values=special_pixels, reduction_function=_MAX),
    _case("infinity out of bounds", (1, 2, 5, 5), 3, (3, 4), out_of_bounds_input_value=float("-inf")),
    _case("more samples than the tables hold", (1, 2, 83, 79), 2, (1, 2), boxes=fixed(1, -9, 78, 82, 30, 3, 89, 9)),
    _case("more outputs than the tables hold", (1, 1, 5, 37), 2, (2, 263), **equal_limits(1)),
    _case("a round of rows", (1, 2, 37, 41), 2, (29, 31), **equal_limits(4)),
    _case("one pixel", (1, 1, 1, 1), 2, (1, 1), boxes=boxes_between(-1.0, 2.0)),
)
_SHARED = (
    _case("2x2 samples", (2, 5, 13, 17), 7, (7, 7), quick=True, **equal_limits(2)),
    _case("as many samples as pixels", (2, 3, 29, 23), 5, (3, 4)),
    _case("maximum", (2, 3, 13, 17), 5, (3, 4), reduction_function=_MAX, quick=True),
    _case("nearest", (2, 3, 13, 17), 5, (3, 4), interpolation_mode=_NEAREST, out_of_bounds_input_value=-1.5),
    _case("nearest maximum", (1, 2, 11, 7), 3, (3, 4), interpolation_mode=_NEAREST, reduction_function=_MAX),
    _case(
        "maximum outside",
        (1, 2, 5, 6),
        5,
        (3, 4),
        boxes=boxes_between(-9.0, 15.0),
        reduction_function=_MAX,
        out_of_bounds_input_value=0.25,
        **equal_limits(3),
    ),
    _case("average outside", (1, 2, 5, 6), 5, (3, 4), boxes=boxes_between(-9.0, 15.0), out_of_bounds_input_value=2.5),
    _case(
        "scaled, 64-bit indices of rank 4, boxes of rank 4",
        (3, 2, 12, 31),
        5,
        (3, 4),
        boxes=boxes_between(0.0, 1.0),
        spatial_scale_x=31.0,
        spatial_scale_y=12.0,
        index_type=TensorDataType.UINT64,
        roi_rank=4,
        index_rank=4,
    ),
    _case("no such batch entry", (2, 3, 6, 5), 4, (3, 4), indices=fixed(1, 2, 2**32 - 1, 0), out_of_bounds_input_value=7.0),
    _case("many channels", (2, 37, 8, 8), 3, (7, 7), **equal_limits(2)),
    _case("one wide row", (1, 3, 1, 67), 3, (1, 13), reduction_function=_MAX),
    *(dataclasses.replace(case, layouts=False) for case in _PACKED),
)
_NEWER_PACKED = (
    _case("corners, two samples", (1, 2, 13, 17), 5, (3, 4), align_regions_to_corners=True, **equal_limits(2)),
    _case(
        "corners, one sample",
        (1, 2, 13, 17),
        3,
        (1, 1),
        align_regions_to_corners=True,
        input_pixel_offset=0.0,
        output_pixel_offset=0.0,
        **equal_limits(1),
    ),
    _case(
        "corners, one column",
        (1, 2, 13, 17),
        3,
        (3, 1),
        align_regions_to_corners=True,
        output_pixel_offset=0.0,
        interpolation_mode=_NEAREST,
        **equal_limits(1),
    ),
    _case(
        "odd offsets",
        (2, 3, 13, 17),
        5,
        (3, 4),
        input_pixel_offset=-0.75,
        output_pixel_offset=0.375,
        reduction_function=_MAX,
    ),
)
_NEWER = (
    _case(
        "corners",
        (2, 3, 13, 17),
        5,
        (3, 4),
        align_regions_to_corners=True,
        input_pixel_offset=0.0,
        output_pixel_offset=0.0,
        quick=True,
        **equal_limits(1),
    ),
    _case("ONNX output_half_pixel", (2, 3, 13, 17), 5, (3, 4), input_pixel_offset=0.0),
    *(dataclasses.replace(case, layouts=False) for case in _NEWER_PACKED),
)


def _regions(least: float, most: float) -> Domain:
    """Regions of any batch entry of two, corners between least and most."""
    boxes = boxes_between(least, most)

    def domain(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
        batch = rng.integers(0, 2, (*sizes[:-1], 1))
        return np.concatenate([batch, boxes(rng, (*sizes[:-1], 4), data_type)], axis=-1).astype(NUMPY_TYPES[data_type])

    return domain


def _pooled(
    name: str,
    image: tuple[int, int, int, int],
    rois: int,
    cells: tuple[int, int],
    *,
    regions: Domain | None = None,
    values: Domain | None = None,
    quick: bool = False,
    layouts: bool = True,
    spatial_scale: float = 1.0,
) -> Case:
    """A case of cells (height, width) a region."""
    height, width = cells
    domains = {"roi_tensor": regions or _regions(0.0, max(image[2:]) / spatial_scale)}
    return Case(
        name,
        {"input_tensor": image, "roi_tensor": (1, 1, rois, 5)},
        {"spatial_scale": spatial_scale, "pooled_size": Size2D(width, height)},
        domains=domains if values is None else {**domains, "input_tensor": values},
        layouts=layouts,
        quick=quick,
    )


_POOLED = (
    _pooled("cells of several pixels", (2, 3, 29, 23), 5, (3, 4), quick=True),
    _pooled("scaled", (2, 5, 13, 17), 7, (7, 7), spatial_scale=0.0625),
    _pooled("more cells than pixels", (2, 2, 5, 6), 3, (11, 13), layouts=False),
    _pooled("beyond the image", (2, 2, 5, 6), 7, (3, 4), regions=_regions(-9.0, 15.0), layouts=False),
    _pooled("one pixel", (2, 1, 1, 1), 2, (1, 1), layouts=False),
    _pooled(
        "halves, mirrored regions and no such batch entry",
        (2, 2, 9, 9),
        7,
        (2, 3),
        regions=fixed(
            *(0, 0.5, 1.5, 4.5, 6.5, 1, -0.5, -1.5, 3.5, 2.5, 0, 6, 7, 2, 3, 2, 0, 0, 8, 8, -1, 0, 0, 8, 8),
            *(np.nan, 0, 0, 8, 8, -0.75, 1, 1, 5, 5),
        ),
        layouts=False,
    ),
    _pooled(
        "NaN and infinite regions",
        (2, 2, 9, 9),
        4,
        (2, 3),
        regions=fixed(
            *(0, np.nan, 0, 4, 4, 0, 0, 0, np.inf, 4, 0, -np.inf, 0, 4, 4, np.inf, 0, 0, 4, 4),
        ),
        layouts=False,
    ),
    _pooled("infinities and NaN", (2, 3, 9, 9), 7, (3, 4), values=special_pixels, regions=_regions(0.0, 9.0), layouts=False),
)

CASES = (
    OperatorCases(RoiAlign, _TOLERANCE, _SHARED[:4]),
    OperatorCases(RoiAlign1, _TOLERANCE, _SHARED + _NEWER),
    OperatorCases(RoiPooling, {}, _POOLED),
)
