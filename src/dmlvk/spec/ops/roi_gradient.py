"""The gradients of regions of interest."""

from __future__ import annotations

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import InterpolationMode, ReduceFunction, TensorDataType
from dmlvk.spec.ops import roi as _roi
from dmlvk.spec.tensor import TensorDesc

__all__ = ["RoiAlignGrad"]

_IMAGES = ("input_tensor", "output_gradient_tensor")


@_c.constraint("some_output", "OutputGradientTensor or OutputROIGradientTensor must be given")
def _some_output(desc: RoiAlignGrad) -> _s.Violation | None:
    given = desc.output_gradient_tensor or desc.output_roi_gradient_tensor
    return None if given else _s.Violation("output_gradient_tensor", None)


@_c.constraint("image_needed", "must be given where OutputROIGradientTensor is, and for MAX")
def _image_needed(desc: RoiAlignGrad) -> _s.Violation | None:
    needed = desc.output_roi_gradient_tensor is not None or desc.reduction_function == ReduceFunction.MAX
    return _s.Violation("input_tensor", None) if needed and desc.input_tensor is None else None


@_c.constraint("gradient_sizes", "must have the sizes {NumROIs, ChannelCount, OutputHeight, OutputWidth}")
def _gradient_sizes(desc: RoiAlignGrad) -> _s.Violation | None:
    sizes = desc.tensor("input_gradient_tensor").sizes
    images = [image.sizes[1] for image in (desc.input_tensor, desc.output_gradient_tensor) if image is not None]
    good = sizes[0] == desc.tensor("roi_tensor").sizes[-2] and sizes[1] in images
    return None if good else _s.Violation("input_gradient_tensor", sizes)


@_c.constraint("roi_gradient_sizes", "must have the sizes of ROITensor")
def _roi_gradient_sizes(desc: RoiAlignGrad) -> _s.Violation | None:
    gradient = desc.output_roi_gradient_tensor
    if gradient is None or gradient.sizes == desc.tensor("roi_tensor").sizes:
        return None
    return _s.Violation("output_roi_gradient_tensor", gradient.sizes)


class RoiAlignGrad(
    _s.OperatorDesc,
    constraints=(
        _some_output,
        _image_needed,
        _c.same_data_type("input_gradient_tensor", "roi_tensor", *_IMAGES, "output_roi_gradient_tensor"),
        _roi.roi_sizes,
        _roi.batch_indices_sizes,
        _c.same_sizes(*_IMAGES),
        _gradient_sizes,
        _roi_gradient_sizes,
        _roi.reduction_function,
        _c.finite("spatial_scale_x"),
        _c.finite("spatial_scale_y"),
        _roi.sample_counts,
        _c.finite("input_pixel_offset"),
        _c.finite("output_pixel_offset"),
    ),
):
    """The gradients of ``RoiAlign1`` with respect to its images and its boxes, given that with respect to its output.

    Where samples lie, how many there are and which pixels they read is as ``RoiAlign1`` says. InputGradientTensor (dy) has
    the sizes of its output, OutputGradientTensor those of its input, OutputROIGradientTensor those of ROITensor.

    - Images: every pixel adds up, over all samples that read it, dy times the pixel's weight in the sample, divided by the
      output's number of samples. For MAX only the largest sample of each output counts, undivided; of equal ones the
      first, y before x; NaN is the largest.
    - Boxes: every sample moves with its box. One that lies at t of the way from x1 to x2, which is
      t = (s - OutputPixelOffset) / (outputs * samples) with the names of ``RoiAlign1``, moves by SpatialScaleX * (1 - t)
      with x1 and by SpatialScaleX * t with x2, and changes by the difference of its right and left pixels, weighted as
      its rows are. The sums over channels, outputs and samples of what follows, times dy over the number of samples, are
      the gradient of {x1, y1, x2, y2}. How many samples there are depends on the box too, but in steps.

    The specification gives the boxes' gradient as pseudo-code for one sample an output. It is this derivative where its
    inputGradientCoordinate.x stands for t * SpatialScaleX and its inputWidth for SpatialScaleX (boxes in parts of the
    image, whose scale is its width); taken by the letter, as indices of outputs, it is no derivative. From it comes
    that a sample that lies exactly on a pixel, where the forward operator has a kink, has the slope 0 along that axis.

    Where the specification is silent:

    - A sample outside the border (see ``RoiAlign1``) reads no pixel and does not change with its box. For MAX it is 0,
      the usual OutOfBoundsInputValue, which this operator is not told; against an equal sample inside it loses.
    - A sample that the border moves to the nearest edge gives the edge's pixels its gradient, and the box none.
    - NEAREST_NEIGHBOR does not change with the box but in jumps: OutputROIGradientTensor is 0.
    - A batch index that is not below BatchCount: the region gives nothing to the images, and its box has the gradient 0.
    - A weight or slope of 0 stays 0 where dy is infinite or NaN: such a dy shows in what its output depends on only.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4), optional=True)
    input_gradient_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    roi_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 4), dml_name="ROITensor")
    batch_indices_tensor: TensorDesc | None = _s.input_tensor((TensorDataType.UINT32,), (1, 4))
    output_gradient_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 4), optional=True)
    output_roi_gradient_tensor: TensorDesc | None = _s.output_tensor(
        _s.FLOATS, (2, 4), optional=True, dml_name="OutputROIGradientTensor"
    )
    reduction_function: ReduceFunction = _s.enumeration(ReduceFunction, ReduceFunction.AVERAGE)
    interpolation_mode: InterpolationMode = _s.enumeration(InterpolationMode, InterpolationMode.LINEAR)
    spatial_scale_x: float = _s.floating(1.0)
    spatial_scale_y: float = _s.floating(1.0)
    input_pixel_offset: float = _s.floating(0.5)
    output_pixel_offset: float = _s.floating(-0.5)
    minimum_samples_per_output: int = _s.uint(1)
    maximum_samples_per_output: int = _s.uint(2**32 - 1)
    align_regions_to_corners: bool = _s.boolean(False)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        if self.input_tensor is None:
            raise self.error(
                "output_gradient_tensor", "must be given, because without InputTensor nothing says its sizes", None
            )
        return (self.input_tensor.sizes, self.tensor("roi_tensor").sizes)
