"""The words of a SPIR-V module."""

from __future__ import annotations

import array
import sys
from typing import Final

HEADER_WORDS: Final = 5
"""Words before the first instruction."""


def words_of(module: bytes) -> array.array[int]:
    """The words of a module; of b"" none, to be added to."""
    words = array.array("I", module)
    assert sys.byteorder == "little" and words.itemsize == 4, "modules are in the order of all machines that have Vulkan"
    return words
