"""The constraints that several rows share. Each is a labelled ``Constraint``; rows with a rule of their own define it
beside themselves with ``constraint``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dmlvk.schema import Constraint, OperatorDesc, Violation
from dmlvk.tensor import TensorDesc


def constraint(label: str, rule: str) -> Callable[[Callable[[Any], Violation | None]], Constraint]:
    """Decorates a check: it returns the ``Violation`` it finds, or None."""
    return lambda check: Constraint(label, rule, check)


def _tensors(desc: OperatorDesc, names: tuple[str, ...]) -> list[tuple[str, TensorDesc]]:
    """The present tensors among the named fields, or of all tensor fields where none is named."""
    slots = desc.input_slots() + desc.output_slots()
    return [(s.field.name, s.tensor) for s in slots if s.tensor is not None and (not names or s.field.name in names)]


def _all_equal(label: str, rule: str, names: tuple[str, ...], what: Callable[[TensorDesc], object]) -> Constraint:
    def check(desc: OperatorDesc) -> Violation | None:
        (_, first), *rest = _tensors(desc, names)
        for name, tensor in rest:
            if what(tensor) != what(first):
                return Violation(name, what(tensor))
        return None

    return Constraint(label, rule, check)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) if names else "all tensors"


def same_data_type(*names: str) -> Constraint:
    """The named tensors (all, without names) have one data type."""
    return _all_equal("same_data_type", f"{_listed(names)} have the same data type", names, lambda t: t.data_type)


def same_dimension_count(*names: str) -> Constraint:
    """The named tensors (all, without names) have one dimension count."""
    rule = f"{_listed(names)} have the same dimension count"
    return _all_equal("same_dimension_count", rule, names, lambda t: t.dimension_count)


def same_sizes(*names: str) -> Constraint:
    """The named tensors (all, without names) have equal sizes; broadcasting is expressed by zero strides."""
    return _all_equal("same_sizes", f"{_listed(names)} have the same sizes", names, lambda t: t.sizes)


def broadcastable(target: str, *names: str) -> Constraint:
    """Each dimension of the named tensors equals the target's or is 1."""

    def check(desc: OperatorDesc) -> Violation | None:
        wanted = desc.tensor(target).sizes
        for name, tensor in _tensors(desc, names):
            if len(tensor.sizes) != len(wanted) or any(
                size not in (1, full) for size, full in zip(tensor.sizes, wanted, strict=True)
            ):
                return Violation(name, tensor.sizes)
        return None

    return Constraint("broadcastable", f"each size of {', '.join(names)} equals {target}'s or is 1", check)


def valid_axes(name: str = "axes", of: str = "input_tensor") -> Constraint:
    """Axes are distinct dimensions of the tensor."""

    def check(desc: OperatorDesc) -> Violation | None:
        axes = getattr(desc, name)
        count = desc.tensor(of).dimension_count
        good = len(set(axes)) == len(axes) and all(axis < count for axis in axes)
        return None if good else Violation(name, axes)

    return Constraint("valid_axes", f"{name} are distinct and below the dimension count of {of}", check)


def output_sizes_match() -> Constraint:
    """Every output has the sizes that the row infers from inputs and attributes."""

    def check(desc: OperatorDesc) -> Violation | None:
        for slot, sizes in zip(desc.output_slots(), desc.inferred_output_sizes(), strict=True):
            if slot.tensor is not None and slot.tensor.sizes != sizes:
                return Violation(slot.field.name, f"{slot.tensor.sizes}, inferred {sizes}")
        return None

    return Constraint("output_sizes_match", "has the sizes that inputs and attributes imply", check)


def finite(name: str) -> Constraint:
    """A float attribute is finite."""

    def check(desc: OperatorDesc) -> Violation | None:
        value = getattr(desc, name)
        return None if math.isfinite(value) else Violation(name, value)

    return Constraint("finite", f"{name} is finite", check, needs_tensors=False)


def nonzero(name: str) -> Constraint:
    """A float attribute is not 0."""

    def check(desc: OperatorDesc) -> Violation | None:
        value = getattr(desc, name)
        return None if value != 0 else Violation(name, value)

    return Constraint("nonzero", f"{name} is not 0", check, needs_tensors=False)
