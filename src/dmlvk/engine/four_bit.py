"""Tensors of 4-bit types in bytes: two elements to a byte, the one with the even index in its low half."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.spec.enums import TensorDataType


def unpack_half_bytes(data: npt.NDArray[np.uint8], data_type: TensorDataType) -> npt.NDArray[Any]:
    """The 4-bit numbers in flat bytes, the low half of each byte first, as int8 or uint8."""
    halves: npt.NDArray[Any] = np.stack([data & 15, data >> 4], axis=-1).reshape(-1)
    return (halves ^ 8).view(np.int8) - 8 if data_type == TensorDataType.INT4 else halves


def pack_half_bytes(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The bytes of flat int8 or uint8 numbers of 4 bits; the last byte's high half is 0 where their count is odd."""
    halves = np.zeros(-(-values.size // 2) * 2, np.uint8)
    halves[: values.size] = values.view(np.uint8) % 16
    joined: npt.NDArray[np.uint8] = halves[::2] + halves[1::2] * 16
    return joined
