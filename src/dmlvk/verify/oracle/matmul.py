"""Matrix products in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.enums import MatrixTransform
from dmlvk.spec.ops.matmul import Gemm as GemmDesc
from dmlvk.verify.oracle import Scaled, wide
from dmlvk.verify.oracle.convolution import activated

Array = NDArray[Any]


def gemm(desc: GemmDesc, a: Array, b: Array, c: Array | None, addend: Array | None = None) -> Scaled:
    a, b = wide(a), wide(b)
    if desc.trans_a == MatrixTransform.TRANSPOSE:
        a = np.swapaxes(a, -1, -2)
    if desc.trans_b == MatrixTransform.TRANSPOSE:
        b = np.swapaxes(b, -1, -2)
    value = desc.alpha * (a @ b)
    magnitude = abs(desc.alpha) * (np.abs(a) @ np.abs(b))
    if c is not None:
        value = value + desc.beta * wide(c)
        magnitude = magnitude + np.abs(desc.beta * wide(c))
    if addend is not None:
        value, magnitude = value + wide(addend), magnitude + np.abs(wide(addend))
    return activated(desc.fused_activation, value, magnitude)


gemm_add = gemm
