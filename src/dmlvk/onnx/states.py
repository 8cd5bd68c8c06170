"""Inputs that a run changes in place: the past and the present of attention that a caller binds to the same memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import replace
from typing import Final

from dmlvk.graph.step import Step
from dmlvk.onnx.model import Array, Node
from dmlvk.onnx.program import State
from dmlvk.onnx.registry import MICROSOFT
from dmlvk.onnx.values import Value
from dmlvk.spec.ops.cached_attention import CachedAttention

_PASTS: Final = ((3, 1), (4, 2))
"""Inputs and outputs of GroupQueryAttention that may share memory: keys, and values."""
_TOTAL: Final = 6
"""The input of GroupQueryAttention that says how many rows there are."""


def shareable(nodes: Iterable[Node]) -> dict[str, str]:
    """The values that nodes may change in place, with what they are afterwards: nothing else reads them."""
    nodes = tuple(nodes)
    readers = Counter(name for node in nodes for name in node.inputs)
    found: dict[str, str] = {}
    for node in filter(_is_cached, nodes):
        has = (len(node.inputs) > past and len(node.outputs) > now for past, now in _PASTS)
        pairs = [(node.inputs[past], node.outputs[now]) for past, now in _PASTS] if all(has) else []
        if len(pairs) == len(_PASTS) and all(past and now and readers[past] == 1 for past, now in pairs):
            found.update(pairs)
    return found


def totals(nodes: Iterable[Node]) -> frozenset[str]:
    """The values that say nothing but how many rows there are: where a cache has room for them, that is its own."""
    nodes = tuple(nodes)
    inputs = ((node, index, name) for node in nodes for index, name in enumerate(node.inputs))
    says_more = {name for node, index, name in inputs if not (_is_cached(node) and index == _TOTAL)}
    return frozenset(node.inputs[_TOTAL] for node in nodes if _is_cached(node) and len(node.inputs) > _TOTAL) - says_more


def _is_cached(node: Node) -> bool:
    return (node.domain, node.op_type) == (MICROSOFT, "GroupQueryAttention")


def write_in_place(steps: list[Step], outputs: MutableMapping[str, Value | Array], states: Mapping[str, State]) -> None:
    """Has the attention of states write new rows into them. One whose cache is another, because it is larger than its past,
    stays as it is."""
    by_storage = {state.value.storage: state.output for state in states.values()}
    for place, step in enumerate(steps if states else ()):
        desc = step.desc
        if not isinstance(desc, CachedAttention) or desc.past_key_tensor is None:
            continue
        slots = [spec.name for spec in desc.fields if spec.kind.is_input]
        pasts = [step.inputs[slots.index(name)] for name in ("past_key_tensor", "past_value_tensor")]
        names = [by_storage.get(past) for past in pasts if past is not None]
        now = [outputs.get(name) if name else None for name in names]
        grows = desc.past_key_tensor.sizes != desc.tensor("cache_key_tensor").sizes
        if grows or not all(isinstance(own, Value) for own in now):
            continue
        inputs = tuple(None if storage in pasts else storage for storage in step.inputs)
        written = (step.outputs[0], *pasts)
        steps[place] = replace(
            step, desc=desc.replace(past_key_tensor=None, past_value_tensor=None), inputs=inputs, outputs=written
        )
        for name, own, past in zip(names, now, pasts, strict=True):
            assert name is not None and isinstance(own, Value) and past is not None
            outputs[name] = replace(own, storage=past)
