"""Normalizations of ONNX Runtime: those that add up what they normalize, first of all, and those of images with their
channels last."""

from __future__ import annotations

import math

import numpy as np

from dmlvk.graph.views import Sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.convert.gather import taken
from dmlvk.onnx.convert.normalization import normalize
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import MICROSOFT, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction, TensorDataType
from dmlvk.spec.ops.root_mean_square import RootMeanSquare
from dmlvk.spec.schema import FLOATS

_INT32 = np.dtype(np.int32)


def _refuse_statistics(node: NodeFacts) -> None:
    if node.wants(1) or node.wants(2):
        raise node.unsupported("mean and inverse deviation as outputs, which only training wants, are not supported")


def _of_rows(
    node: Conversion, x: Value, scale: Value, bias: Value | None, epsilon: float = 1e-12, use_mean: bool = True
) -> Value:
    """The input normalized from an axis on; scale and bias broadcast to it. The epsilon is one for nodes that give none."""
    first = node.axis(node.attribute("axis", -1), x.rank)
    scale = node.reshape(scale, (1,) * (x.rank - scale.rank) + scale.sizes)
    if bias is not None:
        bias = node.reshape(bias, (1,) * (x.rank - bias.rank) + bias.sizes)
    axes = tuple(range(first, x.rank))
    return normalize(node, x, scale, bias, axes, node.attribute("epsilon", epsilon), use_mean)


def _sum(node: Conversion, *values: Value | None) -> Value:
    """The sum of the first and those of the others that there are, which broadcast to it."""
    total, *others = (value for value in values if value is not None)
    for value in others:
        if node.broadcast(total, value)[0].sizes != total.sizes:
            raise node.invalid(f"what is added must broadcast to the sizes {total.sizes}", value.sizes)
        total = node.elementwise(ops.ElementWiseAdd, total, value)
    return total


@converts(
    "SkipLayerNormalization",
    1,
    types=FLOATS,
    domain=MICROSOFT,
    check=_refuse_statistics,
    declared=Declared(5, 4, ("epsilon",)),
)
def skip_layer_normalization(node: Conversion) -> tuple[Value | None, ...]:
    total = _sum(node, node[0], node[1], node.get(4))
    return _of_rows(node, total, node[2], node.get(3)), None, None, total


@converts(
    "SkipSimplifiedLayerNormalization",
    1,
    types=FLOATS,
    domain=MICROSOFT,
    check=_refuse_statistics,
    declared=Declared(4, 4, ("epsilon",)),
)
def skip_simplified_layer_normalization(node: Conversion) -> tuple[Value | None, ...]:
    x = _sum(node, node[0], node.get(3))
    skip, scale = node[1], node[2]
    if node.broadcast(x, skip)[0].sizes != x.sizes:
        raise node.invalid(f"what is added must broadcast to the sizes {x.sizes}", skip.sizes)
    if scale.sizes != x.sizes[-1:]:
        raise node.invalid("the scale must be a number for each element of a row", scale.sizes, x.sizes[-1:])
    y, total = (node.new(x.sizes, x.dtype) for _ in range(2))
    fields = {"output_tensor": y, "sum_tensor": total, "epsilon": float(node.attribute("epsilon", 1e-12))}
    node.launch(RootMeanSquare, x, skip.broadcast_to(x.sizes), scale, **fields)
    return y, None, None, total


@converts(
    "SimplifiedLayerNormalization",
    1,
    types=FLOATS,
    domain=MICROSOFT,
    declared=Declared(2, 1, ("axis", "epsilon", "stash_type")),
)
def simplified_layer_normalization(node: Conversion) -> Value:
    return _of_rows(node, node[0], node[1], None, epsilon=1e-5, use_mean=False)


@converts(
    "EmbedLayerNormalization",
    1,
    types=(TensorDataType.INT32,),
    domain=MICROSOFT,
    declared=Declared(9, 3, ("epsilon", "mask_index_type")),
)
def embed_layer_normalization(node: Conversion) -> tuple[Value | None, ...]:
    """Rows of up to three tables, added and normalized; and how many words the mask, if there is one, leaves of each
    sentence. Without positions, words are counted."""
    words, segments, places = node[0], node.get(1), node.get(8)
    if words.rank != 2:
        raise node.invalid("the words must have 2 dimensions", words.sizes)
    table = node[3]
    positions = table.shorten(0, words.sizes[1]) if places is None else taken(node, table, places, 0)
    total = _sum(node, taken(node, node[2], words, 0), positions)
    if segments is not None:
        total = _sum(node, total, taken(node, node[4], segments, 0))
    return _of_rows(node, total, node[5], node[6]), _words_left(node) if node.wants(1) else None, total


def _words_left(node: Conversion) -> Value:
    """The ones of each row of the mask, 0 without one."""
    mask, batch = node.get(7), node[0].sizes[0]
    if mask is None:
        return node.fill((batch,), np.int32(0))
    ones = node.elementwise(
        ops.ElementWiseLogicalEquals, mask, node.upload(np.array(1, mask.dtype)), dtype=np.dtype(np.bool_)
    )
    counted = node.launch(
        ops.Reduce,
        cast_to(node, ones, _INT32),
        output_tensor=node.new((batch, 1), _INT32),
        function=ReduceFunction.SUM,
        axes=(1,),
    )
    return node.reshape(counted, (batch,))


_GROUPS = ("activation", "channels_last", "epsilon", "groups")


def _refuse_group_activation(node: NodeFacts) -> None:
    if node.attribute("activation", 0) not in (0, 1):
        raise node.unsupported(f"activation {node.attribute('activation', 0)} is not supported, only 0 and 1")


@converts(
    "GroupNorm",
    1,
    types=FLOATS,
    domain=MICROSOFT,
    check=_refuse_group_activation,
    declared=Declared(3, 1, _GROUPS),
)
def group_norm(node: Conversion) -> Value:
    return _of_groups(node, node[0])


@converts(
    "SkipGroupNorm",
    1,
    types=FLOATS,
    domain=MICROSOFT,
    check=_refuse_group_activation,
    declared=Declared(5, 2, _GROUPS),
)
def skip_group_norm(node: Conversion) -> tuple[Value, Value]:
    """What is added may have no spatial dimensions."""
    x, skip, bias = node[0], node[3], node.get(4)
    last = bool(node.attribute("channels_last", 1))
    if skip.rank == 2:
        skip = node.reshape(skip, _by_channel(x.rank, skip.sizes[0], skip.sizes[1], last))
    if bias is not None:
        bias = node.reshape(bias, _by_channel(x.rank, 1, bias.sizes[0], last))
    total = _sum(node, x, skip, bias)
    return _of_groups(node, total), total


def _by_channel(rank: int, images: int, channels: int, last: bool) -> Sizes:
    ones = (1,) * (rank - 2)
    return (images, *ones, channels) if last else (images, channels, *ones)


def _of_groups(node: Conversion, x: Value) -> Value:
    """Statistics of each group of channels of each image, which come last unless the node says otherwise. Scale and bias
    have one number a channel."""
    last, groups = bool(node.attribute("channels_last", 1)), node.attribute("groups", 0)
    channels = x.sizes[-1 if last else 1] if x.rank > 2 else 0
    if groups < 1 or not channels or channels % groups:
        rule = f"the input must have at least 3 dimensions, and groups divide the channels of {x.sizes}"
        raise node.invalid(rule, groups)
    apart = groups, channels // groups
    pixels = math.prod(x.sizes) // (x.sizes[0] * channels)
    own = (1, *apart) if last else (*apart, 1)
    scale, bias = (node.reshape(cast_to(node, node[index], x.dtype), (1, *own)) for index in (1, 2))
    grouped = node.reshape(x, (x.sizes[0], pixels, *apart) if last else (x.sizes[0], *apart, pixels))
    y = normalize(node, grouped, scale, bias, (1, 3) if last else (2, 3), node.attribute("epsilon", 1e-5))
    y = node.reshape(y, x.sizes)
    return node.elementwise(ops.ActivationSwish, y) if node.attribute("activation", 0) else y
