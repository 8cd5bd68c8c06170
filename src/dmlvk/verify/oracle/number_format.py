"""Formats that no tensor has: all their numbers, and which of them is nearest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.formats import FormatRounding, Layout, NumberFormat, Scheme
from dmlvk.spec.ops.number_format import FormatCast

Array = NDArray[Any]


def numbers(format_: NumberFormat) -> Array:
    """The number, in float64, that each combination of a format's bits stands for."""
    layout = format_.layout
    codes = np.arange(1 << layout.bits)
    if layout.scheme is Scheme.INTEGER:
        return np.asarray(np.where(layout.signed & (codes > layout.largest), codes - len(codes), codes), np.float64)
    if layout.scheme is Scheme.EXPONENT:
        return np.asarray(np.where(codes == layout.nan, np.nan, 2.0 ** (codes - float(layout.bias))))
    half = len(codes) // 2
    sizes = codes & (half - 1)
    exponents, fractions = sizes >> layout.mantissa, sizes & ((1 << layout.mantissa) - 1)
    normal = exponents > 0
    powers = 2.0 ** (np.maximum(exponents, 1) - float(layout.bias) - layout.mantissa)
    found = (fractions + (normal << layout.mantissa)) * powers
    found[sizes > layout.largest] = np.nan
    if layout.infinity not in (layout.largest, layout.nan):
        found[sizes == layout.infinity] = np.inf
    found = np.where(codes < half, found, -found)
    if layout.nan == layout.infinity == half:
        found[half] = np.nan
    return np.asarray(found)


def format_cast(desc: FormatCast, x: Array) -> Array:
    """``FormatCast``; as part of a chain it has no tensors."""
    format_ = desc.format
    known = numbers(format_)
    to_bits = desc.output_tensor is not None and not desc.output_tensor.data_type.name.startswith("FLOAT")
    if x.dtype.kind != "f":
        return np.asarray(known[x & (len(known) - 1)])
    with np.errstate(invalid="ignore"):
        bits = _nearest(desc, format_.layout, known, x.astype(np.float64))
    return bits if to_bits else np.asarray(known[bits])


def _nearest(desc: FormatCast, layout: Layout, known: Array, x: Array) -> Array:
    if layout.scheme is Scheme.INTEGER:
        return _whole(desc, layout, x)
    least, largest = 0, layout.largest
    ascending = known[: largest + 1]
    size = np.abs(x)
    below = np.clip(np.searchsorted(ascending, size, side="right") - 1, least, largest)
    above = np.minimum(below + 1, largest)
    # Past the largest number there would be one more, a step away.
    step = ascending[-1] - ascending[-2] if layout.scheme is Scheme.FLOATING else ascending[-1]
    following = np.where(below == largest, ascending[-1] + step, ascending[above])
    down, up = size - ascending[below], following - size
    if layout.scheme is Scheme.EXPONENT:
        rounds_up = {FormatRounding.UP: down > 0, FormatRounding.DOWN: np.zeros_like(down, bool)}.get(
            desc.rounding, up <= down
        )
        code = below + rounds_up
        outside = np.where(x < ascending[0], 0 if desc.saturate else layout.nan, -1)
        outside = np.where(x > ascending[-1], largest if desc.saturate else layout.nan, outside)
        code = np.where(outside >= 0, outside, code)
        return np.asarray(np.where(np.isnan(x), layout.nan, code))
    code = below + ((up < down) | ((up == down) & (below % 2 == 1)))
    beyond = largest if desc.saturate and desc.format is not NumberFormat.BFLOAT16 else layout.infinity
    code = np.where((code > largest) | np.isinf(x), beyond, code)
    code = np.where(np.isnan(x), layout.nan, code)
    half = len(known) // 2
    has_sign = np.signbit(x) & ~((code == 0) & (layout.nan == layout.infinity == half))
    has_sign &= ~(np.isnan(x) & (desc.format is NumberFormat.BFLOAT16))
    return np.asarray(code | np.where(has_sign, half, 0))


def _whole(desc: FormatCast, layout: Layout, x: Array) -> Array:
    if desc.saturate:
        least = -layout.largest - 1 if layout.signed else 0
        found = np.clip(np.rint(np.nan_to_num(x, nan=0.0, posinf=1e9, neginf=-1e9)), least, layout.largest)
    else:
        found = np.trunc(x) + np.sign(x) * (np.abs(x - np.trunc(x)) >= 0.5)
        found = np.where(np.abs(x) < 2.0**31, found, 0.0)
    return np.asarray(found.astype(np.int64) & ((1 << layout.bits) - 1))
