"""Matrix products in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.enums import MatrixTransform, TensorDataType
from dmlvk.spec.gate import Gate
from dmlvk.spec.ops.matmul import FormatGemm, GemmGate, GemmNormalization, NormalizedGemm
from dmlvk.spec.ops.matmul import Gemm as GemmDesc
from dmlvk.spec.ops.number_format import FormatCast
from dmlvk.verify.oracle import Scaled, wide
from dmlvk.verify.oracle.convolution import activated
from dmlvk.verify.oracle.normalization import mean_variance_normalization2
from dmlvk.verify.oracle.number_format import format_cast, numbers
from dmlvk.verify.oracle.root_mean_square import root_mean_square

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


def format_gemm(desc: FormatGemm, a: Array, b: Array, c: Array | None) -> Scaled | Array:
    """The numbers' product; of UINT16 the bits of the nearest ones."""
    known = numbers(desc.format)
    plain = GemmDesc(trans_a=desc.trans_a, trans_b=desc.trans_b, alpha=desc.alpha, beta=desc.beta)
    product = gemm(plain, known[a], known[b], known[c] if c is not None and c.dtype.kind == "u" else c)
    if desc.tensor("output_tensor").data_type is not TensorDataType.UINT16:
        return product
    return format_cast(FormatCast(output_tensor=desc.output_tensor, format=desc.format), product.value)


def gated(kind: Gate, value: Array, magnitude: Array) -> Scaled:
    """The gate of the first half of the columns of a product times the other half."""
    (gate, other), (first, second) = (np.split(both, 2, axis=-1) for both in (value, magnitude))
    slope = 1.0 if kind is Gate.SILU else 2 * math.sqrt(2 / math.pi) * (1 + 0.044715 * gate**2)
    gate = gate * (0.5 + 0.5 * np.tanh(slope * gate / 2))
    # Neither activation is steeper than 1.13.
    return Scaled(gate * other, 1.13 * first * np.abs(other) + np.abs(gate) * second + np.abs(gate * other))


def gemm_gate(desc: GemmGate, a: Array, b: Array) -> Scaled:
    whole = GemmDesc(a_tensor=desc.a_tensor, b_tensor=desc.b_tensor, trans_a=desc.trans_a, trans_b=desc.trans_b)
    product = gemm(whole, a, b, None)
    return gated(desc.gate, product.value, product.magnitude)


def normalized_gemm(
    desc: NormalizedGemm, x: Array, b: Array, bias: Array | None, norm_addend: Array | None, norm_scale: Array
) -> tuple[Scaled, Array]:
    """The product of what is normalized, which is not rounded, and the sum."""
    normalized, total = root_mean_square(desc.normalization, x, norm_addend, norm_scale)
    product = desc.product
    if isinstance(product, GemmGate):
        return gemm_gate(product, normalized, b), total
    return gemm(product, normalized, b, bias), total


def gemm_normalization(
    desc: GemmNormalization,
    a: Array,
    b: Array,
    c: Array | None,
    addend: Array | None,
    norm_scale: Array | None,
    norm_bias: Array | None,
) -> tuple[Scaled, Scaled]:
    """The product's rows, normalized before they are rounded, and the product. An error of the product is one of what is
    normalized, of its row's mean and of its deviation."""
    product = gemm(desc.product, a, b, c, addend)
    norm = desc.normalization
    value = product.value.astype(np.float64)
    normalized = mean_variance_normalization2(norm, value, norm_scale, norm_bias)
    mean = value.mean(axis=-1, keepdims=True) if desc.use_mean else np.zeros(())
    divisor = np.sqrt(np.square(value - mean).mean(axis=-1, keepdims=True) + desc.epsilon)
    largest = product.magnitude.max(axis=-1, keepdims=True)
    own = (product.magnitude + largest * (1 + np.abs(value - mean) / divisor)) / divisor
    factor = 1.0 if norm_scale is None else np.abs(norm_scale.astype(np.float64))
    return Scaled(normalized.value, normalized.magnitude + (own * factor).astype(np.float64)), product
