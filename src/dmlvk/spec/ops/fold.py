"""Sliding blocks of images: unfolded into the columns of a matrix (im2col), and folded back by addition (col2im)."""

from __future__ import annotations

import math

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import TensorDataType as _Type
from dmlvk.spec.tensor import TensorDesc

__all__ = ["Fold", "Unfold"]

_ARRAYS = ("window_sizes", "strides", "dilations", "start_padding", "end_padding")
_MOVED = (_Type.FLOAT64, *_s.NUMERIC)


@_c.constraint("spatial_arrays", "must have one entry for each of 1 to 6 spatial dimensions, as many as window_sizes")
def _spatial_arrays(desc: Fold | Unfold) -> _s.Violation | None:
    count = len(desc.window_sizes)
    if not 1 <= count <= 6:
        return _s.Violation("window_sizes", desc.window_sizes)
    for name in _ARRAYS:
        if len(getattr(desc, name)) != count:
            return _s.Violation(name, getattr(desc, name))
    return None


@_c.constraint("steps", "no entry may be 0")
def _steps(desc: Fold | Unfold) -> _s.Violation | None:
    for name in ("window_sizes", "strides", "dilations"):
        if 0 in getattr(desc, name):
            return _s.Violation(name, getattr(desc, name))
    return None


@_c.constraint(
    "dimensions", "must have N, C and the spatial dimensions, or N, C * window and blocks, and before N only sizes of 1"
)
def _dimensions(desc: Fold | Unfold) -> _s.Violation | None:
    image, columns = _fields(desc)
    for name, count in ((image, 2 + len(desc.window_sizes)), (columns, 3)):
        tensor: TensorDesc | None = getattr(desc, name)
        if tensor is not None and (tensor.dimension_count < count or math.prod(tensor.sizes[:-count]) != 1):
            return _s.Violation(name, tensor.sizes)
    return None


@_c.constraint("blocks", "dilated windows must fit the padded image at least once in each dimension")
def _blocks_fit(desc: Fold | Unfold) -> _s.Violation | None:
    return _s.Violation("window_sizes", desc.window_sizes) if min(block_counts(desc)) < 1 else None


@_c.constraint("column_sizes", "must have the sizes {N, C * window, blocks} of the image's blocks, after any sizes of 1")
def _column_sizes(desc: Fold | Unfold) -> _s.Violation | None:
    name = _fields(desc)[1]
    sizes = desc.tensor(name).sizes
    return None if sizes[-3:] == column_sizes(desc) else _s.Violation(name, sizes)


def _fields(desc: Fold | Unfold) -> tuple[str, str]:
    """The fields of the image and of its columns."""
    return ("output_tensor", "input_tensor") if isinstance(desc, Fold) else ("input_tensor", "output_tensor")


def image_sizes(desc: Fold | Unfold) -> tuple[int, ...]:
    """N, C and the spatial sizes."""
    return desc.tensor(_fields(desc)[0]).sizes[-2 - len(desc.window_sizes) :]


def block_counts(desc: Fold | Unfold) -> tuple[int, ...]:
    """Blocks in each spatial dimension: windows that lie inside the padded image."""
    arrays = (getattr(desc, name) for name in _ARRAYS)
    return tuple(
        (size + start + end - dilation * (window - 1) - 1) // stride + 1
        for size, window, stride, dilation, start, end in zip(image_sizes(desc)[2:], *arrays, strict=True)
    )


def column_sizes(desc: Fold | Unfold) -> tuple[int, int, int]:
    """N, C * window and blocks."""
    batch, channels = image_sizes(desc)[:2]
    return batch, channels * math.prod(desc.window_sizes), math.prod(block_counts(desc))


_CONSTRAINTS = (_c.same_data_type(), _spatial_arrays, _steps, _dimensions, _blocks_fit, _column_sizes)


class Fold(_s.OperatorDesc, constraints=_CONSTRAINTS):
    """The columns {N, C * window, blocks} that ``Unfold`` makes of an image, put back where they came from and added up
    where blocks overlap: {N, C, spatial sizes...}, which the caller gives.

    y[n, c, p] is the sum of x[n, c * window + k, b] over the elements k of a window and the blocks b, both counted
    row-major over 1 to 6 spatial dimensions, for which b * stride + k * dilation - start padding = p in each of them.

    Where the specification is silent or contradicts itself:

    - It names no data types: FLOAT32 and FLOAT16, as other operators that add. Sums are of float32, in the order of the
      windows' elements, from the first one on; FLOAT16 is rounded once.
    - It asks for equal dimension counts, but its examples have 3 and 4: each tensor has the dimensions that it needs, with
      sizes 1 before N as wanted.
    - An element that no block covers is 0.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (3, 8))
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (3, 8))
    window_sizes: tuple[int, ...] = _s.uint_array()
    strides: tuple[int, ...] = _s.uint_array()
    dilations: tuple[int, ...] = _s.uint_array()
    start_padding: tuple[int, ...] = _s.uint_array()
    end_padding: tuple[int, ...] = _s.uint_array()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        raise self.error("output_tensor", "must be given, because only the caller knows its sizes", None)


class Unfold(_s.OperatorDesc, constraints=_CONSTRAINTS):
    """Every sliding block of an image {N, C, spatial sizes...} as a column of {N, C * window, blocks}.

    y[n, c * window + k, b] = x[n, c, b * stride + k * dilation - start padding], 0 where that lies in the padding, for
    the elements k of a window and the blocks b, both counted row-major over 1 to 6 spatial dimensions. A dimension has
    (size + start padding + end padding - dilation * (window - 1) - 1) / stride + 1 blocks, rounded down.

    Where the specification is silent or contradicts itself:

    - It names no data types: every type that is copied elsewhere, since only bits move. Padding is the bits 0.
    - It asks for equal dimension counts, but its examples have 4 and 3: each tensor has the dimensions that it needs, with
      sizes 1 before N as wanted.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_MOVED, (3, 8))
    output_tensor: TensorDesc | None = _s.output_tensor(_MOVED, (3, 8))
    window_sizes: tuple[int, ...] = _s.uint_array()
    strides: tuple[int, ...] = _s.uint_array()
    dilations: tuple[int, ...] = _s.uint_array()
    start_padding: tuple[int, ...] = _s.uint_array()
    end_padding: tuple[int, ...] = _s.uint_array()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        sizes = column_sizes(self)
        if any(size < 1 for size in sizes):
            raise self.error("window_sizes", _blocks_fit.rule, self.window_sizes)
        return (sizes,)
