"""The interface of a rival, and the functions that all of them share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from dmlvk.spec.tensor import TensorDesc, element_bits
from dmlvk.verify.cases.layouts import logical_view
from dmlvk_bench.problems.model import Problem
from dmlvk_bench.timing import Pace, repeats, settled_samples

Array = np.ndarray[Any, Any]
_PART = 1 << 17
"""Elements that are compared at a time."""


class RivalMissingError(Exception):
    """A rival cannot take part; the message says why, and how to get it."""


class Prepared(Protocol):
    """A problem that a rival has compiled, with its inputs where the rival computes. It has been executed once."""

    def time(self) -> list[float]:
        """Seconds of single executions, or the means of several that were handed over together, after a warm-up."""

    def compare(self, ours: list[Array]) -> tuple[float, float]:
        """The largest difference of our outputs, and of the rival's, from the reference that the rival has, relative to the
        largest number there: PyTorch's is its own result in float32; the others' is what we computed, so that the first
        number is 0.

        Args:
            ours: The memory of each present output slot, bytes.
        """

    def close(self) -> None:
        """Gives the memory back."""


class Rival(Protocol):
    """Whoever computes the same problems.

    Attributes:
        name: The rival's name, as ``find`` knows it.
        version: Its version and where it computes: "2.11.0+cu130 on CUDA".
        failures: The rival's error by problem, where ``prepare`` gave None although the rival has the operation.
    """

    name: str
    version: str
    failures: dict[str, str]

    def prepare(self, problem: Problem, inputs: list[Array]) -> Prepared | None:
        """The problem, ready to be timed; None where the rival has no such operation, or failed at it.

        Args:
            problem: The problem to compute.
            inputs: The memory of each present input slot.
        """


def paced(pace: Pace, run: Callable[[], object]) -> list[float]:
    """Seconds of each execution on the host's clock."""

    def once() -> float:
        started = time.perf_counter()
        run()
        return time.perf_counter() - started

    return settled_samples(once, lambda seconds: seconds, pace)


def handed_over(pace: Pace, run: Callable[[], object], wait: Callable[[], object]) -> list[float]:
    """Seconds of an execution, each the mean of as many as a submission of ours would hold, handed over one after another
    before the last is waited for.

    Args:
        pace: How long to warm up and to take samples.
        run: Hands an execution over.
        wait: Waits for all of them.
    """

    def a_round(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            run()
        wait()
        return (time.perf_counter() - started) / count

    a_round(1)
    count = repeats(a_round(1), pace)
    return settled_samples(lambda: a_round(count), lambda seconds: seconds, pace)


def logical(memory: Array, tensor: TensorDesc) -> Array:
    """A tensor's elements in its sizes and strides, a view of its memory.

    Args:
        memory: Its bytes, or its elements in the order of memory.
        tensor: The tensor that lies there; not one of 4-bit elements.
    """
    return logical_view(tensor, np.ascontiguousarray(memory).reshape(-1).view(np.uint8), 0)


def present(slots: tuple[Any, ...] | list[Any]) -> list[TensorDesc]:
    """The tensors of a desc's slots that it has."""
    return [slot.tensor for slot in slots if slot.tensor is not None]


def has_whole_bytes(problem: Problem) -> bool:
    """Whether every element of a problem has bytes of its own; no rival reads those of 4 bits."""
    desc = problem.desc
    return all(element_bits(tensor.data_type) >= 8 for tensor in present([*desc.input_slots(), *desc.output_slots()]))


def difference(found: Array, wanted: Array) -> float:
    """The largest difference of two arrays of the same sizes, relative to the largest finite number of the second; infinite
    where only one of them is NaN, or infinite. Part by part, each small enough for a cache."""
    a, b = found.reshape(-1), wanted.reshape(-1)
    single = max(a.itemsize, b.itemsize) <= 4 and a.dtype.kind == b.dtype.kind == "f"
    worst = scale = 0.0
    for start in range(0, a.size, _PART):
        parts = (part[start : start + _PART] for part in (a, b))
        x, y = ((part.astype(np.float32, copy=False) if single else part.astype(np.float64)) for part in parts)
        with np.errstate(invalid="ignore", over="ignore"):
            apart, size = np.abs(x - y), np.abs(y)
        if not np.isfinite(apart.max()):
            apart = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.where(np.isnan(apart), np.inf, apart))
            size = size[np.isfinite(y)]
        worst, scale = max(worst, float(apart.max())), max(scale, float(size.max(initial=0.0)))
    return worst / (scale or 1.0)


def said(error: BaseException) -> str:
    """An error's text in one line; an error of another process begins with its type."""
    kind = "" if type(error) is RuntimeError else f"{type(error).__name__}: "
    return f"{kind}{' '.join(str(error).split())}"[:300]
