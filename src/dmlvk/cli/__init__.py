"""``python -m dmlvk``: devices, doctor, ops, explain, verify, run, dispatch, chat, serve
and completion. Each prints text, or JSON
with ``--json``.

Another distribution adds a command by an entry point of the group ``dmlvk.commands``: its name is the command's, and its
object is a ``click.Command``. It is imported when its command is asked for.

Exit status: 0 for success; 1 when a verification failed or the doctor found no device that works; 2 for what the caller can
mend (unknown words, an unknown device or operator, a bad desc, an unsupported model, a file that cannot be read), with the
reason on standard error; 130 after Ctrl-C, with what was done until then.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

import dmlvk
from dmlvk.cli.command import Group
from dmlvk.cli.completion import VARIABLE
from dmlvk.cli.output import INTERRUPTED
from dmlvk.spec.errors import DmlvkError, MissingPackageError

COMMANDS: Final = "dmlvk.commands"
"""The group of the entry points that add commands."""
OWN: Final = ("devices", "doctor", "ops", "explain", "verify", "run", "dispatch", "chat", "serve", "completion")
"""Each is a module of this package with a ``command``."""


class Commands(Group):
    """All commands, each of which is imported when it is needed."""

    def list_commands(self, context: click.Context) -> list[str]:
        """dmlvk's own, in the order of the help, and those that are installed beside it."""
        return [*OWN, *_added()]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command of that name, if there is one."""
        if name in OWN:
            found: click.Command = importlib.import_module(f"dmlvk.cli.{name}").command
            return found
        entry = _added().get(name)
        return None if entry is None else entry.load()

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        """The command that the words begin with.

        Raises:
            MissingPackageError: there is none.
        """
        if not context.resilient_parsing and not args[0].startswith("-") and args[0] not in self.list_commands(context):
            there = ", ".join(self.list_commands(context))
            raise MissingPackageError(
                f"there is no command {args[0]!r}, only {there}; a distribution adds bench: pip install dmlvk-bench"
            )
        return super().resolve_command(context, args)

    def summary(self, context: click.Context, name: str) -> str:
        """What the help says of a command; of another distribution's its own summary, for which nothing is imported."""
        if name in OWN:
            return super().summary(context, name)
        distribution = _added()[name].dist
        return "" if distribution is None else distribution.metadata["Summary"]


def _added() -> dict[str, importlib.metadata.EntryPoint]:
    return {entry.name: entry for entry in importlib.metadata.entry_points(group=COMMANDS)}


@click.group(cls=Commands, examples=("doctor", "run model.onnx", "run --help"))
@click.version_option(dmlvk.__version__, prog_name="dmlvk", message="%(prog)s %(version)s")
def program() -> None:
    """DirectML's operators on every Vulkan GPU."""


def main(arguments: Sequence[str] | None = None, name: str = "dmlvk") -> int:
    """Runs one command; returns the exit status.

    Args:
        arguments: The words behind the program's name; those of this process where not given.
        name: The program's name in its help.
    """
    return execute(program, arguments, name)


def execute(command: click.Command, arguments: Sequence[str] | None, name: str) -> int:
    """Runs a command; returns its exit status. What the caller can mend is said on standard error, and the status is 2."""
    try:
        if instruction := os.environ.get(VARIABLE):
            from click.shell_completion import shell_complete

            return shell_complete(command, {}, name, VARIABLE, instruction)
        words = sys.argv[1:] if arguments is None else list(arguments)
        with command.make_context(name, words) as context:
            status = command.invoke(context)
        sys.stdout.flush()
        return int(status)
    except click.exceptions.Exit as end:  # --help and --version
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        print("dmlvk: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader, such as `head`, has what it wanted; what is left goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (DmlvkError, OSError) as error:
        print(f"dmlvk: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
