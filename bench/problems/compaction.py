"""Coordinates of what is not zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import dmlvk
from bench.problems.model import FLOAT16, FLOAT32, UINT8, Problem, nbytes
from dmlvk import TensorDataType, TensorDesc
from dmlvk.cases.model import NUMPY_TYPES

_UINT32 = TensorDataType.UINT32


def _sparse(share: float) -> Callable[..., Any]:
    """Ones with this probability, else zeros."""
    return lambda torch, sizes, kind: (torch.rand(sizes) < share).to(kind)


def _check(data_type: TensorDataType, sizes: tuple[int, ...]) -> Callable[..., float]:
    """How many words differ from PyTorch's of the count and of the rows that it counts."""

    def check(torch: Any, arrays: list[np.ndarray[Any, Any]], outputs: list[Any]) -> float:
        count, rows = outputs
        x = torch.from_numpy(arrays[0].view(NUMPY_TYPES[data_type])).cuda().reshape(sizes)
        expected = torch.nonzero(x).int()
        if int(count) != len(expected):
            return float(abs(int(count) - len(expected)))
        return float((rows[: len(expected)] != expected).sum())

    return check


def _nonzero(data_type: TensorDataType, sizes: tuple[int, ...], share: float, target: float) -> Problem:
    source = TensorDesc(data_type, sizes)
    count = TensorDesc(_UINT32, (1,))
    written = int(source.element_count * share) * len(sizes) * 4
    return Problem(
        f"{share:.1%} nonzero of {'x'.join(map(str, sizes))} {data_type.name}",
        dmlvk.NonzeroCoordinates(
            input_tensor=source,
            output_count_tensor=count,
            output_coordinates_tensor=TensorDesc(_UINT32, (source.element_count, len(sizes))),
        ),
        lambda torch, x: torch.nonzero(x),
        target,
        nbytes(source, count) + written,
        fill={"input_tensor": _sparse(share)},
        tolerance=0.0,
        check=_check(data_type, sizes),
    )


def problems() -> list[Problem]:
    """Every problem, in the order of the report."""
    return [
        _nonzero(FLOAT32, (2**28,), 0.001, 1.0),
        _nonzero(FLOAT32, (2**28,), 0.5, 1.0),
        _nonzero(FLOAT32, (8192, 8192), 0.1, 1.0),
        _nonzero(FLOAT16, (64, 256, 64, 64), 0.5, 1.0),
        _nonzero(UINT8, (2**28,), 0.01, 1.0),
        _nonzero(UINT8, (1, 3, 4093, 4095), 0.2, 1.0),
        _nonzero(FLOAT32, (1, 80, 200), 0.05, 0.0),
    ]
