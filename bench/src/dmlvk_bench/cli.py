"""The arguments of ``python -m dmlvk bench``.

``python -m dmlvk_bench`` is the same command, for sources that are not installed.

Exit status: 0 for success; 1 when a measured result was wrong or something got slower; 2 for what the caller can mend, with
the reason on standard error; 130 for a run that Ctrl-C ended.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Sequence

from dmlvk.cli import exit_status, shows, takes_device
from dmlvk_bench import command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The entry point of dmlvk's group ``dmlvk.commands``: the arguments of the command, and of its own three."""
    parser.set_defaults(function=_run, action="run")
    shows(
        parser, "bench --quick", "bench --suite matmul --json r.json --html r.html", "bench compare before.json after.json"
    )
    takes_device(parser)
    text = f"{', '.join(command.SUITES)}, with commas between; default all, of --headline those of its targets"
    parser.add_argument("--suite", default="", metavar="NAMES", help=text)
    parser.add_argument(
        "--only", default="", metavar="WORD", help="only the problems of this family, or with this in their name"
    )
    text = "torch, onnxruntime, ncnn, with commas between, or all; what is not installed is named, and the run goes on"
    parser.add_argument("--against", default="", metavar="NAMES", help=text)
    parser.add_argument("--quick", action="store_true", help="small problems and short times, to see that everything works")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="keep the results here")
    parser.add_argument("--html", type=pathlib.Path, metavar="FILE", help="write a page of them")
    parser.add_argument("--commit", default="", help="what was built, for the results; default: this checkout's HEAD")
    text = "where ONNX files are, at any depth, for the suites models and shapes"
    parser.add_argument("--folder", type=pathlib.Path, help=text)
    text = "only what the project's performance targets are about, and at the end their table; on a GPU"
    parser.add_argument("--headline", action="store_true", help=text)
    text = "instead of all that, time every rule that could run a problem, and say where the chosen one is slower"
    parser.add_argument("--sweep", action="store_true", help=text)
    actions = parser.add_subparsers(metavar="compare | zoo | report")
    text = "say what moved between two files of results"
    sub = actions.add_parser("compare", help=text, description=text)
    sub.set_defaults(action="compare_files")
    sub.add_argument("before", type=pathlib.Path)
    sub.add_argument("after", type=pathlib.Path)
    text = "export architectures of torchvision and transformers, run the files, and say which are right and how fast"
    sub = actions.add_parser("zoo", help=text, description=text)
    sub.set_defaults(action="zoo")
    sub.add_argument("--folder", type=pathlib.Path, required=True, help="where the exported files are, or will be")
    sub.add_argument("--only", default="", metavar="NAME", help="one architecture, or one kind of them")
    sub.add_argument("--stages", default="export,check", metavar="NAMES", help="export, check, time, with commas between")
    sub.add_argument("--jobs", type=int, default=2, help="how many files at once")
    text = "write the page of a file of results"
    sub = actions.add_parser("report", help=text, description=text)
    sub.set_defaults(action="report")
    sub.add_argument("results", type=pathlib.Path)
    sub.add_argument("--card", type=pathlib.Path, help="what verify --json wrote, for the same page")
    sub.add_argument("--html", type=pathlib.Path, required=True, metavar="FILE")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    text = "Measures a device's limits, launches, operators and models, beside other implementations."
    parser = argparse.ArgumentParser(prog="python -m dmlvk_bench", description=text)
    add_arguments(parser)
    options = parser.parse_args(arguments)
    return exit_status(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    return int(getattr(command, options.action)(options))
