"""Multi-head attention."""

from __future__ import annotations

import math
from typing import Any

import dmlvk
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc
from dmlvk_bench.problems.model import FLOAT16, FLOAT32, Problem, nbytes
from dmlvk_bench.problems.scale import Scale, Sizes

SUITE = "matmul"

_ROUNDING = {FLOAT32: 1e-5, FLOAT16: 2e-3}


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
) -> Problem:
    """Queries, keys and values in tensors of their own, ``heads[0]`` query heads and ``heads[1]`` of keys and values."""
    groups = heads[0] // heads[1]

    def elements(sizes: Sizes) -> int:
        batch, own, queries, keys = sizes
        return batch * own * size * max(groups * queries, keys)

    def operations(sizes: Sizes) -> int:
        return 4 * math.prod(sizes) * groups * size

    sizes = (batch, heads[1], queries, keys)
    free = (0, 1, *range(2, 2 + (queries > 1)), 3)
    batch, own, queries, keys = scale.fit(sizes, *free, elements=elements, operations=operations)
    heads = groups * own, own

    def rival(torch: Any, q: Any, k: Any, v: Any) -> Any:
        parts = [
            x.view(batch, -1, count, size).transpose(1, 2) for x, count in zip((q, k, v), (*heads, heads[1]), strict=True)
        ]
        found = torch.nn.functional.scaled_dot_product_attention(*parts, enable_gqa=heads[0] != heads[1])
        return found.transpose(1, 2).flatten(2)

    query = TensorDesc(data_type, (batch, queries, heads[0] * size))
    key = TensorDesc(data_type, (batch, keys, heads[1] * size))
    desc = dmlvk.MultiheadAttention1(
        query_tensor=query,
        key_tensor=key,
        value_tensor=key,
        output_tensor=query,
        scale=size**-0.5,
        query_head_count=heads[0],
        key_value_head_count=heads[1],
    )
    return Problem(
        f"attention{name} {data_type.name} b{batch} h{heads[0]} q{queries} k{keys} d{size}",
        desc,
        rival,
        bytes_moved=nbytes(query, key, key, query),
        target=target,
        operations=operations((batch, own, queries, keys)),
        tolerance=_ROUNDING[data_type],
    )


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    return [
        _attention(scale, "", FLOAT16, 8, (32, 32), 4096, 4096, 128, 0.4),
        _attention(scale, ", BERT-base", FLOAT16, 1, (12, 12), 128, 128, 64, 1.0),
        _attention(scale, ", grouped", FLOAT16, 2, (32, 8), 2048, 2048, 128),
        _attention(scale, ", a word", FLOAT16, 8, (32, 8), 1, 8192, 128),
        _attention(scale, "", FLOAT32, 4, (16, 16), 2048, 2048, 64),
        _attention(scale, ", BERT-base", FLOAT32, 1, (12, 12), 128, 128, 64),
        _attention(scale, ", a word", FLOAT32, 8, (32, 8), 1, 4096, 128),
    ]
