"""Operators that PyTorch takes apart before any backend sees them, kept whole while a graph for a device is traced.

Of most operators a table says what is taken apart. Those that make images larger or smaller have functions in Python
besides, which PyTorch's dispatcher calls first: index arithmetic of tens of operators, where the device has one.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch._C import DispatchKey

from dmlvk.torch.registry import ROWS

_TAKING_APART: Final = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)
_lock: Final = threading.Lock()
_tracing = 0


def _sized(
    operator: Any, taken_apart: Callable[..., Any], x: Tensor, output_size: Sequence[Any] | None, *options: Any
) -> Any:
    """The overload that takes sizes or factors, as a list each, by the one that takes both. Whole numbers that are
    interpolated have no operator, and where there are no images PyTorch's own check of it fails."""
    if x.numel() == 0 or not (x.is_floating_point() or "nearest" in operator.name()):
        return taken_apart(x, output_size, *options)
    factors = [None if factor is None else float(factor) for factor in options[-1] or [None] * (x.dim() - 2)]
    if output_size is None:
        output_size = [torch.sym_int(size * factor) for size, factor in zip(x.shape[2:], factors, strict=True)]
    return operator(x, output_size, *options[:-1], *factors)


def _empty_gradient(gradient: Tensor, output_size: Sequence[Any], input_size: Sequence[Any], *options: Any) -> Tensor:
    """What a gradient is before it has elements: PyTorch's own function for that knows no symbols either."""
    return gradient.new_empty(input_size)


@functools.cache
def _functions() -> tuple[tuple[Any, dict[DispatchKey, Any]], ...]:
    """The operators that have a row and such functions, and what takes their place; while it does, what was there."""
    found = []
    for name in dict.fromkeys(row.split(".")[1] for row in ROWS if "upsample" in row):
        packet = getattr(torch.ops.aten, name)
        for overload in {"default", "vec"}.intersection(packet.overloads()):
            own = getattr(packet, overload)
            kernels = dict(own.py_kernels)
            for key in _TAKING_APART:
                function = kernels.pop(key, None)
                if function is not None and overload == "vec":
                    kernels[key] = functools.partial(_sized, packet.default, function)
            if name.endswith("_backward"):
                kernels.setdefault(DispatchKey.Meta, _empty_gradient)
            found.append((own, kernels))
    return tuple(found)


@contextlib.contextmanager
def kept_whole() -> Iterator[None]:
    """In place of those functions PyTorch's dispatcher has the operators and the gradients of its own kernels: for the whole
    process, until the last of those that trace has done so. They may be several threads, and wait for one another."""
    _count(1)
    try:
        yield
    finally:
        _count(-1)


def _count(change: int) -> None:
    """Counts those that trace, and exchanges the functions with the first and after the last."""
    global _tracing
    with _lock:
        before, _tracing = _tracing, _tracing + change
        if 0 in (before, _tracing):
            for operator, kernels in _functions():
                own = dict(operator.py_kernels)
                operator.py_kernels.clear()
                operator.py_kernels.update(kernels)
                operator._dispatch_cache.clear()
                kernels.clear()
                kernels.update(own)
