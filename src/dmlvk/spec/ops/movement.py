"""Movement: outputs whose every element is one element of an input, or a constant, at a place that sizes alone decide.

Elements are moved as bits, whatever their type: a NaN keeps its payload and -0 its sign.
"""

from __future__ import annotations

import struct as _struct
from collections.abc import Iterable

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import DepthSpaceOrder as _Order
from dmlvk.spec.enums import PaddingMode as _Mode
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc, cast_scalar

__all__ = [
    "DepthToSpace",
    "DepthToSpace1",
    "Join",
    "Padding",
    "Padding1",
    "ReverseSubsequences",
    "Slice",
    "Slice1",
    "SliceGrad",
    "SpaceToDepth",
    "SpaceToDepth1",
    "Split",
    "Tile",
]

_ALL = (TensorDataType.FLOAT64, *_s.NUMERIC)
_LENGTHS = (TensorDataType.UINT64, TensorDataType.UINT32)
_INPUT, _OUTPUT = "input_tensor", "output_tensor"


def _one_entry_a_dimension(*names: str, of: str = _INPUT) -> _s.Constraint:
    @_c.constraint("array_lengths", f"{' and '.join(names)} must have one entry for each dimension of {of}")
    def check(desc: _s.OperatorDesc) -> _s.Violation | None:
        count = desc.tensor(of).dimension_count
        wrong = next((name for name in names if len(getattr(desc, name)) != count), None)
        return _s.Violation(wrong, getattr(desc, wrong)) if wrong else None

    return check


def _no_zero(name: str) -> _s.Constraint:
    @_c.constraint("no_zero", f"no entry of {name} may be 0")
    def check(desc: _s.OperatorDesc) -> _s.Violation | None:
        return _s.Violation(name, getattr(desc, name)) if 0 in getattr(desc, name) else None

    return check


def _require(desc: _s.OperatorDesc, constraint: _s.Constraint) -> None:
    """Raises where a constraint is broken without which the output has no sizes."""
    violation = constraint.check(desc)
    if violation is not None:
        raise desc.broken(constraint, violation)


# -- Slice


@_c.constraint("sizes", "sizes must be those of output_tensor")
def _slice_sizes(desc: Slice) -> _s.Violation | None:
    return None if desc.sizes == desc.tensor(_OUTPUT).sizes else _s.Violation("sizes", desc.sizes)


@_c.constraint("offsets", "offset + (size - 1) * stride must be below the size of input_tensor in every dimension")
def _slice_offsets(desc: Slice) -> _s.Violation | None:
    dimensions = zip(desc.offsets, desc.sizes, desc.strides, desc.tensor(_INPUT).sizes, strict=True)
    inside = all(offset + (size - 1) * stride < full for offset, size, stride, full in dimensions)
    return None if inside else _s.Violation("offsets", desc.offsets)


class Slice(
    _s.OperatorDesc,
    constraints=(
        _c.same_data_type(),
        _c.same_dimension_count(),
        _one_entry_a_dimension("offsets", "sizes", "strides"),
        _no_zero("sizes"),
        _no_zero("strides"),
        _slice_sizes,
        _slice_offsets,
    ),
):
    """``Slice1`` of positive steps, its window given by the number of elements: y[c] = x[offsets + strides * c]."""

    input_tensor: TensorDesc | None = _s.input_tensor(_ALL)
    output_tensor: TensorDesc | None = _s.output_tensor(_ALL)
    offsets: tuple[int, ...] = _s.uint_array()
    sizes: tuple[int, ...] = _s.uint_array()
    strides: tuple[int, ...] = _s.uint_array()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        _require(self, _no_zero("sizes"))
        return (self.sizes,)

    def upgrade(self) -> Slice1:
        """Slice1 of the windows that end with the last elements read."""
        return Slice1(
            input_tensor=self.input_tensor,
            output_tensor=self.output_tensor,
            input_window_offsets=self.offsets,
            input_window_sizes=tuple((n - 1) * step + 1 for n, step in zip(self.sizes, self.strides, strict=True)),
            input_window_strides=self.strides,
        )


def _window_elements(desc: Slice1 | SliceGrad) -> tuple[int, ...]:
    """The number of elements that the window has in each dimension."""
    dimensions = zip(desc.input_window_sizes, desc.input_window_strides, strict=True)
    return tuple(1 + (size - 1) // abs(step) for size, step in dimensions)


def _windowed(whole: str, part: str) -> tuple[_s.Constraint, ...]:
    """The rules of a tensor with a window, and of one with elements of that."""

    @_c.constraint("window", f"offset + size of the window must be at most the size of {whole} in every dimension")
    def window(desc: Slice1 | SliceGrad) -> _s.Violation | None:
        dimensions = zip(desc.input_window_offsets, desc.input_window_sizes, desc.tensor(whole).sizes, strict=True)
        inside = all(offset + size <= full for offset, size, full in dimensions)
        return None if inside else _s.Violation("input_window_offsets", desc.input_window_offsets)

    @_c.constraint(
        "window_elements", "must be at most 1 + (input window size - 1) / |stride|, rounded down, in every dimension"
    )
    def elements(desc: Slice1 | SliceGrad) -> _s.Violation | None:
        sizes = desc.tensor(part).sizes
        fits = all(size <= most for size, most in zip(sizes, _window_elements(desc), strict=True))
        return None if fits else _s.Violation(part, sizes)

    return (
        _c.same_data_type(),
        _c.same_dimension_count(),
        _one_entry_a_dimension("input_window_offsets", "input_window_sizes", "input_window_strides", of=whole),
        _no_zero("input_window_sizes"),
        _no_zero("input_window_strides"),
        window,
        elements,
    )


class Slice1(_s.OperatorDesc, constraints=_windowed(_INPUT, _OUTPUT)):
    """y[c] = x[start + stride * c]: a window of the input, in steps.

    A positive stride starts at the window's first element, a negative one at its last and walks toward the first. The
    output may have fewer elements than the window gives; without sizes of its own it has all of them.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_ALL)
    output_tensor: TensorDesc | None = _s.output_tensor(_ALL)
    input_window_offsets: tuple[int, ...] = _s.uint_array()
    input_window_sizes: tuple[int, ...] = _s.uint_array()
    input_window_strides: tuple[int, ...] = _s.int_array()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        _require(self, _no_zero("input_window_sizes"))
        return (_window_elements(self),)


class SliceGrad(_s.OperatorDesc, constraints=_windowed("output_gradient_tensor", "input_gradient_tensor")):
    """The gradient of ``Slice1``: dx[start + stride * c] = dy[c], and 0 wherever Slice1 takes nothing from.

    The fields are those of the Slice1; its sizes are not implied by them, so the caller gives the output's. As there, dy may
    have fewer elements than the window gives, on which the specification is silent: what is left out gets 0. No element is
    taken twice, so nothing is added up, and gradients are moved as bits.
    """

    input_gradient_tensor: TensorDesc | None = _s.input_tensor(_ALL)
    output_gradient_tensor: TensorDesc | None = _s.output_tensor(_ALL)
    input_window_offsets: tuple[int, ...] = _s.uint_array()
    input_window_sizes: tuple[int, ...] = _s.uint_array()
    input_window_strides: tuple[int, ...] = _s.int_array()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        raise self.error(
            "output_gradient_tensor", "must be given, because a window does not say how large its tensor is", None
        )


# -- Split and Join


def _along_axis(pieces: str, whole: str) -> tuple[_s.Constraint, ...]:
    """The rules of pieces that lie one after the other along the axis of a whole."""

    def sizes(desc: Split | Join) -> list[tuple[int, ...]]:
        return [tensor.sizes for tensor in getattr(desc, pieces)]

    def others(desc: Split | Join, size: tuple[int, ...]) -> tuple[int, ...]:
        axis = desc.axis
        return (*size[:axis], *size[axis + 1 :])

    @_c.constraint("other_sizes", f"each of {pieces} must have the sizes of {whole}, except along axis")
    def other_sizes(desc: Split | Join) -> _s.Violation | None:
        wanted = others(desc, desc.tensor(whole).sizes)
        wrong = next((size for size in sizes(desc) if others(desc, size) != wanted), None)
        return None if wrong is None else _s.Violation(pieces, wrong)

    @_c.constraint("sum", f"the sizes of {pieces} along axis must add up to that of {whole}")
    def total(desc: Split | Join) -> _s.Violation | None:
        axis = desc.axis
        own = [size[axis] for size in sizes(desc)]
        return None if sum(own) == desc.tensor(whole).sizes[axis] else _s.Violation(pieces, own)

    return (_c.same_data_type(), _c.same_dimension_count(), _c.valid_axis(of=whole), other_sizes, total)


class Split(_s.OperatorDesc, constraints=_along_axis("output_tensors", _INPUT)):
    """The pieces of the input along Axis, one after the other; each output's size says how long its piece is."""

    input_tensor: TensorDesc | None = _s.input_tensor(_ALL)
    output_tensors: tuple[TensorDesc, ...] = _s.output_tensor_array(_ALL)
    axis: int = _s.uint()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        raise self.error("output_tensors", "must be given, because nothing else says where to split", None)


class Join(_s.OperatorDesc, constraints=_along_axis("input_tensors", _OUTPUT)):
    """The inputs one after the other along Axis."""

    input_tensors: tuple[TensorDesc, ...] = _s.input_tensor_array(_ALL)
    output_tensor: TensorDesc | None = _s.output_tensor(_ALL)
    axis: int = _s.uint()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        sizes = self.input_tensors[0].sizes
        if self.axis >= len(sizes):
            raise self.error("axis", _c.valid_axis(of="input_tensors").rule, self.axis)
        length = sum(tensor.sizes[self.axis] for tensor in self.input_tensors)
        return ((*sizes[: self.axis], length, *sizes[self.axis + 1 :]),)


# -- Padding


def _padded(desc: Padding | Padding1) -> tuple[tuple[int, ...], ...]:
    dimensions = zip(desc.start_padding, desc.tensor(_INPUT).sizes, desc.end_padding, strict=True)
    return (tuple(start + size + end for start, size, end in dimensions),)


_PADDING_CONSTRAINTS = (
    _c.same_data_type(),
    _c.same_dimension_count(),
    _one_entry_a_dimension("start_padding", "end_padding"),
    _c.output_sizes_match(),
)


def _unpadded(desc: _s.OperatorDesc, count: int) -> Iterable[int]:
    """The dimensions without padding."""
    assert isinstance(desc, Padding1), "the row's own trait"
    paddings = zip(desc.start_padding, desc.end_padding, strict=True)
    return (dimension for dimension, ends in enumerate(paddings) if not any(ends))


class Padding(_s.OperatorDesc, constraints=_PADDING_CONSTRAINTS):
    """``Padding1`` of a float32 value. For integers, PaddingValue is rounded toward zero and clamped to the type."""

    input_tensor: TensorDesc | None = _s.input_tensor(_ALL)
    output_tensor: TensorDesc | None = _s.output_tensor(_ALL)
    padding_mode: _Mode = _s.enumeration(_Mode, _Mode.CONSTANT)
    padding_value: float = _s.floating(0.0)
    start_padding: tuple[int, ...] = _s.uint_array()
    end_padding: tuple[int, ...] = _s.uint_array()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _padded(self)

    def upgrade(self) -> Padding1:
        """Padding1 of the same number in the tensor's type."""
        data_type = self.tensor(_OUTPUT).data_type
        (single,) = _struct.unpack("<f", _struct.pack("<f", self.padding_value))
        return Padding1(
            input_tensor=self.input_tensor,
            output_tensor=self.output_tensor,
            padding_mode=self.padding_mode,
            padding_value_data_type=data_type,
            padding_value=cast_scalar(single, data_type),
            start_padding=self.start_padding,
            end_padding=self.end_padding,
        )


class Padding1(
    _s.OperatorDesc,
    constraints=(
        *_PADDING_CONSTRAINTS,
        _c.scalars_of_type("padding_value_data_type", _OUTPUT, "padding_value", allow_nan=True),
    ),
    traits=_s.Traits(separable=_unpadded),
):
    """The input with start_padding elements before it and end_padding after it in every dimension.

    Those elements are, by PaddingMode: CONSTANT: padding_value (the other modes do not use it); EDGE: the nearest element;
    REFLECTION: the mirror image about the edge element, which is not repeated (of a b c: c b | a b c | b a); SYMMETRIC: the
    mirror image that repeats it (b a | a b c | c b); WRAP: the input over again (b c | a b c | a b). Where the padding is
    larger than the input, the image is mirrored again, or wrapped again, as often as needed.

    The specification does not say what REFLECTION makes of a dimension of size 1, where there is nothing beside the
    edge: here its only element is repeated.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_ALL)
    output_tensor: TensorDesc | None = _s.output_tensor(_ALL)
    padding_mode: _Mode = _s.enumeration(_Mode, _Mode.CONSTANT)
    padding_value_data_type: TensorDataType = _s.enumeration(TensorDataType)
    padding_value: int | float = _s.scalar_union()
    start_padding: tuple[int, ...] = _s.uint_array()
    end_padding: tuple[int, ...] = _s.uint_array()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _padded(self)


# -- Tile


class Tile(
    _s.OperatorDesc,
    constraints=(
        _c.same_data_type(),
        _c.same_dimension_count(),
        _one_entry_a_dimension("repeats"),
        _no_zero("repeats"),
        _c.output_sizes_match(),
    ),
):
    """y[c] = x[c mod the input's sizes]: the input repeats[i] times along dimension i."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC)
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC)
    repeats: tuple[int, ...] = _s.uint_array()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        _require(self, _no_zero("repeats"))
        return (tuple(size * n for size, n in zip(self.tensor(_INPUT).sizes, self.repeats, strict=True)),)


# -- SpaceToDepth and DepthToSpace


@_c.constraint("block_size", "block_size must be at least 1 and divide the input's height and width")
def _space_block(desc: SpaceToDepth | SpaceToDepth1) -> _s.Violation | None:
    _, _, height, width = desc.tensor(_INPUT).sizes
    block = desc.block_size
    return None if block and height % block == width % block == 0 else _s.Violation("block_size", block)


@_c.constraint("block_size", "block_size must be at least 1, and its square must divide the input's channels")
def _depth_block(desc: DepthToSpace | DepthToSpace1) -> _s.Violation | None:
    block = desc.block_size
    return None if block and desc.tensor(_INPUT).sizes[1] % block**2 == 0 else _s.Violation("block_size", block)


def _depth_sizes(desc: SpaceToDepth | SpaceToDepth1) -> tuple[tuple[int, ...], ...]:
    _require(desc, _space_block)
    batch, channels, height, width = desc.tensor(_INPUT).sizes
    return ((batch, channels * desc.block_size**2, height // desc.block_size, width // desc.block_size),)


def _space_sizes(desc: DepthToSpace | DepthToSpace1) -> tuple[tuple[int, ...], ...]:
    _require(desc, _depth_block)
    batch, channels, height, width = desc.tensor(_INPUT).sizes
    return ((batch, channels // desc.block_size**2, height * desc.block_size, width * desc.block_size),)


_SPACE_TO_DEPTH = (_c.same_data_type(), _space_block, _c.output_sizes_match())
_DEPTH_TO_SPACE = (_c.same_data_type(), _depth_block, _c.output_sizes_match())


class SpaceToDepth(_s.OperatorDesc, constraints=_SPACE_TO_DEPTH):
    """``SpaceToDepth1`` with Order DEPTH_COLUMN_ROW."""

    input_tensor: TensorDesc | None = _s.input_tensor(_ALL, (4, 4))
    output_tensor: TensorDesc | None = _s.output_tensor(_ALL, (4, 4))
    block_size: int = _s.uint()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _depth_sizes(self)

    def upgrade(self) -> SpaceToDepth1:
        return SpaceToDepth1(**{spec.name: getattr(self, spec.name) for spec in self.fields})


class SpaceToDepth1(_s.OperatorDesc, constraints=_SPACE_TO_DEPTH):
    """The blocks of block_size by block_size pixels of {N, C, H, W} as channels: {N, C * block_size^2, H / block_size,
    W / block_size}.

    Pixel (by, bx) of a block's channel c becomes channel (by * block_size + bx) * C + c with Order DEPTH_COLUMN_ROW,
    c * block_size^2 + by * block_size + bx with COLUMN_ROW_DEPTH.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_ALL, (4, 4))
    output_tensor: TensorDesc | None = _s.output_tensor(_ALL, (4, 4))
    block_size: int = _s.uint()
    order: _Order = _s.enumeration(_Order, _Order.DEPTH_COLUMN_ROW)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _depth_sizes(self)


class DepthToSpace(_s.OperatorDesc, constraints=_DEPTH_TO_SPACE):
    """``DepthToSpace1`` with Order DEPTH_COLUMN_ROW."""

    input_tensor: TensorDesc | None = _s.input_tensor(_ALL, (4, 4))
    output_tensor: TensorDesc | None = _s.output_tensor(_ALL, (4, 4))
    block_size: int = _s.uint()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _space_sizes(self)

    def upgrade(self) -> DepthToSpace1:
        return DepthToSpace1(**{spec.name: getattr(self, spec.name) for spec in self.fields})


class DepthToSpace1(_s.OperatorDesc, constraints=_DEPTH_TO_SPACE):
    """The inverse of ``SpaceToDepth1``: channels become blocks of block_size by block_size pixels, so {N, C, H, W} becomes
    {N, C / block_size^2, H * block_size, W * block_size}.

    Pixel (by, bx) of a block of output channel c is input channel (by * block_size + bx) * (C / block_size^2) + c with
    Order DEPTH_COLUMN_ROW, c * block_size^2 + by * block_size + bx with COLUMN_ROW_DEPTH.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_ALL, (4, 4))
    output_tensor: TensorDesc | None = _s.output_tensor(_ALL, (4, 4))
    block_size: int = _s.uint()
    order: _Order = _s.enumeration(_Order, _Order.DEPTH_COLUMN_ROW)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _space_sizes(self)


# -- ReverseSubsequences


@_c.constraint("sequence_lengths_sizes", "sequence_lengths_tensor must have the sizes of input_tensor, except 1 along axis")
def _lengths_sizes(desc: ReverseSubsequences) -> _s.Violation | None:
    full = desc.tensor(_INPUT).sizes
    sizes = desc.tensor("sequence_lengths_tensor").sizes
    wanted = (*full[: desc.axis], 1, *full[desc.axis + 1 :])
    return None if sizes == wanted else _s.Violation("sequence_lengths_tensor", sizes)


class ReverseSubsequences(
    _s.OperatorDesc,
    constraints=(
        _c.same_data_type(_INPUT, _OUTPUT),
        _c.same_dimension_count(),
        _c.same_sizes(_INPUT, _OUTPUT),
        _c.valid_axis(),
        _lengths_sizes,
    ),
    traits=_s.Traits(separable=_s.off_axes),
):
    """Along Axis the first elements of each line in reverse, as many as the line's sequence length says; the others stay:
    y[i] = x[length - 1 - i] for i < length, else x[i].

    A length above the size of the axis counts as that size; one of 0 or 1 changes nothing.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_ALL)
    sequence_lengths_tensor: TensorDesc | None = _s.input_tensor(_LENGTHS)
    output_tensor: TensorDesc | None = _s.output_tensor(_ALL)
    axis: int = _s.uint()
