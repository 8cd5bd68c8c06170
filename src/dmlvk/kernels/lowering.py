"""Lowering: desc -> plan. Each family's ``lowering.py`` registers its rows with ``register``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.cut import Part, Slab, joined, parts
from dmlvk.kernels.common.data_types import storage_features
from dmlvk.kernels.common.families import family_modules
from dmlvk.kernels.common.limitation import FEATURES, STORAGE_BINDING, WORKGROUPS
from dmlvk.kernels.common.plan import BlockCopy, Launch, Plan, Source
from dmlvk.kernels.common.registry import Lowering, Piece, lowering_of, register
from dmlvk.kernels.common.rule import Rule, choose
from dmlvk.kernels.copy.lowering import copy_launches, copy_problem
from dmlvk.kernels.manifest import KERNELS
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, element_bits, packed_strides

__all__ = [
    "Lowering",
    "check_data_types",
    "explain",
    "lower",
    "lower_piece",
    "newest",
    "pieces",
    "possible_rules",
    "register",
]

tuple(family_modules("lowering"))  # importing them registers their rows


def newest(desc: OperatorDesc) -> OperatorDesc:
    """The desc after every upgrade: the one that has kernels."""
    while (upgraded := desc.upgrade()) is not desc:
        desc = upgraded
    return desc


def _lowering(desc: OperatorDesc) -> Lowering:
    lowering = lowering_of(desc)
    if lowering is None:
        raise UnsupportedError("has no kernel in this version", operator=desc.dml_name)
    return lowering


def _problem(desc: OperatorDesc, caps: Capabilities) -> tuple[Lowering, Any]:
    """The lowering of a newest desc, and what its rules see of it: only of tensors that the device can bind, because what a
    problem is told by may be dispatches."""
    lowering = _lowering(desc)
    for slot in desc.input_slots() + desc.output_slots():
        if slot.tensor is not None and slot.field.name not in lowering.any_size:
            _check_size(desc, slot.field.dml_name, slot.tensor, caps)
    return lowering, lowering.problem(desc)


def _parts(desc: OperatorDesc, caps: Capabilities) -> list[Part]:
    """The parts of a newest desc that is too large for the device as a whole and is lowered in parts."""
    free = _lowering(desc).any_size
    slots = desc.input_slots() + desc.output_slots()
    tensors = (slot.tensor for slot in slots if slot.tensor is not None and slot.field.name not in free)
    if all(tensor.total_tensor_size_in_bytes <= _most_bytes(tensor, caps) for tensor in tensors):
        return []
    return parts(desc, lambda tensor: _most_bytes(tensor, caps), free, caps)


def _copied(slab: Slab, operator: str, caps: Capabilities) -> tuple[Launch, ...]:
    """The copy of what a part reads into packed memory, or of what it writes out of it."""
    tensor, (whole, packed) = slab.tensor, (slab.whole, slab.packed)
    strides, starts, ranges = (tensor.effective_strides, packed_strides(tensor.sizes)), (slab.start, 0), (whole, packed)
    if whole.source is Source.OUTPUT:
        strides, starts, ranges = strides[::-1], starts[::-1], ranges[::-1]
    problem = copy_problem(element_bits(tensor.data_type), tensor.sizes, strides, starts)
    return copy_launches(problem, ranges, (ranges[0].nbytes, ranges[1].nbytes), caps, operator)


def _whole(desc: OperatorDesc, caps: Capabilities) -> OperatorDesc:
    """The newest desc, or the first of its parts: the one that rules see."""
    desc = newest(desc)
    while cut := _parts(desc, caps):
        desc = cut[0].desc
    return desc


def explain(desc: OperatorDesc, caps: Capabilities) -> list[tuple[Rule, bool]]:
    """Every rule of the desc's family in order, with whether it holds; the first True is the one chosen. Of a desc that is
    lowered in parts it is the first part's."""
    lowering, problem = _problem(_whole(desc, caps), caps)
    return [(rule, rule.possible(problem, caps) and rule.when(problem, caps)) for rule in lowering.rules]


def possible_rules(desc: OperatorDesc, caps: Capabilities) -> list[str]:
    """Names of the rules that ``lower`` may be forced to use."""
    lowering, problem = _problem(_whole(desc, caps), caps)
    return [rule.name for rule in lowering.rules if rule.possible(problem, caps)]


def lower(desc: OperatorDesc, caps: Capabilities, *, force: str = "") -> Plan:
    """The plan of a validated desc.

    Args:
        desc: Any version of the operator; older ones are upgraded first.
        caps: The device.
        force: A rule to use instead of the chosen one (tests and sweeps).

    Raises:
        UnsupportedError: the operator has no kernel, or the device lacks a feature or a limit that the desc needs.
    """
    desc = newest(desc)
    if cut := _parts(desc, caps):
        return joined(
            cut,
            lambda part: lower(part, caps, force=_forced(part, caps, force)),
            lambda slab: _copied(slab, desc.dml_name, caps),
            caps,
        )
    lowering, problem = _problem(desc, caps)
    name = force or choose(lowering.rules, problem, caps).name
    plan = lowering.schedules[name](desc, problem, caps)
    _check_dispatches(desc, plan, caps)
    return plan


def _forced(part: OperatorDesc, caps: Capabilities, force: str) -> str:
    """The rule to use for a part where one is forced. The last part may be too small for it: then it has the one that is
    chosen."""
    return force if force and force in possible_rules(part, caps) else ""


def pieces(desc: OperatorDesc) -> Sequence[Piece]:
    """The parts whose plans, one after the other, are the plan of a desc; none of a desc that is lowered as a whole."""
    lowering = lowering_of(desc)
    return () if lowering is None or lowering.pieces is None else lowering.pieces(desc)


def lower_piece(desc: OperatorDesc, piece: Piece, caps: Capabilities) -> Plan:
    """The plan of a part.

    Args:
        desc: The desc, whose sizes need not be the piece's.
        piece: One of its ``pieces``, perhaps with other sizes.
        caps: The device.

    Raises:
        UnsupportedError: the device lacks a feature or a limit that the piece needs.
    """
    plan = piece.plan(caps)
    _check_dispatches(desc, plan, caps)
    return plan


def check_data_types(desc: OperatorDesc, caps: Capabilities) -> None:
    """Refuses data types that the device cannot load and store, whatever kernel a plan would have: some move bytes alone.

    Raises:
        UnsupportedError: the device lacks a feature.
    """
    for slot in desc.input_slots() + desc.output_slots():
        if slot.tensor is None:
            continue
        missing = tuple(sorted(storage_features(slot.tensor.data_type) - caps.features))
        if missing:
            name = slot.tensor.data_type.name
            found = f"{slot.field.dml_name} is {name}, which needs the device feature {', '.join(missing)}"
            raise FEATURES.error(found, desc.dml_name, features=missing)


def _most_bytes(tensor: TensorDesc, caps: Capabilities) -> int:
    """The most bytes that a tensor of this type may have where a kernel takes it as a whole."""
    # A kernel counts elements in 32 bits; of 4-bit ones that is half of what the largest binding could hold.
    return min(caps.storage_buffer_bytes, 2**32 * element_bits(tensor.data_type) // 8)


def _check_size(desc: OperatorDesc, name: str, tensor: TensorDesc, caps: Capabilities) -> None:
    """Before there is a plan: steps that stay in these tensors fit the 32-bit numbers of a parameter block."""
    most = _most_bytes(tensor, caps)
    if tensor.total_tensor_size_in_bytes > most:
        raise STORAGE_BINDING.error(
            f"{name} of {tensor.total_tensor_size_in_bytes} bytes is larger than a storage binding of its type may be on "
            f"the device, at most {most} bytes",
            desc.dml_name,
        )


def _check_dispatches(desc: OperatorDesc, plan: Plan, caps: Capabilities) -> None:
    for dispatch in plan.dispatches + plan.initialize:
        if isinstance(dispatch, BlockCopy):
            continue
        spec = KERNELS[dispatch.kernel.kernel]
        missing = tuple(name for name in spec.required_features(dispatch.kernel.variant) if name not in caps.features)
        if missing:
            found = f"needs the device feature {', '.join(missing)}"
            raise FEATURES.error(found, desc.dml_name, features=missing)
        for binding in dispatch.bindings:
            if binding.nbytes > caps.storage_buffer_bytes:
                found = f"needs a table of {binding.nbytes} bytes, and the device binds at most {caps.storage_buffer_bytes}"
                raise STORAGE_BINDING.error(found, desc.dml_name)
        if any(count > most for count, most in zip(dispatch.grid, caps.workgroup_counts, strict=True)):
            found = f"needs {dispatch.grid} workgroups, and the device launches at most {caps.workgroup_counts}"
            raise WORKGROUPS.error(found, desc.dml_name)
