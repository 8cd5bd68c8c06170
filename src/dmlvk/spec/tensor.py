"""``DML_BUFFER_TENSOR_DESC`` and DirectML's two tensor helpers.

A tensor is a data type, sizes and strides over a byte range of a buffer. Strides count elements; 0 broadcasts a
dimension, any order and any padding is allowed. Everything here is exact integer arithmetic on the host.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dmlvk.spec.enums import TensorDataType, TensorFlags, member
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.size import Size

MAXIMUM_DIMENSION_COUNT: Final = 8
"""``DML_TENSOR_DIMENSION_COUNT_MAX1``."""
MINIMUM_BUFFER_TENSOR_ALIGNMENT: Final = 16
"""``DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT``, bytes: every tensor binding's offset is a multiple of it."""
TEMPORARY_BUFFER_ALIGNMENT: Final = 256
"""``DML_TEMPORARY_BUFFER_ALIGNMENT``, bytes."""
PERSISTENT_BUFFER_ALIGNMENT: Final = 256
"""``DML_PERSISTENT_BUFFER_ALIGNMENT``, bytes."""

_UINT32_MAX: Final = 2**32 - 1
_UINT64_MAX: Final = 2**64 - 1
_LARGE_STRIDE: Final = 2**28
_WHOLE: Final = frozenset((int, Size))

_BITS: Final[dict[TensorDataType, int]] = {
    TensorDataType.FLOAT64: 64,
    TensorDataType.UINT64: 64,
    TensorDataType.INT64: 64,
    TensorDataType.FLOAT32: 32,
    TensorDataType.UINT32: 32,
    TensorDataType.INT32: 32,
    TensorDataType.FLOAT16: 16,
    TensorDataType.UINT16: 16,
    TensorDataType.INT16: 16,
    TensorDataType.UINT8: 8,
    TensorDataType.INT8: 8,
    TensorDataType.UINT4: 4,
    TensorDataType.INT4: 4,
}


class TensorLayout(enum.Enum):
    """The two packed orders of ``CalculateStrides``: which dimension of N, C, H, W varies slowest to fastest in memory."""

    NCHW = "NCHW"
    NHWC = "NHWC"


def element_bits(data_type: TensorDataType) -> int:
    """Bits of one element: 4 to 64."""
    try:
        return _BITS[data_type]
    except KeyError:
        raise InvalidArgumentError("must be a data type of known size", field="DataType", value=data_type) from None


def cast_scalar(value: float, data_type: TensorDataType) -> int | float:
    """A number as a tensor of the type would hold it: itself for floating types, else rounded toward zero and clamped
    to the type's range."""
    if data_type.name.startswith("FLOAT"):
        return value
    bits = element_bits(data_type)
    low, high = (0, 2**bits - 1) if data_type.name.startswith("UINT") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return low if value <= low else high if value >= high else math.trunc(value)


def packed_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements, the last dimension contiguous: what DirectML assumes where strides are absent."""
    strides = [1] * len(sizes)
    for axis in range(len(sizes) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * sizes[axis + 1]
    return tuple(strides)


def calc_buffer_tensor_size(data_type: TensorDataType, sizes: Sequence[int], strides: Sequence[int] | None = None) -> int:
    """``DMLCalcBufferTensorSize``: the least bytes that hold the tensor, rounded up to a multiple of 4.

    Args:
        data_type: The element type. 4-bit types count half a byte an element.
        sizes: Elements a dimension, 1 to 8 dimensions.
        strides: Elements between neighbours of a dimension; None for packed.

    Returns:
        Bytes, exact however large. 0 for ``TensorDataType.UNKNOWN``, as the specification's helper returns.

    Raises:
        InvalidArgumentError: sizes empty, a size below 1, strides of another length or negative, or no integers.
    """
    sizes = _integers("Sizes", sizes)
    strides = None if strides is None else _integers("Strides", strides)
    _check_sizes(sizes, strides)
    return _implied_bytes(data_type, sizes, strides)


def _implied_bytes(data_type: TensorDataType, sizes: tuple[int, ...], strides: tuple[int, ...] | None) -> int:
    if data_type == TensorDataType.UNKNOWN:
        return 0
    steps = packed_strides(sizes) if strides is None else strides
    last = sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
    return -(-(last + 1) * element_bits(data_type) // 32) * 4


def calculate_strides(
    layout: TensorLayout | str, sizes: Sequence[int], broadcast: Sequence[bool] = (False, False, False, False)
) -> tuple[int, int, int, int]:
    """``CalculateStrides``: strides, in N, C, H, W order, of a 4-D tensor packed as ``layout``.

    Args:
        layout: ``TensorLayout`` or its name, "NCHW" or "NHWC".
        sizes: N, C, H, W.
        broadcast: Whether each dimension is broadcast: it gets stride 0 and takes no room, as if of size 1.

    Raises:
        InvalidArgumentError: an unknown layout, or sizes or broadcast not of length 4.
    """
    try:
        order = TensorLayout(layout).value
    except ValueError:
        raise InvalidArgumentError("must be NCHW or NHWC", field="layout", value=layout) from None
    sizes = _integers("sizes", sizes)
    if len(sizes) != 4 or len(broadcast) != 4:
        raise InvalidArgumentError("sizes and broadcast must have 4 entries", field="sizes", value=(sizes, broadcast))
    _check_sizes(sizes, None)
    strides = dict.fromkeys("NCHW", 0)
    step = 1
    for name in reversed(order):
        axis = "NCHW".index(name)
        if not broadcast[axis]:
            strides[name] = step
            step *= sizes[axis]
    return (strides["N"], strides["C"], strides["H"], strides["W"])


@dataclass(frozen=True)
class TensorDesc:
    """``DML_BUFFER_TENSOR_DESC``: a view of a buffer's bytes as a tensor.

    Attributes:
        data_type: Element type.
        sizes: Elements a dimension, outermost first (N, C, [D], H, W); 1 to 8 dimensions, none 0, at most 2**32 - 1
            elements together.
        strides: Elements between neighbours of each dimension; None is packed row-major; 0 broadcasts.
        total_tensor_size_in_bytes: Bytes of the binding that the tensor may touch: a multiple of 4 and at least
            ``calc_buffer_tensor_size``, which is the default.
        flags: ``TensorFlags.OWNED_BY_DML`` for an input bound at initialisation only.
        guaranteed_base_offset_alignment: 0, or a power of two not below the element size of which the binding's
            offset is promised to be a multiple. Bytes.

    Raises:
        InvalidArgumentError: naming the field (as in the specification), the rule and the value.
    """

    data_type: TensorDataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    total_tensor_size_in_bytes: int = 0
    flags: TensorFlags = TensorFlags.NONE
    guaranteed_base_offset_alignment: int = 0

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        if type(self.data_type) is not TensorDataType:
            set_field(self, "data_type", member(TensorDataType, self.data_type, "DataType"))
        if self.flags is not TensorFlags.NONE:
            set_field(self, "flags", member(TensorFlags, self.flags, "Flags"))
        set_field(self, "sizes", _integers("Sizes", self.sizes))
        if self.strides is not None:
            set_field(self, "strides", _integers("Strides", self.strides))
        _check_sizes(self.sizes, self.strides)
        least = _implied_bytes(self.data_type, self.sizes, self.strides)
        if least == 0:
            raise InvalidArgumentError("must not be UNKNOWN", field="DataType", value=self.data_type)
        if any(size > _UINT32_MAX for size in self.sizes) or math.prod(self.sizes) > _UINT32_MAX:
            raise InvalidArgumentError("must have at most 2**32 - 1 elements together", field="Sizes", value=self.sizes)
        if any(step > _UINT32_MAX for step in self.strides or ()):
            raise InvalidArgumentError("every stride must fit 32 bits", field="Strides", value=self.strides)
        total = _integer("TotalTensorSizeInBytes", self.total_tensor_size_in_bytes) or least
        if not least <= total <= _UINT64_MAX or total % 4:
            raise InvalidArgumentError(
                f"must be a multiple of 4 below 2**64 and at least the {least} bytes that sizes and strides imply",
                field="TotalTensorSizeInBytes",
                value=total,
            )
        set_field(self, "total_tensor_size_in_bytes", total)
        alignment = _integer("GuaranteedBaseOffsetAlignment", self.guaranteed_base_offset_alignment)
        set_field(self, "guaranteed_base_offset_alignment", alignment)
        if alignment and (
            not 0 <= alignment <= _UINT32_MAX or alignment & (alignment - 1) or alignment * 8 < element_bits(self.data_type)
        ):
            raise InvalidArgumentError(
                "must be 0 or a power of two below 2**32 and not below the element size in bytes",
                field="GuaranteedBaseOffsetAlignment",
                value=alignment,
            )

    def __str__(self) -> str:
        strides = "" if self.effective_strides == packed_strides(self.sizes) else f" with strides {self.strides}"
        return f"{self.data_type.name} {self.sizes}{strides}"

    @property
    def dimension_count(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    @property
    def element_count(self) -> int:
        """Logical elements, broadcast ones counted."""
        return math.prod(self.sizes)

    @cached_property
    def effective_strides(self) -> tuple[int, ...]:
        """The strides, packed ones spelt out. One that nothing steps by, of a dimension of size 1, is 0 where it is so large
        that multiples of it would not fit 32 bits."""
        if self.strides is None:
            return packed_strides(self.sizes)
        if not any(type(step) is int and step >= _LARGE_STRIDE for step in self.strides):
            return self.strides
        return tuple(0 if size == 1 else step for size, step in zip(self.sizes, self.strides, strict=True))

    @cached_property
    def owned_by_dml(self) -> bool:
        """Whether the tensor is bound at initialisation only."""
        return bool(self.flags & TensorFlags.OWNED_BY_DML)

    @property
    def has_overlapping_elements(self) -> bool:
        """Whether two logical elements may share memory, as a broadcast does. Such a tensor cannot be an output.

        Exact where the dimensions nest and, by counting, for other layouts of up to 2**20 elements; a larger layout
        with interleaved dimensions counts as overlapping.
        """
        if self.strides is None:
            return False
        dims = sorted((step, size) for size, step in zip(self.sizes, self.effective_strides, strict=True) if size > 1)
        reach = 1
        for step, size in dims:
            if step < reach:
                break
            reach += step * (size - 1)
        else:
            return False
        if dims[0][0] == 0 or self.element_count > 2**20:
            return True
        offsets = {0}
        for step, size in dims:
            offsets = {offset + step * index for offset in offsets for index in range(size)}
        return len(offsets) < self.element_count


class EmptyTensorDesc(TensorDesc):
    """A tensor without elements, packed. DirectML has none, and no operator is created of one: what the other doors make of
    it launches nothing."""

    def __post_init__(self) -> None:
        sizes = _integers("Sizes", self.sizes)
        if not 1 <= len(sizes) <= MAXIMUM_DIMENSION_COUNT:
            raise InvalidArgumentError("must be 1 to 8 dimensions", field="DimensionCount", value=len(sizes))
        if min(sizes) < 0:
            raise InvalidArgumentError("every size must be at least 0", field="Sizes", value=sizes)
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "data_type", member(TensorDataType, self.data_type, "DataType"))


def tensor_desc(data_type: TensorDataType, sizes: Sequence[int], strides: Sequence[int] | None = None) -> TensorDesc:
    """A desc of these sizes, one of which may be 0."""
    if 0 in sizes:
        return EmptyTensorDesc(data_type, tuple(sizes))
    return TensorDesc(data_type, tuple(sizes), None if strides is None else tuple(strides))


def _integers(field: str, values: Sequence[int]) -> tuple[int, ...]:
    if type(values) is tuple and _WHOLE.issuperset(map(type, values)):
        return values
    try:
        result = tuple(value if isinstance(value, Size) else int(value) for value in values)
        if any(a != b for a, b in zip(result, values, strict=True)):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgumentError("must be a sequence of integers", field=field, value=values) from None
    return result


def _integer(field: str, value: int) -> int:
    if type(value) in _WHOLE:
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidArgumentError("must be an integer", field=field, value=value) from None


def _check_sizes(sizes: Sequence[int], strides: Sequence[int] | None) -> None:
    if not 1 <= len(sizes) <= MAXIMUM_DIMENSION_COUNT:
        raise InvalidArgumentError("must be 1 to 8 dimensions", field="DimensionCount", value=len(sizes))
    if any(size < 1 for size in sizes):
        raise InvalidArgumentError("every size must be at least 1", field="Sizes", value=tuple(sizes))
    if strides is not None and (len(strides) != len(sizes) or any(step < 0 for step in strides)):
        raise InvalidArgumentError(
            "must have one stride for each dimension, none negative", field="Strides", value=tuple(strides)
        )


def reshaped_strides(sizes: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...] | None:
    """Strides for ``wanted`` sizes over the same elements in the same order; None where no strides can say it.

    Both shapes are walked from the first dimension in groups of equal element count; the old dimensions of a group must
    step through memory as one.
    """
    old = [(size, step) for size, step in zip(sizes, strides, strict=True) if size != 1]
    result: list[int] = []
    while len(result) < len(wanted):
        group = [wanted[len(result)]]
        count, step = (1, 1) if group == [1] else old.pop(0)
        while math.prod(group) != count:
            if math.prod(group) < count:
                group.append(wanted[len(result) + len(group)])
            else:
                size, inner = old.pop(0)
                if step != inner * size:
                    return None
                count, step = count * size, inner
        result += [step * inner for inner in packed_strides(group)]
    return tuple(result)
