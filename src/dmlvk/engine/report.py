"""The report of a run: launches, memory, and the cost of each operator; as text, as a page and in a notebook."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar
from xml.etree.ElementTree import Element

from dmlvk.engine.profile import StepReport, chrome_trace
from dmlvk.engine.report_html import MOST_ROWS, NodeRow, first_nodes, kind_table, memory_figure, node_table, rows_of
from dmlvk.html.elements import element, facts, markup, notebook, shortened
from dmlvk.html.page import page
from dmlvk.html.words import number, size
from dmlvk.spec.errors import StateError


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """The account of a run.

    Attributes:
        device: Name of the Vulkan device.
        dispatches: Kernel launches of the run, those of every round of a loop.
        weights_bytes: Device memory of constants, held once for all plans.
        activation_bytes: Length of the arena in which all plans keep their inputs, outputs, intermediate tensors and
            scratch.
        largest_live_bytes: The most bytes of inputs, outputs, intermediate tensors and scratch that any step of the newest
            run's plans needs at the same time: no arena could be smaller.
        peak_device_bytes: The most device memory that was ever in use on the device, whatever used it. Loading takes no more
            than the weights in the end, unless a single one that is repacked is larger than all that comes after it.
        staging_bytes: Host memory for what goes to the device and comes back: a fixed size for each device.
        plans: Compiled graphs in the cache.
        planning_seconds: The time to make the run's graphs: trace, pipelines, memory and recording.
        steps: The operators of the run's graphs in order, those of each once; in a profile those of every round, with
            times.
        copy_bandwidth: Bytes a second that the device reads and writes when it copies a large tensor, measured at its first
            profile; None without a profile.
    """

    made_by: ClassVar[str] = "a profile"
    """The call that makes a report with times, as messages name it."""

    device: str
    dispatches: int
    weights_bytes: int
    activation_bytes: int
    largest_live_bytes: int
    peak_device_bytes: int
    staging_bytes: int
    plans: int
    planning_seconds: float
    steps: tuple[StepReport, ...]
    copy_bandwidth: float | None = None

    def share_of_copy(self, step: StepReport) -> float | None:
        """The speed of a step's memory traffic as a share of a copy's: what is left to gain where memory is its limit.
        More than 1 where its tensors lie in caches. None where arithmetic is its limit, and without a profile."""
        if not (step.seconds and self.copy_bandwidth and step.is_memory_bound):
            return None
        return step.bytes / step.seconds / self.copy_bandwidth

    @property
    def gpu_seconds(self) -> float | None:
        """The seconds from the start of a profiled run's first kernel to the end of its last; None without a profile."""
        if any(step.times is None for step in self.steps):
            return None
        return max((time.end for step in self.steps for time in step.times or ()), default=0.0)

    def table(self) -> str:
        """The operators of a profile, those that took longest first: time, share of the time of all, what they moved and
        computed a second, the former as a share of a copy's speed where memory is the limit, and where they come from.
        Shares of the time are of the sum of all times: kernels may overlap.

        Raises:
            StateError: the report is no profile's.
        """
        self._require_times()
        whole = sum(step.seconds or 0.0 for step in self.steps)
        lines = [f"{'time us':>10} {'share':>6} {'GB/s':>7} {'of copy':>7} {'GFLOP/s':>8}  operator: kernels, node"]
        for step in sorted(self.steps, key=lambda step: -(step.seconds or 0.0)):
            seconds = step.seconds or 0.0
            share = f"{seconds / whole:.1%}" if whole else ""
            moved = f"{step.bytes / seconds / 1e9:.2f}" if seconds else ""
            computed = f"{step.flops / seconds / 1e9:.2f}" if seconds and step.flops is not None else ""
            of_copy = self.share_of_copy(step)
            copied = "" if of_copy is None else f"{of_copy:.0%}"
            kernels = " ".join(step.kernels) or "none"
            lines.append(
                f"{seconds * 1e6:10.1f} {share:>6} {moved:>7} {copied:>7} {computed:>8}  {step.operator}: {kernels}, "
                f"{step.op_type} {step.node}"
            )
        return "\n".join(lines)

    def chrome_trace(self) -> str:
        """A profile as a Chrome trace, JSON that Perfetto opens.

        Raises:
            StateError: the report is no profile's.
        """
        self._require_times()
        return chrome_trace(self.device, self.steps)

    # -- as HTML

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the report as a page: the nodes with what each became, where the time went, memory over the run, and what
        the host did. One file, which any browser shows; it has the times of a profile, where the report is one.

        Of very many nodes those are left out that took least.

        Args:
            path: The file.

        Raises:
            OSError: it cannot be written.
        """
        rows = self._rows()
        kinds = kind_table(rows)
        tiles = (element("div", element("b", value), element("span", what), class_="tile") for value, what in self._totals())
        figures = (memory_figure(self.steps), kinds and element("figure", element("h3", "Where the time went"), kinds))
        content = [
            element(
                "header",
                element("p", "dmlvk run report", class_="eyebrow"),
                element("h1", shortened(self._name)),
                facts(self._facts()),
            ),
            element("section", *tiles, class_="tiles", aria_label="In short"),
            element("section", *figures, class_="figures"),
            *self._further(),
            *_node_section(rows),
        ]
        text = page(f"{self._name} on {self.device}", "python -m dmlvk run --html", markup(content))
        pathlib.Path(path).write_text(text, encoding="utf-8")

    def _repr_html_(self) -> str:
        known = facts((*self._facts(), *((what, value) for value, what in self._totals())))
        further = (memory_figure(self.steps), first_nodes(self._rows()))
        return notebook(type(self).__name__, self._name, known, *self._further(), *further)

    @property
    def _name(self) -> str:
        """The name of what ran."""
        return "a run"

    def _facts(self) -> list[tuple[str, str]]:
        """What is said of the report in a line each."""
        return [("device", self.device)]

    def _totals(self) -> Iterable[tuple[str, str]]:
        """The numbers that matter most, each with what it counts."""
        if self.gpu_seconds is not None:
            yield f"{number(self.gpu_seconds * 1e3)} ms", "from the first kernel to the last"
        yield f"{self.dispatches:,}", "launches"
        yield size(self.weights_bytes), "weights on the device"
        yield size(self.activation_bytes), "memory of a run besides weights"
        yield size(self.peak_device_bytes), "in use on the device at most"
        yield f"{number(self.planning_seconds * 1e3)} ms", "to plan the run, once"

    def _rows(self) -> list[NodeRow]:
        """The nodes of the network."""
        return list(rows_of(self.steps).values())

    def _further(self) -> Iterable[Element]:
        """What a page has besides, before the nodes."""
        return ()

    def _require_times(self) -> None:
        if self.gpu_seconds is None:
            raise StateError(f"the report has no times: {self.made_by} makes one that has")


def _node_section(rows: list[NodeRow]) -> Iterable[Element]:
    """All nodes of a page."""
    if not rows:
        return
    yield element("h2", "The nodes")
    if len(rows) > MOST_ROWS:
        what = "that took longest" if any(row.seconds for row in rows) else "that come first"
        yield element("p", f"Of {len(rows):,} nodes these are the {MOST_ROWS:,} {what}.")
    search = element("input", type="search", data_filter=".nodes", autocomplete="off")
    label = element("label", "Filter the nodes ", search)
    yield element("p", label, " ", element("output"), class_="filter", hidden="")
    nodes = node_table(rows, MOST_ROWS, linked=True, class_="nodes sortable")
    yield element("div", nodes, class_="scroll", tabindex="0", role="region", aria_label="The nodes")
