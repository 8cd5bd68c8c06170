"""Random graphs, as ``fuzz/graphs.py`` makes them. The seeds are fixed."""

from __future__ import annotations

import pytest
from fuzz.graphs import SIZES, compare

import dmlvk


@pytest.mark.parametrize(
    ("seed", "sizes"),
    [
        *((seed, "some") for seed in range(80)),
        *((seed, "few") for seed in range(20)),
        *(pytest.param(seed, "few", marks=pytest.mark.full) for seed in range(20, 400)),
    ],
)
def test_random_graph(device: dmlvk.Device, seed: int, sizes: str) -> None:
    compare(seed, SIZES[sizes], device)
