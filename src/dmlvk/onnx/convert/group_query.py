"""ONNX Runtime's attention of language models: a cache of keys and values whose heads several heads of queries share."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlvk.graph.views import Sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.attention import Past, head_count, past_of, scale_of
from dmlvk.onnx.convert.rotary import counted
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import MICROSOFT, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import PaddingMode
from dmlvk.spec.ops.cached_attention import CachedAttention
from dmlvk.spec.schema import FLOATS

_BOOL, _INT = np.dtype(np.bool_), np.dtype(np.int32)

_PLAIN: dict[str, Any] = {
    "sliding_window_cache": 0,
    "qk_output": 0,
    "k_quant_type": "NONE",
    "v_quant_type": "NONE",
    "kv_cache_bit_width": 0,
}
"""Attributes with the values that leave the operator as the converter has it."""

_READ = (
    *("num_heads", "kv_num_heads", "scale", "softcap", "causal", "local_window_size", "smooth_softmax"),
    *("do_rotary", "rotary_interleaved"),
)
_OF_ABSENT_INPUTS = ("qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon")


def _refuse_group_query(node: NodeFacts) -> None:
    for name, plain in _PLAIN.items():
        if node.attribute(name, plain) != plain:
            raise node.unsupported(f"{name} {node.attribute(name, plain)} is not supported, only {plain}")
    if node.attribute("do_rotary", 0) and not (node.has(7) and node.has(8)):
        raise node.unsupported("do_rotary without tables of cosines and sines is not supported")


@converts(
    "GroupQueryAttention",
    1,
    types=FLOATS,
    host_inputs=(6,),
    domain=MICROSOFT,
    check=_refuse_group_query,
    declared=Declared(12, 3, (*_READ, *_OF_ABSENT_INPUTS, *_PLAIN)),
)
def group_query_attention(node: Conversion) -> tuple[Value | None, ...]:
    """A past with room for more than fits before the new rows is read as far as it does, so one that shares its buffer with
    the present in ONNX Runtime is the same as any other here. Where a run binds both to one, it is written in place."""
    heads, key_heads = head_count(node), node.attribute("kv_num_heads", 0)
    if key_heads < 1 or heads % key_heads:
        raise node.invalid(f"kv_num_heads must be at least 1 and divide num_heads, {heads}", key_heads)
    query, key, value = _queries_keys_values(node, heads, key_heads)
    batch, rows, _, size = query.sizes
    past = past_of(node, node.get(3), node.get(4))
    before, all_rows = 0 if past is None else past.key.sizes[2], node.size(6)
    total = max(before, all_rows)
    if past is None and all_rows != rows:
        raise node.invalid("the new rows must be all rows where there is no past", rows, all_rows)
    if before < total - rows:
        raise node.invalid(f"{before} rows of the past and {rows} new ones must be all rows", before + rows, total)
    last = node.reshape(node[5], (batch,))
    # Of the first rows of all, some may be padding: then this is below 0, which counts as 0.
    lengths = last if rows == 1 else node.elementwise(ops.ElementWiseAdd, last, node.upload(np.array([1 - rows], np.int32)))
    fields: dict[str, Any] = {}
    if node.attribute("do_rotary", 0):
        fields = {"cosines_tensor": node[7], "sines_tensor": node[8]}
        fields["positions_tensor"] = _positions(node, batch, rows)
        fields["interleaved"] = bool(node.attribute("rotary_interleaved", 0))
    if past is not None:
        fields |= {"past_key_tensor": past.key, "past_value_tensor": past.value}
    if (bias := _bias(node, last, (batch, heads, rows, total))) is not None:
        fields["bias_tensor"] = bias
    if (sinks := node.get(11)) is not None:
        fields["sinks_tensor"] = node.reshape(sinks, (heads,))
    elif node.attribute("smooth_softmax", -1) == 1:
        fields["sinks_tensor"] = node.fill((heads,), query.dtype.type(0))
    y = node.new(query.sizes, query.dtype)
    present = Past(*(node.new((batch, key_heads, total, size), query.dtype) for _ in range(2)))
    node.launch(
        CachedAttention,
        *(query, key, value, lengths),
        output_tensor=y,
        cache_key_tensor=present.key,
        cache_value_tensor=present.value,
        scale=scale_of(node, size),
        softcap=float(node.attribute("softcap", 0.0)),
        window=max(node.attribute("local_window_size", -1), 0) if node.attribute("causal", 1) else 0,
        causal=bool(node.attribute("causal", 1)),
        **fields,
    )
    return node.reshape(y, (batch, rows, heads * size)), present.key, present.value


def _queries_keys_values(node: Conversion, heads: int, key_heads: int) -> tuple[Value, Value, Value]:
    """Each (batch, rows, heads, head size); they may come side by side."""
    query, key, value = node[0], node.get(1), node.get(2)
    counts = (heads, key_heads, key_heads)
    if query.rank != 3 or (key is None) != (value is None):
        raise node.invalid("the query must have 3 dimensions, and key and value be given together", query.sizes)
    batch, rows, width = query.sizes
    if key is None or value is None:
        size = width // sum(counts)
        query, key, value = (node.new((batch, rows, count * size), query.dtype) for count in counts)
        node.launch(ops.Split, node[0], output_tensors=(query, key, value), axis=2)
    size = query.sizes[2] // heads
    if size * heads != query.sizes[2] or any(x.sizes != (batch, rows, key_heads * size) for x in (key, value)):
        rule = f"queries of {heads} heads must come with as many rows of keys and values of {key_heads}"
        raise node.invalid(rule, (query.sizes, key.sizes, value.sizes))
    query, key, value = (
        node.reshape(x, (batch, rows, count, size)) for x, count in zip((query, key, value), counts, strict=True)
    )
    return query, key, value


def _positions(node: Conversion, batch: int, rows: int) -> Value | None:
    """Rows of the tables, where they are given; else they are those of the cache. Of the first rows of all only the first
    place counts."""
    given = node.get(9)
    if given is None or rows != node.size(6):
        return None if given is None else given.broadcast_to((batch, rows))
    start = given.shorten(0, 1).shorten(1, 1)
    return node.elementwise(ops.ElementWiseAdd, start, counted(node, rows, start.dtype)).broadcast_to((batch, rows))


def _bias(node: Conversion, last: Value, scores: Sizes) -> Value | None:
    """What is added to the scores: nothing to those of keys behind all that it has. Where padding is not behind every query,
    it is left out so."""
    bias, total = node.get(10), scores[3]
    if not node.attribute("causal", 1):
        keys = node.reshape(counted(node, total, _INT), (1, 1, 1, total))
        ends = node.reshape(last, (*last.sizes, 1, 1, 1))
        seen = node.elementwise(ops.ElementWiseLogicalLessThanOrEqual, keys, ends, dtype=_BOOL)
        dtype = node[0].dtype
        bias = node.upload(np.zeros((1,) * 4, dtype)) if bias is None else bias
        nothing = node.upload(np.full((1,) * 4, -np.inf, dtype))
        return node.elementwise(ops.ElementWiseIf, seen, bias, nothing, dtype=dtype).broadcast_to(scores)
    if bias is None:
        return None
    good = bias.rank == 4 and all(size in (1, own) for size, own in zip(bias.sizes[:3], scores, strict=False))
    if not good or bias.sizes[3] > total:
        raise node.invalid(f"the bias must broadcast to the scores, {scores}, or have fewer keys", bias.sizes)
    if missing := total - bias.sizes[3]:
        y = node.new((*bias.sizes[:3], total), bias.dtype)
        fields = {"padding_value": 0.0, "start_padding": (0,) * 4, "end_padding": (0, 0, 0, missing)}
        bias = node.launch(ops.Padding, bias, output_tensor=y, padding_mode=PaddingMode.CONSTANT, **fields)
    return bias.broadcast_to(scores)
