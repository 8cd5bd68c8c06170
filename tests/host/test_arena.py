"""The arena planner: lifetimes that overlap never share bytes, and little is wasted."""

from __future__ import annotations

import cProfile
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dmlvk.graph.arena import ARENA_ALIGNMENT, Arena, Block, Lifetime, Stacking, live_bytes, plan_arena
from dmlvk.graph.placement import Lifetimes, StackedArena
from dmlvk.graph.step import Storage


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


Lives = list[tuple[int, int]]


def _lives(rng: np.random.Generator, count: int, steps: int) -> Lives:
    """Lifetimes of one step, of a few, and of many, some of them of inputs and outputs."""
    firsts = rng.integers(-1, steps, count).tolist()
    return [(first, min(first + int(rng.choice([0, 1, 1, 2, 5, steps])), steps)) for first in firsts]


def _check_disjoint(lives: Lives, lengths: Sequence[int], arena: Arena) -> None:
    """By comparing each block with each."""
    placed = [
        (life, start, start + nbytes) for life, nbytes, start in zip(lives, lengths, arena.offsets, strict=True) if nbytes
    ]
    assert all(start % ARENA_ALIGNMENT == 0 and end <= arena.nbytes for _, start, end in placed)
    for ((first, last), start, end), ((since, until), place, stop) in itertools.combinations(placed, 2):
        if first <= until and since <= last:
            assert end <= place or stop <= start


@pytest.mark.parametrize("seed", range(8))
def test_stacked_blocks_of_any_lengths_never_meet(seed: int) -> None:
    """Lengths that grow, shrink, vanish and come from nothing beside those that the blocks are planned for."""
    rng = np.random.default_rng(seed)
    lives = _lives(rng, 60, 30)

    def drawn() -> list[int]:
        return [int(rng.integers(0, 5000)) * int(rng.choice([0, 1, 1, 1, 7])) for _ in lives]

    planned = drawn()
    stacking = Stacking(lives, planned)
    arena = stacking.arena(planned)
    _check_disjoint(lives, planned, arena)
    assert (
        arena.nbytes <= plan_arena([[Lifetime(nbytes, *life)] for nbytes, life in zip(planned, lives, strict=True)]).nbytes
    )
    for _ in range(10):
        lengths = drawn()
        _check_disjoint(lives, lengths, stacking.arena(lengths))


def test_a_stacked_block_costs_about_the_same_among_more() -> None:
    def edges(count: int) -> int:
        lives = [(step, 2 * count - step) for step in range(count)] + [(step, step + 1) for step in range(count)]
        return sum(map(len, Stacking(lives, [1024] * len(lives))._below))

    assert edges(400) < 4.5 * edges(100)


def _stacked(lives: Lives, steps: int) -> StackedArena:
    """An arena without scratch for storages of these lifetimes."""
    lifetimes = Lifetimes([], [], [])
    storages = [Storage(4) for _ in lives]
    lifetimes.first = {item: first for item, (first, _) in zip(storages, lives, strict=True)}
    lifetimes.last = {item: last for item, (_, last) in zip(storages, lives, strict=True)}
    lifetimes.members = {item: [item] for item in storages}
    return StackedArena(lifetimes, steps)


@pytest.mark.parametrize("seed", range(3))
def test_blocks_that_grow_together_are_planned_once(seed: int) -> None:
    """Four times as wide, each a little sooner or later than the others: as small an arena as a plan of its own gives."""
    rng = np.random.default_rng(seed)
    lives = _lives(rng, 40, 40)
    stacked = _stacked(lives, 40)
    scratch = [0] * 40
    for width in range(160, 640, 8):
        lengths = [256 * -(-width * (block + 3) // 50) for block in range(40)]
        arena, live = stacked.fitted(lengths + scratch)
        _check_disjoint(lives, lengths, Arena(arena.offsets[:40], arena.nbytes))
        blocks = [[Lifetime(nbytes, *life)] for nbytes, life in zip(lengths, lives, strict=True)]
        assert tuple(live) == live_bytes(blocks, 40)
        assert max(live) <= arena.nbytes <= 1.1 * plan_arena(blocks).nbytes
    assert stacked.plans == 1


def test_sizes_that_a_stack_does_not_suit_are_planned_anew_ever_more_seldom() -> None:
    """Sets of lengths that have nothing to do with each other, in turn: one or two of them waste what suits the others."""
    rng = np.random.default_rng(0)
    lives = [(step, step + int(rng.integers(1, 4))) for step in range(24)]
    stacked = _stacked(lives, 28)
    sets = [(2**14 * rng.choice([1, 4, 16, 64], 24)).tolist() for _ in range(5)]
    plans, wasteful = [0], 0
    for turn in range(40):
        lengths = sets[turn % 5]
        arena, live = stacked.fitted([*lengths, *[0] * 28])
        _check_disjoint(lives, lengths, Arena(arena.offsets[:24], arena.nbytes))
        if stacked.plans > plans[-1]:
            own = plan_arena([[Lifetime(nbytes, *life)] for nbytes, life in zip(lengths, lives, strict=True)])
            assert arena.nbytes <= own.nbytes
        wasteful += 4 * arena.nbytes > 5 * max(live) + 2**16
        plans.append(stacked.plans)
    assert wasteful > 16 and plans[-1] == 6, (
        "one plan at first, and one for the 1st, 2nd, 4th, 8th and 16th that wastes room"
    )


@pytest.mark.parametrize(("middle", "plans"), [(512, 1), (256, 2)])
def test_a_plan_is_kept_while_it_wastes_no_more_than_a_quarter_and_16_kib(middle: int, plans: int) -> None:
    """Three blocks, each used together with the next, that a fourth has put on top of each other. Without the fourth, the
    first and the third could share a place."""
    stacked = _stacked([(0, 1), (1, 2), (2, 3), (3, 4)], 5)
    scratch = [0] * 5
    first, _ = stacked.fitted([2560, 2304, 2048, 2560, *scratch])
    assert first.offsets[:4] == (0, 2560, 2560 + 2304, 0)
    arena, live = stacked.fitted([22016, middle, 22016, 0, *scratch])
    assert max(live) == 22016 + middle and stacked.plans == plans
    assert arena.nbytes == (2 * 22016 + middle if plans == 1 else 22016 + middle)
