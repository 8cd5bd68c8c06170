"""Activations: y = f(x) element for element. Those marked fusable may be another operator's ``fused_activation``.

Where a formula has no value at an infinity (0 * infinity, infinity / infinity) the result is NaN, and NaN stays NaN.
Types are the tensor's; float16 is computed in float32 and rounded once.
"""

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import TensorDataType as _T
from dmlvk.spec.tensor import TensorDesc

_SAME = (_c.same_data_type(), _c.same_dimension_count(), _c.same_sizes())
_SIGNED = (*_s.FLOATS, _T.INT32, _T.INT16, _T.INT8)
_UP_TO_32_BITS = (*_SIGNED, _T.UINT32, _T.UINT16, _T.UINT8)
_POINTWISE = _s.Traits(pointwise=True, beyond=_s.DOUBLE)
_COSTLY = _s.Traits(pointwise=True, costly=True, beyond=_s.DOUBLE)
_JUMPS = _s.Traits(pointwise=True, discontinuous=True, beyond=_s.DOUBLE)


class ActivationElu(_s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, fusable=True, traits=_COSTLY):
    """y = x where x >= 0, else alpha * (e^x - 1)."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    alpha: float = _s.floating(1.0)


class ActivationCelu(
    _s.OperatorDesc, in_place=("input_tensor",), constraints=(*_SAME, _c.nonzero("alpha")), fusable=True, traits=_COSTLY
):
    """y = max(0, x) + min(0, alpha * (e^(x / alpha) - 1)). Alpha 0, on which the specification is silent: an error."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    alpha: float = _s.floating(1.0)


class ActivationGelu(_s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, fusable=True, traits=_COSTLY):
    """y = 0.5 * x * (1 + erf(x / sqrt(2))), accurate to a few ULP also where x is far below 0. The schema allows
    in-place execution, on which the page is silent; it is allowed."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)


class ActivationHardSigmoid(_s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, fusable=True, traits=_POINTWISE):
    """y = max(0, min(alpha * x + beta, 1))."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    alpha: float = _s.floating(0.2)
    beta: float = _s.floating(0.5)


class ActivationHardSwish(_s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, fusable=True, traits=_POINTWISE):
    """y = x * max(0, min(alpha * x + beta, 1)). The page allows in-place execution, and so do we. DirectML does not fuse it;
    dmlvk does, as ``ActivationSwish``."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    alpha: float = _s.floating(1 / 6)
    beta: float = _s.floating(0.5)


class ActivationIdentity(_s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, fusable=True, traits=_POINTWISE):
    """y = x, bit for bit."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)


class ActivationLeakyRelu(_s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, fusable=True, traits=_POINTWISE):
    """y = x where x >= 0, else alpha * x."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    alpha: float = _s.floating(0.01)


class ActivationLinear(_s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, fusable=True, traits=_POINTWISE):
    """y = alpha * x + beta."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    alpha: float = _s.floating(1.0)
    beta: float = _s.floating(0.0)


class ActivationParameterizedRelu(_s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, traits=_POINTWISE):
    """y = x where x >= 0, else slope * x. Integer products keep their low bits."""

    input_tensor: TensorDesc | None = _s.input_tensor(_SIGNED)
    slope_tensor: TensorDesc | None = _s.input_tensor(_SIGNED)
    output_tensor: TensorDesc | None = _s.output_tensor(_SIGNED)


class ActivationParametricSoftplus(
    _s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, fusable=True, traits=_COSTLY
):
    """y = alpha * ln(1 + e^(beta * x)), without overflow on the way."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    alpha: float = _s.floating(1.0)
    beta: float = _s.floating(1.0)


class ActivationRelu(_s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, fusable=True, traits=_POINTWISE):
    """y = max(0, x). As a fused activation it takes floats only."""

    input_tensor: TensorDesc | None = _s.input_tensor(_SIGNED)
    output_tensor: TensorDesc | None = _s.output_tensor(_SIGNED)


class ActivationScaledElu(_s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, fusable=True, traits=_COSTLY):
    """y = gamma * x where x > 0, else gamma * alpha * (e^x - 1)."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    alpha: float = _s.floating(1.67326319217681884765625)
    gamma: float = _s.floating(1.05070102214813232421875)


class ActivationScaledTanh(_s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, fusable=True, traits=_COSTLY):
    """y = alpha * tanh(beta * x)."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    alpha: float = _s.floating(1.0)
    beta: float = _s.floating(0.5)


class ActivationShrink(_s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, fusable=True, traits=_JUMPS):
    """y = x - bias where x > threshold, x + bias where x < -threshold, else 0.

    For integer types, on which the specification is silent, bias and threshold are first cast to the type as in
    ElementWiseClip (toward zero, clamped to its range), the sums keep their low bits, and an unsigned x is never below
    -threshold. As a fused activation it takes floats only.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_UP_TO_32_BITS)
    output_tensor: TensorDesc | None = _s.output_tensor(_UP_TO_32_BITS)
    bias: float = _s.floating(0.0)
    threshold: float = _s.floating(0.5)


class ActivationSigmoid(_s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, fusable=True, traits=_COSTLY):
    """y = 1 / (1 + e^-x)."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)


class ActivationSoftplus(
    _s.OperatorDesc, in_place=("input_tensor",), constraints=(*_SAME, _c.nonzero("steepness")), fusable=True, traits=_COSTLY
):
    """y = ln(1 + e^(steepness * x)) / steepness, without overflow on the way. Steepness 0 is an error; below 1 is
    allowed, as from feature level 6.4 on."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    steepness: float = _s.floating(1.0)


class ActivationSoftsign(_s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, fusable=True, traits=_POINTWISE):
    """y = x / (1 + |x|)."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)


class ActivationSwish(_s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, fusable=True, traits=_COSTLY):
    """y = x / (1 + e^(-sigmoid_input_scale * x)). The page allows in-place execution, and so do we. DirectML does not fuse
    it; dmlvk does, since half of today's convolutional networks have one behind every convolution."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    sigmoid_input_scale: float = _s.floating(1.0)


class ActivationTanh(_s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, fusable=True, traits=_COSTLY):
    """y = tanh(x)."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)


class ActivationThresholdedRelu(_s.OperatorDesc, in_place=("input_tensor",), constraints=_SAME, fusable=True, traits=_JUMPS):
    """y = x where x > alpha, else 0."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    alpha: float = _s.floating(1.0)


@_c.constraint("effective_rank", "must have at most 2 dimensions, not counting leading dimensions of size 1")
def _effective_rank(desc: _s.OperatorDesc) -> _s.Violation | None:
    sizes = desc.tensor("input_tensor").sizes
    return _s.Violation("input_tensor", sizes) if any(size != 1 for size in sizes[:-2]) else None


class ActivationSoftmax1(_s.OperatorDesc, constraints=(*_SAME, _c.valid_axes()), traits=_s.Traits(separable=_s.off_axes)):
    """y = e^x / (the sum of e^x over the axes), without overflow on the way: only differences of x count.

    A set of elements that holds NaN or infinity, or only -infinity, becomes NaN. Without axes every element is a set of
    its own. May be fused into ``Gemm`` only.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    axes: tuple[int, ...] = _s.uint_array()


class SoftmaxOrZero(
    ActivationSoftmax1, internal=True, constraints=ActivationSoftmax1.constraints, traits=ActivationSoftmax1.traits
):
    """``ActivationSoftmax1``, and 0 in place of NaN: what is exported of attention whose mask may leave nothing of a row. A
    row of our own, which a pass makes of the softmax and of what chooses between its elements and 0. With KeepsNan 0 stands
    for sets of -infinity alone, as attention has it.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    axes: tuple[int, ...] = _s.uint_array()
    keeps_nan: bool = _s.boolean(False)


class ActivationSoftmax(_s.OperatorDesc, constraints=(_effective_rank, *_SAME)):
    """``ActivationSoftmax1`` over the last dimension."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)

    def upgrade(self) -> ActivationSoftmax1:
        return ActivationSoftmax1(
            input_tensor=self.input_tensor,
            output_tensor=self.output_tensor,
            axes=(self.tensor("input_tensor").dimension_count - 1,),
        )


class ActivationLogSoftmax1(_s.OperatorDesc, constraints=(*_SAME, _c.valid_axes()), traits=_s.Traits(separable=_s.off_axes)):
    """y = x - ln(the sum of e^x over the axes): the logarithm of ``ActivationSoftmax1``, computed without rounding small
    values to 0 first."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    axes: tuple[int, ...] = _s.uint_array()


class ActivationLogSoftmax(_s.OperatorDesc, constraints=(_effective_rank, *_SAME)):
    """``ActivationLogSoftmax1`` over the last dimension."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)

    def upgrade(self) -> ActivationLogSoftmax1:
        return ActivationLogSoftmax1(
            input_tensor=self.input_tensor,
            output_tensor=self.output_tensor,
            axes=(self.tensor("input_tensor").dimension_count - 1,),
        )


class ActivationHardmax1(_s.OperatorDesc, constraints=(*_SAME, _c.valid_axes()), traits=_s.Traits(separable=_s.off_axes)):
    """y = 1 at the first of the largest elements over the axes, in the order of a row-major index, else 0.

    Where the specification is silent: NaN counts as larger than all numbers, as in PyTorch's argmax, and 0 and -0 as
    equal. Without axes every element is a set of its own, so that y = 1.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)
    axes: tuple[int, ...] = _s.uint_array()


class ActivationHardmax(_s.OperatorDesc, constraints=(_effective_rank, *_SAME)):
    """``ActivationHardmax1`` over the last dimension."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS)

    def upgrade(self) -> ActivationHardmax1:
        return ActivationHardmax1(
            input_tensor=self.input_tensor,
            output_tensor=self.output_tensor,
            axes=(self.tensor("input_tensor").dimension_count - 1,),
        )
