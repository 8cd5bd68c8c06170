"""ONNX's own Attention: one operator of DirectML where that can say all of it, else two products with a softmax between."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from dmlvk.graph.views import Sizes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.convert.softmax import softmax
from dmlvk.onnx.model import data_type_of
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import IsInfinityMode, MatrixTransform, PaddingMode, ReduceFunction, TensorDataType
from dmlvk.spec.enums import MultiheadAttentionMaskType as MaskType
from dmlvk.spec.schema import DOUBLE, FLOATS, OperatorDesc, ScaleBias

_BOOL, _INT = np.dtype(np.bool_), np.dtype(np.int32)
_TYPES = ops.Gemm.fields[0].data_types
_MASK, _PAST_KEY, _PAST_VALUE, _VALID = 3, 4, 5, 6
"""Optional inputs: the mask, keys and values of earlier rows, and how many keys of each batch entry are valid."""


def _refuse_attention(node: NodeFacts) -> None:
    for index in (1, 2, _PAST_KEY, _PAST_VALUE):
        node.takes(index, node.as_first(_TYPES))
    node.takes(_MASK, (TensorDataType.UINT8, *DOUBLE, *_TYPES), "a mask may be")
    if node.has(_PAST_KEY) != node.has(_PAST_VALUE):
        given = "past_value" if node.has(_PAST_VALUE) else "past_key"
        raise node.invalid("past_key and past_value must be given together", given)
    if node.has(_VALID) and node.has(_PAST_KEY):
        raise node.invalid("nonpad_kv_seqlen must come without past_key and past_value", "both")
    for name, least, most in (
        ("q_num_heads", 1, None),
        ("kv_num_heads", 1, None),
        ("qk_matmul_output_mode", 0, 3),
        ("left_window_size", -1, None),
        ("right_window_size", -1, None),
    ):
        number = node.attribute(name, least)
        if number < least or (most is not None and number > most):
            raise node.invalid(f"{name} must be at least {least}" + ("" if most is None else f" and at most {most}"), number)
    node.element_type("softmax_precision", np.dtype(np.float32), narrow=True)  # it must be one that there is


@dataclass(frozen=True)
class _Problem:
    """One attention, its tensors with the heads before the rows.

    Attributes:
        query: (batch, query heads, queries, head size).
        key, value: The new rows, (batch, heads, rows, head size), where the query heads are a multiple of these.
        past: Keys and values of earlier rows, which stand before them; None without.
        valid: How many keys of each batch entry count, (batch,); None if all do.
        upper, lower: The last and the first key that a query sees, counted from its own place; None if nothing limits them.
        mask: Which keys each query sees, as bools that broadcast to the scores; None if that is not said.
        bias: What is added to the scores, which it broadcasts to; None for nothing.
        scale: What products are multiplied by.
    """

    query: Value
    key: Value
    value: Value
    past: tuple[Value, Value] | None
    valid: Value | None
    upper: int | None
    lower: int | None
    mask: Value | None
    bias: Value | None
    scale: float

    @property
    def scores(self) -> Sizes:
        """The sizes of the scores: batch, query heads, queries, all keys."""
        return (*self.query.sizes[:3], self.before + self.key.sizes[2])

    @property
    def before(self) -> int:
        """Rows before the new ones: the place of the first query, unless that follows from ``valid``."""
        return 0 if self.past is None else self.past[0].sizes[2]

    @property
    def needs_mask(self) -> bool:
        """Whether which keys a query sees is not the same for all queries of a batch entry."""
        return self.mask is not None or self.upper is not None or self.lower is not None

    @property
    def output(self) -> Sizes:
        """The sizes of the output."""
        return (*self.query.sizes[:3], self.value.sizes[3])


@converts("Attention", 23, 24, 25, types=_TYPES, doubles=True, check=_refuse_attention)
def attention(node: Conversion) -> tuple[Value | None, ...]:
    """Heads stand before rows, or side by side in them. A query that sees no key has an output of zeros."""
    problem = _problem(node)
    scores: Value | None = None
    if 0 in problem.scores:
        zero = node[0].dtype.type(0)
        y, scores = node.fill(problem.output, zero), node.fill(problem.scores, zero)
        key, value = _present(node, problem)
    elif 0 not in problem.output and _is_one_operator(node, problem):
        y, key, value = _at_once(node, problem)
    else:
        y, key, value, scores = _step_by_step(node, problem)
    if node[0].rank == 3:
        batch, heads, queries, size = problem.output
        y = node.reshape(y.transpose((0, 2, 1, 3)), (batch, queries, heads * size))
    return y, key, value, scores


def _problem(node: Conversion) -> _Problem:
    ranks = {node[index].rank for index in range(3)}
    if ranks not in ({3}, {4}):
        raise node.invalid(
            "query, key and value must all have 3 dimensions or all 4", [node[index].rank for index in range(3)]
        )
    heads = [node.attribute(name, 0) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    query, key, value = (_heads_first(node, node[index], count) for index, count in enumerate(heads))
    batch, query_heads, _, head_size = query.sizes
    good = key.sizes[:3] == value.sizes[:3] and (key.sizes[0], key.sizes[3]) == (batch, head_size)
    if not good or key.sizes[1] == 0 or query_heads % key.sizes[1]:
        rule = "query, key and value must have one batch size, query and key one head size, key and value as many rows and "
        rule += "heads, and the query a multiple of these"
        raise node.invalid(rule, (query.sizes, key.sizes, value.sizes))
    past = node.get(_PAST_KEY), node.get(_PAST_VALUE)
    before = None if past[0] is None or past[1] is None else (past[0], past[1])
    if before is not None:
        rows = before[0].sizes[2] if before[0].rank == 4 else 0  # else no sizes are equal
        for own, new in zip(before, (key, value), strict=True):
            if own.sizes != (*new.sizes[:2], rows, new.sizes[3]):
                raise node.invalid("the past must have the sizes of keys and values but for rows", own.sizes, new.sizes)
        before = before if rows else None
    valid = node.get(_VALID)
    if valid is not None and valid.sizes != (batch,):
        raise node.invalid("nonpad_kv_seqlen must have one number for each batch entry", valid.sizes, (batch,))
    rows = 0 if before is None else before[0].sizes[2]
    total = rows + key.sizes[2]
    left, right = (node.attribute(f"{side}_window_size", -1) for side in ("left", "right"))
    upper = 0 if node.attribute("is_causal", 0) else right if right >= 0 else None
    lower = left if left >= 0 else None
    if valid is None:  # what limits nothing is left out
        upper = None if upper is None or rows + upper >= total - 1 else upper
        lower = None if lower is None or rows + query.sizes[2] - 1 - lower <= 0 else lower
    mask, bias = _mask(node, (*query.sizes[:3], total))
    return _Problem(
        query,
        key,
        value,
        before,
        None if valid is None else cast_to(node, valid, _INT),
        upper,
        lower,
        mask,
        bias,
        float(node.attribute("scale", head_size**-0.5 if head_size else 1.0)),
    )


def _heads_first(node: Conversion, x: Value, heads: int) -> Value:
    """(batch, heads, rows, head size), as a view where that can be."""
    if x.rank == 4:
        return x
    batch, rows, width = x.sizes
    if heads < 1 or width % heads:
        raise node.invalid(f"the heads of a tensor of 3 dimensions must be given and divide its last, {width}", heads)
    return node.reshape(x, (batch, rows, heads, width // heads)).transpose((0, 2, 1, 3))


def _rows_first(node: Conversion, x: Value) -> Value:
    """(batch, rows, heads * head size)."""
    batch, heads, rows, size = x.sizes
    return node.reshape(x.transpose((0, 2, 1, 3)), (batch, rows, heads * size))


def _mask(node: Conversion, scores: Sizes) -> tuple[Value | None, Value | None]:
    """The mask of bools and that of numbers, of four dimensions that broadcast to the scores; one is None. Keys behind the
    last of a mask are not seen."""
    mask = node.get(_MASK)
    if mask is None:
        return None, None
    dtype = mask.dtype if mask.dtype.kind == "b" else node[0].dtype
    mask = cast_to(node, mask, dtype)
    mask = node.reshape(mask, (1,) * (4 - mask.rank) + mask.sizes)
    length = mask.sizes[-1]
    if any(size not in (1, full) for size, full in zip(mask.sizes[:-1], scores[:-1], strict=True)) or length > scores[3]:
        raise node.invalid(f"the mask must broadcast to the scores, {scores}, or have fewer keys", mask.sizes)
    if length < scores[3]:
        mask = node.launch(
            ops.Padding1,
            mask,
            output_tensor=node.new((*mask.sizes[:3], scores[3]), dtype),
            padding_mode=PaddingMode.CONSTANT,
            padding_value_data_type=data_type_of(dtype),
            padding_value=0 if dtype.kind == "b" else -np.inf,
            start_padding=(0,) * 4,
            end_padding=(0, 0, 0, scores[3] - length),
        )
    return (mask, None) if dtype.kind == "b" else (None, mask)


# -- one operator


def _is_one_operator(node: Conversion, problem: _Problem) -> bool:
    """Whether DirectML's operator computes all that is asked for: it keeps no scores, and does not bend them."""
    precision = node.element_type("softmax_precision", np.dtype(np.float32), narrow=True)
    plain = not node.wants(3) and not node.attribute("softcap", 0.0) and precision != np.float64
    return plain and problem.query.data_type in FLOATS


def _at_once(node: Conversion, problem: _Problem) -> tuple[Value, Value, Value]:
    """Without a past, keys and values are one to the operator: there they may have any strides. Lengths of the past make it
    causal: the last query sees as many keys, the one before it one fewer."""
    batch, heads, queries, total = problem.scores
    fields: dict[str, Any] = {"query_tensor": _rows_first(node, problem.query)}
    key, value = problem.key, problem.value
    if problem.past is None:
        fields |= {"past_key_tensor": key, "past_value_tensor": value}
    else:
        fields |= {"key_tensor": _rows_first(node, key), "value_tensor": _rows_first(node, value)}
        fields |= {"past_key_tensor": problem.past[0], "past_value_tensor": problem.past[1]}
        key, value = (node.new((*x.sizes[:2], total, x.sizes[3]), x.dtype) for x in (key, value))
        for output, name, made in ((1, "key", key), (2, "value", value)):
            fields |= {f"output_present_{name}_tensor": made} if node.wants(output) else {}
    lengths = _lengths(node, problem)
    if lengths is not None:
        fields["past_sequence_lengths_tensor"] = lengths
        problem = replace(problem, upper=None, valid=None)
    if problem.needs_mask:
        fields["mask_tensor"] = cast_to(node, _seen(node, problem), _INT).broadcast_to(problem.scores)
        fields["mask_type"] = MaskType.BOOLEAN
    elif problem.valid is not None:
        fields["mask_tensor"], fields["mask_type"] = node.reshape(problem.valid, (1, batch)), MaskType.KEY_SEQUENCE_LENGTH
    if problem.bias is not None:
        fields["relative_position_bias_tensor"] = problem.bias.broadcast_to(problem.scores)
    y = node.launch(
        ops.MultiheadAttention1,
        output_tensor=node.new((batch, queries, heads * problem.value.sizes[3]), problem.query.dtype),
        scale=problem.scale,
        mask_filter_value=-np.inf,
        query_head_count=heads,
        key_value_head_count=problem.key.sizes[1],
        **fields,
    )
    return _heads_first(node, y, heads), key, value


def _lengths(node: Conversion, problem: _Problem) -> Value | None:
    """The lengths of the past by which the operator's own causal mask is the one asked for; None where none are."""
    batch, _, queries, total = problem.scores
    if problem.upper != 0 or problem.lower is not None or (problem.valid is None and queries > total - problem.before):
        return None
    if problem.valid is not None:
        return problem.valid
    if problem.past is None:
        return node.upload(np.full(batch, queries, _INT))
    return node.upload(np.full(batch, problem.before, _INT)) if queries == total - problem.before else None


def _seen(node: Conversion, problem: _Problem) -> Value:
    """Which keys each query sees, as bools that broadcast to the scores."""
    _, _, queries, total = problem.scores
    parts = [] if problem.mask is None else [problem.mask]
    keys = _numbers(node, (1, 1, 1, total), 0)
    if problem.upper is not None or problem.lower is not None:
        places = _numbers(node, (1, 1, queries, 1), problem.before)
        if problem.valid is not None:
            first = node.elementwise(ops.ElementWiseSubtract, problem.valid, node.upload(np.array(queries, _INT)))
            places = node.elementwise(ops.ElementWiseAdd, node.reshape(first, (*first.sizes, 1, 1, 1)), places)
        distances = node.elementwise(ops.ElementWiseSubtract, keys, places)
        if problem.upper is not None:
            parts.append(_compared(node, ops.ElementWiseLogicalLessThanOrEqual, distances, problem.upper))
        if problem.lower is not None:
            parts.append(_compared(node, ops.ElementWiseLogicalGreaterThanOrEqual, distances, -problem.lower))
    if problem.valid is not None:
        valid = node.reshape(problem.valid, (*problem.valid.sizes, 1, 1, 1))
        parts.append(node.elementwise(ops.ElementWiseLogicalLessThan, keys, valid, dtype=_BOOL))
    return reduce(lambda one, other: node.elementwise(ops.ElementWiseLogicalAnd, one, other), parts)


def _numbers(node: Conversion, sizes: Sizes, first: int) -> Value:
    """Numbers from the first on."""
    fields = {"value_data_type": TensorDataType.INT32, "value_start": first, "value_delta": 1}
    return node.launch(ops.FillValueSequence, output_tensor=node.new(sizes, _INT), **fields)


def _compared(node: Conversion, row: type[OperatorDesc], values: Value, number: int) -> Value:
    return node.elementwise(row, values, node.upload(np.array(number, _INT)), dtype=_BOOL)


# -- step by step


def _step_by_step(node: Conversion, problem: _Problem) -> tuple[Value, Value, Value, Value]:
    """The query heads that share a head of keys and values are rows of one product."""
    dtype, mode = problem.query.dtype, node.attribute("qk_matmul_output_mode", 0)
    key, value = _present(node, problem)
    raw = product_of_heads(node, problem.query, key, problem.scores, trans_b=MatrixTransform.TRANSPOSE, alpha=problem.scale)
    bent = softcapped(node, raw)
    masked = bent if problem.bias is None else node.elementwise(ops.ElementWiseAdd, bent, problem.bias)
    if problem.needs_mask or problem.valid is not None:
        nothing = node.upload(np.array(-np.inf, dtype))
        masked = node.elementwise(ops.ElementWiseIf, _seen(node, problem), masked, nothing, dtype=dtype)
    wide = cast_to(node, masked, node.element_type("softmax_precision", dtype))
    shares = cast_to(node, softmax(node, wide, (3,)), dtype)
    if masked is not bent:
        shares = _zeros_where_nothing_is_seen(node, masked, shares)
    return product_of_heads(node, shares, value, problem.output), key, value, (raw, bent, masked, shares)[mode]


def softcapped(node: Conversion, scores: Value) -> Value:
    """The scores bent so that none is beyond the node's ``softcap``, if it has one."""
    cap = float(node.attribute("softcap", 0.0))
    if not cap:
        return scores
    bent = node.elementwise(ops.ElementWiseTanh, scores, scale_bias=ScaleBias(1 / cap, 0.0))
    return node.elementwise(ops.ElementWiseIdentity, bent, scale_bias=ScaleBias(cap, 0.0))


def _present(node: Conversion, problem: _Problem) -> tuple[Value, Value]:
    """All keys and values."""
    if problem.past is None:
        return problem.key, problem.value
    key, value = (
        node.launch(ops.Join, input_tensors=parts, output_tensor=_rows_of(node, *parts), axis=2)
        for parts in zip(problem.past, (problem.key, problem.value), strict=True)
    )
    return key, value


def _rows_of(node: Conversion, *parts: Value) -> Value:
    """A new tensor with room for the rows of some."""
    batch, heads, _, size = parts[0].sizes
    return node.new((batch, heads, sum(part.sizes[2] for part in parts), size), parts[0].dtype)


def product_of_heads(node: Conversion, rows: Value, other: Value, sizes: Sizes, **fields: Any) -> Value:
    """Each head's rows times the matrix of the head that it shares with others."""
    batch, heads = other.sizes[:2]
    together = node.reshape(rows, (batch, heads, sizes[1] // heads * sizes[2], rows.sizes[3]))
    y = node.new((*together.sizes[:3], sizes[3]), rows.dtype)
    return node.reshape(node.launch(ops.Gemm, together, other, output_tensor=y, **fields), sizes)


def _zeros_where_nothing_is_seen(node: Conversion, masked: Value, shares: Value) -> Value:
    """The shares, zeros for a query all of whose scores are -infinity, whose softmax is none."""
    most = node.new((*masked.sizes[:3], 1), masked.dtype)
    node.launch(ops.Reduce, masked, output_tensor=most, function=ReduceFunction.MAX, axes=(3,))
    blind = node.elementwise(ops.ElementWiseIsInfinity, most, dtype=_BOOL, infinity_mode=IsInfinityMode.NEGATIVE)
    zero = node.upload(np.array(0, shares.dtype))
    return node.elementwise(ops.ElementWiseIf, blind, zero, shares, dtype=shares.dtype)
