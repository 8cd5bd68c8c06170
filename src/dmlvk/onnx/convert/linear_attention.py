"""Attention by a state, as the newest language models have it beside the other."""

from __future__ import annotations

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec.ops.linear_attention import LinearAttention
from dmlvk.spec.schema import FLOATS

_DEFAULT = "gated_delta"
_RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), _DEFAULT: (True, True)}
"""Whether the state decays and whether what it holds of a key is replaced, by update_rule."""
_PAST, _DECAY, _RATE = 3, 4, 5


def _refuse_linear_attention(node: NodeFacts) -> None:
    for index in (1, 2, _DECAY, _RATE):
        node.takes(index, node.as_first(FLOATS))
    node.takes(_PAST, FLOATS, "the past state may be")
    rule = node.attribute("update_rule", _DEFAULT)
    if rule not in _RULES:
        raise node.invalid(f"update_rule must be one of {', '.join(_RULES)}", rule)
    for name, index, wanted in zip(("decay", "beta"), (_DECAY, _RATE), _RULES[rule], strict=True):
        if node.has(index) != wanted:
            raise node.invalid(f"{name} must be given where update_rule asks for it, and only there", rule)
    heads, key_heads = node.attribute("q_num_heads", 0), node.attribute("kv_num_heads", 0)
    if key_heads < 1 or heads < 1 or heads % key_heads:
        raise node.invalid(f"kv_num_heads must be at least 1 and divide q_num_heads, {heads}", key_heads)


@converts("LinearAttention", 27, types=FLOATS, check=_refuse_linear_attention)
def linear_attention(node: Conversion) -> tuple[Value, Value]:
    """Heads stand side by side in rows. A decay is one number for each element of a key, or for each head."""
    heads = [node.attribute(name, 0) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    query, key, value = (_apart(node, node[index], count) for index, count in enumerate(heads))
    if (query.sizes[:2], query.sizes[3]) != (key.sizes[:2], key.sizes[3]) or key.sizes[:3] != value.sizes[:3]:
        rule = "query, key and value must have one batch size and as many rows, and query and key one head size"
        raise node.invalid(rule, (query.sizes, key.sizes, value.sizes))
    batch, rows, count, size = key.sizes
    past = node.get(_PAST)
    state = (batch, count, size, value.sizes[3])
    if past is not None and past.sizes != state:
        raise node.invalid("the past state must fit keys and values", past.sizes, state)
    dtype = query.dtype if past is None else past.dtype
    y = node.new((*query.sizes[:3], value.sizes[3]), query.dtype)
    if 0 in y.sizes:
        present = node.fill(state, dtype.type(0)) if past is None else past
        return node.reshape(y, (batch, rows, y.sizes[2] * y.sizes[3])), present
    decay, rate = node.get(_DECAY), node.get(_RATE)
    if decay is not None:
        decay = _apart(node, decay, count)
        if decay.sizes[:2] != (batch, rows) or decay.sizes[3] not in (1, size):
            raise node.invalid("decay must have a number for each head or each element of a key", decay.sizes, key.sizes)
        decay = decay.broadcast_to(key.sizes)
    if rate is not None:
        if rate.sizes not in ((batch, rows, 1), (batch, rows, count)):
            raise node.invalid("beta must have a number for each row or each head", rate.sizes, key.sizes[:3])
        rate = rate.broadcast_to((batch, rows, count))
    present = node.new(state, dtype)
    node.launch(
        LinearAttention,
        *(query, key, value, past, decay, rate),
        output_tensor=y,
        present_state_tensor=present,
        scale=float(node.attribute("scale", 0.0)) or size**-0.5,
    )
    return node.reshape(y, (batch, rows, y.sizes[2] * y.sizes[3])), present


def _apart(node: Conversion, x: Value, heads: int) -> Value:
    """(batch, rows, heads, size)."""
    if x.rank != 3 or x.sizes[2] % heads:
        raise node.invalid(f"an input must have 3 dimensions, of which {heads} heads divide the last", x.sizes)
    return node.reshape(x, (*x.sizes[:2], heads, x.sizes[2] // heads))
