"""Normalization: by given statistics, or by those of the input."""

from __future__ import annotations

import math

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import MICROSOFT, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.schema import FLOATS, ScaleBias

_FLOAT32 = np.dtype(np.float32)


def _refuse_batch_normalization(node: NodeFacts) -> None:
    training = bool(node.attribute("training_mode", 0))
    for index in (1, 2, 3, 4):
        node.takes(index, FLOATS if training and index > 2 else node.as_first(FLOATS))
    if training:
        return
    if any(node.wants(output) for output in range(1, len(node.node.outputs))):
        raise node.unsupported("outputs beside the first, which only training has, are not supported")
    if node.node.version < 7 and not node.attribute("is_test", 0):
        raise node.unsupported("training is not supported, and a node of this version does it unless is_test is set")


@converts("BatchNormalization", 6, 7, 9, 14, 15, types=FLOATS, check=_refuse_batch_normalization)
def batch_normalization(node: Conversion) -> Value | tuple[Value, ...]:
    """Scale, bias, mean and variance have one entry a channel (with opset 7's ``spatial`` 0, one for each element of a
    channel). Before opset 14 a node trains if it has outputs besides the first, before 7 unless it has ``is_test``, and
    those are not supported."""
    x = node[0]
    if node.attribute("training_mode", 0):
        return _batch_normalization_training(node)
    spatial = bool(node.attribute("spatial", 1))
    own = (x.sizes[1] if x.rank > 1 else 1,) + ((1,) * (x.rank - 2) if spatial else x.sizes[2:])
    scale, bias, mean, variance = (_parameter(node, i, (1, *own) if x.rank > 1 else own) for i in range(1, 5))
    return node.launch(
        ops.BatchNormalization,
        x,
        mean,
        variance,
        scale,
        bias,
        output_tensor=node.new(x.sizes, x.dtype),
        spatial=spatial,
        epsilon=float(node.attribute("epsilon", 1e-5)),
    )


def _batch_normalization_training(node: Conversion) -> tuple[Value, ...]:
    """Statistics of the batch, and the running ones moved towards them: running * momentum + batch * (1 - momentum)."""
    x, momentum = node[0], float(node.attribute("momentum", 0.9))
    if x.rank < 2:
        raise node.invalid("the input must have at least 2 dimensions in training", x.sizes)
    own = (1, x.sizes[1]) + (1,) * (x.rank - 2)
    scale, bias = _parameter(node, 1, own), _parameter(node, 2, own)
    y, *statistics = _trained(node, x, scale, bias, float(node.attribute("epsilon", 1e-5)))
    moved = []
    for index, batch in zip((3, 4), statistics, strict=True):
        running = _parameter(node, index, own)
        kept = node.elementwise(ops.ElementWiseIdentity, running, scale_bias=ScaleBias(momentum, 0))
        if batch.dtype != running.dtype:
            batch = node.elementwise(ops.Cast, batch, dtype=running.dtype)
        new = node.elementwise(ops.ElementWiseIdentity, batch, scale_bias=ScaleBias(1 - momentum, 0))
        moved.append(node.reshape(node.elementwise(ops.ElementWiseAdd, kept, new), (x.sizes[1],)))
    return (y, *moved)


def _trained(node: Conversion, x: Value, scale: Value, bias: Value, epsilon: float) -> tuple[Value, Value, Value]:
    """The input normalized over the dimensions in which scale has size 1, and its mean and variance."""
    y, mean, variance = (node.new(sizes, x.dtype) for sizes in (x.sizes, scale.sizes, scale.sizes))
    outputs = {"output_tensor": y, "output_mean_tensor": mean, "output_variance_tensor": variance}
    node.launch(ops.BatchNormalizationTraining, x, scale, bias, epsilon=epsilon, **outputs)
    return y, mean, variance


@converts("InstanceNormalization", 6, 22, types=FLOATS)
def instance_normalization(node: Conversion) -> Value:
    """Statistics of each channel of each image."""
    x = node[0]
    if x.rank < 3:
        raise node.invalid("the input must have spatial dimensions, so at least 3 in all", x.sizes)
    sizes = (1, x.sizes[1]) + (1,) * (x.rank - 2)
    scale, bias = _parameter(node, 1, sizes), _parameter(node, 2, sizes)
    return normalize(node, x, scale, bias, tuple(range(2, x.rank)), node.attribute("epsilon", 1e-5))


def _refuse_layer_normalization(node: NodeFacts) -> None:
    wanted = node.wants(1) or node.wants(2)
    if wanted and node.element_type("stash_type", _FLOAT32) != _FLOAT32:
        raise node.unsupported(f"statistics of type {node.element_type('stash_type')} are not supported, only float32")


_LAYER = Declared(3, 3, ("axis", "epsilon", "stash_type"))


@converts("LayerNormalization", 1, types=FLOATS, domain=MICROSOFT, check=_refuse_layer_normalization, declared=_LAYER)
@converts("LayerNormalization", 17, types=FLOATS, check=_refuse_layer_normalization)
def layer_normalization(node: Conversion) -> tuple[Value | None, ...]:
    """Statistics over all dimensions from the axis on; scale and bias broadcast to the input."""
    x, bias, epsilon = node[0], node.get(2), float(node.attribute("epsilon", 1e-5))
    axes = tuple(range(node.axis(node.attribute("axis", -1), x.rank), x.rank))
    scale = node.reshape(node[1], (1,) * (x.rank - node[1].rank) + node[1].sizes)
    if bias is not None:
        bias = node.reshape(bias, (1,) * (x.rank - bias.rank) + bias.sizes)
    y = normalize(node, x, scale, bias, axes, epsilon)
    if not (node.wants(1) or node.wants(2)):
        return y, None, None
    # These are of float32 whatever the input is; nothing but their sizes is asked of scale and bias.
    wide = x if x.dtype == np.float32 else node.elementwise(ops.Cast, x, dtype=np.dtype(np.float32))
    own = tuple(1 if axis in axes else size for axis, size in enumerate(x.sizes))
    ones = node.upload(np.ones((1,) * x.rank, np.float32)).broadcast_to(own)
    _, mean, variance = _trained(node, wide, ones, ones, epsilon)
    deviation = node.elementwise(ops.ElementWiseSqrt, variance, scale_bias=ScaleBias(1, epsilon))
    return y, mean, node.elementwise(ops.ElementWiseRecip, deviation)


def _refuse_rms_normalization(node: NodeFacts) -> None:
    """What is computed is computed in float32."""
    node.takes(1, node.as_first(FLOATS))
    if node.element_type("stash_type", _FLOAT32) not in (_FLOAT32, np.float16):
        raise node.unsupported(f"stash_type {node.element_type('stash_type')} is not supported, only float32 and float16")


@converts("RMSNormalization", 23, types=FLOATS, check=_refuse_rms_normalization)
def rms_normalization(node: Conversion) -> Value:
    """By the root mean square over all dimensions from the axis on; scale broadcasts to the input."""
    x, scale = node[0], node[1]
    if node.broadcast(scale, x)[0].sizes != x.sizes:
        raise node.invalid(f"the sizes of the scale must broadcast to those of the input, {x.sizes}", scale.sizes)
    axes = tuple(range(node.axis(node.attribute("axis", -1), x.rank), x.rank))
    scale = node.reshape(scale, (1,) * (x.rank - scale.rank) + scale.sizes)
    return normalize(node, x, scale, None, axes, node.attribute("epsilon", 1e-5), use_mean=False)


@converts("GroupNormalization", 18, 21, types=FLOATS)
def group_normalization(node: Conversion) -> Value:
    """Statistics of each group of channels of each image. Scale and bias have one entry a group in opset 18, one a
    channel from 21 on."""
    x, groups = node[0], node.attribute("num_groups", 0)
    if x.rank < 2 or groups < 1 or x.sizes[1] % groups:
        raise node.invalid(f"num_groups must be at least 1 and divide the channels of an input of sizes {x.sizes}", groups)
    channels = x.sizes[1] // groups
    grouped = node.reshape(x, (x.sizes[0], groups, channels, math.prod(x.sizes[2:])))
    sizes = (1, groups, channels if node.node.version >= 21 else 1, 1)
    scale, bias = _parameter(node, 1, sizes), _parameter(node, 2, sizes)
    return node.reshape(normalize(node, grouped, scale, bias, (2, 3), node.attribute("epsilon", 1e-5)), x.sizes)


@converts("MeanVarianceNormalization", 9, 13, types=FLOATS)
def mean_variance_normalization(node: Conversion) -> Value:
    """(x - mean) / (deviation + 1e-9). The square of that constant, added to the variance instead, is the same where
    either matters: it keeps a constant input at 0 and is lost in any other."""
    axes = tuple(sorted(node.axis(axis, node[0].rank) for axis in node.attribute("axes", [0, 2, 3])))
    return normalize(node, node[0], None, None, axes, 1e-18)


@converts("LRN", 1, 13, types=FLOATS)
def local_response_normalization(node: Conversion) -> Value:
    """The region is of channels, and all dimensions after them are one to it."""
    x = node[0]
    if x.rank < 2 or "size" not in node.node.attributes:
        rule = "the input must have at least 2 dimensions, and the attribute size must be given"
        raise node.invalid(rule, (x.sizes, node.attribute("size", None)))
    y = node.launch(
        ops.LocalResponseNormalization,
        node.reshape(x, (*x.sizes[:2], math.prod(x.sizes[2:]), 1)),
        cross_channel=True,
        local_size=node.attribute("size", 1),
        alpha=float(node.attribute("alpha", 1e-4)),
        beta=float(node.attribute("beta", 0.75)),
        bias=float(node.attribute("bias", 1.0)),
    )
    return node.reshape(y, x.sizes)


def normalize(
    node: Conversion,
    x: Value,
    scale: Value | None,
    bias: Value | None,
    axes: tuple[int, ...],
    epsilon: float,
    use_mean: bool = True,
) -> Value:
    """The input over the root of its variance along the axes, or without the mean of its mean square. Scale and bias have
    as many dimensions as the input."""
    fields = {"output_tensor": node.new(x.sizes, x.dtype), "axes": axes, "epsilon": float(epsilon)}
    return node.launch(ops.MeanVarianceNormalization2, x, scale, bias, use_mean=use_mean, **fields)


def _parameter(node: Conversion, index: int, sizes: tuple[int, ...]) -> Value:
    """A required input as a tensor of these sizes that broadcasts to the first."""
    value = node[index]
    if math.prod(value.sizes) != math.prod(sizes):
        raise node.invalid(f"input {index} must have as many elements as the sizes {sizes}", value.sizes)
    return node.reshape(value, sizes)


@converts("LpNormalization", 1, 22, types=FLOATS)
def lp_normalization(node: Conversion) -> Value:
    """Along one axis, the last by default. ONNX has no epsilon; a set of zeros stays zeros."""
    x = node[0]
    return node.launch(
        ops.LpNormalization,
        x,
        output_tensor=node.new(x.sizes, x.dtype),
        axis=node.axis(node.attribute("axis", -1), x.rank),
        epsilon=0.0,
        p=node.attribute("p", 2),
    )
