"""Gradients of resampling: what an input element contributed to the outputs, weighted by their gradients."""

from __future__ import annotations

from dmlvk.spec import schema as _s
from dmlvk.spec.enums import AxisDirection as _AxisDirection
from dmlvk.spec.enums import InterpolationMode as _InterpolationMode
from dmlvk.spec.ops.resample import Resample1 as _Resample1
from dmlvk.spec.ops.resample import Resample2 as _Resample2
from dmlvk.spec.ops.resample import _shifted
from dmlvk.spec.tensor import TensorDesc

__all__ = ["ResampleGrad", "ResampleGrad1"]


def _unknown_sizes(desc: _s.OperatorDesc) -> Exception:
    return desc.error(
        "output_gradient_tensor", "must be given, because its sizes need not be those of the scaled output", None
    )


class ResampleGrad(_s.OperatorDesc, constraints=_shifted("input_gradient_tensor")):
    """The gradient of ``Resample1``: ``ResampleGrad1`` whose NEAREST_NEIGHBOR gives to the closest element, of two as
    close to the lower one.

    That is ``ResampleGrad1`` with INCREASING and 0.5 more InputPixelOffset, as the page's figure has it; the remark on
    ``ResampleGrad1``'s page (DECREASING, and OutputPixelOffsets 0.5 less) contradicts the figure, as on ``Resample2``'s.
    """

    input_gradient_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (1, 4))
    output_gradient_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (1, 4))
    interpolation_mode: _InterpolationMode = _s.enumeration(_InterpolationMode)
    scales: tuple[float, ...] = _s.float_array()
    input_pixel_offsets: tuple[float, ...] = _s.float_array()
    output_pixel_offsets: tuple[float, ...] = _s.float_array()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        raise _unknown_sizes(self)

    def upgrade(self) -> ResampleGrad1:
        forward = _Resample1(
            input_tensor=self.output_gradient_tensor,
            output_tensor=self.input_gradient_tensor,
            interpolation_mode=self.interpolation_mode,
            scales=self.scales,
            input_pixel_offsets=self.input_pixel_offsets,
            output_pixel_offsets=self.output_pixel_offsets,
        ).upgrade()
        return ResampleGrad1(
            input_gradient_tensor=self.input_gradient_tensor,
            output_gradient_tensor=self.output_gradient_tensor,
            interpolation_mode=self.interpolation_mode,
            rounding_direction=forward.rounding_direction,
            scales=self.scales,
            input_pixel_offsets=forward.input_pixel_offsets,
            output_pixel_offsets=self.output_pixel_offsets,
        )


class ResampleGrad1(_s.OperatorDesc, constraints=_shifted("input_gradient_tensor")):
    """The gradient of ``Resample2``: the transpose of the matrix by which it makes outputs from inputs.

    dx[i] = sum over o of w(o, i) dy[o], where dy has the sizes of the forward output, dx those of the forward input, and
    w(o, i) is the weight of input element i in output o: the product over the dimensions of what ``Resample3``'s docstring
    says, at the same exact positions. So an edge's element gathers all outputs beyond it, and an element that no output
    read has gradient 0. Scales, offsets and RoundingDirection are those of the forward operator.

    What the specification leaves open: outputs of weight 0 do not count, so that an infinity or NaN shows only in what the
    forward operator read for it. Each sum has a fixed order, and the same bits every time; it is made in float32.
    """

    input_gradient_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (1, 4))
    output_gradient_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (1, 4))
    interpolation_mode: _InterpolationMode = _s.enumeration(_InterpolationMode)
    rounding_direction: _AxisDirection = _s.enumeration(_AxisDirection, _AxisDirection.INCREASING)
    scales: tuple[float, ...] = _s.float_array()
    input_pixel_offsets: tuple[float, ...] = _s.float_array()
    output_pixel_offsets: tuple[float, ...] = _s.float_array()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        raise _unknown_sizes(self)

    def forward(self) -> _Resample2:
        """The forward operator that this is the gradient of."""
        return _Resample2(
            input_tensor=self.output_gradient_tensor,
            output_tensor=self.input_gradient_tensor,
            interpolation_mode=self.interpolation_mode,
            rounding_direction=self.rounding_direction,
            scales=self.scales,
            input_pixel_offsets=self.input_pixel_offsets,
            output_pixel_offsets=self.output_pixel_offsets,
        )
