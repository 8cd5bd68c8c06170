"""The rules of chains of pointwise operators: those of single ones, without tiles."""

from __future__ import annotations

from dmlvk.kernels.elementwise.rules import ELEMENTWISE

CHAIN = tuple(rule for rule in ELEMENTWISE if rule.name != "tiles")
"""The pass that makes chains leaves alone what tiles would move."""
