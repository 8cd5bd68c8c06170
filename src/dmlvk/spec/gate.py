"""The gates of products: what half of the columns go through before they are multiplied with the other half."""

from __future__ import annotations

import enum


class Gate(enum.IntEnum):
    """What the first half of a product's columns goes through before it is multiplied with the other half."""

    NONE = 0
    """Nothing is multiplied: all columns are the output's."""
    SILU = 1
    """z * sigmoid(z)."""
    GELU = 2
    """z * sigmoid(2 a), by GELU's tanh: a = sqrt(2 / pi) * (z + 0.044715 z^3)."""
