"""Products with weights in blocks, of the shapes of language models' layers: rows of new tokens, and prompts."""

from __future__ import annotations

from typing import Any

import numpy as np

from dmlvk.spec.block_formats import BlockFormat
from dmlvk.spec.enums import TensorDataType, TensorFlags
from dmlvk.spec.ops.block_quantized import BlockQuantizedGather, BlockQuantizedGemm
from dmlvk.spec.tensor import TensorDesc, element_bits
from dmlvk.verify.cases.model import Array, Domain, indices_below
from dmlvk_bench.problems.model import FLOAT16, FLOAT32, UINT8, Problem, nbytes
from dmlvk_bench.problems.scale import Scale, Sizes

SUITE = "matmul"

_LAYERS = ((2048, 8192), (8192, 2048), (4096, 4096), (4096, 14336), (14336, 4096))
"""Depth and columns of layers of Llama 1B and 8B."""
_WIDEST = (4096, 14336)
_VOCABULARY = 128256
_ROWS = (1, 2, 4, 8, 16, 512)
_FEW_ROWS = 16
_DRAWN = 61
"""Rows of weights that are drawn."""


def _of_blocks(format_: BlockFormat) -> Domain:
    """Bytes of rows in a format, whose FLOAT16 are small numbers; a few rows over and over."""
    own = format_.layout
    halves = {own.factors, own.factors + 2} if own.scale.grouped else {own.scales}

    def domain(rng: np.random.Generator, sizes: Sizes, data_type: TensorDataType) -> Array:
        rows = min(sizes[0], _DRAWN)
        groups = rng.integers(0, 256, (rows, sizes[1] // own.nbytes, own.nbytes), dtype=np.uint8)
        for first in halves:
            numbers = rng.uniform(0.001, 0.002, (*groups.shape[:-1], 1)).astype(np.float16)
            groups[..., first : first + 2] = numbers.view(np.uint8)
        return np.resize(groups, sizes)

    return domain


def _weights(torch: Any, x: Any, format_: BlockFormat, depth: int) -> Any:
    """The rows of bytes as so many numbers of float32, on their device."""
    own = format_.layout
    groups = x.reshape(x.shape[0], -1, own.nbytes)

    def half(first: int) -> Any:
        return groups[..., first : first + 2].contiguous().view(torch.float16).float()

    if format_ is BlockFormat.Q8_0:
        numbers = groups[..., 2:].contiguous().view(torch.int8).float() * half(0)
        return numbers.reshape(x.shape[0], -1)[:, :depth]
    first, second, third = groups[..., 4:8], groups[..., 8:12], groups[..., 12:16]
    scales = torch.cat([first & 63, (third & 15) | (first >> 6 << 4)], -1).float() * half(0)
    minimums = torch.cat([second & 63, (third >> 4) | (second >> 6 << 4)], -1).float() * half(2)
    codes = groups[..., 16:].reshape(*groups.shape[:-1], 4, 1, 32)
    codes = torch.cat([codes & 15, codes >> 4], -2).reshape(*groups.shape[:-1], 8, 32).float()
    return (codes * scales[..., None] - minimums[..., None]).reshape(x.shape[0], -1)[:, :depth]


def _kept(format_: BlockFormat, rows: int, depth: int) -> TensorDesc:
    return TensorDesc(UINT8, (rows, format_.row_bytes(depth)), flags=TensorFlags.OWNED_BY_DML)


def _product(scale: Scale, format_: BlockFormat, data_type: TensorDataType, rows: int, depth: int, columns: int) -> Problem:
    def operations(sizes: Sizes) -> int:
        return 2 * sizes[0] * sizes[1] * sizes[2]

    def elements(sizes: Sizes) -> int:
        return max(sizes[0] * sizes[1], sizes[1] * sizes[2], sizes[0] * sizes[2])

    free = (0, 1, 2) if rows > _FEW_ROWS else (1, 2)
    rows, depth, columns = scale.fit((rows, depth, columns), *free, elements=elements, operations=operations, least=64)
    x, y = TensorDesc(data_type, (rows, depth)), TensorDesc(data_type, (rows, columns))
    weights = _kept(format_, columns, depth)
    desc = BlockQuantizedGemm(input_tensor=x, weight_tensor=weights, output_tensor=y, format=format_)

    def rival(torch: Any, x: Any, w: Any) -> Any:
        return x @ (w if w.is_floating_point() else _weights(torch, w, format_, depth)).to(x.dtype).T

    def prepare(torch: Any, x: Any, w: Any) -> list[Any]:
        return [x, _weights(torch, w, format_, depth).to(x.dtype)]

    return Problem(
        f"{format_.name} depth {depth} {data_type.name} {rows}x{columns}",
        desc,
        rival,
        0.0,
        nbytes(x, weights, y),
        copy_target=0.7 if rows <= _FEW_ROWS else 0.0,
        domains={"weight_tensor": _of_blocks(format_)},
        tolerance=2e-3 if element_bits(data_type) == 16 else 1e-5,
        operations=operations((rows, depth, columns)),
        prepare=prepare,
    )


def _rows(scale: Scale, format_: BlockFormat, count: int) -> Problem:
    """Rows of a vocabulary's table."""
    depth, _ = _WIDEST
    rows, depth = scale.fit((_VOCABULARY, depth), 0, 1, least=256)
    indices, y = TensorDesc(TensorDataType.INT64, (count,)), TensorDesc(FLOAT16, (count, depth))
    table = _kept(format_, rows, depth)

    def rival(torch: Any, i: Any, w: Any) -> Any:
        return torch.index_select(w if w.is_floating_point() else _weights(torch, w, format_, depth), 0, i)

    def prepare(torch: Any, i: Any, w: Any) -> list[Any]:
        return [i, _weights(torch, w, format_, depth).half()]

    return Problem(
        f"{format_.name} rows of {rows}x{depth} FLOAT16 {count}",
        BlockQuantizedGather(indices_tensor=indices, weight_tensor=table, output_tensor=y, format=format_),
        rival,
        0.0,
        nbytes(y, indices) + count * format_.row_bytes(depth),
        domains={"weight_tensor": _of_blocks(format_), "indices_tensor": indices_below(rows)},
        tolerance=1e-3,
        prepare=prepare,
    )


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    four, eight = BlockFormat.Q4_K, BlockFormat.Q8_0
    return [
        *(_product(scale, four, FLOAT16, rows, *layer) for layer in _LAYERS for rows in _ROWS),
        *(_product(scale, eight, FLOAT16, rows, *layer) for layer in (_LAYERS[0], _WIDEST) for rows in _ROWS),
        *(_product(scale, four, FLOAT32, rows, *_WIDEST) for rows in (1, 8, 512)),
        *(_rows(scale, four, count) for count in (1, 512)),
    ]
