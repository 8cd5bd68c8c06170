"""ONNX Runtime's attention of language models: a cache of keys and values whose heads several heads of queries share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.attention import Past, head_count, past_of, scale_of
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.convert.movement import joined
from dmlvk.onnx.convert.onnx_attention import product_of_heads, softcapped
from dmlvk.onnx.convert.rotary import counted, rotated
from dmlvk.onnx.convert.softmax import softmax
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import MICROSOFT, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import MatrixTransform, PaddingMode
from dmlvk.spec.enums import MultiheadAttentionMaskType as MaskType
from dmlvk.spec.schema import FLOATS

_BOOL, _INT = np.dtype(np.bool_), np.dtype(np.int32)
_MASKED = -1e30
"""What is added to scores that count for nothing: it is finite, for a tile of a row may have no others."""

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


@dataclass(frozen=True)
class _Problem:
    """One attention.

    Attributes:
        query: (batch, rows, heads, head size).
        key, value: The new rows, (batch, rows, key heads, head size).
        past: The cache before them, or None.
        lengths: How many rows of the cache come before the new ones, (batch,).
        last: The last row of the cache that counts then, (batch,).
        total: The rows of the cache that is made.
    """

    query: Value
    key: Value
    value: Value
    past: Past | None
    lengths: Value
    last: Value
    total: int

    @property
    def rows(self) -> int:
        """The rows of each batch entry that this call adds to those of the past."""
        return self.query.sizes[1]

    @property
    def scores(self) -> tuple[int, int, int, int]:
        """The sizes of the scores."""
        return (self.query.sizes[0], self.query.sizes[2], self.rows, self.total)


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
    the present in ONNX Runtime is the same as any other here."""
    problem = _problem(node)
    bends = node.attribute("softcap", 0.0) or node.get(11) is not None or node.attribute("smooth_softmax", -1) == 1
    if bends or not node.attribute("causal", 1):
        return _step_by_step(node, problem)
    return _at_once(node, problem)


def _problem(node: Conversion) -> _Problem:
    heads, key_heads = head_count(node), node.attribute("kv_num_heads", 0)
    if key_heads < 1 or heads % key_heads:
        raise node.invalid(f"kv_num_heads must be at least 1 and divide num_heads, {heads}", key_heads)
    query, key, value = _queries_keys_values(node, heads, key_heads)
    batch, rows = query.sizes[:2]
    past = past_of(node, node.get(3), node.get(4))
    before, all_rows = 0 if past is None else past.key.sizes[2], int(node.known(6).reshape(-1)[0])
    total = max(before, all_rows)
    if past is None and all_rows != rows:
        raise node.invalid("the new rows must be all rows where there is no past", rows, all_rows)
    if before < total - rows:
        raise node.invalid(f"{before} rows of the past and {rows} new ones must be all rows", before + rows, total)
    last = node.reshape(node[5], (batch,))
    if rows == all_rows:  # the first rows of all
        lengths = node.upload(np.zeros(batch, np.int32))
    elif rows == 1:
        lengths = last
    else:
        lengths = node.elementwise(ops.ElementWiseAdd, last, node.upload(np.array([1 - rows], np.int32)))
    if node.attribute("do_rotary", 0):
        places = _places(node, batch, rows, None if rows == all_rows else lengths)
        interleaved = bool(node.attribute("rotary_interleaved", 0))
        query, key = (rotated(node, x, places, node[7], node[8], interleaved) for x in (query, key))
    return _Problem(query, key, value, past, lengths, last, total)


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


def _places(node: Conversion, batch: int, rows: int, lengths: Value | None) -> Value:
    """Rows of the tables of cosines and sines: those given, else those of the cache. Of the first rows of all, which have no
    lengths before them, only the first place counts."""
    given = node.get(9)
    if lengths is None:
        start = None if given is None else given.shorten(0, 1).shorten(1, 1)
        dtype = _INT if start is None else start.dtype
    else:
        if given is not None:
            return given.broadcast_to((batch, rows))
        start, dtype = node.reshape(lengths, (batch, 1)), _INT
    places = counted(node, rows, dtype)
    return (places if start is None else node.elementwise(ops.ElementWiseAdd, start, places)).broadcast_to((batch, rows))


def _seen(node: Conversion, problem: _Problem, causal: bool) -> Value | None:
    """Which keys each query sees, as bools that broadcast to the scores; None if causality is left out and there is no
    window."""
    batch, window = problem.query.sizes[0], node.attribute("local_window_size", -1)
    keys = node.reshape(counted(node, problem.total, _INT), (1, 1, 1, problem.total))
    if not node.attribute("causal", 1):
        last = node.reshape(problem.last, (batch, 1, 1, 1))
        return node.elementwise(ops.ElementWiseLogicalLessThanOrEqual, keys, last, dtype=_BOOL)
    places = node.reshape(counted(node, problem.rows, _INT), (1, 1, problem.rows, 1))
    places = node.elementwise(ops.ElementWiseAdd, node.reshape(problem.lengths, (batch, 1, 1, 1)), places)
    parts = [node.elementwise(ops.ElementWiseLogicalLessThanOrEqual, keys, places, dtype=_BOOL)] if causal else []
    if window > 0:
        nearest = node.elementwise(ops.ElementWiseSubtract, places, node.upload(np.array(window, np.int32)))
        parts.append(node.elementwise(ops.ElementWiseLogicalGreaterThan, keys, nearest, dtype=_BOOL))
    return reduce(lambda one, other: node.elementwise(ops.ElementWiseLogicalAnd, one, other), parts) if parts else None


def _at_once(node: Conversion, problem: _Problem) -> tuple[Value, Value, Value]:
    """One operator of DirectML, which lengths of the past make causal; a window is a mask of its."""
    batch, heads, rows, total = problem.scores
    key_heads, size = problem.key.sizes[2:]
    tensors = zip(("query", "key", "value"), (problem.query, problem.key, problem.value), strict=True)
    fields: dict[str, Any] = {f"{name}_tensor": node.reshape(x, (batch, rows, x.sizes[2] * size)) for name, x in tensors}
    if problem.past is not None and total > rows:
        fields |= {
            f"past_{name}_tensor": x.shorten(2, total - rows) for name, x in zip(Past._fields, problem.past, strict=True)
        }
    if (bias := _bias(node, problem)) is not None:
        fields["relative_position_bias_tensor"] = bias.broadcast_to(problem.scores)
    if node.attribute("local_window_size", -1) > 0 and (seen := _seen(node, problem, causal=False)) is not None:
        fields |= {"mask_tensor": cast_to(node, seen, _INT).broadcast_to(problem.scores), "mask_type": MaskType.BOOLEAN}
    present = Past(*(node.new((batch, key_heads, total, size), problem.query.dtype) for _ in range(2)))
    y = node.launch(
        ops.MultiheadAttention1,
        past_sequence_lengths_tensor=problem.lengths,
        output_tensor=node.new((batch, rows, heads * size), problem.query.dtype),
        output_present_key_tensor=present.key,
        output_present_value_tensor=present.value,
        scale=scale_of(node, size),
        mask_filter_value=_MASKED,
        query_head_count=heads,
        key_value_head_count=key_heads,
        **fields,
    )
    return y, present.key, present.value


def _step_by_step(node: Conversion, problem: _Problem) -> tuple[Value, Value, Value]:
    """Two products with a softmax between; the heads of queries that share one of keys are rows of one product."""
    batch, heads, rows, total = problem.scores
    size = problem.query.sizes[3]
    key, value = _present(node, problem)
    query = problem.query.transpose((0, 2, 1, 3))
    fields = {"trans_b": MatrixTransform.TRANSPOSE, "alpha": scale_of(node, size)}
    scores = softcapped(node, product_of_heads(node, query, key, problem.scores, **fields))
    if (bias := _bias(node, problem)) is not None:
        scores = node.elementwise(ops.ElementWiseAdd, scores, bias)
    seen = _seen(node, problem, causal=True)
    assert seen is not None, "it is causal, or has as many keys as are valid"
    nothing = node.upload(np.array(-np.inf, scores.dtype))
    scores = node.elementwise(ops.ElementWiseIf, seen, scores, nothing, dtype=scores.dtype)
    if (sink := _sink(node, problem)) is not None:
        scores = joined(node, (scores, sink), 3)
    shares = softmax(node, scores, (3,)).shorten(3, total)
    y = product_of_heads(node, shares, value, (batch, heads, rows, size)).transpose((0, 2, 1, 3))
    return node.reshape(y, (batch, rows, heads * size)), key, value


def _bias(node: Conversion, problem: _Problem) -> Value | None:
    """What is added to the scores, which it broadcasts to: nothing to those of keys behind all that count."""
    bias, full = node.get(10), problem.scores
    if bias is None:
        return None
    good = bias.rank == 4 and all(size in (1, own) for size, own in zip(bias.sizes[:3], full, strict=False))
    if not good or bias.sizes[3] > full[3]:
        raise node.invalid(f"the bias must broadcast to the scores, {full}, or have fewer keys", bias.sizes)
    return _with_room(node, bias, 3, full[3])


def _sink(node: Conversion, problem: _Problem) -> Value | None:
    """The score of a key without a value, one for each head or 0; None where there is no such key."""
    one = (*problem.scores[:3], 1)
    if (given := node.get(11)) is not None:
        return node.copy(node.reshape(given, (1, problem.scores[1], 1, 1)).broadcast_to(one))
    return node.fill(one, problem.query.dtype.type(0)) if node.attribute("smooth_softmax", -1) == 1 else None


def _present(node: Conversion, problem: _Problem) -> tuple[Value, Value]:
    """The cache with the new rows."""
    key, value = (x.transpose((0, 2, 1, 3)) for x in (problem.key, problem.value))
    if problem.past is None:
        return node.copy(key), node.copy(value)
    places = node.reshape(problem.lengths, (key.sizes[0], 1, 1, 1))
    places = node.elementwise(
        ops.ElementWiseAdd, places, node.reshape(counted(node, problem.rows, _INT), (1, 1, problem.rows, 1))
    )
    places = places.broadcast_to(key.sizes)
    made = (
        node.launch(
            ops.ScatterElements,
            _with_room(node, cache, 2, problem.total),
            places,
            update,
            output_tensor=node.new((*cache.sizes[:2], problem.total, cache.sizes[3]), cache.dtype),
            axis=2,
        )
        for cache, update in zip(problem.past, (key, value), strict=True)
    )
    return next(made), next(made)


def _with_room(node: Conversion, x: Value, axis: int, size: int) -> Value:
    """A value of so many elements along an axis, zeros at the end."""
    missing, none = size - x.sizes[axis], (0,) * x.rank
    if not missing:
        return x
    return node.launch(
        ops.Padding,
        x,
        output_tensor=node.new((*x.sizes[:axis], size, *x.sizes[axis + 1 :]), x.dtype),
        padding_mode=PaddingMode.CONSTANT,
        padding_value=0.0,
        start_padding=none,
        end_padding=(*none[:axis], missing, *none[axis + 1 :]),
    )
