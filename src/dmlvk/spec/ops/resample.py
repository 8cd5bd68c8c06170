"""Resampling: tensors scaled along any of their dimensions."""

from __future__ import annotations

import math as _math
from collections.abc import Iterable

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import AxisDirection as _AxisDirection
from dmlvk.spec.enums import InterpolationMode as _InterpolationMode
from dmlvk.spec.enums import TensorDataType as _Type
from dmlvk.spec.size import decided as _decided
from dmlvk.spec.tensor import TensorDesc

__all__ = ["Resample", "Resample1", "Resample2", "Resample3", "Upsample2d"]

_TYPES = (*_s.FLOATS, _Type.INT8, _Type.UINT8)
_UINT_MAX = 2**32 - 1
_ALIKE = _s.Traits(alike=("input_tensor", "output_tensor"))


def _one_a_dimension(tensor: str, *names: str) -> _s.Constraint:
    @_c.constraint("one_a_dimension", f"{' and '.join(names)} must have one number for each dimension of {tensor}")
    def check(desc: _s.OperatorDesc) -> _s.Violation | None:
        count = desc.tensor(tensor).dimension_count
        bad = next((name for name in names if len(getattr(desc, name)) != count), None)
        return None if bad is None else _s.Violation(bad, getattr(desc, bad))

    return check


def _finite_numbers(name: str) -> _s.Constraint:
    @_c.constraint("finite_numbers", f"{name} must be finite")
    def check(desc: _s.OperatorDesc) -> _s.Violation | None:
        good = all(map(_math.isfinite, getattr(desc, name)))
        return None if good else _s.Violation(name, getattr(desc, name))

    return check


def _is_scale(scale: float) -> bool:
    return _math.isfinite(scale) and not _s.is_zero_in_float32(scale)


@_c.constraint("scales", "scales must be finite and, as FLOAT32, not 0")
def _scales(desc: Resample3) -> _s.Violation | None:
    good = all(_decided(_is_scale, scale) for scale in desc.scales)
    return None if good else _s.Violation("scales", desc.scales)


_SCALED = (_c.same_data_type(), _c.same_dimension_count(), _one_a_dimension("input_tensor", "scales"), _scales)


def _shifted(tensor: str) -> tuple[_s.Constraint, ...]:
    return (
        *(_c.same_data_type(), _c.same_dimension_count()),
        _one_a_dimension(tensor, "scales", "input_pixel_offsets", "output_pixel_offsets"),
        *(_scales, _finite_numbers("input_pixel_offsets"), _finite_numbers("output_pixel_offsets")),
    )


def _unknown_sizes(desc: _s.OperatorDesc) -> Exception:
    return desc.error("output_tensor", "must be given, because its sizes need not be those of the scaled input", None)


@_c.constraint("scale_size", "must be at least 1, and the scaled sizes must stay below 2**32")
def _scale_size(desc: Upsample2d) -> _s.Violation | None:
    height, width = desc.tensor("input_tensor").sizes[-2:]
    scale = desc.scale_size
    good = scale.width >= 1 and scale.height >= 1 and max(scale.width * width, scale.height * height) <= _UINT_MAX
    return None if good else _s.Violation("scale_size", desc.scale_size)


class Upsample2d(
    _s.OperatorDesc,
    constraints=(_c.same_data_type(), _c.same_dimension_count(), _scale_size, _c.output_sizes_match()),
):
    """Enlarges the last two dimensions, H and W, by whole numbers.

    The specification does not say where pixels lie. As in ``Resample`` they are taken at their centres: NEAREST_NEIGHBOR
    repeats each pixel, and output o of LINEAR lies at (o + 0.5) / scale - 0.5.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 5))
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 5))
    scale_size: _s.Size2D = _s.size_2d()
    interpolation_mode: _InterpolationMode = _s.enumeration(_InterpolationMode)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        *others, height, width = self.tensor("input_tensor").sizes
        return ((*others, height * self.scale_size.height, width * self.scale_size.width),)

    def upgrade(self) -> Resample:
        others = (1.0,) * (self.tensor("input_tensor").dimension_count - 2)
        return Resample(
            input_tensor=self.input_tensor,
            output_tensor=self.output_tensor,
            interpolation_mode=self.interpolation_mode,
            scales=(*others, float(self.scale_size.height), float(self.scale_size.width)),
        )


class Resample(_s.OperatorDesc, constraints=_SCALED, traits=_ALIKE):
    """``Resample1`` with pixels at their centres: InputPixelOffsets 0.5 and OutputPixelOffsets -0.5."""

    input_tensor: TensorDesc | None = _s.input_tensor(_TYPES, (1, 4))
    output_tensor: TensorDesc | None = _s.output_tensor(_TYPES, (1, 4))
    interpolation_mode: _InterpolationMode = _s.enumeration(_InterpolationMode)
    scales: tuple[float, ...] = _s.float_array()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        raise _unknown_sizes(self)

    def upgrade(self) -> Resample1:
        return Resample1(
            input_tensor=self.input_tensor,
            output_tensor=self.output_tensor,
            interpolation_mode=self.interpolation_mode,
            scales=self.scales,
            input_pixel_offsets=(0.5,) * len(self.scales),
            output_pixel_offsets=(-0.5,) * len(self.scales),
        )


@_c.constraint("filter_scale", "filter_scale must be above 0, at most 1")
def _filter_scale(desc: ResampleWeights) -> _s.Violation | None:
    return None if 0 < desc.filter_scale <= 1 else _s.Violation("filter_scale", desc.filter_scale)


@_c.constraint("scale", "scale must be finite and, as FLOAT32, not 0")
def _one_scale(desc: ResampleWeights) -> _s.Violation | None:
    return None if _decided(_is_scale, desc.scale) else _s.Violation("scale", desc.scale)


@_c.constraint("finite_offsets", "offsets must be finite")
def _finite_offsets(desc: ResampleWeights) -> _s.Violation | None:
    names = ("input_pixel_offset", "output_pixel_offset")
    bad = next((name for name in names if not _math.isfinite(getattr(desc, name))), None)
    return None if bad is None else _s.Violation(bad, getattr(desc, bad))


class ResampleWeights(_s.OperatorDesc, internal=True, constraints=(_one_scale, _filter_scale, _finite_offsets)):
    """A row of our own: the matrix of what each output of a resampling takes of each input element, along one dimension; for
    filters that ``Resample3`` does not have.

    output_tensor: {outputs, inputs}.
    scale, input_pixel_offset, output_pixel_offset: Where the outputs lie, as ``Resample3`` has it.
    filter_scale: What distances are multiplied by before they have a weight: below 1 a filter is wider.
    cubic: Whether the filter is the cubic convolution kernel; else it is 1 minus the distance.
    coefficient: That kernel's, often -0.75.
    inside_only: Whether elements outside of the input do not count; else they count as the edge's.
    normalized: Whether the weights of an output are divided by their sum.
    """

    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (2, 2))
    scale: float = _s.floating()
    input_pixel_offset: float = _s.floating()
    output_pixel_offset: float = _s.floating()
    filter_scale: float = _s.floating()
    cubic: bool = _s.boolean()
    coefficient: float = _s.floating()
    inside_only: bool = _s.boolean()
    normalized: bool = _s.boolean()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        raise _unknown_sizes(self)


class Resample1(_s.OperatorDesc, constraints=_shifted("input_tensor"), traits=_ALIKE):
    """``Resample2`` whose NEAREST_NEIGHBOR takes the closest element, x rounded; of two as close the lower one.

    The specification does not say which of the two. Its figures of the gradient operators fit ceil(x - 0.5), which is
    ``Resample2`` with INCREASING and 0.5 more InputPixelOffset; the remark on ``Resample2``'s page (DECREASING, and
    OutputPixelOffsets 0.5 less) contradicts them, and the figures decide. ONNX's default, round_prefer_floor, agrees.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_TYPES, (1, 4))
    output_tensor: TensorDesc | None = _s.output_tensor(_TYPES, (1, 4))
    interpolation_mode: _InterpolationMode = _s.enumeration(_InterpolationMode)
    scales: tuple[float, ...] = _s.float_array()
    input_pixel_offsets: tuple[float, ...] = _s.float_array()
    output_pixel_offsets: tuple[float, ...] = _s.float_array()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        raise _unknown_sizes(self)

    def upgrade(self) -> Resample2:
        nearest = self.interpolation_mode == _InterpolationMode.NEAREST_NEIGHBOR
        return Resample2(
            input_tensor=self.input_tensor,
            output_tensor=self.output_tensor,
            interpolation_mode=self.interpolation_mode,
            rounding_direction=_AxisDirection.INCREASING,
            scales=self.scales,
            input_pixel_offsets=tuple(offset + 0.5 * nearest for offset in self.input_pixel_offsets),
            output_pixel_offsets=self.output_pixel_offsets,
        )


class Resample2(_s.OperatorDesc, constraints=_shifted("input_tensor"), traits=_ALIKE):
    """``Resample3`` without antialiasing."""

    input_tensor: TensorDesc | None = _s.input_tensor(_TYPES, (1, 4))
    output_tensor: TensorDesc | None = _s.output_tensor(_TYPES, (1, 4))
    interpolation_mode: _InterpolationMode = _s.enumeration(_InterpolationMode)
    rounding_direction: _AxisDirection = _s.enumeration(_AxisDirection, _AxisDirection.INCREASING)
    scales: tuple[float, ...] = _s.float_array()
    input_pixel_offsets: tuple[float, ...] = _s.float_array()
    output_pixel_offsets: tuple[float, ...] = _s.float_array()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        raise _unknown_sizes(self)

    def upgrade(self) -> Resample3:
        return Resample3(**{spec.name: getattr(self, spec.name) for spec in self.fields})


def _unscaled(desc: _s.OperatorDesc, count: int) -> Iterable[int]:
    """The dimensions along which each output is the input at its place."""
    assert isinstance(desc, Resample3), "the row's own trait"
    sizes = zip(desc.tensor("input_tensor").sizes, desc.tensor("output_tensor").sizes, strict=True)
    offsets = zip(desc.input_pixel_offsets, desc.output_pixel_offsets, strict=True)
    toward = 0.5 if desc.rounding_direction == _AxisDirection.INCREASING else -0.5
    rounded = desc.interpolation_mode == _InterpolationMode.NEAREST_NEIGHBOR
    same = (0.0, toward) if rounded else (0.0,)
    ways = zip(desc.scales, sizes, offsets, strict=True)
    return (axis for axis, (scale, (x, y), own) in enumerate(ways) if scale == 1 and x == y and sum(own) in same)


class Resample3(_s.OperatorDesc, constraints=_shifted("input_tensor"), traits=_s.Traits(separable=_unscaled)):
    """Along each dimension, output o lies at x = (o - OutputPixelOffset) / Scale - InputPixelOffset of the input.

    - NEAREST_NEIGHBOR takes the element ceil(x) (INCREASING) or floor(x) (DECREASING) along each dimension.
    - LINEAR takes the average of the two elements around x along each dimension, weighted 1 - |i - x|. RoundingDirection
      does not matter.
    - Elements before the first and after the last are that one: where the scaled input is smaller than the output,
      its edges repeat; where it is larger, it is cropped.
    - Antialiased, LINEAR along a dimension with |Scale| < 1 averages all elements i with a positive weight
      1 - |i - x| |Scale|, divided by the sum of these weights. NEAREST_NEIGHBOR never antialiases.

    What the specification leaves open:

    - Coordinates are exact at any size, so that float32 roundings decide nothing. Each FLOAT counts as the simplest
      fraction (of the smallest denominator) that float32 rounds to it: 0.33333334 is 1/3. A scale counts as OutputSize /
      InputSize, or else as (OutputSize - 1) / (InputSize - 1), where float32 rounds that to it.
    - The page says both that antialiasing widens the filter by max(1, 1 / Scale) and that it needs 1 / Scale > 2. The
      first is ONNX's Resize word for word, so it starts at 1 as there. Elements outside of the input count as the edge's
      with their own weights, as in ONNX's reference and ONNX Runtime; PyTorch leaves them out, and differs at edges.
    - A negative scale mirrors.
    - Elements of weight 0 do not count: an infinity there does not turn the result into NaN.
    - INT8 and UINT8 averages are rounded to multiples of 2**-10 and then to integers, halves to even, which gives every
      device the same result.
    - Computed in float32. Positions further than 2**30 elements from the input's start are refused.

    ONNX's Resize: half_pixel is InputPixelOffset 0.5 and OutputPixelOffset -0.5; asymmetric 0 and 0; align_corners 0
    and 0 with the scale (OutputSize - 1) / (InputSize - 1). nearest_mode floor is DECREASING, ceil INCREASING,
    round_prefer_floor INCREASING with 0.5 more InputPixelOffset, round_prefer_ceil DECREASING with 0.5 less.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_TYPES, (1, 4))
    output_tensor: TensorDesc | None = _s.output_tensor(_TYPES, (1, 4))
    interpolation_mode: _InterpolationMode = _s.enumeration(_InterpolationMode)
    rounding_direction: _AxisDirection = _s.enumeration(_AxisDirection, _AxisDirection.INCREASING)
    scales: tuple[float, ...] = _s.float_array()
    input_pixel_offsets: tuple[float, ...] = _s.float_array()
    output_pixel_offsets: tuple[float, ...] = _s.float_array()
    antialiased: bool = _s.boolean(False)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        raise _unknown_sizes(self)
