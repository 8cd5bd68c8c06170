"""``python -m dmlvk completion``."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from dmlvk.cli.command import Command

VARIABLE: Final = "_DMLVK_COMPLETE"
"""The environment variable by which a shell asks for completions."""


@click.command("completion", cls=Command, examples=("bash", "fish"))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, /, shell: str) -> int:
    """Print what makes a shell complete the program's words: commands, options, operators, devices and files.

    \b
    For one session:    source <(dmlvk completion bash), in fish: dmlvk completion fish | source
    For all of them:    dmlvk completion bash > ~/.local/share/bash-completion/completions/dmlvk
                        dmlvk completion zsh > ~/.zfunc/_dmlvk, with fpath+=~/.zfunc before compinit
                        dmlvk completion fish > ~/.config/fish/completions/dmlvk.fish
    """
    completion = get_completion_class(shell)
    assert completion is not None, "click has the three shells"
    print(completion(context.find_root().command, {}, "dmlvk", VARIABLE).source())
    return 0
