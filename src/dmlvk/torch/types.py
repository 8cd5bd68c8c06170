"""PyTorch's types as those that tensors have on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch

from dmlvk.spec.errors import UnsupportedError

_DTYPES: Final[Mapping[torch.dtype, np.dtype[Any]]] = {
    getattr(torch, name): np.dtype("bool" if name == "bool" else name)
    for name in (
        *("float64", "float32", "float16", "int64", "int32", "int16", "int8"),
        *("uint64", "uint32", "uint16", "uint8", "bool"),
    )
}
_TORCHS: Final = {dtype: own for own, dtype in _DTYPES.items()}


def is_stored(dtype: torch.dtype) -> bool:
    """Whether tensors on a device may have such elements."""
    return dtype is torch.bfloat16 or dtype in _DTYPES


def stored_as(dtype: torch.dtype) -> np.dtype[Any]:
    """numpy's type for the elements of a tensor in memory; bfloat16's bits are uint16.

    Raises:
        UnsupportedError: no tensor on a device has such elements.
    """
    found = np.dtype(np.uint16) if dtype is torch.bfloat16 else _DTYPES.get(dtype)
    if found is None:
        raise UnsupportedError(
            f"tensors of {dtype} are not supported; there are {', '.join(map(str, _DTYPES))}, torch.bfloat16"
        )
    return found


def computed_as(dtype: torch.dtype) -> np.dtype[Any]:
    """numpy's type with which converters compute: float32 for bfloat16.

    Raises:
        UnsupportedError: as ``stored_as``.
    """
    return np.dtype(np.float32) if dtype is torch.bfloat16 else stored_as(dtype)


def torchs(dtype: np.dtype[Any]) -> torch.dtype:
    """PyTorch's type for a numpy type of a tensor."""
    return _TORCHS[dtype]
