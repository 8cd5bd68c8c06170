"""Normalization by statistics of the input."""

from __future__ import annotations

from typing import Any

import dmlvk
from bench.problems.model import FLOAT32, FLOATS, Problem
from dmlvk import TensorDataType, TensorDesc


def _normalization(
    name: str, data_type: TensorDataType, sizes: tuple[int, ...], axes: tuple[int, ...], rival: Any, target: float
) -> Problem:
    tensor = TensorDesc(data_type, sizes)
    return Problem(
        f"{name} {data_type.name} {'x'.join(map(str, sizes))}",
        dmlvk.MeanVarianceNormalization1(
            input_tensor=tensor, output_tensor=tensor, axes=axes, normalize_variance=True, epsilon=1e-5
        ),
        rival,
        target,
        2 * tensor.total_tensor_size_in_bytes,
        tolerance=1e-5 if data_type is FLOAT32 else 2e-3,
    )


def problems() -> list[Problem]:
    """Every problem, in the order of the report."""
    image = (32, 256, 128, 128)
    found = []
    for data_type in FLOATS:
        found += [
            _normalization(
                "layer norm, last axis",
                data_type,
                (16384, 8192),
                (1,),
                lambda torch, x: torch.nn.functional.layer_norm(x, x.shape[1:]),
                1.5,
            ),
            _normalization(
                "instance norm, axes {2,3}",
                data_type,
                image,
                (2, 3),
                lambda torch, x: torch.nn.functional.instance_norm(x),
                2.0,
            ),
            _normalization(
                "one-group norm, axes {1,2,3}",
                data_type,
                image,
                (1, 2, 3),
                lambda torch, x: torch.nn.functional.group_norm(x, 1),
                10.0,
            ),
        ]
    return found
