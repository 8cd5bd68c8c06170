"""Options and arguments that several commands have, with the words that a shell offers for them."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from dmlvk.cli.command import option
from dmlvk.cli.output import STANDARD_OUTPUT, Output
from dmlvk.spec.errors import DmlvkError
from dmlvk.spec.schema import REGISTRY


class NewFile(click.Path):
    """A file to write. It is refused before anything is computed if its folder does not exist."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=pathlib.Path)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """The path.

        Raises:
            click.BadParameter: there cannot be such a file.
        """
        path = pathlib.Path(os.fsdecode(super().convert(value, parameter, context)))
        if not path.absolute().parent.is_dir():
            self.fail(f"must be a file in a folder that exists; got {str(path)!r}", parameter, context)
        return path


def operator_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The class names of operators that begin so, for a shell."""
    rows = (row for row in REGISTRY.values() if row.__name__.startswith(incomplete))
    return [CompletionItem(row.__name__, help=row.dml_name) for row in sorted(rows, key=lambda row: row.__name__)]


def devices_here(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The devices whose number begins so, or whose name has this in it, for a shell."""
    from dmlvk.runtime.device import devices

    try:
        found = devices()
    except DmlvkError:
        return []
    matching = (info for info in found if str(info.index).startswith(incomplete) or incomplete.lower() in info.name.lower())
    return [CompletionItem(str(info.index), help=info.name) for info in matching]


def _named_size(text: str) -> tuple[str, int]:
    name, _, size = text.rpartition("=")
    if not name or not size.isdecimal() or int(size) < 1:
        raise click.BadParameter(f"must be NAME=SIZE, the size at least 1; got {text!r}")
    return name, int(size)


def _output(place: Any) -> Output:
    if isinstance(place, Output):  # a default, or what a command above was given
        return place
    return Output(place if place == STANDARD_OUTPUT else str(NewFile().convert(place, None, None)))


def _files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


json_option: Final = option(
    "--json",
    "out",
    type=_output,
    shell_complete=_files,
    is_flag=False,
    flag_value=STANDARD_OUTPUT,
    default=Output(None),
    metavar="[FILE]",
    help="Write JSON to a file, or with - or nothing to standard output instead of text.",
)
device_option: Final = option(
    "--device",
    shell_complete=devices_here,
    help="Index, UUID or part of the name; default: DMLVK_DEVICE, else the best.",
)


def size_option(**attributes: Any) -> Callable[[Any], Any]:
    """``--size``, which takes a dictionary's item each time."""
    return option(
        "--size",
        "sizes",
        type=_named_size,
        multiple=True,
        metavar="NAME=SIZE",
        help="A model's symbolic dimension; INPUT.AXIS is the name of one without; default: 1. May be repeated.",
        **attributes,
    )


def names_option(
    flag: str, choices: Sequence[str], *, everything: str | None = None, **attributes: Any
) -> Callable[[Any], Any]:
    """An option that takes some of a set of names, with commas between, and gives a tuple of them.

    Args:
        flag: The option.
        choices: The set.
        everything: A word that stands for the whole set; None for no such word.
    """

    def convert(value: Any) -> tuple[str, ...]:
        if isinstance(value, tuple):  # a default, or what a command above was given
            return value
        names = tuple(dict.fromkeys(name for name in value.split(",") if name))
        if everything in names:
            return tuple(choices)
        for name in names:
            if name not in choices:
                raise click.BadParameter(f"must be one or more of {', '.join(choices)}, with commas between; got {name!r}")
        return names

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, begun = incomplete.rpartition(",")
        names = set(before.split(","))
        return [CompletionItem(before + comma + name) for name in choices if name.startswith(begun) and name not in names]

    return option(flag, type=convert, shell_complete=complete, metavar="NAMES", **{"default": (), **attributes})
