"""Regions of interest: crops of an image, resampled to one size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import InterpolationMode, ReduceFunction, TensorDataType
from dmlvk.spec.tensor import TensorDesc

__all__ = ["RoiAlign", "RoiAlign1", "RoiPooling"]

_INDICES = (TensorDataType.UINT64, TensorDataType.UINT32)
_UINT_MAX = 2**32 - 1


class Sampled(Protocol):
    """An operator that samples regions: ``RoiAlign``, its re-issue or its gradient."""

    def tensor(self, name: str) -> TensorDesc: ...

    @property
    def reduction_function(self) -> ReduceFunction: ...

    @property
    def minimum_samples_per_output(self) -> int: ...

    @property
    def maximum_samples_per_output(self) -> int: ...


@_c.constraint("roi_sizes", "must have the sizes {[1, [1,]] NumROIs, 4}")
def roi_sizes(desc: Sampled) -> _s.Violation | None:
    sizes = desc.tensor("roi_tensor").sizes
    good = sizes[-1] == 4 and all(size == 1 for size in sizes[:-2])
    return None if good else _s.Violation("roi_tensor", sizes)


@_c.constraint("batch_indices_sizes", "must have the sizes {[1, [1, [1,]]] NumROIs}, one index for each region")
def batch_indices_sizes(desc: Sampled) -> _s.Violation | None:
    sizes = desc.tensor("batch_indices_tensor").sizes
    good = sizes[-1] == desc.tensor("roi_tensor").sizes[-2] and all(size == 1 for size in sizes[:-1])
    return None if good else _s.Violation("batch_indices_tensor", sizes)


@_c.constraint("output_sizes", "must have the sizes {NumROIs, ChannelCount, OutputHeight, OutputWidth}")
def _output_sizes(desc: RoiAlign | RoiAlign1) -> _s.Violation | None:
    sizes = desc.tensor("output_tensor").sizes
    wanted = (desc.tensor("roi_tensor").sizes[-2], desc.tensor("input_tensor").sizes[1])
    return None if sizes[:2] == wanted else _s.Violation("output_tensor", sizes)


@_c.constraint("reduction_function", "must be AVERAGE or MAX")
def reduction_function(desc: Sampled) -> _s.Violation | None:
    good = desc.reduction_function in (ReduceFunction.AVERAGE, ReduceFunction.MAX)
    return None if good else _s.Violation("reduction_function", desc.reduction_function)


@_c.constraint("sample_counts", "must be at least 1 and not below MinimumSamplesPerOutput")
def sample_counts(desc: Sampled) -> _s.Violation | None:
    good = desc.maximum_samples_per_output >= max(1, desc.minimum_samples_per_output)
    return None if good else _s.Violation("maximum_samples_per_output", desc.maximum_samples_per_output)


_CONSTRAINTS = (
    _c.same_data_type("input_tensor", "roi_tensor", "output_tensor"),
    roi_sizes,
    batch_indices_sizes,
    _output_sizes,
    reduction_function,
    _c.finite("spatial_scale_x"),
    _c.finite("spatial_scale_y"),
    sample_counts,
)


def _unknown_sizes(desc: RoiAlign | RoiAlign1) -> Exception:
    return desc.error("output_tensor", "must be given, because nothing else says OutputHeight and OutputWidth", None)


class RoiAlign(_s.OperatorDesc, constraints=_CONSTRAINTS):
    """``RoiAlign1`` with pixels at their centres (offsets 0.5 and -0.5) and samples spread evenly."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    roi_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 4), dml_name="ROITensor")
    batch_indices_tensor: TensorDesc | None = _s.input_tensor(_INDICES, (1, 4))
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 4))
    reduction_function: ReduceFunction = _s.enumeration(ReduceFunction, ReduceFunction.AVERAGE)
    interpolation_mode: InterpolationMode = _s.enumeration(InterpolationMode, InterpolationMode.LINEAR)
    spatial_scale_x: float = _s.floating(1.0)
    spatial_scale_y: float = _s.floating(1.0)
    out_of_bounds_input_value: float = _s.floating(0.0)
    minimum_samples_per_output: int = _s.uint(1)
    maximum_samples_per_output: int = _s.uint(_UINT_MAX)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        raise _unknown_sizes(self)

    def upgrade(self) -> RoiAlign1:
        return RoiAlign1(**{spec.name: getattr(self, spec.name) for spec in self.fields})


def _roi_cuts(desc: RoiAlign1 | RoiPooling) -> Sequence[_s.Cut]:
    """By regions, and by channels."""
    regions = {"roi_tensor": desc.tensor("roi_tensor").dimension_count - 2, "output_tensor": 0}
    indices = getattr(desc, "batch_indices_tensor", None)
    regions |= {} if indices is None else {"batch_indices_tensor": indices.dimension_count - 1}
    return [_s.Cut(regions), _s.Cut({"input_tensor": 1, "output_tensor": 1})]


class RoiAlign1(
    _s.OperatorDesc,
    constraints=(*_CONSTRAINTS, _c.finite("input_pixel_offset"), _c.finite("output_pixel_offset")),
):
    """Crops regions (boxes x1, y1, x2, y2) out of images and resamples each to OutputHeight x OutputWidth.

    Of each region and axis, in float32 and in this order of operations (start and end are the box's two coordinates,
    outputs is the output's size along the axis):

    - scaled start and end: the coordinates times SpatialScale; size = scaled end - scaled start;
    - samples of one output: the smallest n with n * outputs >= size, but at least max(1, MinimumSamplesPerOutput)
      and at most MaximumSamplesPerOutput;
    - step = size / (outputs * samples); with AlignRegionsToCorners size / (outputs * samples - 1), so that with
      OutputPixelOffset 0 the first sample lies on one side of the region and the last on the other;
    - output o has the samples s = o * samples ... o * samples + samples - 1, and sample s lies at
      (s - OutputPixelOffset) * step + scaled start - InputPixelOffset.

    An output is the AVERAGE or the MAX of its samples, which lie at every pair of its y and x positions.

    Where the specification is silent or contradicts itself, ONNX's RoiAlign decides:

    - The specification's quotient size / outputs is rounded up to a number of samples, and that many are taken.
    - Border: a sample less than one pixel before the first or after the last pixel's index (from -1 to the input's
      size) moves to the nearest edge; beyond, and where a coordinate is NaN, it is OutOfBoundsInputValue.
    - NEAREST_NEIGHBOR takes the pixel ceil(x - 0.5), halves down, which is what the specification's figure shows.
    - MAX is over interpolated samples, as the specification words it; ONNX takes it over weighted pixels. NaN wins.
    - A pixel of weight 0 is not read: an infinity there does not turn the sample into NaN.
    - A mirrored box has a negative size, so each of its outputs takes the minimum of samples; an empty box reads one
      position. A region of one sample in all under AlignRegionsToCorners takes it in the region's middle.
    - A batch index that is not below BatchCount makes every sample OutOfBoundsInputValue.

    ONNX's RoiAlign is this operator with LINEAR, SpatialScale of both axes spatial_scale, OutputPixelOffset -0.5,
    InputPixelOffset 0.5 for half_pixel and 0 for output_half_pixel, both sample counts sampling_ratio, or 1 and
    2**32 - 1 where that is 0. In output_half_pixel, ONNX widens boxes to one pixel first (x2 >= x1 + 1 after scaling).
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    roi_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 4), dml_name="ROITensor")
    batch_indices_tensor: TensorDesc | None = _s.input_tensor(_INDICES, (1, 4))
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 4))
    reduction_function: ReduceFunction = _s.enumeration(ReduceFunction, ReduceFunction.AVERAGE)
    interpolation_mode: InterpolationMode = _s.enumeration(InterpolationMode, InterpolationMode.LINEAR)
    spatial_scale_x: float = _s.floating(1.0)
    spatial_scale_y: float = _s.floating(1.0)
    input_pixel_offset: float = _s.floating(0.5)
    output_pixel_offset: float = _s.floating(-0.5)
    out_of_bounds_input_value: float = _s.floating(0.0)
    minimum_samples_per_output: int = _s.uint(1)
    maximum_samples_per_output: int = _s.uint(_UINT_MAX)
    align_regions_to_corners: bool = _s.boolean(False)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        raise _unknown_sizes(self)

    def cuts(self) -> Sequence[_s.Cut]:
        return _roi_cuts(self)


@_c.constraint("region_sizes", "must have the sizes {1, 1, NumROIs, 5}")
def _region_sizes(desc: RoiPooling) -> _s.Violation | None:
    sizes = desc.tensor("roi_tensor").sizes
    return None if sizes[:2] == (1, 1) and sizes[3] == 5 else _s.Violation("roi_tensor", sizes)


class RoiPooling(
    _s.OperatorDesc,
    constraints=(_c.same_data_type(), _region_sizes, _c.finite("spatial_scale"), _c.output_sizes_match()),
):
    """The maxima of the PooledSize cells of a grid over each region {batch index, x1, y1, x2, y2}, corners inclusive.

    Of each axis, in whole pixels: first and last are the corners times SpatialScale, rounded; size = last - first + 1; cell
    o of n reaches from (o * size) // n to ((o + 1) * size + n - 1) // n, exclusive, after first, as far as the image goes.

    Where the specification is silent:

    - Halves round away from 0, as C's round does. A NaN corner counts as 0, one beyond 2**30 as 2**30.
    - A cell without pixels is 0, as in Caffe and ONNX Runtime. NaN wins a maximum.
    - A region whose last pixel is before its first has one pixel, the first, as in Caffe.
    - The batch index is cut to a whole number; one that the input has no entry for (or NaN) makes the region's outputs 0.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    roi_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4), dml_name="ROITensor")
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 4))
    spatial_scale: float = _s.floating(1.0)
    pooled_size: _s.Size2D = _s.size_2d()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        width, height = self.pooled_size
        return ((self.tensor("roi_tensor").sizes[2], self.tensor("input_tensor").sizes[1], height, width),)

    def cuts(self) -> Sequence[_s.Cut]:
        return _roi_cuts(self)
