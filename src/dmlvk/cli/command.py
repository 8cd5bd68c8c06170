"""What every command is made with: examples in its help, ``--verbose``, and options that refuse to be given for nothing."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click
from click.core import ParameterSource

_GIVEN: Final = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class Option(click.Option):
    """An option that knows what it goes with.

    Args:
        needs: Options of which one has to be given too: without them this one would do nothing.
        excludes: Options that this one cannot be given with.
    """

    def __init__(self, *arguments: Any, needs: Sequence[str] = (), excludes: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.needs, self.excludes = tuple(needs), tuple(excludes)

    @property
    def long(self) -> str:
        """Its name as it is written."""
        return max(self.opts, key=len)


option = functools.partial(click.option, cls=Option)


def given(context: click.Context) -> list[Option]:
    """A command's options that were given, by the caller or by the command above it."""
    return [
        item
        for item in context.command.params
        if isinstance(item, Option) and item.name and context.get_parameter_source(item.name) in _GIVEN
    ]


class Command(click.Command):
    """A command.

    Args:
        examples: The words behind the command's own name of each; "" for none.
        log_flags: The flags that show log messages.
    """

    def __init__(
        self,
        *arguments: Any,
        examples: Sequence[str] = (),
        log_flags: Sequence[str] = ("-v", "--verbose"),
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **{"context_settings": _SETTINGS, **attributes})
        self.examples = tuple(examples)
        text = "Tell on standard error what is done; twice: more of it."
        self.params.append(Option(list(log_flags), count=True, expose_value=False, callback=_start_logging, help=text))

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Refuses what would have no effect as well."""
        rest = super().parse_args(context, args)
        if not context.resilient_parsing:
            _check(given(context), context)
        return rest

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{context.command_path} {example}".rstrip() + "\n")


class Group(Command, click.Group):
    """A command with commands below it. What is given to it is given to them where they have an option of that name, and is
    refused where they have none."""

    def summary(self, context: click.Context, name: str) -> str:
        """What the help says of a command below."""
        command = self.get_command(context, name)
        return "" if command is None else command.get_short_help_str(limit=200)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes a line for each command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.summary(context, name)) for name in self.list_commands(context)])

    def invoke(self, context: click.Context) -> Any:
        """Hands the options that were given on, as values that the command below may be given others for."""
        shared = {item.name: context.params[item.name] for item in given(context) if item.name in context.params}
        context.default_map = dict.fromkeys(self.commands, shared)
        return super().invoke(context)

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        """Refuses what the command below knows nothing of."""
        name, command, rest = super().resolve_command(context, args)
        if command is not None and not context.resilient_parsing:
            known = {item.name for item in command.params}
            for item in given(context):
                if item.expose_value and item.name not in known:
                    raise click.UsageError(f"{item.long} has no effect on {name}.", context)
        return name, command, rest


def _check(options: Iterable[Option], context: click.Context) -> None:
    """Refuses options that have no effect, or that contradict each other."""
    names = {name for item in options for name in item.opts}
    for item in options:
        for other in item.excludes:
            if other in names:
                raise click.UsageError(f"{item.long} cannot be used with {other}.", context)
        if item.needs and names.isdisjoint(item.needs):
            raise click.UsageError(f"{item.long} has no effect without {' or '.join(item.needs)}.", context)


def _start_logging(context: click.Context, parameter: click.Parameter, times: int) -> None:
    """Shows dmlvk's log messages, which say nothing until somebody asks for them."""
    if not times or context.resilient_parsing:
        return
    above_a_bar = "\r\x1b[K" if sys.stderr.isatty() else ""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"{above_a_bar}%(relativeCreated)7.0f ms  %(name)s: %(message)s"))
    logger = logging.getLogger("dmlvk")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG if times > 1 else logging.INFO)
