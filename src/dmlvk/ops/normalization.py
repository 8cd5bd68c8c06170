"""Normalization by statistics: computed from the input, or given."""

from __future__ import annotations

from dmlvk import constraints as _c
from dmlvk import schema as _s
from dmlvk.tensor import TensorDesc

__all__ = ["BatchNormalization", "MeanVarianceNormalization", "MeanVarianceNormalization1"]


class BatchNormalization(
    _s.OperatorDesc,
    constraints=(
        _c.same_data_type(),
        _c.same_dimension_count(),
        _c.same_sizes("input_tensor", "output_tensor"),
        _c.broadcastable("input_tensor", "mean_tensor", "variance_tensor", "scale_tensor", "bias_tensor"),
    ),
):
    """y = activation(scale * (x - mean) / sqrt(variance + epsilon) + bias), with statistics given as tensors.

    Each size of mean, variance, scale and bias equals the input's or is 1, which broadcasts; each of them on its own.
    ``spatial`` has no effect, as from feature level 4.0 on.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    mean_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    variance_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    scale_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    spatial: bool = _s.boolean(True)
    epsilon: float = _s.floating(1e-5)
    fused_activation: _s.OperatorDesc | None = _s.fused_activation()


class MeanVarianceNormalization(
    _s.OperatorDesc,
    constraints=(
        _c.same_data_type(),
        _c.same_sizes("input_tensor", "output_tensor"),
        _c.broadcastable("input_tensor", "scale_tensor", "bias_tensor"),
    ),
):
    """``MeanVarianceNormalization1`` of {N, C, H, W} over the axes {2, 3}, or {1, 2, 3} with ``cross_channel``."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    scale_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4), optional=True)
    bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 4))
    cross_channel: bool = _s.boolean()
    normalize_variance: bool = _s.boolean(True)
    epsilon: float = _s.floating(1e-5)
    fused_activation: _s.OperatorDesc | None = _s.fused_activation()

    def upgrade(self) -> MeanVarianceNormalization1:
        return MeanVarianceNormalization1(
            input_tensor=self.input_tensor,
            scale_tensor=self.scale_tensor,
            bias_tensor=self.bias_tensor,
            output_tensor=self.output_tensor,
            axes=(1, 2, 3) if self.cross_channel else (2, 3),
            normalize_variance=self.normalize_variance,
            epsilon=self.epsilon,
            fused_activation=self.fused_activation,
        )


class MeanVarianceNormalization1(
    _s.OperatorDesc,
    constraints=(
        _c.same_data_type(),
        _c.same_dimension_count(),
        _c.same_sizes("input_tensor", "output_tensor"),
        _c.broadcastable("input_tensor", "scale_tensor", "bias_tensor"),
        _c.valid_axes(),
    ),
):
    """y = activation(scale * (x - mean) / sqrt(variance + epsilon) + bias), with mean and variance over the axes.

    The variance is the population's (divided by the number of elements). Without ``normalize_variance`` the division
    by the square root is left out. No axes make every element its own mean. Scale and bias are each present or absent
    on their own, as from feature level 5.2 on; each of their sizes equals the input's or is 1, which broadcasts.

    Where the specification is silent: a NaN or an infinity makes the mean, and so what is normalized by it, NaN or
    infinite as IEEE arithmetic has it, and leaves the rest alone. FLOAT16 is accumulated and computed in float32 and
    rounded once, on storing. Sums are float32: a FLOAT32 input whose sum of squared deviations exceeds 3.4e38
    overflows.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    scale_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, optional=True)
    bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    axes: tuple[int, ...] = _s.uint_array()
    normalize_variance: bool = _s.boolean(True)
    epsilon: float = _s.floating(1e-5)
    fused_activation: _s.OperatorDesc | None = _s.fused_activation()
