"""The numbers that problems are measured on: never zeros, never the same for two inputs, the same in every run."""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np

from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.model import NUMPY_TYPES, Array, Domain, generator, normal, uniform

BLOCK: Final = 4194301
"""Elements that are drawn; larger tensors repeat them. A prime, so that no two rows of a matrix, and no two lines of a
cache, hold the same numbers."""


def tiled(domain: Domain) -> Domain:
    """A domain whose elements do not depend on their places, drawn once for many tensors and repeated in large ones, each
    from another element on: 2^28 normal numbers would take seconds."""

    def repeated(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
        count = int(np.prod(sizes))
        if count < BLOCK // 16:
            return domain(rng, sizes, data_type)
        block = _block(domain, data_type)
        found = np.empty(count, block.dtype)
        first = BLOCK - int(rng.integers(0, BLOCK))
        found[:first] = block[-first:][:count]
        for start in range(first, count, BLOCK):
            found[start : start + BLOCK] = block[: count - start]
        return found.reshape(sizes)

    return repeated


@functools.lru_cache(maxsize=8)
def _block(domain: Domain, data_type: TensorDataType) -> Array:
    return domain(generator("block", data_type.name), (BLOCK,), data_type)


def ordinary(rng: np.random.Generator, sizes: tuple[int, ...], data_type: TensorDataType) -> Array:
    """Standard normal floats, integers from 0 to 99."""
    return (_NORMAL if NUMPY_TYPES[data_type].kind == "f" else _INTEGERS)(rng, sizes, data_type)


_NORMAL: Final = tiled(normal)
_INTEGERS: Final = tiled(uniform(0, 99))


def memory(tensor: TensorDesc, domain: Domain, *key: object) -> np.ndarray[Any, Any]:
    """A tensor's memory from its first element to its last, one dimension; ``key`` says whose numbers these are.

    The domain is given the tensor's sizes where it is packed, else the count of elements of that memory.
    """
    steps = tensor.effective_strides
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.sizes, steps, strict=True))
    values = domain(generator(*key), tensor.sizes if tensor.strides is None else (span,), tensor.data_type)
    return np.ascontiguousarray(values).reshape(-1)
