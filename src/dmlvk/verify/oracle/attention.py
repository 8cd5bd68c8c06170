"""Multi-head attention in float64, a batch entry and a head at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.enums import MultiheadAttentionMaskType as MaskType
from dmlvk.spec.ops.attention import MultiheadAttention, MultiheadAttention1
from dmlvk.verify.oracle import Scaled

Array = NDArray[Any]


def multihead_attention(desc: MultiheadAttention, *arrays: Array | None) -> tuple[Scaled, Array, Array]:
    """The newer operator without lengths of the past."""
    return multihead_attention1(desc.upgrade(), *arrays, None)


def multihead_attention1(desc: MultiheadAttention1, *arrays: Array | None) -> tuple[Scaled, Array, Array]:
    """Errors count at the size of the summed terms: each weight's is that of its score, whose terms may cancel."""
    names = [spec.name for spec in desc.fields if spec.kind.is_input]
    given = dict(zip(names, arrays, strict=True))
    query, key, value = _heads(desc, given)
    past_key, past_value = (_last(given[name], 4) for name in ("past_key_tensor", "past_value_tensor"))
    lengths, batch, new = given["past_sequence_lengths_tensor"], query.shape[0], key.shape[1]
    present = desc.output_present_key_tensor
    total = new if past_key is None else new + past_key.shape[2]
    if lengths is not None and past_key is None and present is not None:
        total = present.sizes[-2]
    valid = np.full(batch, total - new)
    if lengths is not None:
        valid = np.clip(np.nan_to_num(lengths.reshape(-1)).astype(np.int64), 0, total - new)

    keys = np.zeros((batch, desc.key_value_head_count, total, key.shape[3]))
    values = np.zeros((batch, desc.key_value_head_count, total, value.shape[3]))
    for b, length in enumerate(valid):
        for whole, past, fresh in ((keys, past_key, key), (values, past_value, value)):
            if past is not None:
                whole[b, :, :length] = past[b, :, :length]
            whole[b, :, length : length + new] = fresh[b].swapaxes(0, 1)

    bias = _last(given["relative_position_bias_tensor"], 4)
    mask = given["mask_tensor"]
    output = np.zeros((*query.shape[:3], value.shape[3]))
    magnitude = np.zeros_like(output)
    if desc.mask_type is MaskType.KEY_QUERY_SEQUENCE_LENGTH_START_END:
        assert mask is not None
        _unpadded(desc, mask.reshape(-1), query, keys, values, bias, output, magnitude)
    else:
        added: Array = np.zeros((batch, desc.query_head_count, query.shape[1], total))
        if bias is not None:
            added = added + bias
        added = added + np.where(_masked(desc, mask, batch, total), desc.mask_filter_value, 0.0)
        for b, length in enumerate(valid):
            seen = np.ones((query.shape[1], total), bool)
            if lengths is not None:
                last = length + new - query.shape[1] + np.arange(query.shape[1])
                seen = np.arange(total) <= last[:, None]
            found = _attend(desc, query[b], keys[b], values[b], added[b], seen)
            output[b], magnitude[b] = found
    sizes = desc.tensor("output_tensor").sizes
    results = [keys, values]
    for index, tensor in enumerate((present, desc.output_present_value_tensor)):
        if tensor is not None:
            results[index] = results[index].reshape(tensor.sizes)
    return Scaled(output.reshape(sizes), magnitude.reshape(sizes)), results[0], results[1]


def _last(array: Array | None, count: int) -> Array | None:
    """The array in float64 with its last dimensions alone: those before them are 1."""
    return None if array is None else array.astype(np.float64).reshape(array.shape[-count:])


def _heads(desc: MultiheadAttention1, given: dict[str, Array | None]) -> tuple[Array, Array, Array]:
    """Queries, keys and values, with their bias, as (batch, row, head, element)."""
    query_heads, key_heads = desc.query_head_count, desc.key_value_head_count
    found: list[Array | None] = [_last(given[f"{name}_tensor"], 3) for name in ("query", "key", "value")]
    for index, heads in enumerate((query_heads, key_heads, key_heads)):
        own = found[index]
        if own is not None:
            found[index] = own.reshape(*own.shape[:2], heads, -1)
    for name, targets in (("query_key", (0, 1)), ("key_value", (1, 2)), ("query_key_value", (0, 1, 2))):
        stacked = _last(given[f"stacked_{name}_tensor"], 5)
        if stacked is not None:
            for place, target in enumerate(targets):
                found[target] = stacked[:, :, :, place]
    past_key, past_value = (_last(given[name], 4) for name in ("past_key_tensor", "past_value_tensor"))
    query = found[0]
    assert query is not None
    for index, past in ((1, past_key), (2, past_value)):
        if found[index] is None:
            assert past is not None
            found[index] = np.zeros((past.shape[0], 0, past.shape[1], past.shape[3]))
    bias = given["bias_tensor"]
    if bias is not None:
        rest = bias.astype(np.float64).reshape(-1)
        for index, own in enumerate(found):
            assert own is not None
            heads, size = own.shape[2:]
            found[index] = own + rest[: heads * size].reshape(heads, size)
            rest = rest[heads * size :]
    query, key, value = found
    assert query is not None and key is not None and value is not None
    return query, key, value


def _masked(desc: MultiheadAttention1, mask: Array | None, batch: int, total: int) -> Array:
    """Where MaskFilterValue is added, to be broadcast to (batch, head, query, key)."""
    if mask is None:
        return np.zeros((1, 1, 1, 1), bool)
    position = np.arange(total)
    if desc.mask_type is MaskType.BOOLEAN:
        found: Array = mask.reshape(mask.shape[-4:]) == 0
        return found
    numbers = mask.reshape(-1, batch, 1, 1, 1)
    found = position >= numbers[0]
    return found if desc.mask_type is MaskType.KEY_SEQUENCE_LENGTH else found | (position < numbers[1])


def _attend(
    desc: MultiheadAttention1, query: Array, keys: Array, values: Array, added: Array, seen: Array
) -> tuple[Array, Array]:
    """One sequence: queries (row, head, element), keys and values (head, row, element); also the magnitude of errors."""
    output = np.zeros((*query.shape[:2], values.shape[2]))
    magnitude = np.zeros_like(output)
    group = desc.query_head_count // desc.key_value_head_count
    for head in range(desc.query_head_count):
        rows, own_keys, own_values = query[:, head], keys[head // group], values[head // group]
        scores = np.where(seen, _in_float32(_in_float32(rows @ own_keys.T * desc.scale) + added[head]), -np.inf)
        addend = np.where(np.isfinite(added[head]), np.abs(added[head]), 0)
        size = np.abs(rows) @ np.abs(own_keys).T * abs(desc.scale) + addend
        size = np.where(size == addend, 0, size)  # beside such an addend a product is nothing, and so is its error
        peak = scores.max(axis=1, keepdims=True, initial=-np.inf)
        with np.errstate(invalid="ignore"):
            weights = np.exp(scores - np.where(np.isneginf(peak), 0.0, peak))
        weights = weights / np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        output[:, head] = weights @ own_values
        magnitude[:, head] = (weights * (1 + size)) @ np.abs(own_values)
    return output, magnitude


def _in_float32(scores: Array) -> Array:
    """Scores beyond float32 as infinities."""
    with np.errstate(over="ignore"):
        beyond = np.isinf(scores.astype(np.float32))
    return np.where(beyond, np.copysign(np.inf, scores), scores)


def _unpadded(
    desc: MultiheadAttention1,
    bounds: Array,
    query: Array,
    keys: Array,
    values: Array,
    bias: Array | None,
    output: Array,
    magnitude: Array,
) -> None:
    """Sequences that follow each other in one list of rows."""
    batch, queries = query.shape[:2]
    lengths, query_starts, key_starts = bounds[:batch], bounds[batch : 2 * batch + 1], bounds[2 * batch + 1 :]
    rows = query.reshape(-1, *query.shape[2:])
    all_keys, all_values = (array.swapaxes(1, 2).reshape(-1, array.shape[1], array.shape[3]) for array in (keys, values))
    outputs, magnitudes = output.reshape(-1, *output.shape[2:]), magnitude.reshape(-1, *output.shape[2:])
    most = keys.shape[2]
    for b in range(batch):
        first, last = max(query_starts[b], 0), min(query_starts[b + 1], len(rows))
        last = min(last, first + queries)
        start, end = max(key_starts[b], 0), min(key_starts[b + 1], len(all_keys), key_starts[b] + lengths[b])
        end = min(end, start + most)
        if first >= last or start >= end:
            continue
        count = end - start
        added = np.zeros((desc.query_head_count, last - first, count))
        if bias is not None:
            added = added + bias[b, :, : last - first, :count]
        own_keys, own_values = all_keys[start:end].swapaxes(0, 1), all_values[start:end].swapaxes(0, 1)
        seen = np.ones((last - first, count), bool)
        found = _attend(desc, rows[first:last], own_keys, own_values, added, seen)
        outputs[first:last], magnitudes[first:last] = found
