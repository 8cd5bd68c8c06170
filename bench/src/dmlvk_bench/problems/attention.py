"""Multi-head attention: of ordinary sizes, grouped, with a bias, causal.

On CUDA PyTorch is given the one of its backends that it is fastest with, which is measured beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import dmlvk
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops.cached_attention import CachedAttention
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.model import constant
from dmlvk_bench.problems.model import FLOAT16, FLOAT32, Problem, nbytes
from dmlvk_bench.problems.scale import Scale, Sizes

SUITE = "matmul"

_ROUNDING = {FLOAT32: 1e-5, FLOAT16: 2e-3}
_MANY_ROWS = 2048
"""Rows from which on PyTorch's backends gain from instructions that Vulkan has not: the target is less there."""
_BACKENDS = ("flash", "mem_efficient", "cudnn", "math")
"""PyTorch's backends, as ``torch.backends.cuda`` names their switches."""


def _attention(
    scale: Scale,
    name: str,
    data_type: TensorDataType,
    batch: int,
    heads: tuple[int, int],
    queries: int,
    keys: int,
    size: int,
    target: float = 0.0,
    *,
    bias: bool = False,
) -> Problem:
    """Queries, keys and values in tensors of their own, ``heads[0]`` query heads and ``heads[1]`` of keys and values; with
    ``bias`` a number is added to each score."""
    groups = heads[0] // heads[1]

    def elements(sizes: Sizes) -> int:
        batch, own, queries, keys = sizes
        return batch * own * max(groups * queries * size, keys * size, groups * queries * keys if bias else 0)

    batch, own, queries, keys = _fitted(scale, (batch, heads[1], queries, keys), groups * size, elements)
    heads = groups * own, own

    def rival(torch: Any, q: Any, k: Any, v: Any, added: Any = None) -> Any:
        parts = [
            x.view(batch, -1, count, size).transpose(1, 2) for x, count in zip((q, k, v), (*heads, heads[1]), strict=True)
        ]
        found = _in_torch(torch, parts, attn_mask=added, enable_gqa=heads[0] != heads[1])
        return found.transpose(1, 2).flatten(2)

    query = TensorDesc(data_type, (batch, queries, heads[0] * size))
    key = TensorDesc(data_type, (batch, keys, heads[1] * size))
    added = TensorDesc(data_type, (batch, heads[0], queries, keys)) if bias else None
    desc = dmlvk.MultiheadAttention1(
        query_tensor=query,
        key_tensor=key,
        value_tensor=key,
        relative_position_bias_tensor=added,
        output_tensor=query,
        scale=size**-0.5,
        query_head_count=heads[0],
        key_value_head_count=heads[1],
    )
    return Problem(
        f"attention{name} {data_type.name} b{batch} h{heads[0]} q{queries} k{keys} d{size}",
        desc,
        rival,
        bytes_moved=nbytes(query, key, key, query, *([] if added is None else [added])),
        target=target,
        operations=4 * batch * heads[0] * queries * keys * size,
        tolerance=_ROUNDING[data_type],
        prepare=_with_the_fastest_backend(rival),
    )


def _causal(
    scale: Scale, data_type: TensorDataType, batch: int, heads: tuple[int, int], rows: int, size: int, target: float
) -> Problem:
    """The words of prompts, which meet those before them and go to an empty cache."""
    groups = heads[0] // heads[1]

    def elements(sizes: Sizes) -> int:
        batch, own, rows, _ = sizes
        return batch * own * groups * rows * size

    batch, own, rows, _ = _fitted(scale, (batch, heads[1], rows, rows), groups * size, elements)
    heads = groups * own, own

    def rival(torch: Any, q: Any, k: Any, v: Any, lengths: Any) -> Any:
        parts = [x.transpose(1, 2) for x in (q, k, v)]
        return _in_torch(torch, parts, is_causal=True, enable_gqa=heads[0] != heads[1]).transpose(1, 2)

    query, key = (TensorDesc(data_type, (batch, rows, count, size)) for count in heads)
    cache = TensorDesc(data_type, (batch, heads[1], rows, size))
    lengths = TensorDesc(TensorDataType.INT32, (batch,))
    desc = CachedAttention(
        query_tensor=query,
        key_tensor=key,
        value_tensor=key,
        lengths_tensor=lengths,
        output_tensor=query,
        cache_key_tensor=cache,
        cache_value_tensor=cache,
        scale=size**-0.5,
    )
    return Problem(
        f"attention, causal {data_type.name} b{batch} h{heads[0]} q{rows} k{rows} d{size}",
        desc,
        rival,
        bytes_moved=nbytes(query, key, key, lengths, query, cache, cache),
        target=target,
        domains={"lengths_tensor": constant(0)},
        operations=2 * batch * heads[0] * rows * (rows + 1) * size,
        tolerance=_ROUNDING[data_type],
        prepare=_with_the_fastest_backend(rival),
    )


def _fitted(scale: Scale, sizes: Sizes, width: int, elements: Callable[[Sizes], int]) -> Sizes:
    """Batch, heads of keys, queries and keys at a scale; a single query stays one."""
    free = (0, 1, *range(2, 2 + (sizes[2] > 1)), 3)
    return scale.fit(sizes, *free, elements=elements, operations=lambda own: 4 * math.prod(own) * width)


def _in_torch(torch: Any, parts: Sequence[Any], **options: Any) -> Any:
    """Attention over {batch, heads, rows, size}."""
    return torch.nn.functional.scaled_dot_product_attention(*parts, **options)


def _with_the_fastest_backend(rival: Callable[..., Any]) -> Callable[..., Sequence[Any]]:
    """The ``prepare`` of a problem: on CUDA all of PyTorch's backends but one are switched off, until the next problem."""

    def prepare(torch: Any, *inputs: Any) -> Sequence[Any]:
        if inputs[0].is_cuda:
            _choose(torch, min(_BACKENDS, key=lambda name: _milliseconds(torch, name, lambda: rival(torch, *inputs))))
        return inputs

    return prepare


def _choose(torch: Any, backend: str) -> None:
    for name in _BACKENDS:
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(name == backend)


def _milliseconds(torch: Any, backend: str, run: Callable[[], Any]) -> float:
    """The time of three runs with a backend; infinite where it does not take these tensors."""
    _choose(torch, backend)
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    try:
        run()
        start.record()
        for _ in range(3):
            run()
        stop.record()
        stop.synchronize()
    except RuntimeError:
        return math.inf
    return float(start.elapsed_time(stop))


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    found = [
        _attention(scale, "", FLOAT16, 8, (32, 32), 4096, 4096, 128, 0.4),
        _attention(scale, ", BERT-base", FLOAT16, 1, (12, 12), 128, 128, 64, 1.0),
        _attention(scale, ", grouped", FLOAT16, 2, (32, 8), 2048, 2048, 128, 0.55),
        _attention(scale, ", a word", FLOAT16, 8, (32, 8), 1, 8192, 128),
        _attention(scale, "", FLOAT32, 4, (16, 16), 2048, 2048, 64, 1.0),
        _attention(scale, ", BERT-base", FLOAT32, 1, (12, 12), 128, 128, 64, 1.0),
        _attention(scale, ", a word", FLOAT32, 8, (32, 8), 1, 4096, 128),
    ]
    for batch, heads, queries, keys, size in (
        (2, 8, 4096, 4096, 40),
        (2, 8, 4096, 77, 40),
        (2, 8, 1024, 77, 80),
        (2, 8, 256, 256, 160),
        (8, 12, 77, 77, 64),
        (1, 12, 512, 512, 64),
        (1, 8, 1500, 1500, 64),
        (8, 12, 197, 197, 64),
        (64, 3, 49, 49, 32),
        (8, 12, 512, 512, 64),
        (8, 16, 1024, 1024, 80),
        (8, 12, 1500, 1500, 96),
        (2, 16, 8192, 8192, 128),
        (4, 8, 2048, 2048, 256),
    ):
        target = 0.75 if queries < _MANY_ROWS else 0.55
        found.append(_attention(scale, "", FLOAT16, batch, (heads, heads), queries, keys, size, target))
    for batch, heads, queries, keys, size in (
        (2, 8, 4096, 77, 40),
        (8, 12, 197, 197, 64),
        (64, 3, 49, 49, 32),
        (8, 12, 512, 512, 64),
        (1, 20, 1500, 1500, 64),
        (1, 32, 2048, 2048, 128),
    ):
        found.append(_attention(scale, "", FLOAT32, batch, (heads, heads), queries, keys, size, 1.0))
    for data_type, batch, target in ((FLOAT16, 8, 0.75), (FLOAT16, 1, 0.75), (FLOAT32, 8, 1.0)):
        found.append(_attention(scale, ", bias", data_type, batch, (12, 12), 512, 512, 64, target, bias=True))
    for rows, target in ((512, 0.75), (2048, 0.55)):
        found.append(_causal(scale, FLOAT16, 4, (32, 8), rows, 128, target))
    found.append(_causal(scale, FLOAT16, 1, (32, 8), 4096, 64, 0.0))
    return found
