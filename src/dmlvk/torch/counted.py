"""Operators outside of ``torch.compile`` whose results' sizes follow from elements: the host reads a count between graphs.

Each function is one of PyTorch's operators, for tensors of the device. All but the count is computed there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

KERNELS: Final[dict[str, Callable[..., Any]]] = {}
"""The functions by the names of their operators."""


def _kernel(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        KERNELS[name] = function
        return function

    return register


def _places(mask: torch.Tensor) -> torch.Tensor:
    """Where a mask of one dimension is true, in order."""
    size = mask.shape[0]
    if not size:
        return torch.empty((0,), dtype=torch.int64, device=mask.device)
    turns = mask.to(torch.int64).cumsum(0)
    target = torch.where(mask, turns - 1, size)
    found = turns.new_zeros(size + 1).scatter(0, target, torch.arange(size, device=mask.device))
    return found[: int(turns[-1].item())]


@_kernel("nonzero")
def nonzero(x: torch.Tensor) -> torch.Tensor:
    places = _places((x != 0).reshape(-1))
    columns = []
    for axis, size in enumerate(x.shape):
        step = math.prod(x.shape[axis + 1 :])
        columns.append(torch.div(places, step, rounding_mode="floor") % size if size else places)
    return torch.stack(columns, 1) if columns else places.new_zeros((places.shape[0], 0))


@_kernel("masked_select")
def masked_select(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    x, mask = torch.broadcast_tensors(x, mask)
    return x.reshape(-1)[_places(mask.reshape(-1))]


def whole_indices(indices: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Indices with a whole number for each place where a mask is true."""
    found: list[torch.Tensor | None] = []
    for index in indices:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            found.append(index)
        else:
            found += nonzero(index).unbind(1)
    return found


def _runs(ordered: torch.Tensor) -> torch.Tensor:
    """Which rows differ from those before them."""
    rows = ordered.reshape(ordered.shape[0], -1)
    return torch.cat((rows[:1, 0] == rows[:1, 0], (rows[1:] != rows[:-1]).any(1))) | (rows != rows).any(1)


def _counts(starts: torch.Tensor, size: int) -> torch.Tensor:
    return torch.cat((starts[1:], starts.new_full((1,), size))) - starts if starts.shape[0] else starts


@_kernel("_unique2")
def unique(
    x: torch.Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    none = torch.empty((0,), dtype=torch.int64, device=x.device)
    flat = x.reshape(-1)
    if not flat.shape[0]:
        return flat, none.reshape(x.shape) if return_inverse else none, none
    ordered, order = (flat.to(torch.uint8) if x.dtype is torch.bool else flat).sort(stable=True)
    begins = _runs(ordered)
    starts = _places(begins)
    inverse = none
    if return_inverse:
        inverse = torch.zeros_like(order).scatter(0, order, begins.to(torch.int64).cumsum(0) - 1).reshape(x.shape)
    return ordered[starts].to(x.dtype), inverse, _counts(starts, flat.shape[0]) if return_counts else none


@_kernel("unique_consecutive")
def unique_consecutive(
    x: torch.Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    none = torch.empty((0,), dtype=torch.int64, device=x.device)
    rows = x.reshape(-1) if dim is None else x.movedim(dim, 0)
    if not rows.shape[0]:
        return x, none, none
    begins = _runs(rows)
    starts = _places(begins)
    inverse = begins.to(torch.int64).cumsum(0) - 1 if return_inverse else none
    if return_inverse and dim is None:
        inverse = inverse.reshape(x.shape)
    found = rows[starts]
    return found if dim is None else found.movedim(0, dim), inverse, _counts(starts, len(rows)) if return_counts else none


@_kernel("bincount")
def bincount(x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> torch.Tensor:
    count = max(int(x.max().item()) + 1 if x.numel() else 0, minlength)
    shares = torch.ones_like(x, dtype=torch.int64) if weights is None else weights
    shares = shares if shares.dtype in (torch.int64, torch.float32) else shares.to(torch.float64)
    return shares.new_zeros(count).scatter_add(0, x.to(torch.int64), shares)


@_kernel("repeat_interleave.Tensor")
def repeat_interleave(repeats: torch.Tensor, output_size: int | None = None) -> torch.Tensor:
    if not repeats.numel():
        return repeats.to(torch.int64)
    ends = repeats.to(torch.int64).cumsum(0)
    count = int(ends[-1].item()) if output_size is None else output_size
    return torch.searchsorted(ends, torch.arange(count, device=repeats.device), right=True).to(repeats.dtype)


@_kernel("equal")
def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool((a == b).all().item())
