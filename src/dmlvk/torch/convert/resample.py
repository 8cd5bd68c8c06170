"""Images made larger or smaller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dmlvk.engine.values import Value
from dmlvk.torch.conversion import Conversion
from dmlvk.torch.convert.movement import taken
from dmlvk.torch.convert.pooling import weighed
from dmlvk.torch.registry import converter


def _factors(count: int, given: Sequence[float | None] | None) -> list[float | None]:
    return [None] * count if given is None else list(given)


def _nearest_places(inputs: int, outputs: int, factor: float | None, *, exact: bool) -> np.ndarray[Any, Any]:
    """The input of each output, in float32 as PyTorch computes it."""
    scale = np.float32(1 / factor) if factor else np.float32(inputs) / np.float32(outputs)
    shift = np.float32(0.5 if exact else 0)
    places = np.floor((np.arange(outputs, dtype=np.float32) + shift) * scale).astype(np.int32)
    clamped: np.ndarray[Any, Any] = np.minimum(places, inputs - 1)
    return clamped


def _nearest(count: int, *, exact: bool) -> Callable[..., Value]:
    def convert(
        node: Conversion, x: Value, output_size: Sequence[int] | None, scale_factors: Sequence[float | None] | None
    ) -> Value:
        outputs = node.sizes[-count:]
        for at, factor in enumerate(_factors(count, scale_factors)):
            axis = x.rank - count + at
            places = _nearest_places(x.sizes[axis], outputs[at], factor, exact=exact)
            if len(places) != x.sizes[axis] or (places != np.arange(len(places))).any():
                x = taken(node, x, node.upload(places), axis)
        return x

    return convert


def _nearest_backward(count: int, *, exact: bool) -> Callable[..., Value]:
    def convert(
        node: Conversion,
        gradient: Value,
        output_size: Sequence[int],
        input_size: Sequence[int],
        *scales: float | None,
    ) -> Value:
        """What each input has been copied to, added up."""
        matrices = []
        for at, factor in enumerate(scales or (None,) * count):
            inputs, outputs = input_size[2 + at], output_size[at]
            matrix = np.zeros((inputs, outputs))
            matrix[_nearest_places(inputs, outputs, factor, exact=exact), np.arange(outputs)] = 1
            matrices.append(matrix)
        return weighed(node, gradient, matrices)

    return convert


def _linear_matrix(inputs: int, outputs: int, factor: float | None, align_corners: bool) -> np.ndarray[Any, Any]:
    """A row an output with the weights of the inputs between which it lies."""
    places = np.arange(outputs, dtype=np.float64)
    if align_corners:
        positions = places * ((inputs - 1) / (outputs - 1) if outputs > 1 else 0.0)
    else:
        scale = 1 / factor if factor else inputs / outputs
        positions = np.maximum((places + 0.5) * scale - 0.5, 0.0)
    before = np.minimum(np.floor(positions).astype(int), inputs - 1)
    behind, share = np.minimum(before + 1, inputs - 1), positions - before
    matrix = np.zeros((outputs, inputs))
    np.add.at(matrix, (np.arange(outputs), before), 1 - share)
    np.add.at(matrix, (np.arange(outputs), behind), share)
    return matrix


def _linear(count: int) -> Callable[..., Value]:
    def convert(
        node: Conversion,
        x: Value,
        output_size: Sequence[int] | None,
        align_corners: bool,
        scale_factors: Sequence[float | None] | None,
    ) -> Value:
        """A product with a matrix of weights a dimension."""
        if x.dtype.kind != "f":
            raise node.unsupported(f"interpolation of {x.dtype} is not supported, only of floating-point types")
        sizes = zip(x.sizes[-count:], node.sizes[-count:], _factors(count, scale_factors), strict=True)
        return weighed(node, x, [_linear_matrix(*item, align_corners) for item in sizes])

    return convert


def _linear_backward(count: int) -> Callable[..., Value]:
    def convert(
        node: Conversion,
        gradient: Value,
        output_size: Sequence[int],
        input_size: Sequence[int],
        align_corners: bool,
        *scales: float | None,
    ) -> Value:
        sizes = zip(input_size[2:], output_size, scales or (None,) * count, strict=True)
        return weighed(node, gradient, [_linear_matrix(*item, align_corners).T for item in sizes])

    return convert


for _count, _name in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d")):
    converter(f"aten.upsample_{_name}.vec")(_linear(_count))
    converter(f"aten.upsample_{_name}_backward.default")(_linear_backward(_count))
    converter(f"aten.upsample_nearest{_count}d.vec", moves=True)(_nearest(_count, exact=False))
    converter(f"aten._upsample_nearest_exact{_count}d.vec", moves=True)(_nearest(_count, exact=True))
    converter(f"aten.upsample_nearest{_count}d_backward.default")(_nearest_backward(_count, exact=False))
    converter(f"aten._upsample_nearest_exact{_count}d_backward.default")(_nearest_backward(_count, exact=True))
