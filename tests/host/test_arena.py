"""The arena planner: lifetimes that overlap never share bytes, and little is wasted."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dmlvk.graph.memory import ARENA_ALIGNMENT, Arena, Lifetime, plan_arena


def _check(lifetimes: list[Lifetime]) -> Arena:
    arena = plan_arena(lifetimes)
    placed = list(zip(lifetimes, arena.offsets, strict=True))
    for lifetime, offset in placed:
        assert offset % ARENA_ALIGNMENT == 0
        assert offset + lifetime.nbytes <= arena.nbytes
    for (one, start), (two, other) in itertools.combinations(placed, 2):
        if one.first <= two.last and two.first <= one.last:
            assert start + one.nbytes <= other or other + two.nbytes <= start
    return arena


def test_nothing() -> None:
    assert plan_arena([]) == Arena((), 0)


def test_a_chain_needs_two_tensors() -> None:
    assert _check([Lifetime(1024, step, step + 1) for step in range(20)]).nbytes == 2048


def test_a_residual_stays_while_the_branch_runs() -> None:
    chain = [Lifetime(1000, 0, 5), *(Lifetime(2000, step, step + 1) for step in range(1, 5))]
    assert _check(chain).nbytes == 1024 + 2 * 2048


def test_empty_lifetimes_take_no_room() -> None:
    assert _check([Lifetime(0, 0, 9), Lifetime(256, 0, 9)]).nbytes == 256


@pytest.mark.parametrize("seed", range(5))
def test_random_lifetimes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lifetimes = []
    for _ in range(60):
        first = int(rng.integers(0, 50))
        lifetimes.append(Lifetime(int(rng.integers(1, 40)) * ARENA_ALIGNMENT, first, first + int(rng.integers(0, 8))))
    arena = _check(lifetimes)
    needed = max(sum(item.nbytes for item in lifetimes if item.first <= step <= item.last) for step in range(60))
    assert arena.nbytes <= 1.5 * needed
