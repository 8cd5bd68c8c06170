"""Attention: softmax(q k^T scale + mask) v, of which passes of the graph make one operator where they know it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dmlvk.engine.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction
from dmlvk.torch.conversion import Conversion
from dmlvk.torch.convert.elementwise import BOOL, chosen, compared, minus, plus, times, wide
from dmlvk.torch.convert.products import multiplied
from dmlvk.torch.convert.reductions import reduced
from dmlvk.torch.registry import converter

_PLAIN = "dropout inside attention"


@converter("aten._scaled_dot_product_flash_attention_for_cpu.default")
def attention(
    node: Conversion,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, Value]:
    """Beside what it makes the logarithm of each row's sum, for the gradient."""
    if dropout_p:
        raise node.unsupported(f"{_PLAIN} is not supported")
    key, value = _shared_heads(node, query, key), _shared_heads(node, query, value)
    scores = _scores(node, query, key, is_causal, attn_mask, scale)
    shares = softmax(node, scores, 3) if attn_mask is None else safe_softmax(node, scores, 3)
    made = multiplied(node, shares, value)
    sums = reduced(node, wide(node, scores), ReduceFunction.LOG_SUM_EXP, (3,))
    dtype, sizes = node.results[1]
    return made, node.cast(node.reshape(sums, sizes), dtype)


@converter("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def attention_backward(
    node: Conversion,
    gradient: Value,
    query: Value,
    key: Value,
    value: Value,
    out: Value,
    logsumexp: Value,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, ...]:
    """With p the shares and g the gradient: dv = p^T g, ds = p (g v^T - sum(g out)), dq = ds k scale, dk = ds^T q scale."""
    if dropout_p:
        raise node.unsupported(f"{_PLAIN} is not supported")
    factor = 1 / math.sqrt(query.sizes[-1]) if scale is None else scale
    g, q, made = (wide(node, item) for item in (gradient, query, out))
    k, v = (wide(node, _shared_heads(node, query, item)) for item in (key, value))
    scores = _scores(node, q, k, is_causal, attn_mask, scale)
    sums = node.reshape(node.tensor(logsumexp, scores.dtype), (*scores.sizes[:-1], 1))
    shares = node.elementwise(ops.ElementWiseExp, minus(node, scores, sums))
    if attn_mask is not None:  # of a row that sees nothing both are -infinity
        shares = chosen(node, compared(node, ops.ElementWiseLogicalEquals, scores, -math.inf), 0.0, shares, shares.dtype)
    of_value = multiplied(node, _turned(shares), g)
    apart = reduced(node, times(node, g, made), ReduceFunction.SUM, (3,))
    of_scores = times(node, shares, minus(node, multiplied(node, g, _turned(v)), apart))
    of_query = multiplied(node, of_scores, k, factor)
    of_key = multiplied(node, _turned(of_scores), q, factor)
    results = []
    for value_made, (dtype, sizes) in zip((of_query, of_key, of_value), node.results, strict=True):
        if value_made.sizes[1] != sizes[1]:
            split = node.reshape(value_made, (sizes[0], sizes[1], value_made.sizes[1] // sizes[1], *sizes[2:]))
            value_made = node.reshape(reduced(node, split, ReduceFunction.SUM, (2,)), sizes)
        results.append(node.cast(value_made, dtype))
    return tuple(results)


def softmax(node: Conversion, x: Value, axis: int) -> Value:
    """exp(x) over its sum along a dimension."""
    return node.launch(ops.ActivationSoftmax1, x, output_tensor=node.new(x.sizes, x.dtype), axes=(axis,))


def safe_softmax(node: Conversion, x: Value, axis: int) -> Value:
    """A softmax whose results are 0, and not NaN, where all elements are -infinity, as those of what sees nothing are."""
    hidden = compared(node, ops.ElementWiseLogicalEquals, x, -math.inf)
    return chosen(node, hidden, 0.0, softmax(node, x, axis), x.dtype)


@converter("aten._safe_softmax.default")
def safe_softmax_of(node: Conversion, x: Value, dim: int, dtype: Any = None) -> Value:
    if not x.rank:
        return node.fill((), node.dtype.type(1))
    return node.cast(safe_softmax(node, wide(node, node.cast(x, node.dtype)), dim % x.rank), node.dtype)


def _turned(value: Value) -> Value:
    return value.transpose((*range(value.rank - 2), value.rank - 1, value.rank - 2))


def _shared_heads(node: Conversion, query: Value, value: Value) -> Value:
    """Keys or values for each head of the queries, where there are fewer."""
    heads, own = query.sizes[1], value.sizes[1]
    if heads == own:
        return value
    sizes = (value.sizes[0], own, heads // own, *value.sizes[2:])
    return node.reshape(
        node.reshape(value, (*sizes[:2], 1, *sizes[3:])).broadcast_to(sizes), (sizes[0], heads, *value.sizes[2:])
    )


def _scores(node: Conversion, query: Value, key: Value, is_causal: bool, mask: Value | None, scale: float | None) -> Value:
    """q k^T scale with what a mask adds, or leaves out."""
    factor = 1 / math.sqrt(query.sizes[-1]) if scale is None else scale
    scores = multiplied(node, query, _turned(key), factor)
    if is_causal:
        rows, columns = scores.sizes[-2:]
        behind = np.triu(np.ones((rows, columns), np.bool_), 1)
        mask = node.upload(np.where(behind, scores.dtype.type(-np.inf), scores.dtype.type(0)))
    if mask is None:
        return scores
    if mask.dtype == BOOL:
        mask = chosen(node, mask, 0.0, -math.inf, scores.dtype)
    return plus(node, scores, node.tensor(mask, scores.dtype))
