"""GGUF's K formats of weights in blocks, which the package gguf reads and does not write."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

_GROUP: Final = 256
Numbers = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]


def quantized(numbers: Numbers, kind: str) -> Bytes:
    """Rows of numbers in a format: the bytes of each row, whose last group is filled up with zeros.

    Scales are those that hold a block's largest number, and codes the nearest: nothing is searched for, as llama.cpp does.

    Args:
        numbers: {rows, depth}.
        kind: "Q4_K", "Q5_K" or "Q6_K".
    """
    rows, depth = numbers.shape
    groups = np.pad(numbers, ((0, 0), (0, -depth % _GROUP))).reshape(-1, _GROUP)
    return (_q6(groups) if kind == "Q6_K" else _with_minimums(groups, int(kind[1]))).reshape(rows, -1)


def _halves(values: npt.NDArray[Any]) -> Bytes:
    return values.astype(np.float16).view(np.uint8)


def _over(numbers: npt.NDArray[Any], divisor: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """A quotient that is rounded; 0 where nothing is divided by."""
    sizes = np.broadcast_shapes(numbers.shape, divisor.shape)
    quotient = np.divide(numbers, divisor, out=np.zeros(sizes, np.float32), where=divisor != 0)
    return np.asarray(np.rint(quotient), np.float32)


def _with_minimums(groups: Numbers, bits: int) -> Bytes:
    """Q4_K and Q5_K: blocks of 32, each with a scale and a minimum of 6 bits."""
    blocks = groups.reshape(-1, 8, 32)
    least = np.minimum(blocks.min(-1), 0)
    scales = (blocks.max(-1).clip(0) - least) / (2**bits - 1)
    factors = [(own.max(-1, keepdims=True) / 63).astype(np.float16) for own in (scales, -least)]
    sixes = [
        _over(own, factor.astype(np.float32)).clip(0, 63) for own, factor in zip((scales, -least), factors, strict=True)
    ]
    real = [(own * factor.astype(np.float32))[..., None] for own, factor in zip(sixes, factors, strict=True)]
    codes = _over(blocks + real[1], real[0]).clip(0, 2**bits - 1).astype(np.uint8)
    scale, minimum = (own.astype(np.uint8) for own in sixes)
    first = scale[:, :4] | scale[:, 4:] >> 4 << 6
    second = minimum[:, :4] | minimum[:, 4:] >> 4 << 6
    third = (scale[:, 4:] & 15) | (minimum[:, 4:] & 15) << 4
    low = (codes[:, ::2] & 15) | (codes[:, 1::2] & 15) << 4
    fifth = (codes >> 4 << np.arange(8, dtype=np.uint8)[:, None]).sum(1, dtype=np.uint8) if bits == 5 else low[:, 0, :0]
    parts = [*map(_halves, factors), first, second, third, fifth, low.reshape(-1, 128)]
    return np.concatenate(parts, axis=-1)


def _q6(groups: Numbers) -> Bytes:
    """Q6_K: blocks of 16, each with a scale of 8 bits."""
    blocks = groups.reshape(-1, 16, 16)
    widest = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], -1)[..., 0]
    scales = widest / -32
    factor = (np.abs(scales).max(-1, keepdims=True) / 127).astype(np.float16)
    bytes_ = _over(scales, factor.astype(np.float32)).clip(-128, 127)
    real = (bytes_ * factor.astype(np.float32))[..., None]
    codes = (_over(blocks, real).clip(-32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low = (codes[:, :, :2] & 15) | (codes[:, :, 2:] & 15) << 4
    high = (codes >> 4 << 2 * np.arange(4, dtype=np.uint8)[:, None]).sum(2, dtype=np.uint8)
    parts = [low.reshape(-1, 128), high.reshape(-1, 64), bytes_.astype(np.int8).view(np.uint8), _halves(factor)]
    return np.concatenate(parts, axis=-1)
