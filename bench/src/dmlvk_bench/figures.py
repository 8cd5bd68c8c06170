"""The figures of a benchmark's page."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean, median
from typing import TYPE_CHECKING, Final

from dmlvk.html import palette
from dmlvk.html.words import number
from dmlvk.verify.html.figure import axes, paint, svg
from dmlvk_bench.results import ProblemRow, Results, best_rival

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOFS: Final = {
    "float32_tflop_per_s": "float32",
    "float16_tflop_per_s": "float16",
    "int8_top_per_s": "int8",
    "matrix_float16_tflop_per_s": "matrix f16",
    "matrix_int8_top_per_s": "matrix i8",
}
"""The ceilings of arithmetic, in words."""

_SUITES: Final = {"ops": "o", "matmul": "s", "conv": "^"}
_BESIDE: Final = (
    ("PyTorch eager", "PyTorch eager", 0.55),
    ("CUDA graph", "PyTorch graph", 1.0),
    ("ONNX Runtime WebGPU", "WebGPU", 1.0),
)
"""Whom the networks are shown beside: in words, what their names in results begin with, and how strong the colour is."""
_HEAD, _LINE = 0.8, 0.21
"""Inches of a figure with a line a family: around the lines, and of each."""
_SMALL: Final = 8


def roofline(results: Results, *, alone: bool = False) -> str:
    """Operations a byte against operations a second, of the problems that count them, below the machine's ceilings; "" where
    there is none; ``alone``: see ``svg``.
    """
    rows = [row for row in results.problems if row.operations and row.bytes_moved and row.us]
    if not rows:
        return ""
    intensity = {row.problem: row.operations / row.bytes_moved for row in rows}
    ends = min(*intensity.values(), 1.0) / 2, max(*intensity.values(), 100.0) * 3
    peaks = {name: peak for name in ROOFS if (peak := getattr(results.ceilings, name))}
    copy = results.ceilings.copy_gb_per_s * 1e-3
    highest = max([*peaks.values(), *(row.tflop_per_s for row in rows)])
    with axes(3.8) as (figure, plot):
        plot.set(xscale="log", yscale="log", xlim=ends, xlabel="operations a byte that has to move", ylabel="TFLOP/s")
        plot.grid(True, which="major")
        for axis in (plot.xaxis, plot.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:,g}")
        if copy:
            knee = min(highest / copy, ends[1])
            words = f"copy, {number(results.ceilings.copy_gb_per_s)} GB/s"
            plot.plot([ends[0], knee], [ends[0] * copy, knee * copy], color=paint("muted"), linewidth=1.4, label=words)
        lowest = 0.0
        for name, peak in sorted(peaks.items(), key=lambda item: item[1]):
            plot.plot([peak / copy if copy else ends[0], ends[1]], [peak, peak], color=paint("muted"), linewidth=0.9)
            lowest = max(peak, lowest * 1.5)  # a label stands above the one before, where two ceilings are near each other
            plot.annotate(
                f"{ROOFS[name]}: {number(peak)}",
                (1, lowest),
                xycoords=("axes fraction", "data"),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=_SMALL,
                color=paint("muted"),
            )
        tips = {}
        for suite, shape in _SUITES.items():
            members = [row for row in rows if row.suite == suite]
            if not members:
                continue
            missed = [results.missed(row) for row in members]
            plot.scatter(
                [intensity[row.problem] for row in members],
                [row.tflop_per_s for row in members],
                s=22,
                marker=shape,
                color=paint(suite),
                edgecolors=[paint("miss" if red else "paper") for red in missed],
                linewidths=[1.2 if red else 0.4 for red in missed],
                label=f"{suite} ({len(members)})",
                gid=suite,
                zorder=3,
            )
            tips[suite] = [f"{row.problem}: {number(row.tflop_per_s)} TFLOP/s" for row in members]
        plot.set_ylim(top=highest * 2)
        figure.legend(loc="outside upper left", ncols=4, handletextpad=0.3, columnspacing=1.0, handlelength=1.2)
        return svg(figure, "roofline", f"Roofline: {len(rows)} problems below the machine's ceilings", tips, alone=alone)


def copy_shares(results: Results, *, alone: bool = False) -> str:
    """The share of the copy bandwidth that each problem reaches which bytes bound, a line a family, the lowest median first;
    "" where there is none.
    """
    rows = [row for row in results.problems if row.limit == "copy_gb_per_s" and row.us and results.ceilings.copy_gb_per_s]
    if not rows:
        return ""
    families = _by_family(rows)
    order = sorted(families, key=lambda family: median(map(results.copy_share, families[family])))
    with axes(_HEAD + _LINE * len(order)) as (figure, plot):
        marks: dict[bool, list[tuple[float, float, str]]] = {False: [], True: []}
        for line, family in enumerate(order):
            members = families[family]
            plot.plot(
                [median(map(results.copy_share, members))] * 2, [line - 0.36, line + 0.36], color=paint("ink"), linewidth=1.6
            )
            for index, row in enumerate(members):
                share = results.copy_share(row)
                # Spread over the line's height in a fixed order, so that neighbours are seen.
                off = ((index * 0.618) % 1 - 0.5) * 0.56 if len(members) > 1 else 0.0
                goal = f", meant to be {row.copy_target:.2f}" if row.copy_target else ""
                marks[share < row.copy_target].append((share, line + off, f"{row.problem}: {share:.2f}{goal}"))
        for missed, points in marks.items():
            if points:
                plot.scatter(
                    [x for x, _, _ in points],
                    [y for _, y, _ in points],
                    s=20 if missed else 12,
                    marker="X" if missed else "o",
                    color=paint("miss" if missed else "ours"),
                    alpha=None if missed else 0.75,
                    edgecolors=paint("paper"),
                    linewidths=0.4,
                    label=f"below its target ({len(points)})" if missed else f"problem ({len(points)})",
                    gid="below" if missed else "others",
                    zorder=3,
                )
        plot.axvline(1, color=paint("muted"), linewidth=1)
        plot.set_xlim(0, max(1.05, *(x * 1.03 for points in marks.values() for x, _, _ in points)))
        plot.set_xlabel("share of the copy bandwidth")
        _lines(plot, order)
        figure.legend(loc="outside upper left", ncols=2, handletextpad=0.2)
        tips = {"below" if missed else "others": [tip for *_, tip in points] for missed, points in marks.items() if points}
        return svg(figure, "copy", f"Share of the copy bandwidth of {len(rows)} problems, by family", tips, alone=alone)


def ratios(results: Results, rival: str, *, alone: bool = False) -> str:
    """A rival's time to ours: of each family the geometric mean, the least and the largest, the lowest mean first; "" where
    it ran none of the problems.
    """
    rows = [row for row in results.problems if row.agrees and rival in row.rivals and row.rivals[rival].agrees]
    if not rows:
        return ""
    families = _by_family(rows)
    means = {family: geometric_mean(row.rivals[rival].ratio for row in members) for family, members in families.items()}
    order = sorted(families, key=means.__getitem__)
    title = palette.TITLES.get(rival, rival)
    with axes(_HEAD + _LINE * len(order)) as (figure, plot):
        tips: dict[str, list[str]] = {}
        for behind in (False, True):
            lines = [line for line, family in enumerate(order) if (means[family] < 1) == behind]
            if not lines:
                continue
            spans = [sorted((row.rivals[rival].ratio, row.problem) for row in families[order[line]]) for line in lines]
            colour = paint("miss" if behind else palette.colour_of(rival))
            lows, highs = [span[0][0] for span in spans], [span[-1][0] for span in spans]
            plot.hlines(lines, lows, highs, color=colour, linewidth=2)
            plot.hlines(
                lines, [min(low, 1) for low in lows], [min(high, 1) for high in highs], color=paint("miss"), linewidth=2
            )
            gid = "behind" if behind else "ahead"
            plot.scatter(
                [means[order[line]] for line in lines],
                lines,
                s=34 if behind else 26,
                marker="X" if behind else "o",
                color=colour,
                edgecolors=paint("paper"),
                linewidths=0.6,
                label=f"slower than {title} on average" if behind else "family, least to largest",
                gid=gid,
                zorder=3,
            )
            tips[gid] = [
                f"{order[line]}: {means[order[line]]:.2f} on average; {low:.2f} {slowest}; {high:.2f} {fastest}"
                for line, ((low, slowest), *_, (high, fastest)) in zip(lines, ([*s, *s] for s in spans), strict=True)
            ]
        plot.axvline(1, color=paint("ink"), linewidth=1)
        plot.set_xscale("log")
        low, high = plot.get_xlim()
        plot.set_xlim(min(low, 0.5), max(high, 2))
        plot.set_xlabel(f"{title}'s time to ours; right of 1 we are faster")
        _ratio_ticks(plot)
        _lines(plot, order)
        right = plot.secondary_yaxis("right")
        right.set_yticks(range(len(order)), [f"{means[family]:.2f} ({len(families[family])})" for family in order])
        right.tick_params(length=0)
        right.spines["right"].set_visible(False)
        figure.legend(loc="outside upper left", ncols=2, handletextpad=0.2)
        return svg(
            figure, f"ratio-{palette.colour_of(rival)}", f"{title}'s time to ours, by family of operators", tips, alone=alone
        )


def networks(results: Results, *, alone: bool = False) -> str:
    """Each network's time beside each rival, as a multiple of ours; "" where no network was timed beside one."""
    rows = [row for row in results.models if row["target_ms"] is not None and "ms" in row]
    bars = [("dmlvk", "ours", 1.0, [1.0] * len(rows))]
    for name, begins, alpha in _BESIDE:
        found = [best["ms"] / row["ms"] if (best := best_rival(row, begins)) else 0.0 for row in rows]
        bars.append((name, palette.colour_of(begins), alpha, found))
    if not any(any(times) for *_, times in bars[1:]):
        return ""
    thick = 0.9 / len(bars)
    with axes(_HEAD + 0.14 * len(bars) * len(rows)) as (figure, plot):
        for place, (name, colour, alpha, times) in enumerate(bars):
            lines = [line + (place - (len(bars) - 1) / 2) * thick for line in range(len(rows))]
            plot.barh(lines, times, thick * 0.85, color=paint(colour), alpha=alpha, label=name, zorder=2)
            for line, ratio in zip(lines, times, strict=True):
                if ratio and place:
                    weight = "bold" if ratio < 1 else "normal"
                    plot.text(ratio + 0.06, line, f"{ratio:.2f}", va="center", fontsize=_SMALL, fontweight=weight)
        plot.axvline(1, color=paint("ink"), linewidth=1)
        plot.set_xlim(0, 1.12 * max(max(times) for *_, times in bars))
        plot.set_xlabel("time, ours = 1; bold: faster than ours")
        _lines(plot, [row["model"].replace(" ", "\n", 1) for row in rows])
        figure.legend(loc="outside upper left", ncols=2, handlelength=1.0, handletextpad=0.4)
        return svg(figure, "networks", f"Times of {len(rows)} networks beside ours, by rival", alone=alone)


def _by_family(rows: Sequence[ProblemRow]) -> dict[str, list[ProblemRow]]:
    found: dict[str, list[ProblemRow]] = {}
    for row in rows:
        found.setdefault(row.family, []).append(row)
    return found


def _lines(plot: Axes, names: Sequence[str]) -> None:
    """A line for each name, the first at the top."""
    plot.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    plot.set_ylim(len(names) - 0.4, -0.6)
    plot.tick_params(axis="y", length=0)
    plot.grid(True, axis="both")


def _ratio_ticks(plot: Axes) -> None:
    """Numbers that read well on a logarithmic axis of ratios, as many as there is room for."""
    low, high = plot.get_xlim()
    wide = high / low > 60
    steps = [factor * 10.0**power for power in range(-4, 5) for factor in ((1, 3) if wide else (1, 2, 5))]
    shown = [step for step in steps if low <= step <= high]
    plot.set_xticks(shown, [f"{step:g}" for step in shown])
    plot.minorticks_off()
