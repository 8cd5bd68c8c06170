"""Log messages: what takes time, and what has no effect. None is seen until the caller sets up Python's logging."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


@functools.cache
def logger(part: str) -> logging.Logger:
    """The logger ``dmlvk.PART``. It is made when there is something to say: importing the package changes no logger."""
    import logging

    logging.getLogger("dmlvk").addHandler(logging.NullHandler())
    return logging.getLogger(f"dmlvk.{part}")
