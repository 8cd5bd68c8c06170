"""Cases of ``ops.attention``."""

from __future__ import annotations

import numpy as np

from dmlvk.spec.enums import MultiheadAttentionMaskType as MaskType
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.attention import MultiheadAttention, MultiheadAttention1
from dmlvk.verify.cases.model import Array, Case, Domain, OperatorCases, Tolerance, uniform

_INT32, _FLOAT32, _FLOAT16 = TensorDataType.INT32, TensorDataType.FLOAT32, TensorDataType.FLOAT16
_PRESENTS = ("output_present_key_tensor", "output_present_value_tensor")


def _zeros_and_ones(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """A mask: 0 masks, any other number does not."""
    return rng.choice(np.array([0, 0, 1, 2], np.int32), sizes)


def _runs(batch: int, queries: int, keys: int) -> Domain:
    """Sequences that follow each other with gaps: key lengths, starts and ends of queries, those of keys."""

    def domain(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
        def bounds(rows: int) -> Array:
            return np.sort(rng.integers(0, batch * rows + 1, batch + 1))

        lengths = rng.integers(0, keys + 1, batch)
        numbers = np.concatenate([lengths, bounds(queries), bounds(keys)]).astype(np.int32)
        return numbers.reshape(sizes)

    return domain


def _case(
    name: str,
    batch: int,
    queries: int,
    keys: int,
    heads: tuple[int, int],
    size: int,
    *,
    value_size: int = 0,
    source: str = "separate",
    bias: bool = False,
    relative: bool = False,
    mask: MaskType = MaskType.NONE,
    filter_value: float = -10000.0,
    past: int | None = None,
    lengths: TensorDataType | None = None,
    present: bool = False,
    dims: int = 3,
    layouts: bool = True,
    only: tuple[TensorDataType, ...] = (),
    quick: bool = False,
    newest: bool = True,
) -> Case:
    """``past`` rows before ``keys`` new ones; ``keys`` 0: the past alone."""
    query_heads, key_heads = heads
    value_size = value_size or size
    ones = (1,) * (dims - 3)
    total = keys + (past or 0)
    inputs: dict[str, tuple[int, ...]] = {}
    if source in ("separate", "stacked_key_value"):
        inputs["query_tensor"] = (*ones, batch, queries, query_heads * size)
    if source == "separate" and keys:
        inputs["key_tensor"] = (*ones, batch, keys, key_heads * size)
    if source in ("separate", "stacked_query_key") and keys:
        inputs["value_tensor"] = (*ones, batch, keys, key_heads * value_size)
    if source == "stacked_query_key":
        inputs["stacked_query_key_tensor"] = (batch, queries, query_heads, 2, size)
    if source == "stacked_key_value":
        inputs["stacked_key_value_tensor"] = (batch, keys, key_heads, 2, size)
    if source == "stacked_query_key_value":
        inputs["stacked_query_key_value_tensor"] = (batch, queries, query_heads, 3, size)
    if bias:
        inputs["bias_tensor"] = (*ones, query_heads * size + key_heads * (size + value_size))
    domains: dict[str, Domain] = {}
    if mask is not MaskType.NONE:
        sizes, domain = {
            MaskType.KEY_SEQUENCE_LENGTH: ((1, batch), uniform(-1, total + 1)),
            MaskType.KEY_SEQUENCE_END_START: ((2, batch), uniform(0, total)),
            MaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END: ((3 * batch + 2,), _runs(batch, queries, keys)),
            MaskType.BOOLEAN: ((batch, query_heads, queries, total), _zeros_and_ones),
        }[mask]
        inputs["mask_tensor"], domains["mask_tensor"] = sizes, domain
    if relative:
        inputs["relative_position_bias_tensor"] = (batch, query_heads, queries, total)
    if past is not None:
        inputs["past_key_tensor"] = (batch, key_heads, past, size)
        inputs["past_value_tensor"] = (batch, key_heads, past, value_size)
    if lengths is not None:
        inputs["past_sequence_lengths_tensor"] = (batch,)
        domains["past_sequence_lengths_tensor"] = uniform(-1, (past or 0) + 1)
    outputs: dict[str, tuple[int, ...]] = {"output_tensor": (*ones, batch, queries, query_heads * value_size)}
    if present:
        outputs |= dict(
            zip(_PRESENTS, ((batch, key_heads, total, size), (batch, key_heads, total, value_size)), strict=True)
        )
    attributes: dict[str, object] = {"scale": size**-0.5, "mask_type": mask, "mask_filter_value": filter_value}
    if newest:
        attributes |= {"query_head_count": query_heads, "key_value_head_count": key_heads}
    else:
        attributes["head_count"] = query_heads
    types = {"mask_tensor": _INT32} | ({} if lengths is None else {"past_sequence_lengths_tensor": lengths})
    return Case(
        name,
        inputs,
        attributes,
        outputs=outputs,
        data_types=types,
        domains=domains,
        layouts=layouts,
        only=only,
        quick=quick,
    )


_UNPADDED = MaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END
_CASES = (
    _case("self attention", 2, 7, 7, (3, 3), 8, quick=True),
    _case("cross attention, wider values", 2, 5, 11, (2, 2), 6, value_size=10),
    _case("grouped heads", 2, 5, 9, (6, 2), 8, bias=True, relative=True),
    _case("grouped heads, one batch entry", 1, 5, 9, (6, 2), 8, relative=True, quick=True),
    _case("one head of keys", 1, 3, 13, (4, 1), 5, mask=MaskType.BOOLEAN),
    _case("queries and keys stacked", 2, 5, 5, (2, 2), 8, value_size=12, source="stacked_query_key", bias=True),
    _case("keys and values stacked", 2, 5, 6, (4, 2), 6, source="stacked_key_value", bias=True),
    _case("all stacked", 2, 6, 6, (3, 3), 8, source="stacked_query_key_value", bias=True, quick=True),
    _case("five dimensions", 2, 3, 4, (2, 2), 4, bias=True, dims=5),
    _case("one past the tiles", 1, 65, 67, (2, 2), 33, value_size=65, layouts=False),
    _case("whole tiles", 1, 64, 128, (1, 1), 64, layouts=False),
    _case("wide heads", 1, 9, 17, (1, 1), 260, value_size=132, layouts=False),
    _case("one key", 2, 3, 1, (2, 2), 4, layouts=False),
    _case("a boolean mask and relative positions", 2, 5, 9, (2, 2), 6, mask=MaskType.BOOLEAN, relative=True),
    _case("lengths of keys", 3, 5, 9, (2, 2), 6, mask=MaskType.KEY_SEQUENCE_LENGTH),
    _case(
        "lengths of keys, the others not seen", 5, 3, 2, (2, 2), 6, mask=MaskType.KEY_SEQUENCE_LENGTH, filter_value=-np.inf
    ),
    _case("ends and starts of keys", 3, 5, 9, (2, 2), 6, mask=MaskType.KEY_SEQUENCE_END_START, relative=True),
    _case("sequences without padding", 3, 9, 7, (4, 2), 6, mask=_UNPADDED, bias=True),
    _case("sequences without padding, relative positions", 4, 19, 21, (2, 2), 6, mask=_UNPADDED, relative=True),
    _case("present keys and values", 2, 3, 5, (2, 2), 6, bias=True, present=True),
    _case("past and present", 2, 3, 5, (4, 2), 8, past=7, bias=True, present=True, quick=True),
    _case("past and present of odd sizes", 2, 3, 5, (2, 2), 5, value_size=7, past=6, relative=True, present=True),
    _case("past alone", 2, 5, 0, (2, 2), 6, past=9, mask=MaskType.KEY_SEQUENCE_LENGTH),
    _case("past, not kept", 2, 3, 5, (2, 2), 6, past=7, mask=MaskType.BOOLEAN),
    _case("lengths of the past", 3, 1, 1, (4, 2), 6, past=9, lengths=_INT32, present=True),
    _case("lengths of the past, causal", 2, 5, 5, (2, 1), 6, past=6, lengths=_FLOAT32, bias=True, present=True),
    _case("lengths of the past in halves", 3, 2, 3, (2, 2), 6, past=5, lengths=_FLOAT16, mask=MaskType.BOOLEAN),
    _case("causal, the past in the present tensors", 2, 19, 19, (2, 1), 6, lengths=_INT32, present=True),
    # Rows of whole words in float16: what cooperative matrices read.
    _case(
        "words, a boolean mask",
        *(1, 35, 70, (4, 2), 16),
        mask=MaskType.BOOLEAN,
        relative=True,
        layouts=False,
        only=(_FLOAT16,),
    ),
    _case(
        "words, ends and starts",
        *(2, 20, 67, (2, 2), 24),
        value_size=40,
        mask=MaskType.KEY_SEQUENCE_END_START,
        layouts=False,
        only=(_FLOAT16,),
    ),
    _case(
        "words, keys not seen",
        *(5, 3, 2, (2, 2), 16),
        mask=MaskType.KEY_SEQUENCE_LENGTH,
        filter_value=-np.inf,
        layouts=False,
        only=(_FLOAT16,),
    ),
    _case(
        "words, the least number for masked keys",
        *(9, 3, 2, (2, 2), 16),
        mask=MaskType.KEY_SEQUENCE_LENGTH,
        filter_value=float(np.finfo(np.float32).min),
        layouts=False,
    ),
    _case(
        "words, causal",
        *(2, 40, 40, (4, 2), 16),
        past=33,
        lengths=_INT32,
        present=True,
        layouts=False,
        only=(_FLOAT16,),
    ),
    _case("words, all stacked", 1, 70, 70, (2, 2), 40, source="stacked_query_key_value", layouts=False, only=(_FLOAT16,)),
    _case("words, relative positions", 1, 20, 75, (2, 1), 24, relative=True, layouts=False, only=(_FLOAT16,)),
    _case("words, relative positions in words", 1, 20, 72, (2, 1), 24, relative=True, layouts=False, only=(_FLOAT16,)),
    _case("a word after many", 1, 1, 700, (4, 2), 16, mask=MaskType.KEY_SEQUENCE_LENGTH, layouts=False),
)

# At the size of the summed terms, weights at that of the terms of their scores: up to 1.9 ULP on lavapipe, 0.4 in float16.
_TOLERANCE = {TensorDataType.FLOAT32: Tolerance(4), TensorDataType.FLOAT16: Tolerance(1)}

CASES = (
    OperatorCases(MultiheadAttention1, _TOLERANCE, _CASES),
    OperatorCases(
        MultiheadAttention,
        _TOLERANCE,
        (
            _case("self attention", 2, 7, 7, (3, 3), 8, mask=MaskType.KEY_SEQUENCE_LENGTH, newest=False, quick=True),
            _case("everything", 2, 3, 5, (2, 2), 8, past=4, bias=True, relative=True, present=True, newest=False),
        ),
        every_rule=False,
    ),
)
