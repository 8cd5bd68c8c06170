"""Where a command's results go."""

from __future__ import annotations

import contextlib
import json
import math
import pathlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TextIO

INTERRUPTED: Final = 130
"""Exit status after Ctrl-C."""
STANDARD_OUTPUT: Final = "-"
"""The name of the file that is standard output."""


class Output:
    """Text for people on standard output, and JSON: instead of it, or in a file as well.

    Args:
        place: The value of ``--json``: a file, ``STANDARD_OUTPUT``, or None for no JSON.

    Attributes:
        file: The file for JSON, if there is to be one.
        has_text: Whether standard output is for people.
    """

    def __init__(self, place: str | None) -> None:
        self.has_text = place != STANDARD_OUTPUT
        self.file = pathlib.Path(place) if place is not None and self.has_text else None
        self._for_json: TextIO | None = None

    def say(self, *lines: object) -> None:
        """Prints lines for people, at once."""
        if self.has_text:
            for line in lines:
                print(line, flush=True)

    def table(self, rows: Iterable[Sequence[object]], head: Sequence[str]) -> None:
        """Prints a table for people."""
        lines = [list(head), *([str(cell) for cell in row] for row in rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        for line in lines:
            self.say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())

    def write(self, value: object) -> None:
        """Writes JSON, where it was asked for; NaN and infinity, which JSON lacks, become null."""
        if self.has_text and self.file is None:
            return
        text = json.dumps(_standard(value), indent=1, allow_nan=False)
        if self.file is None:
            print(text, file=self._for_json)
        else:
            self.file.write_text(f"{text}\n", encoding="utf-8")

    @contextlib.contextmanager
    def text_beside_json(self) -> Iterator[None]:
        """Inside, what is printed goes to standard error where standard output is for JSON: for commands that tell of each
        result as it comes, for minutes."""
        self._for_json = sys.stdout
        with contextlib.nullcontext() if self.has_text else contextlib.redirect_stdout(sys.stderr):
            yield


def _standard(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _standard(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_standard(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
