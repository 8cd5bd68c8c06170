"""How long the benchmark looks: a warm-up ends when the clocks have settled, and not before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dmlvk_bench.timing import QUICK, REPEATS, SINGLE, THOROUGH, Pace, repeats, settled_samples, spread

pytestmark = pytest.mark.quick


class Gpu:
    """A clock, and work that takes as long as the device's clocks let it."""

    def __init__(self, seconds_at: Callable[[float], float]) -> None:
        self.now, self.runs, self._seconds_at = 100.0, 0, seconds_at

    def clock(self) -> float:
        return self.now

    def run(self) -> float:
        seconds = self._seconds_at(self.now - 100)
        self.now += seconds
        self.runs += 1
        return seconds

    def samples(self, pace: Pace) -> list[float]:
        return settled_samples(self.run, float, pace, self.clock)


def test_what_runs_while_clocks_rise_does_not_count() -> None:
    rising = Gpu(lambda now: 0.005 * max(1.0, 5 - 10 * now))  # five times as slow at first, at full speed after 0.4 s
    found = rising.samples(THOROUGH)
    assert found == [0.005] * len(found)
    assert 0.4 < rising.now - 100 < 1


def test_clocks_that_are_high_already_cost_the_least_warm_up() -> None:
    steady = Gpu(lambda _: 0.01)
    found = steady.samples(THOROUGH)
    assert len(found) >= THOROUGH.samples
    assert THOROUGH.warm_up <= steady.now - 100 - sum(found) < THOROUGH.warm_up + 2 * THOROUGH.window


def test_a_warm_up_ends_though_nothing_settles() -> None:
    slowing = Gpu(lambda now: 0.001 * (1 + 10 * now))
    found = slowing.samples(SINGLE)
    assert len(found) >= SINGLE.samples
    assert slowing.now - 100 - sum(found) < SINGLE.longest + 0.2


@pytest.mark.parametrize(("seconds", "most"), [(0.001, 9), (2.0, 4), (10.0, 4)])
def test_what_takes_long_runs_a_few_times_only(seconds: float, most: int) -> None:
    steady = Gpu(lambda _: seconds)
    assert len(steady.samples(QUICK)) == 3
    assert steady.runs == 3
    steady = Gpu(lambda _: seconds)
    assert 3 <= len(steady.samples(THOROUGH)) <= max(most, THOROUGH.seconds / seconds + 1)


def test_spread_is_between_the_quartiles() -> None:
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 3)
    assert spread([1.0, 1.0, 1.0, 1.0, 50.0]) == 0


def test_as_many_executions_in_a_submission_as_its_time_holds() -> None:
    assert repeats(1e-7, THOROUGH) == repeats(0.0, THOROUGH) == REPEATS
    assert repeats(THOROUGH.submission / 5.5, THOROUGH) == 5
    assert repeats(3.0, THOROUGH) == repeats(3.0, SINGLE) == repeats(1e-7, SINGLE) == 1
