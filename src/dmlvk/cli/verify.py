"""``python -m dmlvk verify``."""

from __future__ import annotations

import pathlib

import click

from dmlvk.cli.command import Command, option
from dmlvk.cli.output import INTERRUPTED, STANDARD_OUTPUT, Output
from dmlvk.cli.parameters import NewFile, device_option, json_option, operator_names
from dmlvk.spec.enums import OperatorType
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.schema import class_name


@click.command("verify", cls=Command, examples=("", "Gemm Convolution", "--json card.json --html card.html"))
@click.argument("operators", nargs=-1, metavar="[OPERATOR]...", shell_complete=operator_names)
@option("--quick", is_flag=True, excludes=("--full", "--only"), help="Only the quick cases.")
@option(
    "--full",
    is_flag=True,
    excludes=("--only",),
    help="Every case in every layout under every rule; default: every case, and every layout and rule of every type once.",
)
@option(
    "--only",
    default="",
    metavar="TEXT",
    help="Of the full selection the runs that have this in their description, such as 'FLOAT16, strided'.",
)
@option("--html", type=NewFile(), metavar="FILE", help="Write the card as a page.")
@option("--commit", default="", help="What was built, for the card; default: this checkout's HEAD.")
@device_option
@json_option
def command(
    operators: tuple[str, ...],
    quick: bool,
    full: bool,
    only: str,
    html: pathlib.Path | None,
    commit: str,
    device: str | None,
    out: Output,
) -> int:
    """Run the operators' cases on the device against the oracle, and print an accuracy card.

    OPERATOR is a class name, such as Gemm; default: all. Ctrl-C ends it with the card of what was run.
    """
    from dmlvk.directml.device import Device
    from dmlvk.verify.command import HEAD, summary, table, verify
    from dmlvk.verify.runs import Selection

    if out.file is not None and str(out.file) in {class_name(operator) for operator in OperatorType}:
        rule = f"must be a file; write the operator before --json, or after --json {STANDARD_OUTPUT}"
        raise InvalidArgumentError(rule, field="--json", value=str(out.file))
    if html is not None:
        from dmlvk.verify.page import page  # before minutes have passed: what it needs may not be installed
    selection = Selection.QUICK if quick else Selection.FULL if full or only else Selection.DEFAULT
    card = verify(Device(device), operators, selection, only=only, commit=commit)
    machine = card.machine
    reduced = f", reduced to {machine.mask}" * bool(machine.mask)
    out.say(f"device {machine.device}, driver {machine.driver}, uuid {machine.uuid}{reduced}")
    out.table(table(card), HEAD)
    out.say(*summary(card))
    if out.file is not None:
        card.write(out.file)  # a line for each entry
    else:
        out.write(card.as_json())
    if html is not None:
        html.write_text(page(card), encoding="utf-8")
    return INTERRUPTED if card.interrupted else 0 if card.passed else 1
