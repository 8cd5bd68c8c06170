"""What a table of more and more devices is made of."""

from __future__ import annotations

import pytest
from scale_devices import Call, calls_of, rate


def test_only_the_time_in_which_all_devices_have_work_counts() -> None:
    calls = [
        *(Call("a", 0, 10, 8), Call("a", 10, 12, 8), Call("a", 13, 15, 8), Call("a", 16, 18, 8)),
        *(Call("b", 2, 11, 8), Call("b", 11, 15, 8), Call("b", 15, 17, 4)),
    ]
    found = rate(reversed(calls))
    assert found.devices == 2 and found.seconds == 6, "from 11, when b has begun, to 17, when b has ended"
    assert found.rows_a_second == pytest.approx((4 + 8 + 4 + 8 + 4) / 6)
    assert found.use == {"a": pytest.approx(4 / 6), "b": pytest.approx(1)}


def test_calls_that_say_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="more rows"):
        rate([Call("a", 0, 1, 8), Call("a", 1, 2, 8), Call("b", 3, 4, 8)])


def test_rows_know_their_calls() -> None:
    rows = [{"id": number, "device": "a", "start": number // 4, "end": number // 4 + 1} for number in range(6)]
    assert calls_of(rows) == [Call("a", 0, 1, 4), Call("a", 1, 2, 2)]
