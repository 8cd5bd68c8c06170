"""Cases of ``ops.roi_gradient``."""

from __future__ import annotations

import numpy as np

from dmlvk.spec.enums import InterpolationMode, ReduceFunction, TensorDataType
from dmlvk.spec.ops.roi_gradient import RoiAlignGrad
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Case, Domain, OperatorCases, Tolerance, fixed, uniform
from dmlvk.verify.cases.roi import boxes_between, equal_limits, special_pixels

_NEAREST = InterpolationMode.NEAREST_NEIGHBOR
_MAX = ReduceFunction.MAX

# Sample positions are the same float32 numbers on every device, so only weights, products and sums round, all counted at
# the magnitude of what was added: a handful of ULP. float16 rounds once, at the end.
_TOLERANCE = {TensorDataType.FLOAT32: Tolerance(8), TensorDataType.FLOAT16: Tolerance(1)}

_BOTH = ("images", "boxes")


def _case(
    name: str,
    image: tuple[int, int, int, int],
    rois: int,
    output: tuple[int, int],
    wanted: tuple[str, ...] = _BOTH,
    *,
    boxes: Domain | None = None,
    image_values: Domain | None = None,
    gradient_values: Domain | None = None,
    indices: Domain | None = None,
    roi_rank: int = 2,
    index_rank: int = 1,
    quick: bool = False,
    layouts: bool = False,
    **attributes: object,
) -> Case:
    """A case of so many regions with outputs {height, width}; InputTensor is given where it is needed."""
    roi_sizes = (1,) * (roi_rank - 2) + (rois, 4)
    inputs = {
        "input_gradient_tensor": (rois, image[1], *output),
        "roi_tensor": roi_sizes,
        "batch_indices_tensor": (1,) * (index_rank - 1) + (rois,),
    }
    if "boxes" in wanted or attributes.get("reduction_function") == _MAX:
        inputs["input_tensor"] = image
    outputs = {"images": ("output_gradient_tensor", image), "boxes": ("output_roi_gradient_tensor", roi_sizes)}
    domains = {
        "roi_tensor": boxes or boxes_between(-2.0, max(image[2:]) + 2.0),
        "batch_indices_tensor": indices or uniform(0, image[0] - 1),
        "input_tensor": image_values,
        "input_gradient_tensor": gradient_values,
    }
    return Case(
        name,
        inputs=inputs,
        attributes=attributes,
        outputs=dict(outputs[each] for each in wanted),
        data_types={"batch_indices_tensor": TensorDataType.UINT32},
        domains={field: domain for field, domain in domains.items() if domain is not None},
        layouts=layouts,
        quick=quick,
    )


def _steps(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Few different whole numbers: samples of many outputs are equal, or would be without rounding."""
    return rng.integers(-1, 2, sizes).astype(NUMPY_TYPES[data_type])


CASES = (
    OperatorCases(
        RoiAlignGrad,
        _TOLERANCE,
        (
            _case("2x2 samples", (2, 5, 13, 17), 7, (7, 7), quick=True, layouts=True, **equal_limits(2)),
            _case("as many samples as pixels", (2, 3, 29, 23), 5, (3, 4), layouts=True),
            _case("maximum", (2, 3, 13, 17), 5, (3, 4), reduction_function=_MAX, quick=True, layouts=True),
            _case("nearest", (2, 3, 13, 17), 5, (3, 4), interpolation_mode=_NEAREST, layouts=True),
            _case("images only", (2, 3, 13, 17), 5, (3, 4), ("images",), layouts=True, **equal_limits(2)),
            _case("boxes only", (2, 3, 13, 17), 5, (3, 4), ("boxes",), quick=True, layouts=True, **equal_limits(2)),
            _case("images only, maximum", (1, 2, 13, 17), 3, (3, 4), ("images",), reduction_function=_MAX),
            _case("boxes only, maximum", (1, 2, 13, 17), 3, (3, 4), ("boxes",), reduction_function=_MAX),
            _case("nearest maximum", (1, 2, 11, 7), 3, (3, 4), interpolation_mode=_NEAREST, reduction_function=_MAX),
            _case(
                "equal samples",
                (2, 3, 9, 9),
                6,
                (3, 4),
                image_values=_steps,
                boxes=fixed(*(0.5, 0.5, 4.5, 3.5, 1, 1, 5, 4, 2, 0, 2, 0, 0, 0, 8, 6, 7.5, 8.5, 3.5, 2.5, -2, -2, 14, 10)),
                reduction_function=_MAX,
                **equal_limits(2),
            ),
            _case("plateaus", (2, 3, 13, 17), 5, (3, 4), image_values=_steps, reduction_function=_MAX),
            _case("maximum outside", (1, 2, 5, 6), 5, (3, 4), boxes=boxes_between(-9, 15), reduction_function=_MAX),
            _case("average outside", (1, 2, 5, 6), 5, (3, 4), boxes=boxes_between(-9.0, 15.0), **equal_limits(3)),
            _case(
                "scaled, boxes and indices of rank 4",
                (3, 2, 12, 31),
                5,
                (3, 4),
                boxes=boxes_between(0.0, 1.0),
                spatial_scale_x=31.0,
                spatial_scale_y=12.0,
                roi_rank=4,
                index_rank=4,
            ),
            _case("boxes of rank 3, indices of rank 2", (2, 1, 6, 5), 3, (3, 4), roi_rank=3, index_rank=2),
            _case("no such batch entry", (2, 3, 6, 5), 4, (3, 4), indices=fixed(1, 2, 2**32 - 1, 0)),
            _case("many channels", (2, 37, 8, 8), 3, (7, 7), **equal_limits(2)),
            _case("many channels, maximum", (2, 37, 8, 8), 3, (5, 7), reduction_function=_MAX, **equal_limits(2)),
            _case("several tiles", (1, 2, 19, 67), 11, (7, 7), **equal_limits(2)),
            _case("more regions than the list holds", (2, 1, 9, 11), 601, (2, 2), **equal_limits(1)),
            _case("more regions than a batch holds", (1, 150, 5, 7), 40, (2, 2), ("images",), **equal_limits(1)),
            _case("several chunks of outputs", (1, 2, 37, 41), 3, (9, 17), **equal_limits(2)),
            _case("several chunks of outputs, maximum", (1, 2, 13, 17), 3, (5, 9), reduction_function=_MAX),
            _case("many outputs", (1, 1, 5, 37), 2, (2, 263), **equal_limits(1)),
            _case("blocks of channels for boxes", (1, 67, 7, 5), 2, (29, 31), ("boxes",), **equal_limits(1)),
            _case("many samples in few pixels", (1, 2, 9, 11), 3, (3, 4), boxes=boxes_between(2, 5), **equal_limits(70)),
            _case("many samples in many pixels", (1, 2, 83, 79), 2, (1, 2), boxes=fixed(1, -9, 78, 82, 30, 3, 89, 9)),
            _case(
                "many samples at one place",
                (1, 1, 6, 6),
                2,
                (2, 2),
                boxes=fixed(2, 3, 2, 3, 1.5, 2, 1.5, 4),
                **equal_limits(70),
            ),
            _case("between limits", (1, 2, 40, 40), 5, (3, 4), minimum_samples_per_output=3, maximum_samples_per_output=5),
            _case("one wide row", (1, 3, 1, 67), 3, (1, 13), reduction_function=_MAX),
            _case("one pixel", (1, 1, 1, 1), 2, (1, 1), boxes=boxes_between(-1.0, 2.0)),
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
                "whole positions",
                (1, 2, 6, 6),
                4,
                (3, 4),
                boxes=fixed(0, 0, 4, 3, 0.5, 0.5, 4.5, 3.5, 1, 1, 5, 4, -1.5, -1.5, 6.5, 7.5),
                **equal_limits(1),
            ),
            _case(
                "NaN and infinite boxes",
                (1, 2, 6, 6),
                4,
                (3, 4),
                maximum_samples_per_output=3,
                boxes=fixed(np.nan, 0, 4, 4, 0, 0, np.inf, 4, -np.inf, 0, 4, 4, 1, 1, 4, 4),
            ),
            _case("special gradients", (2, 3, 9, 9), 7, (3, 4), gradient_values=special_pixels, **equal_limits(2)),
            _case("special pixels", (2, 3, 9, 9), 7, (3, 4), image_values=special_pixels, **equal_limits(2)),
            _case(
                "maximum of special pixels", (2, 3, 9, 9), 7, (3, 4), image_values=special_pixels, reduction_function=_MAX
            ),
            _case("corners, two samples", (1, 2, 13, 17), 5, (3, 4), align_regions_to_corners=True, **equal_limits(2)),
            _case(
                "corners",
                (2, 3, 13, 17),
                5,
                (3, 4),
                align_regions_to_corners=True,
                input_pixel_offset=0.0,
                output_pixel_offset=0.0,
                **equal_limits(1),
            ),
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
                "odd offsets",
                (2, 3, 13, 17),
                5,
                (3, 4),
                input_pixel_offset=-0.75,
                output_pixel_offset=0.375,
                reduction_function=_MAX,
            ),
        ),
    ),
)
