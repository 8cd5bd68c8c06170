"""Gradients of normalizations: dx from the forward input x and the gradient dy of the forward output."""

from __future__ import annotations

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.ops.normalization import off_statistics
from dmlvk.spec.tensor import TensorDesc

__all__ = ["BatchNormalizationGrad", "BatchNormalizationTrainingGrad"]

_BATCH = (
    _c.same_data_type(),
    _c.same_dimension_count(),
    _c.same_sizes("input_tensor", "input_gradient_tensor", "output_gradient_tensor"),
    _c.broadcastable("input_tensor", "mean_tensor"),
    _c.same_sizes(
        "mean_tensor",
        "variance_tensor",
        "scale_tensor",
        "output_scale_gradient_tensor",
        "output_bias_gradient_tensor",
    ),
)


def _batch_output_sizes(desc: _s.OperatorDesc) -> tuple[tuple[int, ...], ...]:
    own = desc.tensor("mean_tensor").sizes
    return (desc.tensor("input_tensor").sizes, own, own)


class BatchNormalizationGrad(
    _s.OperatorDesc,
    constraints=_BATCH,
    traits=_s.Traits(separable=off_statistics),
):
    """The gradients of ``BatchNormalization``, whose statistics are given and so constants:

    - dx = dy * scale / sqrt(variance + epsilon);
    - scale gradient = sum of dy * (x - mean) / sqrt(variance + epsilon);
    - bias gradient = sum of dy,

    both sums over the dimensions in which mean, variance and scale have size 1; where there are none, over one element each.

    FLOAT16 is computed and summed in float32 and rounded once, on storing. A NaN or an infinity reaches the sums that it is
    part of, and its own dx where it is in dy.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    input_gradient_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    mean_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    variance_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    scale_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_gradient_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    output_scale_gradient_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    output_bias_gradient_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    epsilon: float = _s.floating(1e-5)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _batch_output_sizes(self)


class BatchNormalizationTrainingGrad(
    _s.OperatorDesc,
    constraints=_BATCH,
    traits=_s.Traits(separable=off_statistics),
):
    """The gradients of ``BatchNormalizationTraining``, whose statistics are functions of x: with c = 1 / sqrt(variance +
    epsilon), and means and sums over the dimensions in which mean, variance and scale have size 1,

    - dx = scale * c * (dy - mean of dy - (x - mean) * c * c * mean of dy * (x - mean));
    - scale gradient = sum of dy * (x - mean) * c;
    - bias gradient = sum of dy.

    The specification centres x around a mean of its own in dx (in a line that defines InputCentered by itself) and around
    MeanTensor in the scale gradient. MeanTensor is what the forward pass found that mean to be, and is used for both.

    FLOAT16, NaN and infinities are as in ``BatchNormalizationGrad``, but what reaches a sum reaches every dx made with it.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    input_gradient_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    mean_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    variance_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    scale_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_gradient_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    output_scale_gradient_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    output_bias_gradient_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    epsilon: float = _s.floating(1e-5)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _batch_output_sizes(self)
