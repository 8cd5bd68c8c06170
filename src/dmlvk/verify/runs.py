"""The runs of a verification: all that the cases allow, the quick ones, or enough of them to meet everything once."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from dataclasses import dataclass

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.lowering import explain, possible_rules
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases.model import OperatorCases
from dmlvk.verify.cases.problem import Variation, build, variations


class Selection(enum.Enum):
    """The selection of runs that are made.

    ``FULL``: every case with every data type of the operator, in every layout and in place on every input that allow it,
    each of these (but in place) also under every other rule that might have chosen its kernel, unless the operator's
    ``every_rule`` says that its kernels are tried with another one.

    ``DEFAULT``: of those, every case with every data type, packed, as the rules choose; and of each operator and data type
    every layout, every input that an output may share, and every rule at least once, each time with another case.

    ``QUICK``: the quick cases, packed and strided, as the rules choose.
    """

    QUICK = "quick"
    DEFAULT = "default"
    FULL = "full"


@dataclass(frozen=True)
class Trial:
    """One run to be made.

    Attributes:
        entry: The operator's cases.
        variation: The variation; it names a rule only if that is not the one that would be chosen.
        desc: The operator.
        rule: The one that runs.
    """

    entry: OperatorCases
    variation: Variation
    desc: OperatorDesc
    rule: str


def chosen_rule(desc: OperatorDesc, caps: Capabilities) -> str:
    """The rule that chooses the desc's kernel."""
    return next(rule.name for rule, holds in explain(desc, caps) if holds)


def trials(entry: OperatorCases, caps: Capabilities, selection: Selection = Selection.FULL) -> list[Trial]:
    """An operator's runs on a device, case after case.

    Args:
        entry: The operator's cases.
        caps: The device.
        selection: The selection of them.
    """
    found = list(_all(entry, caps, quick=selection is Selection.QUICK))
    return cover(found) if selection is Selection.DEFAULT else found


def _all(entry: OperatorCases, caps: Capabilities, *, quick: bool) -> Iterator[Trial]:
    for variation in variations(entry, quick=quick):
        desc = build(entry.operator, variation).desc
        chosen = chosen_rule(desc, caps)
        yield Trial(entry, variation, desc, chosen)
        if quick or variation.in_place or not entry.every_rule:
            continue
        for rule in possible_rules(desc, caps):
            if rule != chosen:
                yield Trial(entry, dataclasses.replace(variation, rule=rule), desc, rule)


def _traits(trial: Trial) -> tuple[tuple[str, ...], ...]:
    """The things that a run shows: its rule, and its layout or the input that the output shares, each with its data type."""
    variation = trial.variation
    return (
        ("rule", variation.data_type.name, trial.rule),
        ("place", variation.data_type.name, variation.layout, variation.in_place),
    )


def cover(found: list[Trial]) -> list[Trial]:
    """The runs that are packed and chosen, and others until there is one with every trait that any has. What few have comes
    first; of the runs that show the most that is new the next one is taken each time, so that cases take turns."""
    having: dict[tuple[str, ...], list[int]] = {}
    taken: set[int] = set()
    for index, trial in enumerate(found):
        for trait in _traits(trial):
            having.setdefault(trait, []).append(index)
        if trial.variation.layout == "packed" and not trial.variation.in_place and not trial.variation.rule:
            taken.add(index)
    seen = {trait for index in taken for trait in _traits(found[index])}
    for trait in sorted(having, key=lambda trait: len(having[trait])):
        if trait in seen:
            continue
        news = {index: sum(own not in seen for own in _traits(found[index])) for index in having[trait]}
        best = [index for index in having[trait] if news[index] == max(news.values())]
        index = best[len(taken) % len(best)]
        taken.add(index)
        seen.update(_traits(found[index]))
    return [found[index] for index in sorted(taken)]
