"""Every rule's plan of every operator keeps to the device that it is made for (``plans.py``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from plans import DEVICES, check_plan

from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.kernels.lowering import lower, possible_rules
from dmlvk.spec.enums import TensorFlags
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.model import OperatorCases
from dmlvk.verify.cases.problem import Variation, build

PLAIN = ("least", "subgroups of 8", "subgroups of 128")
"""Names of the devices for families that know no matrices."""

MATRIX_FAMILIES = {f"dmlvk.spec.ops.{name}" for name in ("attention", "convolution", "integer", "matmul", "recurrent")}


def descs(entry: OperatorCases, crossed: bool) -> Iterator[OperatorDesc]:
    """Every case of an operator with every type, packed and strided; or, not crossed, every case, type and layout once.

    Of matrix families also with weights to keep.
    """
    met: set[object] = set()
    for turn, case in enumerate(entry.cases):
        types = tuple(case.only or entry.crossed_types)
        first = turn % len(types)  # so that cases differ in type
        for data_type in types[first:] + types[:first]:
            for layout in ("packed", "strided") if case.layouts else ("packed",):
                shown = {case.name, data_type.name, layout}
                if not crossed and shown <= met:
                    continue
                met |= shown
                desc = build(entry.operator, Variation(case, data_type, layout)).desc
                yield desc
                if entry.operator.__module__ in MATRIX_FAMILIES:
                    yield with_weights_owned(desc)


def with_weights_owned(desc: OperatorDesc) -> OperatorDesc:
    """The desc with every input but the first OWNED_BY_DML."""
    tensors = [(slot.field.name, slot.tensor) for slot in desc.input_slots()[1:] if slot.tensor is not None]
    return desc.replace(**{name: dataclasses.replace(tensor, flags=TensorFlags.OWNED_BY_DML) for name, tensor in tensors})


@pytest.mark.slow
@pytest.mark.parametrize("every_device", [pytest.param(True, marks=pytest.mark.full, id="every device"), False])
@pytest.mark.parametrize("operator", [row for row in all_cases() if row in LOWERINGS], ids=lambda row: row.__name__)
def test_every_plan_keeps_to_its_device(operator: type[OperatorDesc], every_device: bool) -> None:
    """Each desc under each rule on devices that take turns, and each rule on each device; or all on all of them.

    Every device has the full cross of cases, types and layouts.
    """
    names = tuple(DEVICES) if operator.__module__ in MATRIX_FAMILIES else PLAIN
    met: set[tuple[str, str]] = set()
    for turn, desc in enumerate(descs(all_cases()[operator], every_device)):
        for place, name in enumerate(names):
            caps = DEVICES[name]
            for rule in possible_rules(desc, caps):
                if not every_device and turn % len(names) != place and (name, rule) in met:
                    continue
                met.add((name, rule))
                try:
                    check_plan(lower(desc, caps, force=rule), caps)
                except Exception as error:
                    error.add_note(f"{name}: {rule} for {desc}")
                    raise
