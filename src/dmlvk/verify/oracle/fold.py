"""Blocks of images, element of the window by element of the window."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.ops.fold import Fold, Unfold, block_counts
from dmlvk.verify.oracle import Scaled

Array = NDArray[Any]


def _taps(desc: Fold | Unfold) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """For each element of a window its number and its place in the padded image, for every block."""
    for number, tap in enumerate(itertools.product(*map(range, desc.window_sizes))):
        places = (
            slice(t * dilation, t * dilation + (count - 1) * stride + 1, stride)
            for t, dilation, count, stride in zip(tap, desc.dilations, block_counts(desc), desc.strides, strict=True)
        )
        yield number, (slice(None), slice(None), *places)


def _margins(desc: Fold | Unfold) -> tuple[tuple[int, int], ...]:
    return ((0, 0), (0, 0), *zip(desc.start_padding, desc.end_padding, strict=True))


def unfold(desc: Unfold, x: Array) -> Array:
    """``Unfold``, bit for bit."""
    count = len(desc.window_sizes)
    padded = np.pad(x.reshape(x.shape[-2 - count :]), _margins(desc))
    blocks = [padded[place] for _, place in _taps(desc)]
    return np.stack(blocks, 2).reshape(desc.tensor("output_tensor").sizes)


def fold(desc: Fold, x: Array) -> Scaled:
    """``Fold``; the error counts at the sum of the absolute values."""
    target = desc.tensor("output_tensor").sizes
    sizes = target[-2 - len(desc.window_sizes) :]
    margins = _margins(desc)
    columns = x.astype(np.float64).reshape(*sizes[:2], -1, *block_counts(desc))
    sums = np.zeros((2, *(size + sum(margin) for size, margin in zip(sizes, margins, strict=True))))
    for number, place in _taps(desc):
        sums[0][place] += columns[:, :, number]
        sums[1][place] += np.abs(columns[:, :, number])
    inside = tuple(slice(start, start + size) for size, (start, _) in zip(sizes, margins, strict=True))
    return Scaled(sums[0][inside].reshape(target), sums[1][inside].reshape(target))
