"""Normalization by statistics: computed from the input, or given."""

from __future__ import annotations

from collections.abc import Iterable

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.tensor import TensorDesc

__all__ = [
    "BatchNormalization",
    "BatchNormalizationTraining",
    "LocalResponseNormalization",
    "LpNormalization",
    "MeanVarianceNormalization",
    "MeanVarianceNormalization1",
    "MeanVarianceNormalization2",
]

_MEAN_VARIANCE = (
    _c.same_data_type(),
    _c.same_dimension_count(),
    _c.same_sizes("input_tensor", "output_tensor"),
    _c.broadcastable("input_tensor", "scale_tensor", "bias_tensor"),
    _c.valid_axes(),
)


def off_statistics(desc: _s.OperatorDesc, count: int) -> Iterable[int]:
    """The dimensions in which there is more than one mean."""
    return (dimension for dimension, size in enumerate(desc.tensor("scale_tensor").sizes) if size != 1)


class BatchNormalization(
    _s.OperatorDesc,
    constraints=(
        _c.same_data_type(),
        _c.same_dimension_count(),
        _c.same_sizes("input_tensor", "output_tensor"),
        _c.broadcastable("input_tensor", "mean_tensor", "variance_tensor", "scale_tensor", "bias_tensor"),
    ),
    traits=_s.Traits(separable=_s.everywhere),
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
    """``MeanVarianceNormalization2`` of {N, C, H, W} over the axes {2, 3}, or {1, 2, 3} with ``cross_channel``."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    scale_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4), optional=True)
    bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 4))
    cross_channel: bool = _s.boolean()
    normalize_variance: bool = _s.boolean(True)
    epsilon: float = _s.floating(1e-5)
    fused_activation: _s.OperatorDesc | None = _s.fused_activation()

    def upgrade(self) -> MeanVarianceNormalization2:
        return MeanVarianceNormalization2(
            input_tensor=self.input_tensor,
            scale_tensor=self.scale_tensor,
            bias_tensor=self.bias_tensor,
            output_tensor=self.output_tensor,
            axes=(1, 2, 3) if self.cross_channel else (2, 3),
            use_mean=True,
            use_variance=self.normalize_variance,
            epsilon=self.epsilon,
            fused_activation=self.fused_activation,
        )


class MeanVarianceNormalization1(_s.OperatorDesc, constraints=_MEAN_VARIANCE):
    """``MeanVarianceNormalization2`` with UseMean, and with UseVariance where ``normalize_variance``."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    scale_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, optional=True)
    bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    axes: tuple[int, ...] = _s.uint_array()
    normalize_variance: bool = _s.boolean(True)
    epsilon: float = _s.floating(1e-5)
    fused_activation: _s.OperatorDesc | None = _s.fused_activation()

    def upgrade(self) -> MeanVarianceNormalization2:
        return MeanVarianceNormalization2(
            input_tensor=self.input_tensor,
            scale_tensor=self.scale_tensor,
            bias_tensor=self.bias_tensor,
            output_tensor=self.output_tensor,
            axes=self.axes,
            use_mean=True,
            use_variance=self.normalize_variance,
            epsilon=self.epsilon,
            fused_activation=self.fused_activation,
        )


class MeanVarianceNormalization2(_s.OperatorDesc, constraints=_MEAN_VARIANCE, traits=_s.Traits(separable=_s.off_axes)):
    """y = activation(scale * (x - mean) / sqrt(variance + epsilon) + bias), with mean and variance over the axes.

    The variance is the population's (divided by the number of elements). Without UseVariance the division by the square
    root is left out. No axes make every element its own mean. Scale and bias are each present or absent on their own, as
    from feature level 5.2 on; each of their sizes equals the input's or is 1, which broadcasts.

    Where the specification is silent:

    - Without UseMean nothing is subtracted and the variance is the mean of x * x: UseVariance alone is the root mean
      square normalization (RMSNormalization, SimplifiedLayerNormalization), for which ONNX Runtime uses it.
    - A NaN or an infinity makes the mean, and so what is normalized by it, NaN or infinite as IEEE arithmetic has it, and
      leaves the rest alone.
    - FLOAT16 is accumulated and computed in float32 and rounded once, on storing. Sums are float32: a FLOAT32 input whose
      sum of squared deviations exceeds 3.4e38 overflows.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    scale_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, optional=True)
    bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    axes: tuple[int, ...] = _s.uint_array()
    use_mean: bool = _s.boolean(True)
    use_variance: bool = _s.boolean(True)
    epsilon: float = _s.floating(1e-5)
    fused_activation: _s.OperatorDesc | None = _s.fused_activation()


class BatchNormalizationTraining(
    _s.OperatorDesc,
    constraints=(
        _c.same_data_type(),
        _c.same_dimension_count(),
        _c.broadcastable("input_tensor", "scale_tensor"),
        _c.same_sizes("input_tensor", "fused_add_tensor", "output_tensor"),
        _c.same_sizes("scale_tensor", "bias_tensor", "output_mean_tensor", "output_variance_tensor"),
    ),
    traits=_s.Traits(separable=off_statistics),
):
    """y = activation(scale * (x - mean) / sqrt(variance + epsilon) + bias + fused add), with mean and variance over the
    dimensions in which scale has size 1, both of which are outputs, too.

    Where the specification is silent:

    - The variance is the population's (divided by the number of elements), in the formula and as an output; the moving
      average that frameworks keep, of N or N - 1, is theirs to make.
    - NaN, infinities, FLOAT16 and overflow are as in ``MeanVarianceNormalization2``; mean and variance are rounded to the
      data type as outputs only.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    scale_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    fused_add_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    output_mean_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    output_variance_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    epsilon: float = _s.floating(1e-5)
    fused_activation: _s.OperatorDesc | None = _s.fused_activation()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        own = self.tensor("scale_tensor").sizes
        return (self.tensor("input_tensor").sizes, own, own)


def regions_apart(desc: _s.OperatorDesc, count: int) -> Iterable[int]:
    """Images, and channels where a region has one."""
    return (0,) if getattr(desc, "cross_channel", True) else (0, 1)


@_c.constraint("local_size", "must be at least 1")
def _local_size(desc: LocalResponseNormalization) -> _s.Violation | None:
    return None if desc.local_size >= 1 else _s.Violation("local_size", desc.local_size)


class LocalResponseNormalization(
    _s.OperatorDesc,
    constraints=(
        _c.same_data_type(),
        _c.same_sizes(),
        _local_size,
        _c.finite("alpha"),
        _c.finite("beta"),
        _c.finite("bias"),
    ),
    traits=_s.Traits(separable=regions_apart),
):
    """y = x / (bias + alpha / local size * sum of x * x over the region) ** beta.

    Where the specification is silent or contradicts itself:

    - With CrossChannel the region is LocalSize channels at the same height and width, as ONNX's LRN and its provider for
      DirectML have it; without, LocalSize x LocalSize elements of one channel.
    - The divisor is LocalSize for both, as the formula has it (Caffe divides by the square in the second case).
    - A region reaches from (LocalSize - 1) // 2 before an element to LocalSize // 2 after it, as ONNX's does, and what
      lies outside of the tensor counts as 0.
    - The power is C's: a negative base gives NaN unless beta is an integer. The sum is float32.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 4))
    cross_channel: bool = _s.boolean(True)
    local_size: int = _s.uint()
    alpha: float = _s.floating(1e-4)
    beta: float = _s.floating(0.75)
    bias: float = _s.floating(1.0)


@_c.constraint("p", "must be 1 or 2")
def _p(desc: LpNormalization) -> _s.Violation | None:
    return None if desc.p in (1, 2) else _s.Violation("p", desc.p)


class LpNormalization(
    _s.OperatorDesc,
    constraints=(_c.same_data_type(), _c.same_dimension_count(), _c.same_sizes(), _c.valid_axis(), _p),
    traits=_s.Traits(separable=_s.off_axes),
):
    """y = x / max(norm, epsilon), the norm being the sum of abs(x) along the axis, or with P 2 the square root of the sum
    of x * x.

    The specification does not say where epsilon enters. As the lower bound of the norm it leaves all other results alone,
    and 0 gives what ONNX defines: a set of zeros stays zeros. So x / 0 is 0 here; a set that holds infinity becomes 0 but
    for the infinities, which become NaN, and one that holds NaN becomes NaN. The norm neither overflows nor underflows on
    the way. Devices may take subnormal numbers for 0.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    axis: int = _s.uint()
    epsilon: float = _s.floating(1e-5)
    p: int = _s.uint(2)
