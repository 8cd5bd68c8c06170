"""A row of our own: attention over a cache of keys and values that grows where it lies, as language models write texts."""

from __future__ import annotations

from collections.abc import Sequence

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc

_QUERY, _KEY, _VALUE = "query_tensor", "key_tensor", "value_tensor"
_TABLES = ("cosines_tensor", "sines_tensor")
_PAST = ("past_key_tensor", "past_value_tensor")
_CACHE = ("cache_key_tensor", "cache_value_tensor")


@_c.constraint(
    "sizes", "must have the sizes that queries, keys, values and the cache imply; heads of keys divide the others"
)
def _sizes(desc: CachedAttention) -> _s.Violation | None:
    batch, rows, heads, size = desc.tensor(_QUERY).sizes
    key_heads, value_size = desc.tensor(_KEY).sizes[2], desc.tensor(_VALUE).sizes[3]
    capacity = desc.tensor(_CACHE[0]).sizes[2]
    if heads % key_heads:
        return _s.Violation(_QUERY, heads, key_heads)
    wanted = {
        _KEY: (batch, rows, key_heads, size),
        _VALUE: (batch, rows, key_heads, value_size),
        "lengths_tensor": (batch,),
        "positions_tensor": (batch, rows),
        "bias_tensor": (batch, heads, rows, capacity),
        "sinks_tensor": (heads,),
        "output_tensor": (batch, rows, heads, value_size),
        _CACHE[0]: (batch, key_heads, capacity, size),
        _CACHE[1]: (batch, key_heads, capacity, value_size),
    }
    for name, sizes in wanted.items():
        tensor: TensorDesc | None = getattr(desc, name)
        if tensor is not None and tensor.sizes != sizes:
            return _s.Violation(name, tensor.sizes, sizes)
    return None


@_c.constraint("past", "must be given together, with the cache's sizes but for rows, of which there are no more")
def _past(desc: CachedAttention) -> _s.Violation | None:
    for own, other, cache in zip(_PAST, _PAST[::-1], _CACHE, strict=True):
        tensor: TensorDesc | None = getattr(desc, own)
        if tensor is None:
            if getattr(desc, other) is not None:
                return _s.Violation(own, None)
            continue
        batch, heads, capacity, size = desc.tensor(cache).sizes
        wanted = (batch, heads, min(tensor.sizes[2], capacity), size)
        if tensor.sizes != wanted or tensor.sizes[2] != desc.tensor(_PAST[0]).sizes[2]:
            return _s.Violation(own, tensor.sizes, wanted)
    return None


@_c.constraint("tables", "must be given together, each {positions, pairs}, with no more pairs than a head has")
def _tables(desc: CachedAttention) -> _s.Violation | None:
    cosines, sines = (getattr(desc, name) for name in _TABLES)
    if cosines is None or sines is None:
        given = cosines is not None or sines is not None or desc.positions_tensor is not None
        return _s.Violation(_TABLES[0] if cosines is None else _TABLES[1], None) if given else None
    good = cosines.sizes == sines.sizes and 2 * cosines.sizes[1] <= desc.tensor(_QUERY).sizes[3]
    return None if good else _s.Violation(_TABLES[0], cosines.sizes, sines.sizes)


@_c.constraint("window", "must be 0 unless causal")
def _window(desc: CachedAttention) -> _s.Violation | None:
    return _s.Violation("window", desc.window) if desc.window and not desc.causal else None


class CachedAttention(
    _s.OperatorDesc,
    internal=True,
    constraints=(
        _c.same_data_type(
            *(_QUERY, _KEY, _VALUE, *_TABLES, *_PAST, "bias_tensor", "sinks_tensor", "output_tensor", *_CACHE)
        ),
        _sizes,
        _past,
        _tables,
        _window,
    ),
    traits=_s.Traits(strided=True),
):
    """New rows of keys and values go into a cache, and queries meet all rows that it then has.

    A query meets its own row and those before it: query r of batch entry b stands at row lengths[b] + r. Scores are
    capped(scale * q.k) + bias, where capped(s) is softcap * tanh(s / softcap), or s for a softcap of 0. Lengths are data:
    the same plan serves every length.

    query_tensor: {batch, rows, query heads, head size}; the query heads are shared out in order among those of the keys.
    key_tensor, value_tensor: {batch, rows, heads, head size}, {batch, rows, heads, value size}: the new rows.
    lengths_tensor: {batch}: the rows of the cache before the new ones, of which those that there is no room for are
        dropped: their queries meet the cache. Below 0 counts as 0, and more than the cache or the past has
        as that.
    cosines_tensor, sines_tensor: {positions, pairs}: queries and keys are turned as ``RotaryEmbedding`` says.
    positions_tensor: {batch, rows}: rows of the tables, the nearest that they have; without, the rows of the cache.
    past_key_tensor, past_value_tensor: {batch, heads, past rows, size}: the rows before the new ones, which are copied to
        the cache; behind the new ones it is 0. Without them the cache holds the past when the operator starts: the new rows
        are written in place, and all others stay.
    bias_tensor: {batch, query heads, rows, capacity}: added to scores.
    sinks_tensor: {query heads}: the score of a key without a value.
    output_tensor: {batch, rows, query heads, value size}.
    cache_key_tensor, cache_value_tensor: {batch, heads, capacity, size}: read and written.
    window: A query meets so many rows, its own the last; 0 for all.
    interleaved: See ``RotaryEmbedding``.
    causal: Whether a query meets no rows behind its own. Without, it meets all, and there may be no window.
    """

    query_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    key_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    value_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4))
    lengths_tensor: TensorDesc | None = _s.input_tensor((TensorDataType.INT32,), (1, 1))
    cosines_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 2), optional=True)
    sines_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (2, 2), optional=True)
    positions_tensor: TensorDesc | None = _s.input_tensor(
        (TensorDataType.INT32, TensorDataType.INT64), (2, 2), optional=True
    )
    past_key_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4), optional=True)
    past_value_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4), optional=True)
    bias_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 4), optional=True)
    sinks_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (1, 1), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 4))
    cache_key_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 4))
    cache_value_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 4))
    scale: float = _s.floating()
    softcap: float = _s.floating(0.0)
    window: int = _s.uint(0)
    interleaved: bool = _s.boolean(False)
    causal: bool = _s.boolean(True)

    def cuts(self) -> Sequence[_s.Cut]:
        """By batch entries."""
        names = (
            *(_QUERY, _KEY, _VALUE, "lengths_tensor", "positions_tensor", *_PAST),
            *("bias_tensor", "output_tensor", *_CACHE),
        )
        return [_s.Cut(dict.fromkeys(names, 0), packs=self.past_key_tensor is not None)]
