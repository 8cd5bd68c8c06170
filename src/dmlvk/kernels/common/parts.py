"""Plans of other operators as parts of one's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.plan import Dispatch, Launch, Plan, Range, Source, numbered
from dmlvk.kernels.common.registry import lowering_of
from dmlvk.kernels.common.rule import choose
from dmlvk.spec.errors import UnsupportedError
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.size import Deferred, pinned


def chosen_plan(desc: OperatorDesc, caps: Capabilities, whole: str = "") -> Plan:
    """The plan of another operator, by the rule that its family chooses.

    Args:
        desc: The newest re-issue of the other operator.
        caps: The device.
        whole: The name of the operator of which that is a part: what a device cannot do where it cannot do the part.

    Raises:
        UnsupportedError: the device lacks a feature or a limit.
    """
    lowering = lowering_of(desc)
    assert lowering is not None, f"{desc.dml_name} has kernels"
    problem = lowering.problem(desc)
    try:
        return lowering.schedules[choose(lowering.rules, problem, caps).name](desc, problem, caps)
    except UnsupportedError as error:
        raise error.of(whole or error.operator) from None


def placed(
    plan: Plan,
    *,
    inputs: tuple[Range | None, ...],
    outputs: tuple[Range | None, ...],
    temporary: int = 0,
    keeps: bool = False,
) -> tuple[Launch, ...]:
    """The launches of a plan that is a part of another.

    Args:
        plan: The part. It keeps nothing from its initialisation, unless ``keeps``.
        inputs, outputs: The ranges of the tensors of its slots, None of those that are absent.
        temporary: The offset of its ``temporary_bytes`` among those of the whole.
        keeps: Whether the whole takes over its initialisation and its persistent resource, as they are.
    """
    assert keeps or not (plan.initialize or plan.persistent_bytes), "a part has no tensor that is OWNED_BY_DML"
    places = {Source.INPUT: inputs, Source.OUTPUT: outputs, Source.TEMPORARY: (Range(Source.TEMPORARY, 0, temporary),)}

    def moved(part: Range) -> Range:
        if part.source in (Source.COUNTERS, Source.PERSISTENT):
            return part
        place = places[part.source][part.slot]
        assert place is not None, "a launch reads and writes what is there"
        return place._replace(offset=place.offset + part.offset, nbytes=part.nbytes or place.nbytes)

    return tuple(dataclasses.replace(launch, bindings=tuple(map(moved, launch.bindings))) for launch in _launches(plan))


def _launches(plan: Plan) -> Iterator[Launch]:
    """The launches of a plan; of symbolic sizes each of those that come again, how often ever these say so."""
    again = plan.repetition
    if again is None:
        yield from plan.dispatches
        return
    for index, place in enumerate(again.order(len(plan.dispatches), pinned(again.launches))):
        launch = plan.dispatches[place]
        if again.first <= place < again.end:
            assert isinstance(launch, Dispatch), "copies have no number"
            number = (index - again.first) // again.each
            params: Any = Deferred(numbered, (launch.params, again.counter, number))
            yield dataclasses.replace(launch, params=params)
        else:
            yield launch
