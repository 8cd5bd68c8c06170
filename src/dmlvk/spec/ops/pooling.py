"""Pooling: the average, the maximum or the norm of a sliding window, and the inverse of the maximum."""

from __future__ import annotations

from collections.abc import Iterable

from dmlvk.spec import constraints as _c
from dmlvk.spec import schema as _s
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.tensor import TensorDesc

__all__ = [
    "AveragePooling",
    "AveragePooling1",
    "LpPooling",
    "LpPooling1",
    "MaxPooling",
    "MaxPooling1",
    "MaxPooling2",
    "MaxUnpooling",
    "QuantizedLinearAveragePooling",
]

_BYTES = (TensorDataType.INT8, TensorDataType.UINT8)
_INDICES = (TensorDataType.UINT64, TensorDataType.UINT32)
_ARRAYS = ("strides", "window_size", "start_padding", "end_padding", "dilations")


def _by_channel(desc: _s.OperatorDesc, count: int) -> Iterable[int]:
    """Images and channels, unless positions in the whole input are asked for."""
    return (0, 1) if getattr(desc, "output_indices_tensor", None) is None else ()


_ALIKE = _s.Traits(alike=("input_tensor", "output_tensor", "output_indices_tensor"), separable=_by_channel)


@_c.constraint("spatial_arrays", "must have one entry for each spatial dimension (the dimension count less 2)")
def _spatial_arrays(desc: _Pooling) -> _s.Violation | None:
    count = desc.tensor("input_tensor").dimension_count - 2
    for name in _ARRAYS:
        if len(getattr(desc, name, (1,) * count)) != count:
            return _s.Violation(name, getattr(desc, name))
    return None


@_c.constraint("steps", "no entry may be 0")
def _steps(desc: _Pooling) -> _s.Violation | None:
    for name in ("strides", "window_size", "dilations"):
        if 0 in getattr(desc, name, ()):
            return _s.Violation(name, getattr(desc, name))
    return None


@_c.constraint(
    "output_sizes",
    "must have the input's N and C, and spatial sizes (in + start + end - dilated window) / stride, rounded down or up, + 1",
)
def _output_sizes(desc: _Pooling) -> _s.Violation | None:
    source = desc.tensor("input_tensor").sizes
    for field in ("output_tensor", "output_indices_tensor"):
        tensor = getattr(desc, field, None)
        if tensor is not None:
            good = tensor.sizes[:2] == source[:2] and all(
                down <= size <= up for size, (down, up) in zip(tensor.sizes[2:], _window_counts(desc), strict=True)
            )
            if not good:
                return _s.Violation(field, tensor.sizes)
    return None


def _window_counts(desc: _Pooling) -> list[tuple[int, int]]:
    """Windows a spatial dimension: those inside the padded input, and with one more that hangs over its end."""
    counts = []
    dilations = getattr(desc, "dilations", (1,) * len(desc.window_size))
    for size, window, stride, dilation, start, end in zip(
        desc.tensor("input_tensor").sizes[2:],
        desc.window_size,
        desc.strides,
        dilations,
        desc.start_padding,
        desc.end_padding,
        strict=True,
    ):
        room = size + start + end - ((window - 1) * dilation + 1)
        counts.append((room // stride + 1, -(-room // stride) + 1))
    return counts


def _inferred(desc: _Pooling) -> tuple[tuple[int, ...], ...]:
    spatial = tuple(down for down, _ in _window_counts(desc))
    if min(spatial) < 1:
        raise desc.error(
            "window_size", "the dilated window must fit the padded input, so that every output size is at least 1", spatial
        )
    return (desc.tensor("input_tensor").sizes[:2] + spatial,) * len(desc.output_slots())


_CONSTRAINTS = (
    _c.same_data_type("input_tensor", "output_tensor"),
    _c.same_dimension_count(),
    _spatial_arrays,
    _steps,
    _output_sizes,
)
_MAX_CONSTRAINTS = (*_CONSTRAINTS[:-1], _c.same_sizes("output_tensor", "output_indices_tensor"), _output_sizes)


class AveragePooling(_s.OperatorDesc, constraints=_CONSTRAINTS, traits=_ALIKE):
    """``AveragePooling1`` with every dilation 1."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 5))
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 5))
    strides: tuple[int, ...] = _s.uint_array()
    window_size: tuple[int, ...] = _s.uint_array()
    start_padding: tuple[int, ...] = _s.uint_array()
    end_padding: tuple[int, ...] = _s.uint_array()
    include_padding: bool = _s.boolean(False)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _inferred(self)

    def upgrade(self) -> AveragePooling1:
        values = {spec.name: getattr(self, spec.name) for spec in self.fields}
        return AveragePooling1(**values, dilations=(1,) * len(self.window_size))


class AveragePooling1(_s.OperatorDesc, constraints=_CONSTRAINTS, traits=_ALIKE):
    """The mean of each window over the 2 or 3 spatial dimensions of {N, C, [D,] H, W}.

    Output o's window has the elements o * stride + t * dilation - start padding for t below the window size. The
    divisor is the number of them inside the input, or with IncludePadding inside the padded input.

    Where the specification is silent:

    - Sizes may also be rounded up (ONNX's ceil_mode): the last window then hangs over the end of the padded input, and
      what hangs over is not counted in the divisor.
    - A window without any element counted has the mean 0.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 5))
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 5))
    strides: tuple[int, ...] = _s.uint_array()
    window_size: tuple[int, ...] = _s.uint_array()
    start_padding: tuple[int, ...] = _s.uint_array()
    end_padding: tuple[int, ...] = _s.uint_array()
    dilations: tuple[int, ...] = _s.uint_array()
    include_padding: bool = _s.boolean(False)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _inferred(self)


@_c.constraint("norm_order", "must be at least 1")
def _norm_order(desc: LpPooling | LpPooling1) -> _s.Violation | None:
    return None if desc.p >= 1 else _s.Violation("p", desc.p)


class LpPooling(_s.OperatorDesc, constraints=(*_CONSTRAINTS, _norm_order)):
    """``LpPooling1`` with every dilation 1."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 5))
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 5))
    strides: tuple[int, ...] = _s.uint_array()
    window_size: tuple[int, ...] = _s.uint_array()
    start_padding: tuple[int, ...] = _s.uint_array()
    end_padding: tuple[int, ...] = _s.uint_array()
    p: int = _s.uint(2)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _inferred(self)

    def upgrade(self) -> LpPooling1:
        values = {spec.name: getattr(self, spec.name) for spec in self.fields}
        return LpPooling1(**values, dilations=(1,) * len(self.window_size))


class LpPooling1(_s.OperatorDesc, constraints=(*_CONSTRAINTS, _norm_order), traits=_s.Traits(separable=_s.along(0, 1))):
    """The norm of order P of each window, (the sum of |x|^P)^(1/P), over the 2 or 3 spatial dimensions of {N, C, [D,] H, W}.

    Output o's window has the elements o * stride + t * dilation - start padding for t below the window size; padding adds
    nothing.

    Where the specification is silent:

    - Its formula has x^P, which has no real root where the sum is negative: the absolute value is meant, as in ONNX.
    - Elements are divided by the window's largest before they are raised to the power, so that only a norm that is itself
      beyond the type overflows.
    - A window with an infinity, but no NaN, has the norm infinity; one with a NaN is NaN; one without elements inside the
      input is 0.
    - Sizes may also be rounded up, as ``AveragePooling1``'s.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.FLOATS, (4, 5))
    output_tensor: TensorDesc | None = _s.output_tensor(_s.FLOATS, (4, 5))
    strides: tuple[int, ...] = _s.uint_array()
    window_size: tuple[int, ...] = _s.uint_array()
    start_padding: tuple[int, ...] = _s.uint_array()
    end_padding: tuple[int, ...] = _s.uint_array()
    dilations: tuple[int, ...] = _s.uint_array()
    p: int = _s.uint(2)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _inferred(self)


class MaxPooling(_s.OperatorDesc, constraints=_CONSTRAINTS, traits=_ALIKE):
    """``MaxPooling2`` without indices and with every dilation 1."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC, (4, 5))
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC, (4, 5))
    strides: tuple[int, ...] = _s.uint_array()
    window_size: tuple[int, ...] = _s.uint_array()
    start_padding: tuple[int, ...] = _s.uint_array()
    end_padding: tuple[int, ...] = _s.uint_array()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _inferred(self)

    def upgrade(self) -> MaxPooling1:
        return MaxPooling1(**{spec.name: getattr(self, spec.name) for spec in self.fields})


class MaxPooling1(_s.OperatorDesc, constraints=_MAX_CONSTRAINTS, traits=_ALIKE):
    """``MaxPooling2`` with every dilation 1."""

    input_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC, (4, 5))
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC, (4, 5))
    output_indices_tensor: TensorDesc | None = _s.output_tensor(_INDICES, (4, 5), optional=True)
    strides: tuple[int, ...] = _s.uint_array()
    window_size: tuple[int, ...] = _s.uint_array()
    start_padding: tuple[int, ...] = _s.uint_array()
    end_padding: tuple[int, ...] = _s.uint_array()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _inferred(self)

    def upgrade(self) -> MaxPooling2:
        values = {spec.name: getattr(self, spec.name) for spec in self.fields}
        return MaxPooling2(**values, dilations=(1,) * len(self.window_size))


class MaxPooling2(_s.OperatorDesc, constraints=_MAX_CONSTRAINTS, traits=_ALIKE):
    """The largest element of each window over the 2 or 3 spatial dimensions of {N, C, [D,] H, W}, and where it was.

    Output o's window has the elements o * stride + t * dilation - start padding for t below the window size; those in
    the padding do not take part. The index of an element is its position in the whole input, counted row-major over
    the logical sizes whatever the strides are; of equal elements the first counts.

    Where the specification is silent:

    - Sizes may also be rounded up (ONNX's ceil_mode): the last window then hangs over the end of the padded input.
    - NaN wins over every number, and the first NaN has the index.
    - A window without any element inside the input has the least value of the type (-infinity) and the index 0.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC, (4, 5))
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC, (4, 5))
    output_indices_tensor: TensorDesc | None = _s.output_tensor(_INDICES, (4, 5), optional=True)
    strides: tuple[int, ...] = _s.uint_array()
    window_size: tuple[int, ...] = _s.uint_array()
    start_padding: tuple[int, ...] = _s.uint_array()
    end_padding: tuple[int, ...] = _s.uint_array()
    dilations: tuple[int, ...] = _s.uint_array()

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _inferred(self)


@_c.constraint("one_or_each_channel", "must hold one element, or one for each channel: {1, C, 1, ...}")
def _one_or_each_channel(desc: QuantizedLinearAveragePooling) -> _s.Violation | None:
    channels, *spatial = desc.tensor("input_tensor").sizes[1:]
    for slot in desc.input_slots()[1:]:
        if (
            slot.tensor is not None
            and slot.tensor.element_count != 1
            and slot.tensor.sizes != (1, channels, *(1,) * len(spatial))
        ):
            return _s.Violation(slot.field.name, slot.tensor.sizes)
    return None


class QuantizedLinearAveragePooling(
    _s.OperatorDesc,
    constraints=(
        _c.same_dimension_count("input_tensor", "output_tensor"),
        _c.same_data_type("input_tensor", "input_zero_point_tensor"),
        _c.same_data_type("output_tensor", "output_zero_point_tensor"),
        _one_or_each_channel,
        *_CONSTRAINTS[2:],
    ),
    traits=_s.Traits(separable=_by_channel),
):
    """``AveragePooling1`` of quantized tensors: y = clamp(round(mean / output scale) + output zero point), the mean being
    that of the real numbers (x - input zero point) * input scale.

    A zero point that is absent is 0. Scales and zero points hold one element, or one a channel.

    Where the specification is silent:

    - y = clamp(rint((sum * input scale) / (divisor * output scale)) + output zero point), halves to even: the sum of the
      differences x - input zero point is exact, and both products and the quotient are rounded to float32, on every device
      alike.
    - Padding is the real number 0, whatever the zero point is. A window without any element counted has the mean 0.
    - A scale of 0 is undefined in the specification: here a quotient by 0 is infinite, and 0 / 0 counts as 0.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (4, 5))
    input_scale_tensor: TensorDesc | None = _s.input_tensor((TensorDataType.FLOAT32,), (1, 5))
    input_zero_point_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (1, 5), optional=True)
    output_scale_tensor: TensorDesc | None = _s.input_tensor((TensorDataType.FLOAT32,), (1, 5))
    output_zero_point_tensor: TensorDesc | None = _s.input_tensor(_BYTES, (1, 5), optional=True)
    output_tensor: TensorDesc | None = _s.output_tensor(_BYTES, (4, 5))
    strides: tuple[int, ...] = _s.uint_array()
    window_size: tuple[int, ...] = _s.uint_array()
    start_padding: tuple[int, ...] = _s.uint_array()
    end_padding: tuple[int, ...] = _s.uint_array()
    dilations: tuple[int, ...] = _s.uint_array()
    include_padding: bool = _s.boolean(False)

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        return _inferred(self)


class MaxUnpooling(
    _s.OperatorDesc,
    constraints=(
        _c.same_data_type("input_tensor", "output_tensor"),
        _c.same_sizes("input_tensor", "indices_tensor"),
    ),
):
    """y = 0 but for y[index] = x: each element of the input goes where its index says, which is a position in the whole
    output, counted row-major over the logical sizes whatever the strides are. Bits are moved as they are.

    Where the specification is silent:

    - Of several elements with the same index the last one stays, counted row-major over the input.
    - An index beyond the output is left out.
    """

    input_tensor: TensorDesc | None = _s.input_tensor(_s.NUMERIC, (4, 4))
    indices_tensor: TensorDesc | None = _s.input_tensor(_INDICES, (4, 4))
    output_tensor: TensorDesc | None = _s.output_tensor(_s.NUMERIC, (4, 4))

    def inferred_output_sizes(self) -> tuple[tuple[int, ...], ...]:
        raise self.error("output_tensor", "must be given, because only the caller knows its sizes", None)


_Pooling = (
    AveragePooling
    | AveragePooling1
    | LpPooling
    | LpPooling1
    | MaxPooling
    | MaxPooling1
    | MaxPooling2
    | QuantizedLinearAveragePooling
)
