"""Normalization: by given statistics, or by those of the input."""

from __future__ import annotations

import math

from dmlvk import ops
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.schema import FLOATS


@converts("BatchNormalization", 7, 9, 14, 15, types=FLOATS)
def batch_normalization(node: Conversion) -> Value:
    """Inference: scale, bias, mean and variance have one entry a channel (with opset 7's ``spatial`` 0, one for each
    element of a channel)."""
    x = node[0]
    if node.attribute("training_mode", 0) or any(node.wants(output) for output in range(1, len(node.node.outputs))):
        raise node.unsupported("training: BATCH_NORMALIZATION_TRAINING has no kernel in this version")
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
        spatial=spatial,
        epsilon=float(node.attribute("epsilon", 1e-5)),
    )


@converts("InstanceNormalization", 6, 22, types=FLOATS)
def instance_normalization(node: Conversion) -> Value:
    """Statistics of each channel of each image."""
    x = node[0]
    if x.rank < 3:
        raise node.invalid(f"the input of sizes {x.sizes} has no spatial dimensions")
    sizes = (1, x.sizes[1]) + (1,) * (x.rank - 2)
    scale, bias = _parameter(node, 1, sizes), _parameter(node, 2, sizes)
    return _normalize(node, x, scale, bias, tuple(range(2, x.rank)), node.attribute("epsilon", 1e-5))


@converts("LayerNormalization", 17, types=FLOATS)
def layer_normalization(node: Conversion) -> Value:
    """Statistics over all dimensions from the axis on; scale and bias broadcast to the input."""
    x, bias = node[0], node.get(2)
    if node.wants(1) or node.wants(2):
        raise node.unsupported("the outputs Mean and InvStdDev")
    axis = node.axis(node.attribute("axis", -1), x.rank)
    scale = node.reshape(node[1], (1,) * (x.rank - node[1].rank) + node[1].sizes)
    if bias is not None:
        bias = node.reshape(bias, (1,) * (x.rank - bias.rank) + bias.sizes)
    return _normalize(node, x, scale, bias, tuple(range(axis, x.rank)), node.attribute("epsilon", 1e-5))


@converts("GroupNormalization", 18, 21, types=FLOATS)
def group_normalization(node: Conversion) -> Value:
    """Statistics of each group of channels of each image. Scale and bias have one entry a group in opset 18, one a
    channel from 21 on."""
    x, groups = node[0], node.attribute("num_groups", 0)
    if x.rank < 2 or groups < 1 or x.sizes[1] % groups:
        raise node.invalid(f"{groups} groups of an input of sizes {x.sizes}")
    channels = x.sizes[1] // groups
    grouped = node.reshape(x, (x.sizes[0], groups, channels, math.prod(x.sizes[2:])))
    sizes = (1, groups, channels if node.node.version >= 21 else 1, 1)
    scale, bias = _parameter(node, 1, sizes), _parameter(node, 2, sizes)
    return node.reshape(_normalize(node, grouped, scale, bias, (2, 3), node.attribute("epsilon", 1e-5)), x.sizes)


@converts("MeanVarianceNormalization", 9, 13, types=FLOATS)
def mean_variance_normalization(node: Conversion) -> Value:
    """(x - mean) / (deviation + 1e-9). The square of that constant, added to the variance instead, is the same where
    either matters: it keeps a constant input at 0 and is lost in any other."""
    axes = tuple(sorted(node.axis(axis, node[0].rank) for axis in node.attribute("axes", [0, 2, 3])))
    return _normalize(node, node[0], None, None, axes, 1e-18)


def _normalize(
    node: Conversion, x: Value, scale: Value | None, bias: Value | None, axes: tuple[int, ...], epsilon: float
) -> Value:
    return node.launch(ops.MeanVarianceNormalization1, x, scale, bias, axes=axes, epsilon=float(epsilon))


def _parameter(node: Conversion, index: int, sizes: tuple[int, ...]) -> Value:
    """A required input as a tensor of these sizes that broadcasts to the first."""
    value = node[index]
    if math.prod(value.sizes) != math.prod(sizes):
        raise node.invalid(f"input {index} has sizes {value.sizes}, not one entry for each of {sizes}")
    return node.reshape(value, sizes)
