"""Convolution in float64, tap by tap, from the specification's two definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.enums import ConvolutionDirection, ConvolutionMode, TensorDataType
from dmlvk.spec.ops.convolution import Convolution as ConvolutionDesc
from dmlvk.spec.ops.convolution import ConvolutionAdd
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.oracle import Scaled, oracle

Array = NDArray[Any]


def activated(activation: OperatorDesc | None, value: Array, magnitude: Array) -> Scaled:
    """A finished sum after the fused activation. Errors keep the magnitude of the sum's terms (no fusable activation is
    much steeper than 1 for the parameters of the cases) or take that of the result where it is larger."""
    if activation is None:
        return Scaled(value, magnitude)
    function = oracle(type(activation))
    assert function is not None, f"{type(activation).__name__} has no oracle"
    tensor = TensorDesc(TensorDataType.FLOAT32, value.shape)
    result = function(activation.replace(input_tensor=tensor, output_tensor=tensor), value)
    result = result.value if isinstance(result, Scaled) else result
    return Scaled(result, np.maximum(magnitude, np.abs(result)))


def _sums(desc: ConvolutionDesc, x: Array, w: Array, output_sizes: tuple[int, ...]) -> Array:
    """[N, groups, outputs of the group, *output_sizes]: the products' sums, without bias."""
    groups, spatial = desc.group_count, x.shape[2:]
    if desc.mode == ConvolutionMode.CONVOLUTION:
        w = np.flip(w, tuple(range(2, w.ndim)))
    x = x.reshape(x.shape[0], groups, -1, *spatial)
    taps = list(np.ndindex(*w.shape[2:]))
    reach = [(window - 1) * dilation for window, dilation in zip(w.shape[2:], desc.dilations, strict=True)]
    if desc.direction == ConvolutionDirection.FORWARD:
        w = w.reshape(groups, -1, *w.shape[1:])  # groups, outputs, inputs, window
        padded = np.pad(x, [(0, 0)] * 3 + list(zip(desc.start_padding, desc.end_padding, strict=True)))
        total = np.zeros((x.shape[0], groups, w.shape[1], *output_sizes))
        for tap in taps:
            windows: Any = tuple(
                slice(t * dilation, t * dilation + (count - 1) * stride + 1, stride)
                for t, dilation, count, stride in zip(tap, desc.dilations, output_sizes, desc.strides, strict=True)
            )
            total += np.einsum("ngc...,gkc->ngk...", padded[(..., *windows)], w[(..., *tap)])
        return total
    w = w.reshape(groups, -1, *w.shape[1:])  # groups, inputs, outputs, window
    extents = [
        max((size - 1) * stride + extra + 1, count + start)
        for size, stride, extra, count, start in zip(
            spatial, desc.strides, reach, output_sizes, desc.start_padding, strict=True
        )
    ]
    canvas = np.zeros((x.shape[0], groups, w.shape[2], *extents))
    for tap in taps:
        places: Any = tuple(
            slice(t * dilation, t * dilation + (size - 1) * stride + 1, stride)
            for t, dilation, size, stride in zip(tap, desc.dilations, spatial, desc.strides, strict=True)
        )
        canvas[(..., *places)] += np.einsum("ngc...,gck->ngk...", x, w[(..., *tap)])
    kept: Any = tuple(slice(start, start + count) for start, count in zip(desc.start_padding, output_sizes, strict=True))
    return canvas[(..., *kept)]


def convolution(desc: ConvolutionDesc, x: Array, w: Array, bias: Array | None, addend: Array | None = None) -> Scaled:
    sizes = desc.tensor("output_tensor").sizes
    computed = tuple(size - padding for size, padding in zip(sizes[2:], desc.output_padding, strict=True))
    x, w = x.astype(np.float64), w.astype(np.float64)
    offset = np.zeros(1) if bias is None else bias.astype(np.float64)
    total = _sums(desc, x, w, computed).reshape(*sizes[:2], *computed) + offset
    terms = _sums(desc, np.abs(x), np.abs(w), computed).reshape(*sizes[:2], *computed) + np.abs(offset)
    if addend is not None:
        total, terms = total + addend.astype(np.float64), terms + np.abs(addend.astype(np.float64))
    value, magnitude = activated(desc.fused_activation, total, terms)
    padding = [(0, 0)] * 2 + [(0, extra) for extra in desc.output_padding]
    return Scaled(np.pad(value, padding), np.pad(magnitude, padding))


def convolution_add(desc: ConvolutionAdd, x: Array, w: Array, bias: Array | None, addend: Array) -> Scaled:
    return convolution(desc, x, w, bias, addend)
