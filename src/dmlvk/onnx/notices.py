"""What a caller may want to know: lines of the logger ``dmlvk.onnx``, which is silent until logging is set up."""

from __future__ import annotations

from dmlvk.onnx.names import standing_of
from dmlvk.spec.log import logger

_told: set[str] = set()


def tell_once(line: str) -> None:
    """Logs a line the first time that it is true in this process."""
    if line not in _told:
        _told.add(line)
        logger("onnx").info(line)


def tell_without_effect(owner: str, name: str, *which: str) -> None:
    """Logs once that a name of ONNX Runtime's does nothing here, and why.

    Args:
        owner, name: The name, as the table has it.
        which: What it was used for, such as keys.
    """
    used = f" ({', '.join(sorted(which))})" if which else ""
    tell_once(f"{owner}{'.' * bool(owner)}{name}{used} has no effect: {standing_of(owner, name).note}")
