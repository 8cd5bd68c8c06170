"""``python -m dmlvk doctor``."""

from __future__ import annotations

import click

from dmlvk.cli.command import Command
from dmlvk.cli.output import Output
from dmlvk.cli.parameters import json_option


@click.command("doctor", cls=Command, examples=("", "--json"))
@json_option
def command(out: Output) -> int:
    """Say what keeps dmlvk from a device, and the command that mends it; try each device."""
    from dmlvk.doctor.command import diagnose
    from dmlvk.doctor.system import System

    diagnosis = diagnose(System(), out.say)
    out.write(diagnosis.as_json())
    return 0 if diagnosis.works else 1
