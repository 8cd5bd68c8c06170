"""The arena planner: lifetimes that overlap never share bytes, and little is wasted."""

from __future__ import annotations

import cProfile
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dmlvk.graph.arena import ARENA_ALIGNMENT, Arena, Block, Lifetime, live_bytes, plan_arena
from dmlvk.graph.placement import Lifetimes, ReservedArena


def _check(blocks: Sequence[Block]) -> Arena:
    arena = plan_arena(blocks)
    placed = []
    for block, start in zip(blocks, arena.offsets, strict=True):
        assert start % ARENA_ALIGNMENT == 0
        placed += [(part, start + part.offset) for part in block]
    assert all(start + part.nbytes <= arena.nbytes for part, start in placed)
    for (one, start), (two, other) in itertools.combinations(placed, 2):
        if one.first <= two.last and two.first <= one.last:
            assert start + one.nbytes <= other or other + two.nbytes <= start
    return arena


def _alone(*lifetimes: Lifetime) -> list[Block]:
    """A block for each."""
    return [[lifetime] for lifetime in lifetimes]


def test_nothing() -> None:
    assert plan_arena([]) == Arena((), 0)


def test_a_chain_needs_two_tensors() -> None:
    assert _check(_alone(*(Lifetime(1024, step, step + 1) for step in range(20)))).nbytes == 2048


def test_a_residual_stays_while_the_branch_runs() -> None:
    chain = (Lifetime(2000, step, step + 1) for step in range(1, 5))
    assert _check(_alone(Lifetime(1000, 0, 5), *chain)).nbytes == 1024 + 2 * 2048


def test_empty_lifetimes_take_no_room() -> None:
    assert _check(_alone(Lifetime(0, 0, 9), Lifetime(256, 0, 9))).nbytes == 256


def test_what_is_in_use_at_each_step() -> None:
    """An input that is read at once, a tensor for the next step, one for the one after, and an output."""
    blocks = [[Lifetime(1, -1, 0)], [Lifetime(10, 0, 1), Lifetime(100, 0, 2)], [Lifetime(1000, 2, 3)]]
    assert live_bytes(blocks, 3) == (1, 111, 110, 1100, 1000)
    assert live_bytes([], 1) == (0, 0, 0)


def test_a_block_takes_no_more_than_its_parts_do_at_a_time() -> None:
    """A skip connection, joined at the end with what is computed meanwhile in twice its room."""
    half = 1024
    joined = [Lifetime(half, 0, 9), Lifetime(half, 8, 9, half)]
    meanwhile = _alone(*(Lifetime(half // 2, step, step + 1) for step in range(1, 7)))
    assert _check([joined, *meanwhile]).nbytes == 2 * half


def test_parts_of_a_block_move_together() -> None:
    """The first fits below the others, and the second then meets the third's."""
    blocks = [[Lifetime(4096, 2, 3)], [Lifetime(256, 0, 1), Lifetime(256, 2, 3, 256)], [Lifetime(1024, 0, 0)]]
    assert _check(blocks).nbytes == 4096 + 256


@pytest.mark.parametrize("seed", range(5))
def test_random_lifetimes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    blocks: list[Block] = []
    for _ in range(40):
        parts, offset = [], 0
        for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
            first = int(rng.integers(0, 50))
            nbytes = int(rng.integers(1, 30)) * ARENA_ALIGNMENT
            parts.append(Lifetime(nbytes, first, first + int(rng.integers(0, 8)), offset))
            offset += nbytes
        blocks.append(parts)
    arena = _check(blocks)
    lifetimes = [part for block in blocks for part in block]
    needed = max(sum(item.nbytes for item in lifetimes if item.first <= step <= item.last) for step in range(60))
    assert arena.nbytes <= 1.6 * needed


def _first_fit(blocks: Sequence[Block]) -> list[int]:
    """What the planner says it does, by comparing each with each; every block is one part of whole multiples."""
    lives = [block[0] for block in blocks]
    offsets: dict[int, int] = {}
    for index in sorted(range(len(lives)), key=lambda index: (-lives[index].nbytes, lives[index].first)):
        own, offset = lives[index], 0
        for other in sorted(offsets, key=offsets.__getitem__):
            life, start = lives[other], offsets[other]
            if own.first <= life.last and life.first <= own.last and offset + own.nbytes > start:
                offset = max(offset, start + life.nbytes)
        offsets[index] = offset
    return [offsets[index] for index in range(len(lives))]


@pytest.mark.parametrize("most", [1, 8, 100])
@pytest.mark.parametrize("sizes", [1, 5, 1000])
def test_each_block_lies_at_the_lowest_place(most: int, sizes: int) -> None:
    """Of lifetimes of at most so many steps, some of them from before the first, and of so many lengths."""
    rng = np.random.default_rng([most, sizes])
    firsts = rng.integers(-1, 100, 150).tolist()
    lasts = [first + int(rng.integers(0, most)) for first in firsts]
    lengths = (ARENA_ALIGNMENT * rng.integers(1, sizes + 1, 150)).tolist()
    blocks = _alone(*map(Lifetime, lengths, firsts, lasts))
    assert list(plan_arena(blocks).offsets) == _first_fit(blocks)


def _in_place_tree(count: int) -> list[Block]:
    """Tensors that are added in pairs, each sum over the first of its two: odd ones go early, others later and later."""
    ends = [count * 2 - count // (index & -index) if index else 2 * count for index in range(count)]
    return _alone(*(Lifetime(256, index, end) for index, end in enumerate(ends)))


@pytest.mark.parametrize(
    "make",
    [
        lambda count: _alone(*(Lifetime(1024, step, step + 1) for step in range(count))),
        lambda count: _alone(*(Lifetime(1024, step, 2 * count - step) for step in range(count))),
        lambda count: _alone(*(Lifetime(4 + 4 * (step * 7919 % 1009), step, count) for step in range(count))),
        lambda count: [[Lifetime(256, step, count, 256 * step) for step in range(count)]] * 2,
        _in_place_tree,
    ],
    ids=["chain", "skips", "outputs of many lengths", "two joins", "tree"],
)
def test_a_block_costs_about_the_same_among_more(make: Callable[[int], list[Block]]) -> None:
    """By calls, of Python and of C; a search through all others would make 4 times as many blocks 16 times as dear."""

    def calls(count: int) -> int:
        blocks = make(count)
        with cProfile.Profile() as profile:
            plan_arena(blocks)
        return sum(entry.callcount for entry in profile.getstats())  # type: ignore[attr-defined]

    assert calls(400) < 6.5 * calls(100)


def test_blocks_that_grow_together_are_seldom_placed_anew() -> None:
    """Each a little sooner or later than the others: four times as wide takes a few plans, not one for each block."""
    arena = ReservedArena(Lifetimes([], [], []), 40)
    plans = []
    for width in range(160, 640, 8):
        lengths = [256 * -(-width * (step + 3) // 50) for step in range(40)]
        plans.append(arena.fitted(lengths))
        assert all(length <= room for length, room in zip(lengths, arena.live_bytes[1:], strict=False))
    assert len({id(plan) for plan in plans}) == 4
