"""Gradients of pointwise operators, from their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.oracle.elementwise import wide

Array = NDArray[Any]


def activation_relu_grad(desc: OperatorDesc, x: Array, gradient: Array) -> Array:
    return wide(np.where(x > 0, gradient, gradient.dtype.type(0)))


def element_wise_clip_grad1(desc: Any, x: Array, gradient: Array) -> Array:
    kind = x.dtype.type if x.dtype.kind != "f" else np.float32
    outside = (x <= kind(desc.min)) | (x >= kind(desc.max))
    return wide(np.where(outside, gradient.dtype.type(0), gradient))


def element_wise_clip_grad(desc: Any, x: Array, gradient: Array) -> Array:
    return element_wise_clip_grad1(desc.upgrade(), x, gradient)
