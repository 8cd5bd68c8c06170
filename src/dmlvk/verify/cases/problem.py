"""A case made concrete: one data type, one layout; its desc and its tensors, inputs filled with the same bits each time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import FieldKind, OperatorDesc, Slot
from dmlvk.spec.tensor import TensorDesc
from dmlvk.verify.cases.layouts import LAYOUTS, GuardedTensor, place
from dmlvk.verify.cases.model import Case, OperatorCases, generator, normal

_ARRAYS: Final = (FieldKind.INPUT_TENSOR_ARRAY, FieldKind.OUTPUT_TENSOR_ARRAY)


@dataclass(frozen=True)
class Variation:
    """One way to run a case: its data type, how the tensors lie, which input the output shares, which rule is forced."""

    case: Case
    data_type: TensorDataType
    layout: str
    in_place: str = ""
    rule: str = ""

    def __str__(self) -> str:
        parts = [self.case.name, self.data_type.name, self.layout]
        parts += [f"in place on {self.in_place}"] * bool(self.in_place) + [f"rule {self.rule}"] * bool(self.rule)
        return ", ".join(parts)


@dataclass(frozen=True)
class Problem:
    """An operator with sizes and values: a case's desc, and a guarded, filled tensor for each slot (None where absent)."""

    desc: OperatorDesc
    inputs: tuple[GuardedTensor | None, ...]
    outputs: tuple[GuardedTensor | None, ...]


def variations(entry: OperatorCases, *, quick: bool = False) -> Iterator[Variation]:
    """Every variation of an operator's cases (or of the quick ones) but for forced rules."""
    for case in entry.cases:
        if quick and not case.quick:
            continue
        for data_type in _data_types(entry, case):
            layouts = LAYOUTS if case.layouts else LAYOUTS[:1]
            for layout in layouts[:2] if quick else layouts:
                yield Variation(case, data_type, layout)
            for name in entry.operator.in_place if case.layouts and not quick else ():
                if name in case.inputs:
                    yield Variation(case, data_type, "packed", name)
                    yield Variation(case, data_type, "strided", name)


def _data_types(entry: OperatorCases, case: Case) -> tuple[TensorDataType, ...]:
    """The types that a case is tried with. Those beyond DirectML's stand for FLOAT32 and have the quick cases alone: their
    kernels take other types' steps."""
    found = case.only or entry.crossed_types
    if not case.quick or TensorDataType.FLOAT32 not in found:
        return found
    return (*(item for item in entry.operator.traits.beyond if item not in found), *found)


def build(operator: type[OperatorDesc], variation: Variation, place: Callable[..., GuardedTensor] = place) -> Problem:
    """Makes the desc and fills the inputs, the same bits each time. ``place`` lays out the tensors."""
    case = variation.case
    rng = generator(operator.__name__, case.name, variation.data_type.name)
    tensors: dict[str, GuardedTensor] = {}
    for turn, name in enumerate(tensor_names(operator, case.inputs, outputs=False)):
        if name in case.inputs:
            data_type = case.data_types.get(name, variation.data_type)
            sizes = case.inputs[name]
            written = name == variation.in_place
            tensors[name] = place(data_type, sizes, variation.layout, turn, is_output=written)
            domain = case.domains.get(name) or case.domains.get("") or normal
            tensors[name].view()[...] = _broadcastable(tensors[name].desc, domain(rng, sizes, data_type))
    draft = operator(**fields_of({name: tensor.desc for name, tensor in tensors.items()}), **case.attributes)
    names = tuple(tensor_names(operator, case.outputs, outputs=True))
    output_sizes = case.outputs or dict(zip(names, draft.inferred_output_sizes(), strict=True))
    for turn, name in enumerate(names, start=len(draft.input_slots())):
        if name not in output_sizes:
            continue
        if variation.in_place and turn == len(draft.input_slots()):
            tensors[name] = tensors[variation.in_place]
        else:
            data_type = case.data_types.get(name, variation.data_type)
            tensors[name] = place(data_type, output_sizes[name], variation.layout, turn, is_output=True)
    desc = operator(**fields_of({name: tensor.desc for name, tensor in tensors.items()}), **case.attributes)
    return Problem(
        desc,
        tuple(tensors.get(slot_name(slot)) for slot in desc.input_slots()),
        tuple(tensors.get(slot_name(slot)) for slot in desc.output_slots()),
    )


def tensor_names(operator: type[OperatorDesc], given: Collection[str], *, outputs: bool) -> Iterator[str]:
    """The names of the operator's inputs or outputs in cases: every field, and of an array field the elements among
    ``given``."""
    for spec in operator.fields:
        if spec.kind in _ARRAYS and spec.kind.is_output == outputs:
            names = (slot_name(Slot(spec, element, None)) for element in itertools.count())
            yield from itertools.takewhile(given.__contains__, names)
        elif spec.kind.is_tensor and spec.kind.is_output == outputs:
            yield spec.name


def fields_of(tensors: Mapping[str, TensorDesc]) -> dict[str, Any]:
    """The tensors as a desc takes them: the elements of an array, which come in order, as a tuple."""
    fields: dict[str, Any] = {}
    for name, tensor in tensors.items():
        field, bracket, _ = name.partition("[")
        fields[field] = (*fields.get(field, ()), tensor) if bracket else tensor
    return fields


def slot_name(slot: Slot) -> str:
    """The name of a slot's tensor in cases."""
    return f"{slot.field.name}[{slot.element}]" if slot.field.kind in _ARRAYS else slot.field.name


def _broadcastable(desc: TensorDesc, values: NDArray[Any]) -> NDArray[Any]:
    """The values with every broadcast dimension reduced to its first entry, so that writing them is well defined."""
    index = tuple(slice(0, 1) if step == 0 else slice(None) for step in desc.effective_strides)
    return np.broadcast_to(values[index], values.shape)
