"""Coordinates of what is not zero."""

from __future__ import annotations

import math

import numpy as np

import dmlvk
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.compaction import sparse
from dmlvk_bench.problems.data import tiled
from dmlvk_bench.problems.model import FLOAT16, FLOAT32, UINT8, Arrays, Problem, nbytes
from dmlvk_bench.problems.scale import Scale

_UINT32 = TensorDataType.UINT32


def _check(inputs: Arrays, outputs: Arrays) -> float:
    """The number of words that differ from numpy's: the count, and the rows that it counts. Further rows are undefined."""
    count, rows = outputs
    expected = np.argwhere(inputs[0])
    if int(count[0]) != len(expected):
        return float(abs(int(count[0]) - len(expected)))
    return float(np.count_nonzero(rows[: len(expected)] != expected))


def _nonzero(scale: Scale, data_type: TensorDataType, sizes: tuple[int, ...], share: float, target: float) -> Problem:
    source = TensorDesc(data_type, scale.fit(sizes, *range(len(sizes)), elements=lambda own: len(own) * math.prod(own)))
    sizes = source.sizes
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
        domains={"input_tensor": tiled(sparse(share))},
        tolerance=0.0,
        check=_check,
    )


def problems(scale: Scale) -> list[Problem]:
    """Every problem, in the order of the report."""
    return [
        _nonzero(scale, FLOAT32, (2**28,), 0.001, 1.0),
        _nonzero(scale, FLOAT32, (2**28,), 0.5, 1.0),
        _nonzero(scale, FLOAT32, (8192, 8192), 0.1, 1.0),
        _nonzero(scale, FLOAT16, (64, 256, 64, 64), 0.5, 1.0),
        _nonzero(scale, UINT8, (2**28,), 0.01, 1.0),
        _nonzero(scale, UINT8, (1, 3, 4093, 4095), 0.2, 1.0),
        _nonzero(scale, FLOAT32, (1, 80, 200), 0.05, 0.0),
    ]
