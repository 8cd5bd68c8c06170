"""The gradient of local response normalization."""

from __future__ import annotations

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.ops.normalization import _local_size, regions_apart
from dmlvk.spec.tensor import TensorDesc


@_c.constraint("slope", "2 * alpha * beta / local_size must fit a FLOAT32")
def _slope(desc: LocalResponseNormalizationGrad) -> _s.Violation | None:
    slope = 2 * desc.alpha * desc.beta / desc.local_size
    return None if _s.fits_float32(slope) else _s.Violation("alpha", slope)


class LocalResponseNormalizationGrad(
    _s.OperatorDesc,
    constraints=(
        _c.same_data_type(),
        _c.same_sizes(),
        _local_size,
        _c.finite("alpha"),
        _c.finite("beta"),
        _c.finite("bias"),
        _slope,
    ),
    traits=_s.Traits(separable=regions_apart),
):
    """dx of ``LocalResponseNormalization``, whose output is y = x / base ** beta, from x and the gradient dy of y:

    dx[i] = dy[i] / base[i] ** beta
    - 2 * alpha * beta / local size * x[i] * sum of dy[j] * x[j] / base[j] ** (beta + 1) over the j in whose regions i lies,
    base = bias + alpha / local size * sum of x * x over the region

    The specification has no formula; this is the derivative. It also has the meaning of CrossChannel the other way round in
    what it says of LocalSize. Regions, divisor and power are those of ``LocalResponseNormalization``: an even region reaches
    further behind an element than before it, so the elements in whose regions it lies reach further before it.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    input_gradient_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    output_gradient_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 4))
    cross_channel: bool = _s.boolean(True)
    local_size: int = _s.uint()
    alpha: float = _s.floating(1e-4)
    beta: float = _s.floating(0.75)
    bias: float = _s.floating(1.0)
