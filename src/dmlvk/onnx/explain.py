"""Explains one node of a model: where it ran, the operators that it became, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmlvk.engine.explanation import OperatorExplanation
from dmlvk.engine.operator import PreparedOperator
from dmlvk.engine.profile import RunStep, StepReport, step_report
from dmlvk.engine.trace import Label
from dmlvk.spec.errors import ModelError


@dataclass(frozen=True)
class NodeExplanation:
    """The place where a node ran, and the operators that it became.

    Attributes:
        node, op_type: The node.
        place: "device", "host" or "removed".
        reason: Why it did not run on the device; "" where it did.
        operators: The operators that it became, or became a part of, in order, with how each runs.
        steps: The report of each of them, in the same order.
    """

    node: str
    op_type: str
    place: str
    reason: str
    operators: tuple[OperatorExplanation, ...]
    steps: tuple[StepReport, ...]

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, ready for JSON."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        where = {"device": "on the device", "host": "on the host", "removed": "removed"}[self.place]
        lines = [f"{self.op_type} {self.node}: {where}{f' ({self.reason})' if self.reason else ''}"]
        for operator, step in zip(self.operators, self.steps, strict=True):
            arithmetic = "" if step.flops is None else f", {step.flops:,} multiplications and additions"
            lines.append(f"{operator.operator}, lowered as {operator.lowered_as}: {step.bytes:,} bytes{arithmetic}")
            lines += (f"  {name} = {text}" for name, text in operator.fields.items())
            lines += operator.lines()
        return "\n".join(lines)


def explain_node(
    name: str,
    placed: Mapping[str, Sequence[Label]],
    runs: Iterable[RunStep],
    explained: Callable[[PreparedOperator], OperatorExplanation],
) -> NodeExplanation:
    """Explains a node.

    Args:
        name: Its name, or its first output's where it has none.
        placed: The records of nodes by place: "device", "host", "removed".
        runs: The steps of the graphs that ran.
        explained: Explains an operator.

    Raises:
        ModelError: the model has no such node, or not in what ran.
    """
    for place, records in placed.items():
        for record in records:
            if record.name == name:
                own = [run for run in runs if name in (origin.name for origin in (run.step.origin, *run.step.merged))]
                return NodeExplanation(
                    node=name,
                    op_type=record.op_type,
                    place=place,
                    reason=record.reason,
                    operators=tuple(explained(run.operator) for run in own),
                    steps=tuple(map(step_report, own)),
                )
    known = [record.name for records in placed.values() for record in records]
    import difflib  # of use only here

    near = difflib.get_close_matches(name, known, 3, 0.3)
    raise ModelError(f"the model has no node {name!r}" + (f"; the nearest are {', '.join(near)}" if near else ""))
