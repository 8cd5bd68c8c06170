"""The constraints that several rows share. Each is a labelled ``Constraint``; rows with a rule of their own define it
beside themselves with ``constraint``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import FLOATS, Constraint, OperatorDesc, Violation, fits_float32, is_zero_in_float32
from dmlvk.spec.tensor import TensorDesc, cast_scalar


def constraint(label: str, rule: str) -> Callable[[Callable[[Any], Violation | None]], Constraint]:
    """Decorates a check: it returns the ``Violation`` it finds, or None."""
    return lambda check: Constraint(label, rule, check)


def _tensors(desc: OperatorDesc, names: tuple[str, ...]) -> list[tuple[str, TensorDesc]]:
    """The present tensors among the named fields, or of all tensor fields where none is named."""
    slots = desc.input_slots() + desc.output_slots()
    return [(s.field.name, s.tensor) for s in slots if s.tensor is not None and (not names or s.field.name in names)]


def _all_equal(label: str, rule: str, names: tuple[str, ...], what: Callable[[TensorDesc], object]) -> Constraint:
    def check(desc: OperatorDesc) -> Violation | None:
        present = _tensors(desc, names)  # none while the outputs of a call are being inferred
        for name, tensor in present[1:]:
            if what(tensor) != what(present[0][1]):
                return Violation(name, what(tensor), what(present[0][1]))
        return None

    return Constraint(label, rule, check)


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if names[1:] else "".join(names) or "all tensors"


def same_data_type(*names: str) -> Constraint:
    """The named tensors (all, without names) have one data type."""
    return _all_equal("same_data_type", f"{_listed(names)} must have the same data type", names, lambda t: t.data_type)


def same_dimension_count(*names: str) -> Constraint:
    """The named tensors (all, without names) have one dimension count."""
    rule = f"{_listed(names)} must have the same dimension count"
    return _all_equal("same_dimension_count", rule, names, lambda t: t.dimension_count)


def same_sizes(*names: str) -> Constraint:
    """The named tensors (all, without names) have equal sizes; broadcasting is expressed by zero strides."""
    return _all_equal("same_sizes", f"{_listed(names)} must have the same sizes", names, lambda t: t.sizes)


def broadcastable(target: str, *names: str) -> Constraint:
    """Each dimension of the named tensors equals the target's or is 1."""

    def check(desc: OperatorDesc) -> Violation | None:
        wanted = desc.tensor(target).sizes
        for name, tensor in _tensors(desc, names):
            if len(tensor.sizes) != len(wanted) or any(
                size not in (1, full) for size, full in zip(tensor.sizes, wanted, strict=True)
            ):
                return Violation(name, tensor.sizes, wanted)
        return None

    return Constraint("broadcastable", f"each size of {_listed(names)} must equal {target}'s or be 1", check)


def valid_axes(name: str = "axes", of: str = "input_tensor") -> Constraint:
    """Axes are distinct dimensions of the tensor."""

    def check(desc: OperatorDesc) -> Violation | None:
        axes = getattr(desc, name)
        count = desc.tensor(of).dimension_count
        good = len(set(axes)) == len(axes) and all(axis < count for axis in axes)
        return None if good else Violation(name, axes)

    return Constraint("valid_axes", f"{name} must be distinct and below the dimension count of {of}", check)


def valid_axis(name: str = "axis", of: str = "input_tensor") -> Constraint:
    """An axis is a dimension of the tensor."""

    def check(desc: OperatorDesc) -> Violation | None:
        axis = getattr(desc, name)
        return None if axis < desc.tensor(of).dimension_count else Violation(name, axis)

    return Constraint("valid_axis", f"{name} must be below the dimension count of {of}", check)


def sizes_off_axis(name: str, of: str = "input_tensor") -> Constraint:
    """A tensor has another's sizes but along ``axis``, where it may have any."""

    def check(desc: OperatorDesc) -> Violation | None:
        axis = getattr(desc, "axis")  # noqa: B009  # the rows that have this constraint have one
        own, sizes = desc.tensor(of).sizes, desc.tensor(name).sizes
        good = all(at == axis or pair[0] == pair[1] for at, pair in enumerate(zip(own, sizes, strict=True)))
        return None if good else Violation(name, sizes, own)

    return Constraint(
        "sizes_off_axis", f"{name} must have the sizes of {of}, except along axis, where it may have any", check
    )


def count_of_dimensions(name: str, of: str, least: int = 1) -> Constraint:
    """An attribute counts dimensions of a tensor: its trailing ones."""

    def check(desc: OperatorDesc) -> Violation | None:
        count = getattr(desc, name)
        return None if least <= count <= desc.tensor(of).dimension_count else Violation(name, count)

    return Constraint(name, f"{name} must be at least {least} and at most the dimension count of {of}", check)


def leading_ones(tensor: str, count: str) -> Constraint:
    """The dimensions that a count of trailing dimensions leaves out are 1."""

    def check(desc: OperatorDesc) -> Violation | None:
        sizes = desc.tensor(tensor).sizes
        left_out = sizes[: len(sizes) - getattr(desc, count)]
        return None if all(size == 1 for size in left_out) else Violation(tensor, sizes)

    return Constraint(f"leading_ones_of_{tensor}", f"the sizes of {tensor} before its last {count} must be 1", check)


def output_sizes_match() -> Constraint:
    """Every output has the sizes that the row infers from inputs and attributes."""

    def check(desc: OperatorDesc) -> Violation | None:
        for slot, sizes in zip(desc.output_slots(), desc.inferred_output_sizes(), strict=True):
            if slot.tensor is not None and slot.tensor.sizes != sizes:
                return Violation(slot.field.name, slot.tensor.sizes, sizes)
        return None

    return Constraint("output_sizes_match", "must have the sizes that inputs and attributes imply", check)


def finite(name: str) -> Constraint:
    """A float attribute is finite."""

    def check(desc: OperatorDesc) -> Violation | None:
        value = getattr(desc, name)
        return None if math.isfinite(value) else Violation(name, value)

    return Constraint("finite", f"{name} must be finite", check, needs_tensors=False)


def nonzero(name: str) -> Constraint:
    """A float attribute is not 0."""

    def check(desc: OperatorDesc) -> Violation | None:
        value = getattr(desc, name)
        return Violation(name, value) if is_zero_in_float32(value) else None

    return Constraint("nonzero", f"{name} must not be 0 as FLOAT32", check, needs_tensors=False)


def scalars_of_type(
    data_type: str, tensor: str, *names: str, allow_nan: bool = False, signed: tuple[str, ...] = ()
) -> Constraint:
    """The field ``data_type`` is the tensor's data type, and the named ``DML_SCALAR_UNION`` fields hold numbers of it.

    Args:
        data_type: The field that says what the unions hold.
        tensor: The tensor whose type that is.
        names: The fields that hold the numbers. An integer type takes exactly its range; a floating type takes what it
            can round, so for FLOAT16, which is computed in float32, all that fits a float32.
        allow_nan: Whether NaN is a number here.
        signed: The names whose numbers may also be of the signed type where the tensor's is unsigned.
    """

    def check(desc: OperatorDesc) -> Violation | None:
        wanted = desc.tensor(tensor).data_type
        if getattr(desc, data_type) != wanted:
            return Violation(data_type, getattr(desc, data_type), wanted)
        for name in names:
            value = getattr(desc, name)
            if value != value:  # NaN; a size that records stays one
                good = allow_nan and wanted.name.startswith("FLOAT")
            elif wanted in FLOATS:
                good = fits_float32(value)
            else:
                kinds = {wanted, TensorDataType[wanted.name.removeprefix("U")] if name in signed else wanted}
                good = any(value == cast_scalar(value, kind) for kind in kinds)
            if not good:
                return Violation(name, value)
        return None

    return Constraint(
        "scalars_of_type", f"{data_type} must be the data type of {tensor}, and {' and '.join(names)} must fit it", check
    )
