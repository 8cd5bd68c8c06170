"""Random numbers: words of the device's generator, which follows PyTorch's seed, made into numbers by arithmetic.

A number in [0, 1) is the upper 24 bits of a word over 2^24, exact in float32; other types round such numbers. They are not
those that PyTorch draws on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from dmlvk.engine.values import Value
from dmlvk.graph.views import Sizes
from dmlvk.spec import ops
from dmlvk.spec.schema import ScaleBias
from dmlvk.torch.conversion import Conversion, Number
from dmlvk.torch.convert.elementwise import BOOL, FLOAT, chosen, compared, scaled, times, wide
from dmlvk.torch.convert.sorting import ordered
from dmlvk.torch.registry import converter

_BITS: Final = 24
"""The upper bits of a word: as many as a float32 holds."""
_WORD: Final = np.dtype(np.uint32)


def _counts(node: Conversion, sizes: Sizes) -> Value:
    """Whole numbers below 2^24, float32."""
    bits = node.random_bits(sizes)
    return node.cast(node.elementwise(ops.ElementWiseBitShiftRight, bits, node.tensor(32 - _BITS, _WORD)), FLOAT)


def _fractions(node: Conversion, sizes: Sizes) -> Value:
    """Numbers in [0, 1), float32."""
    return scaled(node, _counts(node, sizes), 2.0**-_BITS)


def _normal(node: Conversion, sizes: Sizes) -> Value:
    """The method of Box and Muller: sqrt(-2 log(1 - u)) cos(2 pi v), at most 5.8 standard deviations from the mean."""
    # 1 - u has the distribution of u + 2^-24, which is never 0.
    share = ScaleBias(2.0**-_BITS, 2.0**-_BITS)
    logarithm = node.elementwise(ops.ElementWiseLog, _counts(node, sizes), scale_bias=share)
    radius = node.elementwise(ops.ElementWiseSqrt, logarithm, scale_bias=ScaleBias(-2.0, 0.0))
    angle = ScaleBias(2 * math.pi * 2.0**-_BITS, 0.0)
    return times(node, radius, node.elementwise(ops.ElementWiseCos, _counts(node, sizes), scale_bias=angle))


def _below(node: Conversion, probability: Value | Number, sizes: Sizes) -> Value:
    """True with a probability."""
    return compared(node, ops.ElementWiseLogicalLessThan, _fractions(node, sizes), node.tensor(probability, FLOAT))


@converter("aten.rand.default", "aten.rand_like.default", random=True)
def rand(node: Conversion, *sizes: Any, **options: Any) -> Value:
    return node.cast(_fractions(node, node.sizes), node.dtype)


@converter("aten.randn.default", "aten.randn_like.default", random=True)
def randn(node: Conversion, *sizes: Any, **options: Any) -> Value:
    return node.cast(_normal(node, node.sizes), node.dtype)


@converter("aten.uniform.default", random=True)
def uniform(node: Conversion, x: Value, low: float = 0.0, high: float = 1.0, **options: Any) -> Value:
    return node.cast(scaled(node, _fractions(node, node.sizes), high - low, low), node.dtype)


@converter("aten.normal_functional.default", random=True)
def normal(node: Conversion, x: Value, mean: float = 0.0, std: float = 1.0, **options: Any) -> Value:
    return node.cast(scaled(node, _normal(node, node.sizes), std, mean), node.dtype)


@converter("prims.normal.default", random=True)
def normal_numbers(node: Conversion, shape: Sequence[int], *, mean: Number, std: Number, **options: Any) -> Value:
    return node.cast(scaled(node, _normal(node, node.sizes), float(std), float(mean)), node.dtype)


@converter("aten.randint.default", random=True)
def randint(node: Conversion, high: int, size: Sequence[int], **options: Any) -> Value:
    return randint_from(node, 0, high, size)


@converter("aten.randint.low", random=True)
def randint_from(node: Conversion, low: int, high: int, size: Sequence[int], **options: Any) -> Value:
    if high - low > 2**_BITS:
        raise node.unsupported(f"random numbers of {high - low} values are not supported, only of {2**_BITS} at most")
    places = node.elementwise(ops.ElementWiseFloor, scaled(node, _counts(node, node.sizes), (high - low) * 2.0**-_BITS))
    kind = np.dtype(np.int64)
    whole = node.elementwise(ops.ElementWiseAdd, node.cast(places, kind), node.tensor(low, kind))
    return node.cast(whole, node.dtype)


@converter("aten.randperm.default", "aten.randperm.generator", random=True)
def randperm(node: Conversion, n: int, **options: Any) -> Value:
    """The order of random words."""
    if n < 2:
        return node.fill(node.sizes, node.dtype.type(0))
    return node.cast(ordered(node, node.random_bits((n,)), 0, None, False)[1], node.dtype)


@converter("aten.bernoulli.default", random=True)
def bernoulli(node: Conversion, x: Value, **options: Any) -> Value:
    return node.cast(_below(node, node.tensor(x, FLOAT), x.sizes), node.dtype)


@converter("aten.bernoulli.p", random=True)
def bernoulli_of(node: Conversion, x: Value, p: float = 0.5, **options: Any) -> Value:
    return node.cast(_below(node, p, x.sizes), node.dtype)


@converter("aten.native_dropout.default", random=True)
def dropout(node: Conversion, x: Value, p: float, train: bool | None) -> tuple[Value, Value]:
    """What is kept is scaled, so that its mean stays."""
    if train is False or p == 0:
        return x, node.fill(x.sizes, np.bool_(True))
    if p == 1:
        return node.fill(x.sizes, x.dtype.type(0)), node.fill(x.sizes, np.bool_(False))
    kept = node.cast(_below(node, 1 - p, x.sizes), BOOL)
    y = chosen(node, kept, scaled(node, wide(node, x), 1 / (1 - p)), 0.0, wide(node, x).dtype)
    return node.cast(y, x.dtype), kept
