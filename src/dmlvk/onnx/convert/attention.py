"""Attention, as ONNX Runtime's own operators (domain com.microsoft) ask for it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dmlvk.graph.views import Sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.integer import multiply_to_float
from dmlvk.onnx.convert.matmul import multiply
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import MICROSOFT, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import MultiheadAttentionMaskType as MaskType
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import FLOATS

_MASK_FILTER_VALUE = -10000.0


class Past(NamedTuple):
    """Keys and values of earlier rows, (batch, heads, rows, size)."""

    key: Value
    value: Value


class _Sizes(NamedTuple):
    """The output's batch entries, query rows and heads, the keys in all, and the elements of a row of values."""

    batch: int
    queries: int
    heads: int
    total: int
    value_size: int


@converts(
    "MultiHeadAttention",
    1,
    types=FLOATS,
    domain=MICROSOFT,
    declared=Declared(8, 3, ("num_heads", "unidirectional", "scale", "mask_filter_value")),
)
def multi_head_attention(node: Conversion) -> tuple[Value | None, ...]:
    """Queries, keys and values come apart, stacked, or the last two as the past comes."""
    query, key, value = node[0], node.get(1), node.get(2)
    heads = head_count(node)
    tensors: dict[str, Value | None] = {"bias_tensor": node.get(3)}
    past = past_of(node, node.get(6), node.get(7))
    if query.rank == 5:
        tensors["stacked_query_key_value_tensor"] = query
        head_size = value_size = query.sizes[4]
        keys = query.sizes[1]
    else:
        if query.rank != 3 or key is None:
            rule = "query must have 3 dimensions and come with a key, or 5 dimensions"
            raise node.invalid(rule, (query.sizes, None if key is None else key.sizes))
        tensors["query_tensor"] = query
        head_size = value_size = query.sizes[2] // heads
        keys = key.sizes[2] if key.rank == 4 else key.sizes[1]
        if key.rank == 5:
            tensors["stacked_key_value_tensor"] = key
        elif value is None:
            raise node.invalid("a key of fewer than 5 dimensions must come with a value", key.sizes)
        elif key.rank == 4:
            if past is not None or tensors["bias_tensor"] is not None:
                raise node.unsupported(
                    "keys with the layout of the past are not supported with a past or a bias beside them"
                )
            past, keys, value_size = Past(key, value), 0, value.sizes[3]
        else:
            tensors |= {"key_tensor": key, "value_tensor": value}
            value_size = value.sizes[2] // heads
    total = keys + (0 if past is None else past.key.sizes[2])
    sizes = _Sizes(query.sizes[0], query.sizes[1], heads, total, value_size)
    causal = bool(node.attribute("unidirectional", 0))
    scale = scale_of(node, head_size)
    return _attention(node, sizes, tensors, node.get(4), node.get(5), past, scale, causal, (node.wants(1), node.wants(2)))


_ATTENTION = Declared(
    inputs=6,
    outputs=2,
    attributes=(
        *("num_heads", "unidirectional", "scale", "mask_filter_value", "qkv_hidden_sizes"),
        *("do_rotary", "rotary_embedding_dim", "past_present_share_buffer"),
    ),
)


def _refuse_rotary_attention(node: NodeFacts) -> None:
    if node.attribute("do_rotary", 0) or node.attribute("past_present_share_buffer", 0):
        raise node.unsupported("rotary embedding is not supported, nor is a past that shares its buffer with the present")


@converts("Attention", 1, types=FLOATS, domain=MICROSOFT, check=_refuse_rotary_attention, declared=_ATTENTION)
def attention(node: Conversion) -> tuple[Value | None, ...]:
    """Queries, keys and values are one product of the input with the weights; the bias is added by the attention."""
    product = multiply(node, node[0], node[1])
    return _self_attention(node, product, node.get(2), node.get(3), node.get(4), node.get(5))


_QUANTIZED_ATTENTION = Declared(
    9, 2, ("num_heads", "unidirectional", "scale", "mask_filter_value", "do_rotary", "past_present_share_buffer")
)


@converts(
    "QAttention",
    1,
    types=(TensorDataType.INT8, TensorDataType.UINT8),
    domain=MICROSOFT,
    check=_refuse_rotary_attention,
    declared=_QUANTIZED_ATTENTION,
)
def quantized_attention(node: Conversion) -> tuple[Value | None, ...]:
    """Input and weights are quantized, and nothing else."""
    product = multiply_to_float(node, (node[0], node[3], node.get(6)), (node[1], node[4], node.get(7)), None)
    return _self_attention(node, product, node[2], node.get(5), node.get(8), None)


def _self_attention(
    node: Conversion,
    product: Value,
    bias: Value | None,
    mask: Value | None,
    past: Value | None,
    scores: Value | None,
) -> tuple[Value | None, ...]:
    """Attention of queries, keys and values that lie side by side in a product; a bias of them and one of the scores."""
    heads = head_count(node)
    batch, rows, width = product.sizes
    hidden = tuple(node.attribute("qkv_hidden_sizes", ())) or (width // 3,) * 3
    tensors: dict[str, Value | None] = {"bias_tensor": bias}
    if len(set(hidden)) == 1:
        stacked = node.reshape(product, (batch, rows, 3, heads, hidden[0] // heads))
        tensors["stacked_query_key_value_tensor"] = stacked.transpose((0, 1, 3, 2, 4))
    else:
        parts = tuple(node.new((batch, rows, size), product.dtype) for size in hidden)
        node.launch(ops.Split, product, output_tensors=parts, axis=2)
        tensors |= dict(zip(("query_tensor", "key_tensor", "value_tensor"), parts, strict=True))
    before = None
    if past is not None and past.sizes[3]:
        halves = tuple(node.new((1, *past.sizes[1:]), past.dtype) for _ in range(2))
        node.launch(ops.Split, past, output_tensors=halves, axis=0)
        before = Past(*(node.reshape(half, past.sizes[1:]) for half in halves))
    total = rows + (0 if before is None else before.key.sizes[2])
    sizes = _Sizes(batch, rows, heads, total, hidden[2] // heads)
    wanted = (node.wants(1), node.wants(1))
    scale, causal = scale_of(node, hidden[0] // heads), bool(node.attribute("unidirectional", 0))
    y, *present = _attention(node, sizes, tensors, mask, scores, before, scale, causal, wanted)
    if not node.wants(1):
        return (y,)
    pieces = tuple(node.reshape(half, (1, *half.sizes)) for half in present if half is not None)
    joined = node.new((2, *pieces[0].sizes[1:]), product.dtype)
    return y, node.launch(ops.Join, output_tensor=joined, input_tensors=pieces, axis=0)


def head_count(node: Conversion) -> int:
    """The heads of the query."""
    heads: int = node.attribute("num_heads", 0)
    if heads < 1:
        raise node.invalid("num_heads must be at least 1", heads)
    return heads


def scale_of(node: Conversion, head_size: int) -> float:
    """The factor on scores: the attribute's, or 1 / sqrt(head size) where that is 0."""
    return float(node.attribute("scale", 0.0)) or head_size**-0.5


def past_of(node: Conversion, key: Value | None, value: Value | None) -> Past | None:
    """Keys and values of earlier rows; None where there are none."""
    if key is None or value is None:
        if key is not value:
            given = "past_value" if key is None else "past_key"
            raise node.invalid("past_key and past_value must be given together", given)
        return None
    return Past(key, value) if key.sizes[2] else None


def _mask(node: Conversion, mask: Value, sizes: _Sizes) -> tuple[Value, MaskType]:
    """The mask as DirectML knows it, told by its sizes."""
    wanted = (sizes.batch, sizes.heads, sizes.queries, sizes.total)
    by_length: dict[int, tuple[Sizes, MaskType]] = {
        3 * sizes.batch + 2: ((3 * sizes.batch + 2,), MaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END),
        2 * sizes.batch: ((2, sizes.batch), MaskType.KEY_SEQUENCE_END_START),
        sizes.batch: ((1, sizes.batch), MaskType.KEY_SEQUENCE_LENGTH),
    }
    if mask.rank == 1 and mask.sizes[0] in by_length:
        target, kind = by_length[mask.sizes[0]]
        return node.reshape(mask, target), kind
    own = {2: (mask.sizes[0], 1, 1, mask.sizes[-1]), 3: (mask.sizes[0], 1, *mask.sizes[1:]), 4: mask.sizes}.get(mask.rank)
    if own is None or any(size not in (1, full) for size, full in zip(own, wanted, strict=True)):
        raise node.unsupported(f"a mask of sizes {mask.sizes} is not supported for scores of sizes {wanted}")
    return node.reshape(mask, own).broadcast_to(wanted), MaskType.BOOLEAN


def _attention(
    node: Conversion,
    sizes: _Sizes,
    tensors: dict[str, Value | None],
    mask: Value | None,
    bias: Value | None,
    past: Past | None,
    scale: float,
    causal: bool,
    wanted: tuple[bool, bool],
) -> tuple[Value | None, ...]:
    """The output, and those of present keys and values that are wanted. Attention is causal where the past has lengths, and
    these count rows of the past or of the present."""
    fields: dict[str, Any] = {"scale": scale, "mask_filter_value": node.attribute("mask_filter_value", _MASK_FILTER_VALUE)}
    fields |= {"query_head_count": sizes.heads, "key_value_head_count": sizes.heads, **tensors}
    if mask is not None:
        fields["mask_tensor"], fields["mask_type"] = _mask(node, mask, sizes)
    if bias is not None:
        fields["relative_position_bias_tensor"] = bias.broadcast_to((sizes.batch, sizes.heads, sizes.queries, sizes.total))
    if past is not None:
        fields |= {"past_key_tensor": past.key, "past_value_tensor": past.value}
    if causal:
        rows = np.full(sizes.batch, 0 if past is None else past.key.sizes[2], np.int32)
        fields["past_sequence_lengths_tensor"] = node.upload(rows)
    head_size, dtype = _head_size(fields)
    presents: list[Value | None] = [None, None]
    for index, (name, size) in enumerate((("key", head_size), ("value", sizes.value_size))):
        if wanted[index] or (causal and past is None):
            presents[index] = node.new((sizes.batch, sizes.heads, sizes.total, size), dtype)
            fields[f"output_present_{name}_tensor"] = presents[index]
    y = node.new((sizes.batch, sizes.queries, sizes.heads * sizes.value_size), dtype)
    node.launch(ops.MultiheadAttention1, output_tensor=y, **fields)
    return (y, *(present if wish else None for present, wish in zip(presents, wanted, strict=True)))


def _head_size(fields: dict[str, Any]) -> tuple[int, np.dtype[Any]]:
    """Elements of a row of one head of keys, and their type."""
    stacked: Value | None = fields.get("stacked_query_key_value_tensor")
    if stacked is not None:
        return stacked.sizes[4], stacked.dtype
    query: Value = fields["query_tensor"]
    heads: int = fields["query_head_count"]
    return query.sizes[2] // heads, query.dtype
