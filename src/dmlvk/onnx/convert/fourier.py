"""Fourier transforms, and the weights that make mel bands of a spectrum.

A transform is a product with a matrix of cosines and sines, which is made when shapes are known. It takes a real or complex
vector as it lies, the parts of a number side by side. Long ones go in two steps, as in Cooley and Tukey's algorithm: n is
n1 * n2, and transforms of length n1 over every n2-th element come before transforms of length n2 over what they give.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.matmul import multiply
from dmlvk.onnx.model import Array, data_type_of
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import PaddingMode, TensorDataType
from dmlvk.spec.schema import FLOATS

_DIRECT = 1024
"""Up to this length a transform is one product: 4 to 8 MiB of matrix."""

_LARGEST = 2**26
"""The most elements of a matrix: 256 MiB, of a prime length of 4096 or of two steps for millions."""


@converts("DFT", 17, types=FLOATS, host_inputs=(1,))
def transform_17(node: Conversion) -> Value:
    return _transformed(node, node.attribute("axis", 1))


@converts("DFT", 20, types=FLOATS, host_inputs=(1, 2))
def transform(node: Conversion) -> Value:
    axis = node.host(2)
    return _transformed(node, -2 if axis is None else int(axis.item()))


def _transformed(node: Conversion, axis: int) -> Value:
    """The last dimension holds a number's parts: one of a real number, two of a complex one.

    With ``inverse`` and ``onesided`` a real signal is made of the half of its spectrum that says it all: it is the real part
    of what is made of that half alone, where each frequency counts twice that the other half repeats.
    """
    x, given = node[0], node.host(1)
    axis = node.axis(axis, x.rank)
    if axis == x.rank - 1 or x.sizes[-1] not in (1, 2):
        rule = "the last size must be 1 or 2, and axis another dimension"
        raise node.invalid(rule, (axis, x.sizes))
    inverse, onesided = (bool(node.attribute(name, 0)) for name in ("inverse", "onesided"))
    halved = inverse and onesided
    length = int(given.item()) if given is not None else 2 * (x.sizes[axis] - 1) if halved else x.sizes[axis]
    if length < min(x.sizes[axis], 1):
        raise node.invalid("a transform must be of at least 1 element", length)
    outputs = _outputs(length, onesided and not inverse)
    order = [*(number for number in range(x.rank - 1) if number != axis), axis, x.rank - 1]
    x = x.transpose(order).shorten(x.rank - 2, min(length // 2 + 1 if halved else length, x.sizes[axis]))
    if halved:
        twice = np.array([1 if 2 * number % length == 0 else 2 for number in range(x.sizes[-2])])
        y = _spectrum(node, x, length, outputs, inverse, twice).shorten(x.rank - 1, 1)
    else:
        y = _spectrum(node, x, length, outputs, inverse)
    return y.transpose([order.index(number) for number in range(x.rank)])


@converts("STFT", 17, types=FLOATS, host_inputs=(1, 3))
def short_time_transform(node: Conversion) -> Value:
    """The frames overlap where they are read: no copy of them is made. A window that is known is part of the matrix."""
    x, step, window, given = node[0], int(node.known(1).item()), node.get(2), node.host(3)
    if x.rank == 2:  # (batch, elements) of real numbers, as exporters write and ONNX Runtime takes it
        x = node.reshape(x, (*x.sizes, 1))
    if x.rank != 3 or x.sizes[-1] not in (1, 2) or step < 1 or (window is not None and window.rank != 1):
        rule = (
            "the signal must have the sizes (batch, elements, 1 or 2), the step be at least 1, the window have 1 dimension"
        )
        raise node.invalid(rule, (x.sizes, step, None if window is None else window.sizes))
    batch, count, parts = x.sizes
    length = int(given.item()) if given is not None else count if window is None else window.sizes[0]
    size = length if window is None else window.sizes[0]
    if not 1 <= size <= length <= count:
        rule = "the window must have elements, at most as many as a frame, and a frame at most as many as the signal"
        raise node.invalid(rule, (size, length, count))
    outputs = _outputs(length, bool(node.attribute("onesided", 1)))
    x = node.packed(x)
    frames = Value(
        x.storage, x.dtype, (batch, (count - length) // step + 1, size, parts), (count * parts, step * parts, parts, 1)
    )
    known = node.host(2)
    if window is not None and known is None:
        frames = node.elementwise(ops.ElementWiseMultiply, frames, node.reshape(window, (size, 1)))
    return _spectrum(node, frames, length, outputs, False, known)


def _outputs(length: int, onesided: bool) -> int:
    """The number of outputs that are wanted: of frequencies half of them, and 0, if the rest follows from them."""
    return length // 2 + 1 if onesided else length


def _spectrum(node: Conversion, x: Value, length: int, outputs: int, inverse: bool, window: Array | None = None) -> Value:
    """The first ``outputs`` elements of the transforms of x (*batch, elements, parts), which counts as 0 beyond its last
    element, up to ``length``: (*batch, outputs, 2). A window multiplies the elements."""
    *batch, count, parts = x.sizes
    step = _divisor(length) if length > _DIRECT else 1
    if 0 in x.sizes:
        return node.fill((*batch, outputs, 2), x.dtype.type(0))
    if step == 1:
        matrix = _matrix(node, length, count, outputs, parts, inverse)
        if window is not None:
            matrix = matrix * window.repeat(parts)[:, None]
        x = node.reshape(x, (*batch, count * parts))
        return node.reshape(multiply(node, x, node.upload(matrix.astype(x.dtype))), (*batch, outputs, 2))
    if window is not None:
        x = node.elementwise(ops.ElementWiseMultiply, x, node.upload(window[:, None].astype(x.dtype)))
    return _in_two_steps(node, x, length, step, outputs, inverse)


def _in_two_steps(node: Conversion, x: Value, length: int, first: int, outputs: int, inverse: bool) -> Value:
    """With element j = j1 n2 + j2 and frequency k = k1 + n1 k2, the angle j k / n is j1 k1 / n1 + j2 k1 / n + j2 k2 / n2.
    The first product gives each number z and i z, so that the turn by j2 k1 / n is one product of elements, with cosines
    and sines, and their sum a part of the second product."""
    *batch, count, parts = x.sizes
    second = length // first
    if count < length:
        padding = (*(0 for _ in batch), length - count, 0)
        x = node.launch(
            ops.Padding1,
            x,
            output_tensor=node.new((*batch, length, parts), x.dtype),
            padding_mode=PaddingMode.CONSTANT,
            padding_value_data_type=data_type_of(x.dtype),
            padding_value=0,
            start_padding=(0,) * x.rank,
            end_padding=padding,
        )
    rows = math.prod(batch)
    x = node.reshape(x, (rows, first, second, parts)).transpose((0, 2, 1, 3))
    x = node.reshape(x, (rows, second, first * parts))
    matrix = _matrix(node, first, first, first, parts, inverse).reshape(first * parts, first, 2)
    real, imaginary = matrix[..., 0], matrix[..., 1]
    turned = np.stack([real, imaginary, -imaginary, real], axis=-1).reshape(first * parts, first * 4)
    x = node.reshape(multiply(node, x, node.upload(turned.astype(x.dtype))), (rows, second, first, 4))
    angles = (1 if inverse else -1) * 2 * np.pi / length * np.outer(np.arange(first), np.arange(second))
    factors = np.stack([np.cos(angles), np.cos(angles), np.sin(angles), np.sin(angles)], axis=-1).astype(x.dtype)
    x = node.elementwise(ops.ElementWiseMultiply, x.transpose((0, 2, 1, 3)), node.upload(factors))
    once = _matrix(node, second, second, second, 2, inverse).reshape(second, 2, second * 2)
    summed = np.concatenate([once, once], axis=1).reshape(second * 4, second * 2)
    x = multiply(node, node.reshape(x, (rows, first, second * 4)), node.upload(summed.astype(x.dtype)))
    x = node.reshape(x, (rows, first, second, 2)).transpose((0, 2, 1, 3))
    return node.reshape(x, (*batch, length, 2)).shorten(len(batch), outputs)


def _divisor(length: int) -> int:
    """The largest divisor that is not above the other factor."""
    return next(number for number in range(math.isqrt(length), 0, -1) if length % number == 0)


def _matrix(node: Conversion, length: int, inputs: int, outputs: int, parts: int, inverse: bool) -> Array:
    """(inputs * parts, outputs * 2): what each part of an input adds to each part of an output."""
    if inputs * parts * outputs * 4 > _LARGEST:  # times 2 for the turned factors of two steps
        raise node.unsupported(f"a transform of {length} elements at once is not supported, because its matrix is too large")
    turns = np.outer(np.arange(inputs), np.arange(outputs)) % length
    angles = (1 if inverse else -1) * 2 * np.pi * turns / length
    cosines, sines = np.cos(angles), np.sin(angles)
    columns = np.stack([cosines, sines], axis=-1)[:, None]
    if parts == 2:
        columns = np.concatenate([columns, np.stack([-sines, cosines], axis=-1)[:, None]], axis=1)
    matrix: Array = columns.reshape(inputs * parts, outputs * 2)
    return matrix / length if inverse else matrix


def _output_type(node: NodeFacts) -> np.dtype[Any]:
    return node.element_type("output_datatype", np.dtype(np.float32))


@converts(
    "MelWeightMatrix",
    17,
    types=(TensorDataType.INT64, TensorDataType.INT32),
    host_inputs=(0, 1, 2, 3, 4),
    check=_output_type,
)
def mel_weights(node: Conversion) -> Value:
    """Triangles over the bins of a spectrum, side by side on the mel scale: a constant, since all that it follows from is
    known before the run."""
    bands, length, rate = (int(node.known(index).item()) for index in range(3))
    low, high = (2595 * math.log10(1 + float(node.known(index).item()) / 700) for index in (3, 4))
    if bands < 0 or length < 1 or rate < 1:
        rule = "num_mel_bins must be at least 0, dft_length and sample_rate 1"
        raise node.invalid(rule, (bands, length, rate))
    node.check_host_elements((length // 2 + 1) * bands)
    corners = np.arange(bands + 2) * ((high - low) / (bands + 2)) + low
    bins = ((length + 1) * (700 * (10 ** (corners / 2595) - 1)) // rate).astype(np.int64)
    weights = np.zeros((length // 2 + 1, bands))
    if bins.min() < 0 or bins.max() > length // 2 + 1:
        raise node.invalid(f"the edges of the bands must lie in the {length // 2 + 1} bins of the spectrum", bins.max())
    for band, (left, middle, right) in enumerate(zip(bins, bins[1:], bins[2:], strict=False)):
        weights[left : middle + 1, band] = np.linspace(0, 1, middle - left + 1) if middle > left else 1
        weights[middle:right, band] = np.linspace(1, 0, right - middle, endpoint=False)
    return node.upload(weights.astype(_output_type(node)))
