"""KeyboardInterrupt at a chosen place of Python's code: Ctrl-C without luck."""

from __future__ import annotations

import dis
import functools
import sys
from types import CodeType, FrameType
from typing import Any

from scenarios import Scenario


class Steps:
    """Counts the places at which Python looks for signals, and raises KeyboardInterrupt at one of them.

    Args:
        at: The place, from 1; 0 for none.

    Attributes:
        seen: Places so far.
        place: Where it was raised, the innermost functions first; "" while it was not.
    """

    def __init__(self, at: int) -> None:
        self._at = at
        self.seen = 0
        self.place = ""

    def run(self, scenario: Scenario) -> BaseException | None:
        """Does the scenario's work and returns what was raised."""
        try:
            sys.settrace(self._trace)
            scenario.work()
        except BaseException as error:
            return error
        finally:
            sys.settrace(None)
        return None

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            self._look(frame)
        elif event == "opcode" and frame.f_lasti in _looks(frame.f_code):
            self._look(frame)
        return self._trace

    def _look(self, frame: FrameType) -> None:
        self.seen += 1
        if self.seen == self._at:
            self.place = " < ".join(_callers(frame))
            raise KeyboardInterrupt


@functools.cache
def _looks(code: CodeType) -> frozenset[int]:
    """Where code looks for signals, but for its start: after a call, and where it jumps back to."""
    found = set()
    called = False
    for instruction in dis.get_instructions(code):
        if called:
            found.add(instruction.offset)
        called = instruction.opname.startswith("CALL")
        if instruction.opname.startswith("JUMP_BACKWARD"):
            found.add(instruction.argval)
    return frozenset(found)


def _callers(frame: FrameType | None, most: int = 5) -> list[str]:
    found: list[str] = []
    while frame is not None and len(found) < most:
        found.append(f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return found
