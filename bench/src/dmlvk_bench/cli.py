"""The arguments of ``python -m dmlvk bench``.

``python -m dmlvk_bench`` is the same command, for sources that are not installed.

Exit status: 0 for success; 1 when a measured result was wrong or something got slower; 2 for what the caller can mend, with
the reason on standard error; 130 for a run that Ctrl-C ended.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from dmlvk.cli import execute
from dmlvk.cli.command import Command, Group, option
from dmlvk.cli.output import Output
from dmlvk.cli.parameters import NewFile, device_option, json_option, names_option
from dmlvk_bench.names import BESIDE, EXPORTERS, RIVALS, STAGES, SUITES

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=pathlib.Path)


def _commit(*needs: str) -> Callable[[Any], Any]:
    """``--commit``, which goes into what these options write."""
    text = "What was built, for the results; default: this checkout's HEAD."
    return option("--commit", default="", needs=needs, help=text)


@click.group(
    "bench",
    cls=Group,
    invoke_without_command=True,
    examples=("--quick", "--suite matmul --json r.json --html r.html", "compare before.json after.json"),
)
@names_option("--suite", SUITES, help=f"Of {', '.join(SUITES)}, with commas between; default: all but llm.")
@option("--only", default="", metavar="WORD", help="Only the problems of this family, or with this in their name.")
@names_option(
    "--against",
    RIVALS,
    everything="all",
    excludes=("--sweep",),
    help=f"Of {', '.join(RIVALS)}, with commas between, or all; what is not installed is named, and the run goes on.",
)
@option("--quick", is_flag=True, help="Small problems and short times, to see that everything works.")
@option(
    "--headline",
    is_flag=True,
    excludes=("--quick",),
    help="Only what the project's performance targets are about, and at the end their table; on a GPU.",
)
@option(
    "--sweep",
    is_flag=True,
    help="Instead of all that, time every rule that could run a problem, and say where the chosen one is slower.",
)
@option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=pathlib.Path),
    excludes=("--sweep",),
    help="Where ONNX files are, at any depth, for the suites models and shapes.",
)
@option(
    "--llama-server",
    type=click.Path(exists=True, file_okay=False, path_type=pathlib.Path),
    excludes=("--sweep",),
    help="Where llama.cpp's llama-server is, to be measured beside the suite llm.",
)
@option("--html", type=NewFile(), metavar="FILE", excludes=("--sweep",), help="Write a page of the results.")
@_commit("--json", "--html")
@device_option
@json_option
@click.pass_context
def bench(context: click.Context, /, out: Output, **options: Any) -> int:
    """Measure a device's limits, launches, operators and models, beside other implementations.

    Ctrl-C ends it with what was measured.
    """
    if context.invoked_subcommand is not None:
        return 0
    from dmlvk_bench import command

    with out.text_beside_json():
        return command.run(command.Options(out, **options))


@bench.command(cls=Command, examples=("before.json after.json",))
@click.argument("before", type=_FILE)
@click.argument("after", type=_FILE)
@json_option
def compare(before: pathlib.Path, after: pathlib.Path, out: Output) -> int:
    """Say what moved between two files of results."""
    import dataclasses

    from dmlvk_bench.compare import compare as compared
    from dmlvk_bench.results import read

    comparison = compared(read(before), read(after))
    out.say(*comparison.lines())
    out.write({"good": comparison.good, **dataclasses.asdict(comparison)})
    return int(not comparison.good)


@bench.command(cls=Command, examples=("--folder exported --only resnet50 --stages export,check",))
@option(
    "--folder",
    type=click.Path(file_okay=False, path_type=pathlib.Path),
    required=True,
    help="Where the exported files are, or will be.",
)
@option("--only", default="", metavar="NAME", help="One architecture, or one kind of them.")
@names_option("--stages", STAGES, default=STAGES[:2], help=f"Of {', '.join(STAGES)}, with commas between.")
@names_option("--exporters", EXPORTERS, default=EXPORTERS, help=f"Of {', '.join(EXPORTERS)}, with a comma between.")
@names_option("--rivals", BESIDE, default=BESIDE, help=f"What is timed beside us, of {', '.join(BESIDE)}; '' for nothing.")
@option("--jobs", type=click.IntRange(min=1), default=2, help="How many files at once; each is timed alone.")
@option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=math.inf,
    show_default=False,
    help="End after so long with what there is; a later command goes on.",
)
@option("--missing", is_flag=True, help="Check and time only what the folder has no result of.")
@option("--lean", is_flag=True, help="Delete a right file when another exporter's will be timed in its place.")
@_commit("--json")
@device_option
@json_option
def zoo(out: Output, **options: Any) -> int:
    """Export architectures of torchvision and transformers, run the files, and say which are right and how fast."""
    from dmlvk_bench.zoo import command

    with out.text_beside_json():
        return command.run(command.Options(out, **options))


@bench.command(cls=Command, examples=("r.json --html r.html",))
@click.argument("results", type=_FILE)
@option("--card", type=_FILE, metavar="FILE", help="What verify --json wrote, for the same page.")
@option("--html", type=NewFile(), required=True, metavar="FILE")
def report(results: pathlib.Path, card: pathlib.Path | None, html: pathlib.Path) -> int:
    """Write the page of a file of results, and of an accuracy card beside it."""
    from dmlvk.verify.card import read as read_card
    from dmlvk_bench.page import page
    from dmlvk_bench.results import read

    html.write_text(page(read(results), None if card is None else read_card(card)), encoding="utf-8")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    return execute(bench, arguments, "python -m dmlvk_bench")
