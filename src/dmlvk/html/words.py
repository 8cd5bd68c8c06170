"""Numbers as text."""

from __future__ import annotations


def number(value: float) -> str:
    """A figure with three digits that count, and thousands as 1,234."""
    if value == 0 or value != value or value in (float("inf"), float("-inf")):
        return f"{value:g}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = 2 if abs(value) < 10 else 1
    return f"{value:.{digits}f}" if abs(value) >= 0.1 else f"{value:.2g}"


def size(nbytes: int) -> str:
    """Bytes as "1.5 MiB"."""
    if nbytes < 1024:
        return f"{nbytes} B"
    unit, name = next((unit, name) for unit, name in _UNITS if nbytes < 1024 * unit or name == "GiB")
    return f"{nbytes / unit:,.1f} {name}"


_UNITS = ((2**10, "KiB"), (2**20, "MiB"), (2**30, "GiB"))
