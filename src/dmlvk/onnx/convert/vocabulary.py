"""Counts of a vocabulary's sequences in sequences of numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.model import Array
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import ReduceFunction, TensorDataType

_FLOAT, _BOOL = np.dtype(np.float32), np.dtype(np.bool_)
_MOST_PLACES = 1 << 24  # what says them, one number of the file, may be anything


def _refuse(node: NodeFacts) -> None:
    places = np.array(node.attribute("ngram_indexes", ()), np.int64)
    if places.max(initial=0) >= _MOST_PLACES:
        raise node.unsupported(
            f"an output of {places.max() + 1} numbers in a row is not supported, only of at most {_MOST_PLACES}"
        )
    if len(np.unique(places)) < len(places):
        raise node.unsupported("n-grams that share a place of the output are not supported")


@converts("TfIdfVectorizer", 9, types=(TensorDataType.INT64, TensorDataType.INT32), check=_refuse)
def term_frequencies(node: Conversion) -> Value:
    """How often each n-gram of the pool occurs in each row, elements up to ``max_skip_count`` + 1 apart: every window is
    compared with every n-gram of its length, which takes a byte of memory for each element compared. A hash table, which
    no DirectML operator is, would read each window once."""
    x, mode = node[0], node.attribute("mode", "")
    if mode not in ("TF", "IDF", "TFIDF") or x.rank not in (1, 2):
        rule = "mode must be 'TF', 'IDF' or 'TFIDF', and the input have 1 or 2 dimensions"
        raise node.invalid(rule, (mode, x.sizes))
    places = np.array(node.attribute("ngram_indexes", ()), np.int64)
    weights = np.array(node.attribute("weights", np.ones(len(places))), np.float32)
    if len(places) < 1 or places.min() < 0 or len(weights) != len(places):
        rule = "ngram_indexes must be at least 0, and weights as many as they are"
        raise node.invalid(rule, (len(weights), len(places)))
    rows = node.packed(x if x.rank == 2 else node.reshape(x, (1, *x.sizes)))
    counts = [_counts(node, rows, grams) for grams in _pool(node, len(places))]
    zeros = node.fill((rows.sizes[0], 1), np.float32(0))
    joined = node.launch(
        ops.Join, input_tensors=(*counts, zeros), output_tensor=node.new((rows.sizes[0], len(places) + 1), _FLOAT), axis=1
    )
    sources, scales = np.full(places.max() + 1, len(places), np.int32), np.zeros(places.max() + 1, np.float32)
    sources[places], scales[places] = np.arange(len(places)), weights
    sizes = (rows.sizes[0], len(sources))
    numbers = node.upload(sources).broadcast_to(sizes)
    y = node.launch(ops.GatherElements, joined, numbers, output_tensor=node.new(sizes, _FLOAT), axis=1)
    if mode == "IDF":
        y = node.elementwise(ops.ElementWiseMin, y, node.upload(np.ones((), np.float32)))
    if mode != "TF":
        y = node.elementwise(ops.ElementWiseMultiply, y, node.upload(scales))
    return node.reshape(y, (*x.sizes[:-1], len(sources)))


def _pool(node: Conversion, count: int) -> Sequence[Array]:
    """The n-grams of each length, a row each."""
    numbers = np.array(node.attribute("pool_int64s", ()), np.int64)
    starts = [*node.attribute("ngram_counts", ()), len(numbers)]
    pool = []
    for length, (start, end) in enumerate(itertools.pairwise(starts), 1):
        if not 0 <= start <= end <= len(numbers) or (end - start) % length:
            rule = f"ngram_counts must be starts in the pool of {len(numbers)} numbers, each a whole number of n-grams on"
            raise node.invalid(rule, starts[:-1])
        pool.append(numbers[start:end].reshape(-1, length))
    if sum(map(len, pool)) != count:
        raise node.invalid("ngram_indexes must have a place for each n-gram of the pool", count, sum(map(len, pool)))
    return [grams for grams in pool if len(grams)]


def _counts(node: Conversion, rows: Value, grams: Array) -> Value:
    """How often each n-gram occurs in each row, (rows, n-grams); 0 for lengths that are not asked for. The windows are views
    that overlap."""
    batch, size = rows.sizes
    count, length = grams.shape
    wanted = node.attribute("min_gram_length", 1) <= length <= node.attribute("max_gram_length", 1)
    skips = node.attribute("max_skip_count", 0) if length > 1 else 0
    known = node.upload(grams.astype(rows.dtype))
    total: Value | None = None
    for step in range(1, min(skips + 1, size) + 1):
        windows = size - (length - 1) * step
        if windows < 1 or not wanted:
            continue
        seen = Value(rows.storage, rows.dtype, (batch, windows, 1, length), (size, 1, 0, step))
        same = node.elementwise(ops.ElementWiseLogicalEquals, seen, known, dtype=_BOOL)
        whole = _reduced(node, same, 3, ReduceFunction.MIN)
        found = node.reshape(_reduced(node, cast_to(node, whole, _FLOAT), 1, ReduceFunction.SUM), (batch, count))
        total = found if total is None else node.elementwise(ops.ElementWiseAdd, total, found)
    return node.fill((batch, count), np.float32(0)) if total is None else total


def _reduced(node: Conversion, values: Value, axis: int, function: ReduceFunction) -> Value:
    kept = node.new(values.shorten(axis, 1).sizes, values.dtype)
    return node.launch(ops.Reduce, values, output_tensor=kept, function=function, axes=(axis,))
