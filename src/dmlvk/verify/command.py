"""``python -m dmlvk verify``: an accuracy card of a device, and the lines that say what is on it."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

from dmlvk.directml.device import Device
from dmlvk.engine.progress import ProgressBar, UntilInterrupted
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.verify.card import CTRL_C, Card, Entry
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.model import OperatorCases
from dmlvk.verify.cases.problem import variations
from dmlvk.verify.check import Outcome, percentile, verify_operators
from dmlvk.verify.machine import describe
from dmlvk.verify.runs import Selection
from dmlvk.verify.waivers import Waiver

_MOST_REPORTS = 5


def verify(
    device: Device,
    operators: Sequence[str] = (),
    selection: Selection = Selection.DEFAULT,
    *,
    only: str = "",
    commit: str = "",
) -> Card:
    """Runs operators' cases against the oracle, with a progress bar on a terminal.

    Args:
        device: The device to verify.
        operators: Class names; all where none are given.
        selection: The selection of the runs.
        only: Only runs whose variation, as text, contains this.
        commit: The commit that was built, if the package does not know it.

    Ctrl-C ends it with the card of what was run.

    Raises:
        InvalidArgumentError: an operator without cases, or nothing is left to run.
        KeyboardInterrupt: Ctrl-C before anything was run.
    """
    cases = {entry.operator.__name__: entry for entry in all_cases().values()}
    for name in operators:
        if name not in cases:
            raise InvalidArgumentError("must be the class name of an operator with cases", field="operator", value=name)
    chosen = {name: entry for name, entry in cases.items() if not operators or name in operators}
    started, pipelines = time.perf_counter(), device.pipelines_created
    entries: list[Entry] = []
    needed: dict[Waiver, bool] = {}
    outcomes = UntilInterrupted(_with_progress(chosen, verify_operators(device, chosen.values(), selection, only=only)))
    for name, group in itertools.groupby(outcomes, key=lambda outcome: outcome.operator):
        by_type: dict[str, list[Outcome]] = collections.defaultdict(list)
        for outcome in group:
            by_type[outcome.variation.data_type.name].append(outcome)
            if outcome.waiver is not None:
                needed[outcome.waiver] = needed.get(outcome.waiver, False) or bool(outcome.unsupported)
        entries += [summarize(chosen[name], data_type, ran) for data_type, ran in by_type.items()]
    if not entries:
        if outcomes.interrupted:
            raise KeyboardInterrupt
        raise InvalidArgumentError(
            "must be part of what describes a run, such as 'FLOAT16, strided'", field="only", value=only
        )
    lost = device.get_device_removed_reason()
    return Card(
        machine=describe(device, commit),
        selection=selection.value,
        capabilities=capabilities(device),
        seconds=time.perf_counter() - started,
        pipelines=device.pipelines_created - pipelines,
        entries=entries,
        stopped=f"the device was lost: {lost}" if lost is not None else CTRL_C if outcomes.interrupted else "",
        unneeded=[str(waiver) for waiver, excuses in needed.items() if not excuses],
    )


def _with_progress(chosen: dict[str, OperatorCases], outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
    """The outcomes, until the device is lost; an operator's share of the bar is that of its variations."""
    shares = [sum(1 for _ in variations(entry)) for entry in chosen.values()]
    before = dict(zip(chosen, itertools.accumulate(shares, initial=0), strict=False))
    places = {name: f"{number}/{len(chosen)} {name}" for number, name in enumerate(chosen, 1)}
    with ProgressBar(sum(shares)) as bar:
        for outcome in outcomes:
            bar.update(before[outcome.operator], places[outcome.operator])
            yield outcome
            if outcome.lost_device:
                return


def summarize(entry: OperatorCases, data_type: str, outcomes: Sequence[Outcome]) -> Entry:
    """The card's line about the runs of an operator with a data type."""
    ran = [outcome for outcome in outcomes if not outcome.unsupported]
    refused = [outcome.unsupported for outcome in outcomes if outcome.unsupported]
    failed = [outcome for outcome in ran if not outcome.passed]
    bound = max((outcome.bound_ulp for outcome in ran), default=0.0)
    return Entry(
        operator=entry.operator.__name__,
        family=entry.operator.__module__.rpartition(".")[2],
        data_type=data_type,
        exact=bool(ran) and bound == 0,
        max_ulp=max((outcome.max_ulp for outcome in ran), default=0.0),
        typical_ulp=percentile(sorted(outcome.typical_ulp for outcome in ran), 0.5),
        high_ulp=percentile(sorted(outcome.high_ulp for outcome in ran), 0.5),
        bound_ulp=bound,
        same_bits=all(outcome.same_bits for outcome in ran),
        passed=not failed,
        runs=len(ran),
        dispatches=sum(outcome.dispatches for outcome in ran),
        elements=sum(outcome.elements for outcome in ran),
        rules=tuple(dict.fromkeys(outcome.rule for outcome in ran)),
        unsupported=refused[0] if refused and not ran else "",
        partly=f"{len(refused)} runs unsupported: {refused[0]}" if refused and ran else "",
        failure=failed[0].failure if failed else None,
    )


def capabilities(device: Device) -> dict[str, Any]:
    """The abilities that kernels relied on: the device's ``Capabilities``, and its features that are off or missing."""
    caps = device.capabilities
    reported = device.info.features
    found = {
        field.name: getattr(caps, field.name) for field in dataclasses.fields(caps) if field.name != "allow_half_precision"
    }
    return {
        **found,
        "features": sorted(caps.features),
        "switched_off": sorted(name for name, there in reported.items() if there and name not in caps.features),
        "missing": sorted(name for name, there in reported.items() if not there),
        "workgroup_counts": list(caps.workgroup_counts),
        "cooperative_matrices": [
            f"{shape.m}x{shape.n}x{shape.k} {shape.operands}, sums {shape.sums}" for shape in caps.cooperative_matrices
        ],
    }


HEAD = ("operator", "type", "max ULP", "typical", "99 %", "allowed", "runs", "")
"""The heads of the table's columns."""


def table(card: Card) -> Iterator[tuple[str, ...]]:
    """A line for each entry."""
    for entry in card.entries:
        figures = (entry.max_ulp, entry.typical_ulp, entry.high_ulp)
        texts = [f"{figure:.4g}" for figure in figures] if entry.runs else [""] * len(figures)
        allowed = "" if not entry.runs else "exact" if entry.exact else f"{entry.bound_ulp:g}"
        yield (entry.operator, entry.data_type, *texts, allowed, str(entry.runs), entry.verdict)


def summary(card: Card) -> list[str]:
    """The lines after the table: the verdict, and the first failures as they can be pasted into an issue."""
    failed = [entry for entry in card.entries if not entry.passed]
    unsupported = sum(bool(entry.unsupported) for entry in card.entries)
    verdict = f"{len(failed)} FAILED" if failed else "all right"
    lines = [
        f"{len(card.entries)} operator x type, {sum(entry.runs for entry in card.entries)} runs ({card.selection}), "
        f"{card.pipelines} pipelines in {card.seconds:.1f} s: {verdict}" + f", {unsupported} unsupported" * bool(unsupported)
    ]
    for entry in failed[:_MOST_REPORTS]:
        lines += ["", card.report(entry)]
    if len(failed) > _MOST_REPORTS:
        lines += ["", f"and {len(failed) - _MOST_REPORTS} more: see the table"]
    lines += [f"not needed in these runs: the waiver of {waiver}" for waiver in card.unneeded]
    if card.stopped:
        lines += ["", f"It ended before all was run: {card.stopped}"]
    return lines
