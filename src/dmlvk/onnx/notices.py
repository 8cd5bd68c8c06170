"""What a caller may want to know: lines of the logger ``dmlvk.onnx``, which is silent until logging is set up."""

from __future__ import annotations

import functools
import logging

_told: set[str] = set()


@functools.cache
def _logger() -> logging.Logger:
    """The logger, made when there is something to say: importing the package changes nothing in the process."""
    logger = logging.getLogger("dmlvk.onnx")
    logger.addHandler(logging.NullHandler())
    return logger


def tell_once(line: str) -> None:
    """Logs a line the first time that it is true in this process."""
    if line not in _told:
        _told.add(line)
        _logger().info(line)
