"""Weights in blocks, from the bytes of GGUF's and ONNX Runtime's formats, and what is computed with them in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.block_formats import BlockFormat
from dmlvk.spec.gate import Gate
from dmlvk.spec.ops.block_quantized import BlockQuantizedGather, BlockQuantizedGemm, NormalizedBlockGemm, WithBlocks
from dmlvk.verify.oracle import Scaled
from dmlvk.verify.oracle.matmul import gated
from dmlvk.verify.oracle.root_mean_square import root_mean_square

Array = NDArray[Any]


def _halves(x: Array) -> Array:
    """The low halves of bytes, then the high ones, along the last dimension."""
    return np.concatenate([x & 15, x >> 4], axis=-1)


def _real(x: Array) -> Array:
    """Two bytes as the FLOAT16 that they are, in float32."""
    return np.ascontiguousarray(x).view(np.float16).astype(np.float32)


def _short(x: Array, *, has_minimum: bool, has_fifth: bool) -> Array:
    """Q4_0, Q4_1, Q5_0, Q5_1: blocks of 32."""
    scale, x = _real(x[..., :2]), x[..., 2:]
    minimum: Array = np.zeros(1, np.float32)
    if has_minimum:
        minimum, x = _real(x[..., :2]), x[..., 2:]
    high: Array = np.zeros(1, np.uint8)
    if has_fifth:
        high, x = np.unpackbits(x[..., :4], axis=-1, bitorder="little") << 4, x[..., 4:]
    codes = (_halves(x) | high).astype(np.float32)
    middle = 0 if has_minimum else 16 if has_fifth else 8
    return np.asarray((codes - middle) * scale + minimum)


def _k(x: Array, *, has_fifth: bool) -> Array:
    """Q4_K, Q5_K: 256 codes in eight blocks."""
    factor, least, packed, x = _real(x[..., :2]), _real(x[..., 2:4]), x[..., 4:16], x[..., 16:]
    first, second, third = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate([first & 63, (third & 15) | (first >> 6 << 4)], axis=-1)
    minimums = np.concatenate([second & 63, (third >> 4) | (second >> 6 << 4)], axis=-1)
    high: Array = np.zeros(1, np.uint8)
    if has_fifth:
        bits = np.unpackbits(x[..., :32, None], axis=-1, bitorder="little")  # {.., code, block}
        high, x = np.swapaxes(bits, -1, -2) << 4, x[..., 32:]
    codes = _halves(x.reshape(*x.shape[:-1], 4, 32)).reshape(*x.shape[:-1], 8, 32) | high
    found = codes.astype(np.float32) * (factor * scales)[..., None] - (least * minimums)[..., None]
    return np.asarray(found.reshape(*x.shape[:-1], 256))


def _q6_k(x: Array) -> Array:
    low, high = x[..., :128].reshape(*x.shape[:-1], 2, 64), x[..., 128:192].reshape(*x.shape[:-1], 2, 1, 32)
    scales, factor = x[..., 192:208].view(np.int8), _real(x[..., 208:])
    high = (high >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3) << 4
    codes = (_halves(low).reshape(*x.shape[:-1], 2, 4, 32) | high).reshape(*x.shape[:-1], 16, 16)
    found = (codes.astype(np.float32) - 32) * (factor * scales)[..., None]
    return np.asarray(found.reshape(*x.shape[:-1], 256))


def _q8_0(x: Array) -> Array:
    return np.asarray(x[..., 2:].view(np.int8).astype(np.float32) * _real(x[..., :2]))


_OF_BYTES: dict[BlockFormat, Callable[[Array], Array]] = {
    BlockFormat.Q4_0: lambda x: _short(x, has_minimum=False, has_fifth=False),
    BlockFormat.Q4_1: lambda x: _short(x, has_minimum=True, has_fifth=False),
    BlockFormat.Q5_0: lambda x: _short(x, has_minimum=False, has_fifth=True),
    BlockFormat.Q5_1: lambda x: _short(x, has_minimum=True, has_fifth=True),
    BlockFormat.Q8_0: _q8_0,
    BlockFormat.Q4_K: lambda x: _k(x, has_fifth=False),
    BlockFormat.Q5_K: lambda x: _k(x, has_fifth=True),
    BlockFormat.Q6_K: _q6_k,
}


def of_bytes(format_: BlockFormat, x: Array) -> Array:
    """The numbers, in float32, of rows of a GGUF format's bytes."""
    apart = np.ascontiguousarray(x).reshape(*x.shape[:-1], -1, format_.layout.nbytes)
    return _OF_BYTES[format_](apart).reshape(*x.shape[:-1], -1)


def _codes(x: Array, bits: int, count: int) -> Array:
    """Packed codes of rows, as whole numbers."""
    if bits == 4:
        raw = x.view(np.uint8)
        found = np.stack([raw & 15, raw >> 4], axis=-1).reshape(*x.shape[:-1], -1).astype(np.int32)
        x = np.where(found > 7, found - 16, found) if x.dtype == np.int8 else found
    return x[..., :count].astype(np.int32)


def _real_of(x: Array) -> Array:
    """Numbers of the scales' type in float32; of UINT16 the bits are BFLOAT16's."""
    return (x.astype(np.uint32) << 16).view(np.float32) if x.dtype == np.uint16 else x.astype(np.float32)


def numbers(desc: WithBlocks, weight: Array, scales: Array | None, points: Array | None) -> Array:
    """The weights of an operator as the float32 numbers that they stand for, {columns, depth}."""
    if scales is None:
        return np.asarray(of_bytes(desc.format, weight)[:, : desc.depth])
    bits, blocks = desc.format.layout.bits, scales.shape[1]
    codes = _codes(weight, bits, desc.depth)
    middle = 0 if weight.dtype == np.int8 else 1 << (bits - 1)
    zero = np.full(scales.shape, middle, np.float32)
    if points is not None:
        zero = _real_of(points) if points.dtype == scales.dtype else _codes(points, bits, blocks).astype(np.float32)
    zeros, factors = (x.repeat(desc.block_size, axis=1)[:, : desc.depth] for x in (zero, _real_of(scales)))
    return np.asarray((codes.astype(np.float32) - zeros) * factors)


def block_quantized_gemm(
    desc: BlockQuantizedGemm,
    x: Array,
    weight: Array,
    scales: Array | None,
    points: Array | None,
    bias: Array | None,
    addend: Array | None,
) -> Scaled:
    """Terms count as they are; their numbers are those of float32."""
    w = numbers(desc, weight, scales, points).astype(np.float64)
    x = x.astype(np.float64)
    value, magnitude = x @ w.T, np.abs(x) @ np.abs(w).T
    for term in (bias, addend):
        if term is not None:
            value, magnitude = value + term.astype(np.float64), magnitude + np.abs(term.astype(np.float64))
    if desc.gate is Gate.NONE:
        return Scaled(value, magnitude)
    return gated(desc.gate, value, magnitude)


def normalized_block_gemm(
    desc: NormalizedBlockGemm,
    x: Array,
    weight: Array,
    scales: Array | None,
    points: Array | None,
    bias: Array | None,
    norm_addend: Array | None,
    norm_scale: Array,
) -> tuple[Scaled, Array]:
    """The product of what is normalized, which is not rounded, and the sum."""
    normalized, total = root_mean_square(desc.normalization, x, norm_addend, norm_scale)
    return block_quantized_gemm(desc.product, normalized, weight, scales, points, bias, None), total


def block_quantized_gather(
    desc: BlockQuantizedGather, indices: Array, weight: Array, scales: Array | None, points: Array | None
) -> Array:
    """The numbers as they are."""
    count = len(weight)
    rows = np.where(indices.astype(np.int64) < 0, indices.astype(np.int64) + count, indices.astype(np.int64))
    return np.asarray(numbers(desc, weight, scales, points)[np.clip(rows, 0, count - 1)].astype(np.float64))
