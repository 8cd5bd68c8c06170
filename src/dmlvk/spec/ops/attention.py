"""Multi-head attention."""

from __future__ import annotations

import dataclasses as _dataclasses
from collections.abc import Sequence

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import MultiheadAttentionMaskType as _MaskType
from dmlvk.spec.enums import TensorDataType as _Type
from dmlvk.spec.tensor import TensorDesc

__all__ = ["MultiheadAttention", "MultiheadAttention1"]

_UNPADDED = _MaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END
_SEPARATE = ("query_tensor", "key_tensor", "value_tensor")
_STACKED = ("stacked_query_key_tensor", "stacked_key_value_tensor", "stacked_query_key_value_tensor")
_PAST = ("past_key_tensor", "past_value_tensor")
_PRESENT = ("output_present_key_tensor", "output_present_value_tensor")
_FLOATING = (*_SEPARATE, *_STACKED, "bias_tensor", "relative_position_bias_tensor", *_PAST, "output_tensor", *_PRESENT)


@_dataclasses.dataclass(frozen=True)
class AttentionSizes:
    """The sizes of an attention, from those of its tensors.

    Attributes:
        batch: Batch entries.
        query_heads, key_heads: Heads of the queries, and of keys and values; so many query heads share each of the latter.
        queries: Query rows of a batch entry: the sequence length.
        new: Rows of the key and value tensors; 0 where keys and values are the past alone.
        past: Rows of the past tensors, 0 without.
        total: Key rows that masks count over: past and new ones, or all of the present tensors where they hold the past.
        head_size, value_head_size: Elements of a row of one head: of queries and keys, and of values.
    """

    batch: int
    query_heads: int
    key_heads: int
    queries: int
    new: int
    past: int
    total: int
    head_size: int
    value_head_size: int

    @property
    def input_sizes(self) -> dict[str, tuple[int, ...]]:
        """The last sizes of each input, by field; all sizes before them are 1."""
        batch, queries, new, size = self.batch, self.queries, self.new, self.head_size
        hidden, key_hidden = self.query_heads * size, self.key_heads * size
        value_hidden = self.key_heads * self.value_head_size
        return {
            "query_tensor": (batch, queries, hidden),
            "key_tensor": (batch, new, key_hidden),
            "value_tensor": (batch, new, value_hidden),
            "stacked_query_key_tensor": (batch, queries, self.query_heads, 2, size),
            "stacked_key_value_tensor": (batch, new, self.key_heads, 2, size),
            "stacked_query_key_value_tensor": (batch, queries, self.query_heads, 3, size),
            "bias_tensor": (hidden + key_hidden + value_hidden,),
            "relative_position_bias_tensor": (batch, self.query_heads, queries, self.total),
            "past_key_tensor": (batch, self.key_heads, self.past, size),
            "past_value_tensor": (batch, self.key_heads, self.past, self.value_head_size),
            "past_sequence_lengths_tensor": (batch,),
        }

    @property
    def output_sizes(self) -> tuple[tuple[int, ...], ...]:
        """For each output, in the struct's order, the sizes that it must have."""
        return (
            (self.batch, self.queries, self.query_heads * self.value_head_size),
            (self.batch, self.key_heads, self.total, self.head_size),
            (self.batch, self.key_heads, self.total, self.value_head_size),
        )

    def mask_sizes(self, mask_type: _MaskType) -> tuple[int, ...]:
        """The sizes that the mask of a type must have."""
        return {
            _MaskType.NONE: (),
            _MaskType.KEY_SEQUENCE_LENGTH: (self.batch,),
            _MaskType.KEY_SEQUENCE_END_START: (2, self.batch),
            _MaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END: (3 * self.batch + 2,),
            _MaskType.BOOLEAN: (self.batch, self.query_heads, self.queries, self.total),
        }[mask_type]


def attention_sizes(desc: MultiheadAttention1) -> AttentionSizes:
    """The sizes of an attention whose queries, keys and values have one source each."""
    query = desc.query_tensor or desc.stacked_query_key_tensor or desc.stacked_query_key_value_tensor
    assert query is not None, "queries have a source"
    stacked = desc.query_tensor is None
    rows = -4 if stacked else -2
    head_size = query.sizes[-1] // (1 if stacked else desc.query_head_count)
    if stacked:
        new = query.sizes[-4]
    elif desc.stacked_key_value_tensor is not None:
        new = desc.stacked_key_value_tensor.sizes[-4]
    else:
        new = 0 if desc.key_tensor is None else desc.key_tensor.sizes[-2]
    value_head_size = head_size
    if desc.value_tensor is not None:
        value_head_size = desc.value_tensor.sizes[-1] // desc.key_value_head_count
    elif desc.past_value_tensor is not None and not new:
        value_head_size = desc.past_value_tensor.sizes[-1]
    past = 0 if desc.past_key_tensor is None else desc.past_key_tensor.sizes[-2]
    present = desc.output_present_key_tensor
    in_present = desc.past_sequence_lengths_tensor is not None and desc.past_key_tensor is None and present is not None
    return AttentionSizes(
        batch=query.sizes[rows - 1],
        query_heads=desc.query_head_count,
        key_heads=desc.key_value_head_count,
        queries=query.sizes[rows],
        new=new,
        past=past,
        total=max(present.sizes[-2], new) if in_present and present is not None else past + new,
        head_size=head_size,
        value_head_size=value_head_size,
    )


def _newest(desc: MultiheadAttention | MultiheadAttention1) -> MultiheadAttention1:
    return desc.upgrade() if isinstance(desc, MultiheadAttention) else desc


def _ends_with(tensor: TensorDesc, wanted: tuple[int, ...]) -> bool:
    """Whether a tensor has these sizes but for leading ones."""
    return tensor.sizes == (1,) * (tensor.dimension_count - len(wanted)) + wanted


def _given(desc: _s.OperatorDesc, *names: str) -> tuple[bool, ...]:
    return tuple(getattr(desc, name) is not None for name in names)


@_c.constraint("sources", "queries, keys and values must each come from exactly one tensor: their own or a stacked one")
def _sources(desc: MultiheadAttention | MultiheadAttention1) -> _s.Violation | None:
    allowed = {
        (True, True, True, False, False, False),
        (False, False, True, True, False, False),
        (True, False, False, False, True, False),
        (False, False, False, False, False, True),
    }
    if desc.past_key_tensor is not None and desc.past_value_tensor is not None:
        allowed.add((True, False, False, False, False, False))
    given = _given(desc, *_SEPARATE, *_STACKED)
    names = ", ".join(name for name, there in zip((*_SEPARATE, *_STACKED), given, strict=True) if there)
    return None if given in allowed else _s.Violation("query_tensor", names or None)


@_c.constraint("past", "past_key_tensor and past_value_tensor must be given together")
def _past(desc: MultiheadAttention | MultiheadAttention1) -> _s.Violation | None:
    key, value = _given(desc, *_PAST)
    return None if key == value else _s.Violation(_PAST[key], None)


@_c.constraint(
    "heads", "there must be a head; key heads must be as many as query heads where both are stacked, else divide them"
)
def _heads(desc: MultiheadAttention | MultiheadAttention1) -> _s.Violation | None:
    newest = _newest(desc)
    stacked = newest.query_tensor is None
    queries, keys = newest.query_head_count, newest.key_value_head_count
    good = queries >= 1 and (keys == queries if stacked else keys >= 1 and queries % keys == 0)
    if isinstance(desc, MultiheadAttention):
        return None if good else _s.Violation("head_count", desc.head_count)
    return None if good else _s.Violation("key_value_head_count" if queries else "query_head_count", keys if queries else 0)


@_c.constraint(
    "input_sizes", "must have the sizes that queries, keys, values and head counts imply; leading ones may be left out"
)
def _input_sizes(desc: MultiheadAttention | MultiheadAttention1) -> _s.Violation | None:
    newest = _newest(desc)
    for name, wanted in attention_sizes(newest).input_sizes.items():
        tensor: TensorDesc | None = getattr(newest, name)
        if tensor is not None and not _ends_with(tensor, wanted):
            return _s.Violation(name, tensor.sizes, wanted)
    return None


@_c.constraint("mask", "mask_tensor must be given unless mask_type is NONE, and have the sizes of its type")
def _mask(desc: MultiheadAttention | MultiheadAttention1) -> _s.Violation | None:
    wanted, mask = attention_sizes(_newest(desc)).mask_sizes(desc.mask_type), desc.mask_tensor
    good = desc.mask_type is _MaskType.NONE if mask is None else bool(wanted) and _ends_with(mask, wanted)
    return None if good else _s.Violation("mask_tensor", None if mask is None else mask.sizes, wanted or None)


@_c.constraint("unpadded_past", "must be another type where there are past tensors")
def _unpadded_past(desc: MultiheadAttention | MultiheadAttention1) -> _s.Violation | None:
    newest = _newest(desc)
    past = any(_given(newest, *_PAST, "past_sequence_lengths_tensor"))
    return _s.Violation("mask_type", desc.mask_type) if past and desc.mask_type is _UNPADDED else None


@_c.constraint("past_lengths", "past_sequence_lengths_tensor must come with past tensors or with both present tensors")
def _past_lengths(desc: MultiheadAttention1) -> _s.Violation | None:
    if desc.past_sequence_lengths_tensor is None or desc.past_key_tensor is not None:
        return None
    missing = [name for name in _PRESENT if getattr(desc, name) is None]
    return _s.Violation(missing[0], None) if missing else None


def _inferred(desc: MultiheadAttention | MultiheadAttention1) -> tuple[tuple[int, ...], ...]:
    sizes = attention_sizes(_newest(desc)).output_sizes
    given = [slot.tensor for slot in desc.output_slots()]
    ones = [0 if tensor is None else tensor.dimension_count - len(own) for own, tensor in zip(sizes, given, strict=True)]
    return tuple((1,) * count + own for count, own in zip(ones, sizes, strict=True))


_CONSTRAINTS = (
    _c.same_data_type(*_FLOATING),
    _sources,
    _past,
    _heads,
    _input_sizes,
    _mask,
    _unpadded_past,
    _c.output_sizes_match(),
)


class MultiheadAttention(_s.OperatorDesc, constraints=_CONSTRAINTS, traits=_s.Traits(strided=True)):
    """``MultiheadAttention1`` with as many heads of keys and values as of queries, and all of the past valid."""

    query_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (3, 5), optional=True)
    key_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (3, 5), optional=True)
    value_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (3, 5), optional=True)
    stacked_query_key_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (5, 5), optional=True)
    stacked_key_value_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (5, 5), optional=True)
    stacked_query_key_value_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (5, 5), optional=True)
    bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (1, 5), optional=True)
    mask_tensor: TensorDesc | None = _s.input_tensor((_Type.INT32,), (1, 5), optional=True)
    relative_position_bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 5), optional=True)
    past_key_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 5), optional=True)
    past_value_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 5), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (3, 5))
    output_present_key_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 5), optional=True)
    output_present_value_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 5), optional=True)
    scale: float = _s.floating()
    mask_filter_value: float = _s.floating(-10000.0)
    head_count: int = _s.uint()
    mask_type: _MaskType = _s.enumeration(_MaskType, _MaskType.NONE)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _inferred(self)

    def upgrade(self) -> MultiheadAttention1:
        same = {spec.name: getattr(self, spec.name) for spec in self.fields if spec.name != "head_count"}
        return MultiheadAttention1(query_head_count=self.head_count, key_value_head_count=self.head_count, **same)


class MultiheadAttention1(
    _s.OperatorDesc,
    constraints=(*_CONSTRAINTS[:-1], _past_lengths, _CONSTRAINTS[-1]),
    traits=_s.Traits(strided=True),
):
    """Attention: for each head, softmax((Q + bias) (K + bias)^T * Scale + RelativePositionBias + mask) (V + bias).

    Q, K and V are {BatchSize, rows, heads * HeadSize}, each from a tensor of its own or from one in which the heads of
    several stand side by side, {BatchSize, rows, heads, 2 or 3, HeadSize}; values may have another head size. The query
    heads are shared out in order among the heads of keys and values: with 8 and 2, the first four query heads have the
    first one's. PastKey and PastValue stand in front of K and V + bias, and the present outputs hold what results.

    Where the specification is silent, or says two things:

    - A mask adds MaskFilterValue, as formula and BOOLEAN say, not "sets" it: a row whose keys are all masked keeps its
      scores' order. ONNX Runtime's operator of the same name adds, too.
    - The mask's and RelativePositionBias' last dimension counts all keys: past, then new ones.
    - KEY_QUERY_SEQUENCE_LENGTH_START_END packs sequences without padding, as ONNX Runtime does with the same list: the rows
      of all batch entries count as one list, the queries of sequence b are the rows from QueryStart[b] to QueryStart[b + 1]
      (QueryEnd after the last), its keys KeyLength[b] rows from KeyStart[b], at most to KeyStart[b + 1]. A sequence has at
      most as many rows as a batch entry; its RelativePositionBias counts from its start. Other sequences' keys take no
      part, and rows that are no sequence's are 0. What overlapping sequences give is undefined.
    - PastSequenceLengths, one number a batch entry, says how many rows of the past are valid; new ones follow them, and
      what lies behind takes no part. Attention is causal then, as in the one use of this tensor, ONNX Runtime's
      GroupQueryAttention: the last query sees every key, the one before it one fewer. Present tensors are 0 behind the new
      rows. Without PastKey and PastValue, the present tensors hold the past when the operator starts: their rows behind
      the new ones stay as they are. The page says floating numbers, ONNX Runtime binds INT32: both are taken. Numbers
      below 0 count as 0, and those larger than leaves room for the new rows as the largest that does.
    - Keys and values may be the past alone, as ONNX Runtime asks for cross attention: no K or V then.
    - Where no key takes part, or all have -infinity added, the output is 0.
    - Products times Scale, and what they become with all that is added, are float32 whatever the tensors' type. What is
      beyond, as with a Scale of 1e38, is an infinity: -infinity leaves its key out, infinity makes the row's output NaN,
      for the softmax has infinity - infinity. PyTorch's scaled_dot_product_attention gives the same.
    """

    query_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (3, 5), optional=True)
    key_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (3, 5), optional=True)
    value_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (3, 5), optional=True)
    stacked_query_key_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (5, 5), optional=True)
    stacked_key_value_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (5, 5), optional=True)
    stacked_query_key_value_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (5, 5), optional=True)
    bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (1, 5), optional=True)
    mask_tensor: TensorDesc | None = _s.input_tensor((_Type.INT32,), (1, 5), optional=True)
    relative_position_bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 5), optional=True)
    past_key_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 5), optional=True)
    past_value_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 5), optional=True)
    past_sequence_lengths_tensor: TensorDesc | None = _s.input_tensor((*_s.FLOATS, _Type.INT32), (1, 5), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (3, 5))
    output_present_key_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 5), optional=True)
    output_present_value_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 5), optional=True)
    scale: float = _s.floating()
    mask_filter_value: float = _s.floating(-10000.0)
    query_head_count: int = _s.uint()
    key_value_head_count: int = _s.uint()
    mask_type: _MaskType = _s.enumeration(_MaskType, _MaskType.NONE)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _inferred(self)

    def cuts(self) -> Sequence[_s.Cut]:
        """By batch entries, unless their rows count as one list."""
        masks = {_MaskType.KEY_SEQUENCE_LENGTH: 1, _MaskType.KEY_SEQUENCE_END_START: 1, _MaskType.BOOLEAN: 4}
        if self.mask_tensor is not None and self.mask_type not in masks:
            return []
        from_end = {
            **dict.fromkeys((*_SEPARATE, "output_tensor"), 3),
            **dict.fromkeys(_STACKED, 5),
            **dict.fromkeys((*_PAST, *_PRESENT, "relative_position_bias_tensor"), 4),
            "past_sequence_lengths_tensor": 1,
            "mask_tensor": masks.get(self.mask_type, 1),
        }
        given = {name: tensor for name in from_end if isinstance(tensor := getattr(self, name), TensorDesc)}
        # Without past tensors the present ones may hold the past when the operator starts.
        keeps = self.past_key_tensor is None and self.past_sequence_lengths_tensor is not None
        return [_s.Cut({name: own.dimension_count - from_end[name] for name, own in given.items()}, packs=not keeps)]
