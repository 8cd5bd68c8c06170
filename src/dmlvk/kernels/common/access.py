"""The ways in which the lanes of an invocation reach a tensor."""

from __future__ import annotations

import enum


class Access(enum.IntEnum):
    """The way in which an invocation reaches its lanes of a tensor; MODE_* of ``glsl/include/lanes.glsl``."""

    ELEMENTS = 0
    GROUPS = 1
    BROADCAST = 2
