"""Normalization by statistics that are given, or by those of the input, and the gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlvk.engine.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction
from dmlvk.spec.schema import OperatorDesc
from dmlvk.torch.conversion import Conversion
from dmlvk.torch.convert.elementwise import FLOAT, minus, plus, scaled, times, wide
from dmlvk.torch.convert.reductions import reduced, spread
from dmlvk.torch.registry import converter


def _inverse(node: Conversion, variance: Value, epsilon: float) -> Value:
    """1 / sqrt(variance + epsilon)."""
    root = node.elementwise(ops.ElementWiseSqrt, scaled(node, variance, 1.0, epsilon))
    return node.elementwise(ops.ElementWiseRecip, root)


def _as(node: Conversion, value: Value, index: int) -> Value:
    """A value as the output of a number: of its type and sizes."""
    dtype, sizes = node.results[index]
    return node.reshape(node.cast(value, dtype), sizes)


def _affine(node: Conversion, y: Value, weight: Value | None, bias: Value | None) -> Value:
    if weight is not None:
        y = times(node, y, node.tensor(weight, y.dtype))
    return y if bias is None else plus(node, y, node.tensor(bias, y.dtype))


# -- by channels


def _by_given(
    node: Conversion,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    epsilon: float,
) -> Value:
    """By statistics that are given, one of each a channel."""
    one, zero = np.ones((), x.dtype), np.zeros((), x.dtype)
    sizes = (1, x.sizes[1]) + (1,) * (x.rank - 2)
    given = [node.tensor(item, x.dtype) if item is not None else None for item in (mean, variance, weight, bias)]
    defaults = (zero, one, one, zero)
    parts = [
        node.upload(default).broadcast_to(sizes) if item is None else node.reshape(item, sizes)
        for item, default in zip(given, defaults, strict=True)
    ]
    y = node.new(x.sizes, x.dtype)
    return node.launch(ops.BatchNormalization, x, *parts, output_tensor=y, spatial=True, epsilon=epsilon)


def _by_batch(
    node: Conversion, x: Value, weight: Value | None, bias: Value | None, epsilon: float
) -> tuple[Value, Value, Value]:
    """By the statistics of each channel of the batch: what it makes, the mean and the variance, of FLOAT32."""
    source = wide(node, x)
    sizes = (1, x.sizes[1]) + (1,) * (x.rank - 2)
    scale, shift = (
        node.upload(np.full((), default, source.dtype)).broadcast_to(sizes)
        if item is None
        else node.reshape(node.tensor(item, source.dtype), sizes)
        for item, default in ((weight, 1), (bias, 0))
    )
    y, mean, variance = (node.new(own, source.dtype) for own in (x.sizes, sizes, sizes))
    outputs = {"output_tensor": y, "output_mean_tensor": mean, "output_variance_tensor": variance}
    node.launch(ops.BatchNormalizationTraining, source, scale, shift, epsilon=epsilon, **outputs)
    return y, mean, variance


def _moved(node: Conversion, running: Value, batch: Value, momentum: float, index: int) -> Value:
    """Running statistics moved towards those of the batch."""
    kept = scaled(node, node.tensor(running, FLOAT), 1 - momentum)
    new = scaled(node, node.reshape(node.tensor(batch, FLOAT), running.sizes), momentum)
    return _as(node, plus(node, kept, new), index)


@converter("aten._native_batch_norm_legit_no_training.default")
def batch_norm_of_given(
    node: Conversion,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    y = _by_given(node, x, weight, bias, running_mean, running_var, eps)
    nothing = [node.new(sizes, dtype) for dtype, sizes in node.results[1:]]
    return y, *nothing


@converter("aten._native_batch_norm_legit_functional.default")
def batch_norm_functional(
    node: Conversion,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    if not training:
        nothing = [node.new(sizes, dtype) for dtype, sizes in node.results[1:3]]
        return _by_given(node, x, weight, bias, running_mean, running_var, eps), *nothing, running_mean, running_var
    count = math.prod(x.sizes) // max(x.sizes[1], 1)
    y, mean, variance = _by_batch(node, x, weight, bias, eps)
    unbiased = scaled(node, variance, count / max(count - 1, 1))
    return (
        _as(node, y, 0),
        _as(node, mean, 1),
        _as(node, _inverse(node, variance, eps), 2),
        _moved(node, running_mean, mean, momentum, 3),
        _moved(node, running_var, unbiased, momentum, 4),
    )


@converter("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_running(
    node: Conversion,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    y, mean, variance = _by_batch(node, x, weight, bias, eps)
    return _as(node, y, 0), _as(node, mean, 1), _as(node, _inverse(node, variance, eps), 2)


@converter("aten.native_batch_norm_backward.default")
def batch_norm_backward(
    node: Conversion,
    gradient: Value,
    x: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    save_mean: Value | None,
    save_invstd: Value | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[Value | None, ...]:
    """In training the statistics follow from x; else they are given, and x goes through them alone."""
    source, given = wide(node, x), wide(node, gradient)
    sizes = (1, x.sizes[1]) + (1,) * (x.rank - 2)
    one = np.ones((), source.dtype)
    scale = (
        node.upload(one).broadcast_to(sizes) if weight is None else node.reshape(node.tensor(weight, source.dtype), sizes)
    )
    if train:
        assert save_mean is not None and save_invstd is not None, "training saves what it has found"
        mean = node.reshape(node.tensor(save_mean, source.dtype), sizes)
        inverse = node.reshape(node.tensor(save_invstd, source.dtype), sizes)
        squared = node.elementwise(ops.ElementWiseRecip, times(node, inverse, inverse))
        variance = scaled(node, squared, 1.0, -eps)
    else:
        assert running_mean is not None and running_var is not None, "what is no training has statistics"
        mean, variance = (node.reshape(node.tensor(item, source.dtype), sizes) for item in (running_mean, running_var))
    of_input, of_scale, of_bias = (node.new(own, source.dtype) for own in (x.sizes, sizes, sizes))
    outputs = {
        "output_gradient_tensor": of_input,
        "output_scale_gradient_tensor": of_scale,
        "output_bias_gradient_tensor": of_bias,
    }
    row: type[OperatorDesc] = ops.BatchNormalizationTrainingGrad if train else ops.BatchNormalizationGrad
    node.launch(row, source, given, mean, variance, scale, epsilon=eps, **outputs)
    made = (of_input, of_scale, of_bias)
    return tuple(_as(node, value, index) if output_mask[index] else None for index, value in enumerate(made))


# -- by rows and groups


def _normalized(
    node: Conversion, x: Value, weight: Value | None, bias: Value | None, axes: Sequence[int], epsilon: float
) -> Value:
    """x by its own statistics over some dimensions; weight and bias broadcast to it."""
    scale, shift = (None if item is None else item.broadcast_to(x.sizes) for item in (weight, bias))
    if scale is not None and shift is None:
        shift = node.upload(np.zeros((), x.dtype)).broadcast_to(x.sizes)
    if shift is not None and scale is None:
        scale = node.upload(np.ones((), x.dtype)).broadcast_to(x.sizes)
    y = node.new(x.sizes, x.dtype)
    fields: dict[str, Any] = {"axes": tuple(axes), "normalize_variance": True, "epsilon": epsilon}
    return node.launch(ops.MeanVarianceNormalization1, x, scale, shift, output_tensor=y, **fields)


@converter("aten.native_layer_norm.default")
def layer_norm(
    node: Conversion,
    x: Value,
    normalized_shape: Sequence[int],
    weight: Value | None,
    bias: Value | None,
    eps: float,
) -> tuple[Value, ...]:
    """Over the last dimensions; mean and inverse deviation are launched where something reads them."""
    axes = tuple(range(x.rank - len(normalized_shape), x.rank))
    inner, outer = math.prod(normalized_shape), x.sizes[: axes[0]]
    rows = node.reshape(x, (math.prod(outer), inner))
    parts = [None if item is None else node.reshape(node.tensor(item, x.dtype), (1, inner)) for item in (weight, bias)]
    y = node.reshape(_normalized(node, rows, parts[0], parts[1], (1,), eps), x.sizes)
    variance, mean = spread(node, wide(node, rows), (1,), 0)
    return y, _as(node, mean, 1), _as(node, _inverse(node, variance, eps), 2)


@converter("aten.native_group_norm.default")
def group_norm(
    node: Conversion,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[Value, ...]:
    groups = node.reshape(x, (N, group, C // group, HxW))
    own = (1, group, C // group, 1)
    parts = [None if item is None else node.reshape(node.tensor(item, x.dtype), own) for item in (weight, bias)]
    y = node.reshape(_normalized(node, groups, parts[0], parts[1], (2, 3), eps), x.sizes)
    variance, mean = spread(node, wide(node, groups), (2, 3), 0)
    return y, _as(node, mean, 1), _as(node, _inverse(node, variance, eps), 2)


@converter("aten.native_layer_norm_backward.default")
def layer_norm_backward(
    node: Conversion,
    gradient: Value,
    x: Value,
    normalized_shape: Sequence[int],
    mean: Value,
    rstd: Value,
    weight: Value | None,
    bias: Value | None,
    output_mask: Sequence[bool],
) -> tuple[Value | None, ...]:
    """Two sums a row for the input, and two a column for weight and bias."""
    inner = math.prod(normalized_shape)
    sizes = (math.prod(x.sizes) // max(inner, 1), inner)
    given, source = (node.reshape(wide(node, item), sizes) for item in (gradient, x))
    middle, inverse = (node.reshape(node.tensor(item, source.dtype), (sizes[0], 1)) for item in (mean, rstd))
    normal = times(node, minus(node, source, middle), inverse)
    of_input = of_weight = of_bias = None
    if output_mask[0]:
        scale = None if weight is None else node.reshape(node.tensor(weight, source.dtype), (1, inner))
        of_input = _as(node, _input_gradient(node, _affine(node, given, scale, None), normal, inverse, (1,)), 0)
    if output_mask[1]:
        of_weight = _as(node, reduced(node, times(node, given, normal), ReduceFunction.SUM, (0,)), 1)
    if output_mask[2]:
        of_bias = _as(node, reduced(node, given, ReduceFunction.SUM, (0,)), 2)
    return of_input, of_weight, of_bias


def _input_gradient(node: Conversion, given: Value, normal: Value, inverse: Value, axes: Sequence[int]) -> Value:
    """inverse * (g - mean(g) - normal * mean(g * normal))."""
    first = reduced(node, given, ReduceFunction.AVERAGE, axes)
    second = reduced(node, times(node, given, normal), ReduceFunction.AVERAGE, axes)
    return times(node, minus(node, minus(node, given, first), times(node, normal, second)), inverse)


@converter("aten.native_group_norm_backward.default")
def group_norm_backward(
    node: Conversion,
    gradient: Value,
    x: Value,
    mean: Value,
    rstd: Value,
    weight: Value | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> tuple[Value | None, ...]:
    sizes = (N, group, C // group, HxW)
    given, source = (node.reshape(wide(node, item), sizes) for item in (gradient, x))
    middle, inverse = (node.reshape(node.tensor(item, source.dtype), (N, group, 1, 1)) for item in (mean, rstd))
    normal = times(node, minus(node, source, middle), inverse)
    of_input = of_weight = of_bias = None
    if output_mask[0]:
        scale = None if weight is None else node.reshape(node.tensor(weight, source.dtype), (1, group, C // group, 1))
        of_input = _as(node, _input_gradient(node, _affine(node, given, scale, None), normal, inverse, (2, 3)), 0)
    if output_mask[1]:
        of_weight = _as(node, reduced(node, times(node, given, normal), ReduceFunction.SUM, (0, 3)), 1)
    if output_mask[2]:
        of_bias = _as(node, reduced(node, given, ReduceFunction.SUM, (0, 3)), 2)
    return of_input, of_weight, of_bias
