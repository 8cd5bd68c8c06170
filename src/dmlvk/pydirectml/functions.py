"""PyDirectML's functions: each adds an operator to a graph. What they make has the sizes that DirectMLX gives it."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Sequence
from typing import Any, Final

from dmlvk import builder
from dmlvk.pydirectml.graph import Expression, GraphBuilder
from dmlvk.pydirectml.tensors import TensorDesc
from dmlvk.spec import schema
from dmlvk.spec.enums import (
    ConvolutionDirection,
    ConvolutionMode,
    InterpolationMode,
    MatrixTransform,
    OperatorType,
    PaddingMode,
    RecurrentNetworkDirection,
    TensorDataType,
)
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.schema import REGISTRY, OperatorDesc

REQUIRED: Final[Any] = inspect.Parameter.empty
"""The default of an argument that has none, behind one that has."""


class OutputOptions(enum.IntEnum):
    """Which outputs a recurrent network has."""

    Both = 0
    Sequence = 1
    Single = 2


class Size2D:
    """A count along W and one along H."""

    def __init__(self, width: int, height: int, /) -> None:
        self.width, self.height = width, height


class FusedActivation:
    """An activation that an operator applies to its result.

    Args:
        activation: The activation's operator; INVALID for none.
        param_1, param_2: Its numbers in the order of its desc: of SHRINK bias and threshold.

    Raises:
        InvalidArgumentError: an operator that cannot be fused.
    """

    def __init__(self, activation: OperatorType, param_1: float = 0, param_2: float = 0) -> None:
        self._desc: OperatorDesc | None = None
        if activation != OperatorType.INVALID:
            row = REGISTRY.get(activation)
            if row is None or not row.fusable:
                rule = "must be an activation that can be fused, or INVALID"
                raise InvalidArgumentError(rule, operator="FusedActivation", field="activation", value=activation)
            names = [field.name for field in row.fields if not field.kind.is_tensor]
            self._desc = row(**dict(zip(names, (param_1, param_2), strict=False)))


NONE: Final = FusedActivation(OperatorType.INVALID)


class MaxPoolingOutputs:
    """What ``max_pooling`` makes. ``indices`` is empty where nobody asked for them."""

    def __init__(self, values: Expression, indices: Expression, /) -> None:
        self.values, self.indices = values, indices


class GRUOutputs:
    """What ``gru`` makes. What nobody asked for is empty."""

    def __init__(self, sequence: Expression, single: Expression, /) -> None:
        self.sequence, self.single = sequence, single


def _made(name: str, *operands: Expression | None, **attributes: Any) -> Any:
    """What an operator of the graph makes: an expression, or a tuple of them."""
    tensors = [None if operand is None else operand._tensor for operand in operands]
    first = tensors[0]
    assert first is not None, "the first operand is never optional"
    made = getattr(first.graph, name)(*tensors, **attributes)
    return Expression._of(made) if isinstance(made, builder.Expression) else tuple(map(Expression._of, made))


def _each(values: Sequence[int], count: int, default: int) -> Sequence[int]:
    """Numbers for each spatial dimension: the default where none is given."""
    return values or [default] * count


def _spatial(input: Expression) -> int:
    return input._tensor.ndim - 2


def _given(function: str, **arguments: Any) -> None:
    """Raises TypeError for arguments that are missing."""
    missing = [name for name, value in arguments.items() if value is REQUIRED]
    if missing:
        raise TypeError(f"{function}() is missing {', '.join(map(repr, missing))}")


def input_tensor(scope: GraphBuilder, input_index: int, tensor_desc: TensorDesc) -> Expression:
    """An input of a graph; its binding is the one of that index."""
    return scope._input(input_index, tensor_desc)


def convolution(
    input: Expression,
    filter: Expression,
    bias: Expression | None = None,
    mode: ConvolutionMode = ConvolutionMode.CROSS_CORRELATION,
    direction: ConvolutionDirection = ConvolutionDirection.FORWARD,
    strides: Sequence[int] = (),
    dilations: Sequence[int] = (),
    start_padding: Sequence[int] = (),
    end_padding: Sequence[int] = (),
    output_padding: Sequence[int] = (),
    group_count: int = 1,
    fused_activation: FusedActivation = NONE,
    output_sizes: Sequence[int] = (),
) -> Expression:
    """``dmlvk.Convolution``. Strides and dilations are 1, paddings 0 where none are given; a bias has 4 or 5 dimensions."""
    count = _spatial(input)
    result: Expression = _made(
        "convolution",
        input,
        filter,
        bias,
        mode=mode,
        direction=direction,
        strides=_each(strides, count, 1),
        dilations=_each(dilations, count, 1),
        start_padding=_each(start_padding, count, 0),
        end_padding=_each(end_padding, count, 0),
        output_padding=_each(output_padding, count, 0),
        group_count=group_count,
        fused_activation=fused_activation._desc,
        output_sizes=output_sizes or None,
    )
    return result


def up_sample_2d(input: Expression, scale_size: Size2D, interpolation_mode: InterpolationMode) -> Expression:
    """``dmlvk.Upsample2d``."""
    scale = schema.Size2D(scale_size.width, scale_size.height)
    result: Expression = _made("upsample_2d", input, scale_size=scale, interpolation_mode=interpolation_mode)
    return result


def activation_relu(input: Expression) -> Expression:
    """``dmlvk.ActivationRelu``."""
    result: Expression = _made("activation_relu", input)
    return result


def activation_sigmoid(input: Expression) -> Expression:
    """``dmlvk.ActivationSigmoid``."""
    result: Expression = _made("activation_sigmoid", input)
    return result


def activation_identity(input: Expression) -> Expression:
    """``dmlvk.ActivationIdentity``."""
    result: Expression = _made("activation_identity", input)
    return result


def activation_tanh(input: Expression) -> Expression:
    """``dmlvk.ActivationTanh``."""
    result: Expression = _made("activation_tanh", input)
    return result


def activation_linear(input: Expression, alpha: float, beta: float) -> Expression:
    """``dmlvk.ActivationLinear``."""
    result: Expression = _made("activation_linear", input, alpha=alpha, beta=beta)
    return result


def activation_soft_max(input: Expression) -> Expression:
    """``dmlvk.ActivationSoftmax``."""
    result: Expression = _made("activation_softmax", input)
    return result


def add(a: Expression, b: Expression, fused_activation: FusedActivation = NONE) -> Expression:
    """``dmlvk.ElementWiseAdd1``, of equal sizes."""
    result: Expression = _made("element_wise_add1", a, b, fused_activation=fused_activation._desc)
    return result


def subtract(a: Expression, b: Expression) -> Expression:
    """``dmlvk.ElementWiseSubtract``, of equal sizes."""
    return a - b


def multiply(a: Expression, b: Expression) -> Expression:
    """``dmlvk.ElementWiseMultiply``, of equal sizes."""
    return a * b


def divide(a: Expression, b: Expression) -> Expression:
    """``dmlvk.ElementWiseDivide``, of equal sizes."""
    return a / b


def padding(
    input: Expression,
    padding_mode: PaddingMode,
    padding_value: float,
    start_padding: Sequence[int],
    end_padding: Sequence[int],
) -> Expression:
    """``dmlvk.Padding``."""
    result: Expression = _made(
        "padding",
        input,
        padding_mode=padding_mode,
        padding_value=padding_value,
        start_padding=start_padding,
        end_padding=end_padding,
    )
    return result


def mean_variance_normalization(
    input: Expression,
    scale: Expression | None = None,
    bias: Expression | None = None,
    axes: Sequence[int] = (),
    normalize_variance: bool = REQUIRED,
    epsilon: float = REQUIRED,
    fused_activation: FusedActivation = NONE,
) -> Expression:
    """``dmlvk.MeanVarianceNormalization1``."""
    _given("mean_variance_normalization", normalize_variance=normalize_variance, epsilon=epsilon)
    result: Expression = _made(
        "mean_variance_normalization1",
        input,
        scale,
        bias,
        axes=axes,
        normalize_variance=bool(normalize_variance),
        epsilon=epsilon,
        fused_activation=fused_activation._desc,
    )
    return result


def slice(
    input: Expression,
    input_window_offsets: Sequence[int],
    input_window_sizes: Sequence[int],
    input_window_strides: Sequence[int],
) -> Expression:
    """``dmlvk.Slice1``."""
    result: Expression = _made(
        "slice1",
        input,
        input_window_offsets=input_window_offsets,
        input_window_sizes=input_window_sizes,
        input_window_strides=input_window_strides,
    )
    return result


def value_scale_2d(input: Expression, scale: float, bias: Sequence[float]) -> Expression:
    """``dmlvk.ValueScale2d``."""
    result: Expression = _made("value_scale_2d", input, scale=scale, bias=bias)
    return result


def batch_normalization(
    input: Expression,
    mean: Expression,
    variance: Expression,
    scale: Expression,
    bias: Expression,
    spatial: bool,
    epsilon: float,
    fused_activation: FusedActivation = NONE,
) -> Expression:
    """``dmlvk.BatchNormalization``."""
    result: Expression = _made(
        "batch_normalization",
        input,
        mean,
        variance,
        scale,
        bias,
        spatial=bool(spatial),
        epsilon=epsilon,
        fused_activation=fused_activation._desc,
    )
    return result


def local_response_normalization(
    input: Expression, cross_channel: bool, local_size: int, alpha: float, beta: float, bias: float
) -> Expression:
    """``dmlvk.LocalResponseNormalization``."""
    result: Expression = _made(
        "local_response_normalization",
        input,
        cross_channel=bool(cross_channel),
        local_size=local_size,
        alpha=alpha,
        beta=beta,
        bias=bias,
    )
    return result


def gemm(
    a: Expression,
    b: Expression,
    c: Expression | None = None,
    trans_a: MatrixTransform = MatrixTransform.NONE,
    trans_b: MatrixTransform = MatrixTransform.NONE,
    alpha: float = 1.0,
    beta: float = 1.0,
    fused_activation: FusedActivation = NONE,
) -> Expression:
    """``dmlvk.Gemm``."""
    result: Expression = _made(
        "gemm",
        a,
        b,
        c,
        trans_a=trans_a,
        trans_b=trans_b,
        alpha=alpha,
        beta=beta,
        fused_activation=fused_activation._desc,
    )
    return result


def average_pooling(
    input: Expression,
    strides: Sequence[int],
    window_sizes: Sequence[int],
    start_padding: Sequence[int],
    end_padding: Sequence[int],
    include_padding: bool,
) -> Expression:
    """``dmlvk.AveragePooling``."""
    result: Expression = _made(
        "average_pooling",
        input,
        strides=strides,
        window_size=window_sizes,
        start_padding=start_padding,
        end_padding=end_padding,
        include_padding=bool(include_padding),
    )
    return result


def max_pooling(
    input: Expression,
    window_sizes: Sequence[int],
    strides: Sequence[int] = (),
    start_padding: Sequence[int] = (),
    end_padding: Sequence[int] = (),
    dilations: Sequence[int] = (),
    output_indices: bool = False,
) -> MaxPoolingOutputs:
    """``dmlvk.MaxPooling2``. Strides and dilations are 1, paddings 0 where none are given."""
    count = len(window_sizes)
    attributes: dict[str, Any] = {
        "window_size": window_sizes,
        "strides": _each(strides, count, 1),
        "start_padding": _each(start_padding, count, 0),
        "end_padding": _each(end_padding, count, 0),
        "dilations": _each(dilations, count, 1),
    }
    if output_indices:
        attributes["outputs"] = ("output_indices_tensor",)
        attributes["output_data_types"] = (input._tensor.data_type, TensorDataType.UINT32)
        return MaxPoolingOutputs(*_made("max_pooling2", input, **attributes))
    return MaxPoolingOutputs(_made("max_pooling2", input, **attributes), Expression())


def reinterpret(
    input: Expression, new_type: TensorDataType, new_size: Sequence[int], new_strides: Sequence[int] | None
) -> Expression:
    """The memory of a tensor, read as another one."""
    return input._reinterpreted(new_type, new_size, new_strides)


def join(input: Sequence[Expression], axis: int) -> Expression:
    """``dmlvk.Join``.

    Raises:
        InvalidArgumentError: nothing to join.
    """
    if not input:
        raise InvalidArgumentError("must be at least one expression", operator="join", field="input", value=input)
    tensors = [item._tensor for item in input]
    return Expression._of(tensors[0].graph.join(tensors, axis=axis))


def gru(
    input: Expression,
    weight: Expression,
    recurrence: Expression,
    bias: Expression | None = None,
    hidden_init: Expression | None = None,
    sequence_lengths: Expression | None = None,
    activation_descs: Sequence[FusedActivation] = REQUIRED,
    direction: RecurrentNetworkDirection = REQUIRED,
    linear_before_reset: int = 1,
    output_options: OutputOptions = REQUIRED,
) -> GRUOutputs:
    """``dmlvk.Gru``."""
    _given("gru", activation_descs=activation_descs, direction=direction, output_options=output_options)
    wanted = {
        "output_sequence_tensor": output_options in (OutputOptions.Both, OutputOptions.Sequence),
        "output_single_tensor": output_options in (OutputOptions.Both, OutputOptions.Single),
    }
    names = tuple(name for name, is_wanted in wanted.items() if is_wanted)
    operands = (input, weight, recurrence, bias, hidden_init, sequence_lengths)
    made = _made(
        "gru",
        *operands,
        activation_descs=[item._desc for item in activation_descs],
        direction=direction,
        linear_before_reset=bool(linear_before_reset),
        outputs=names,
    )
    found = dict(zip(names, (made,) if len(names) == 1 else made, strict=True))
    return GRUOutputs(*(found.get(name, Expression()) for name in wanted))


def gather(input: Expression, indices: Expression, axis: int, index_dimensions: int) -> Expression:
    """``dmlvk.Gather``."""
    result: Expression = _made("gather", input, indices, axis=axis, index_dimensions=index_dimensions)
    return result
