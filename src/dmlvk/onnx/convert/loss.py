"""Losses of classifiers: what the probability of the right class costs, for every position or as one number."""

from __future__ import annotations

import math

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.softmax import softmax
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction
from dmlvk.spec.schema import FLOATS

_BOOL = np.dtype(np.bool_)


@converts("NegativeLogLikelihoodLoss", 12, 13, 22, types=FLOATS, doubles=True)
def negative_log_likelihood(node: Conversion) -> Value:
    return _loss(node, _of_three_dimensions(node))


@converts("SoftmaxCrossEntropyLoss", 12, 13, types=FLOATS, doubles=True)
def softmax_cross_entropy(node: Conversion) -> tuple[Value, Value]:
    """The loss, and the logarithms of the probabilities."""
    scores = node[0]
    logarithms = softmax(node, _of_three_dimensions(node), (1,), ops.ActivationLogSoftmax1)
    return _loss(node, logarithms), node.reshape(logarithms, scores.sizes)


def _of_three_dimensions(node: Conversion) -> Value:
    """The input as (batch, classes, positions)."""
    x, target = node[0], node[1]
    if x.rank < 2 or target.sizes != (x.sizes[0], *x.sizes[2:]):
        rule = f"targets must have the sizes of the input, {x.sizes}, without the second"
        raise node.invalid(rule, target.sizes)
    return node.reshape(x, (*x.sizes[:2], math.prod(x.sizes[2:])))


def _loss(node: Conversion, logarithms: Value) -> Value:
    """Minus the logarithm of each target's class times the class's weight. Where the target is ``ignore_index``, which need
    not be a class, loss and weight are 0. The mean is over the weights."""
    target, weights, ignored = node[1], node.get(2), node.attribute("ignore_index", None)
    reduction = node.attribute("reduction", "mean")
    batch, classes, positions = logarithms.sizes
    if weights is not None and weights.sizes != (classes,):
        raise node.invalid("weights must have one element for each class", weights.sizes, (classes,))
    sizes = (batch, 1, positions)
    if 0 in sizes:  # where the mean of nothing is 0 too, as ONNX Runtime has it
        return node.fill(target.sizes if reduction == "none" else (), logarithms.dtype.type(0))
    places = node.reshape(target, sizes)

    def chosen(values: Value) -> Value:
        return node.launch(ops.GatherElements, values, places, output_tensor=node.new(sizes, values.dtype), axis=1)

    loss = node.elementwise(ops.ElementWiseNegate, chosen(logarithms))
    counts = None
    if weights is not None:
        counts = chosen(node.reshape(weights, (1, classes, 1)).broadcast_to(logarithms.sizes))
        loss = node.elementwise(ops.ElementWiseMultiply, loss, counts)
    if ignored is not None:
        number = node.upload(np.array(ignored, target.dtype))
        left_out = node.elementwise(ops.ElementWiseLogicalEquals, places, number, dtype=_BOOL)
        zero, one = (node.upload(np.array(value, loss.dtype)) for value in (0, 1))
        loss = node.elementwise(ops.ElementWiseIf, left_out, zero, loss, dtype=loss.dtype)
        if reduction == "mean":
            counts = one if counts is None else counts
            counts = node.elementwise(ops.ElementWiseIf, left_out, zero, counts, dtype=loss.dtype)
    if reduction == "none":
        return node.reshape(loss, target.sizes)
    if reduction == "sum":
        return _reduced(node, loss, ReduceFunction.SUM)
    if counts is None:
        return _reduced(node, loss, ReduceFunction.AVERAGE)
    sums = (_reduced(node, value, ReduceFunction.SUM) for value in (loss, counts))
    return node.elementwise(ops.ElementWiseDivide, *sums)


def _reduced(node: Conversion, values: Value, function: ReduceFunction) -> Value:
    """The losses as one number."""
    y = node.launch(ops.Reduce, values, output_tensor=node.new((1, 1, 1), values.dtype), function=function, axes=(0, 1, 2))
    return node.reshape(y, ())
