"""What a caller may want to know: lines of the logger ``dmlvk.onnx``, which is silent until logging is set up."""

from __future__ import annotations

import logging
from typing import Final

LOG: Final = logging.getLogger("dmlvk.onnx")
LOG.addHandler(logging.NullHandler())
_told: set[str] = set()


def tell_once(line: str) -> None:
    """Logs a line the first time that it is true in this process."""
    if line not in _told:
        _told.add(line)
        LOG.info(line)
