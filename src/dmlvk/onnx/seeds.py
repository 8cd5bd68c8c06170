"""Where random nodes without a seed of their own get one."""

from __future__ import annotations

import random
import secrets

_numbers: list[random.Random] = []


def set_seed(seed: int) -> None:
    """Has random nodes without a seed, as far as they are planned from now on, give the same numbers in every process."""
    _numbers[:] = [random.Random(seed)]


def drawn() -> int:
    """64 bits: the next ones after ``set_seed``, else some that nobody knows."""
    return _numbers[0].getrandbits(64) if _numbers else secrets.randbits(64)
