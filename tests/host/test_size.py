"""Sizes compute as ints do; the function of a trace gives what plain ints give, and refuses where a comparison would have
come out otherwise."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmlvk.spec.mould import Mould
from dmlvk.spec.size import Deferred, Size, SizeTrace, decided, derived, pinned, value_of
from dmlvk.spec.size_function import function_of, guards_of

NUMBERS = st.integers(-20, 40)

Program = list[tuple[Any, ...]]
"""Steps over a stack of numbers: (operation, position of the operands from the top, ...)."""

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": lambda a, b: a // b if b != 0 else 7,
    "%": lambda a, b: a % b if b != 0 else 5,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "min": min,
    "max": max,
    "<<": lambda a, b: a << b % 5,
    ">>": lambda a, b: a >> b % 5,
    "divmod": lambda a, b: sum(divmod(a, abs(b) + 1)),
    "ceil": lambda a, b: -(-a // (abs(b) + 1)),
    "real": lambda a, b: math.ceil((a * 0.75 + 1) / (abs(b) + 1)),
}
ONE: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "abs": abs,
    "invert": operator.invert,
    "bits": lambda a: a.bit_length(),
    "power": lambda a: 1 << (abs(a) % 9),
    "square": lambda a: a**2,
    "quad": lambda a: -(-a // 4),
    "rest": lambda a: a % 4,
}
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(ARITHMETIC)), st.integers(0, 6), st.integers(0, 6)),
        st.tuples(st.sampled_from(sorted(ONE)), st.integers(0, 6)),
        st.tuples(st.sampled_from(sorted(COMPARE)), st.integers(0, 6), st.integers(0, 6)),
        st.tuples(st.just("constant"), st.integers(-3, 9)),
        st.tuples(st.just("pin"), st.integers(0, 6)),
    ),
    max_size=14,
)


def run(program: Program, symbols: Sequence[int]) -> tuple[list[int], list[object]]:
    """What a program computes, and the outcomes of its comparisons."""
    stack: list[int] = list(symbols)
    outcomes: list[object] = []
    for name, *at in program:
        items = [stack[-1 - position % len(stack)] for position in at]
        if name in ARITHMETIC:
            stack.append(ARITHMETIC[name](*items))
        elif name in ONE:
            stack.append(ONE[name](*items))
        elif name in COMPARE:
            outcomes.append(COMPARE[name](*items))
        elif name == "constant":
            stack.append(at[0])
        else:
            outcomes.append(range(1000)[pinned(items[0]) % 1000] if -1000 < items[0] < 1000 else None)
    return stack, outcomes


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(STEPS, st.lists(NUMBERS, min_size=1, max_size=3), st.data())
def test_the_function_agrees_with_ints_or_refuses(program: Program, first: list[int], data: st.DataObject) -> None:
    trace = SizeTrace()
    stack, outcomes = run(program, [trace.symbol(f"n{i}", value) for i, value in enumerate(first)])
    function = function_of(trace, tuple(stack))
    assert ([value_of(item) for item in stack], outcomes) == run(program, first)
    assert function(*first) == tuple(run(program, first)[0]), "the numbers of the trace fit it"
    for _ in range(8):
        other = [data.draw(st.one_of(NUMBERS, st.just(value))) for value in first]
        result = function(*other)
        if result is not None:
            assert (list(result), outcomes) == run(program, other)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["+", "-", "*"]), st.integers(0, 6), st.integers(0, 6)), max_size=4),
    st.sampled_from(sorted(COMPARE)),
    st.tuples(NUMBERS, NUMBERS),
    st.tuples(NUMBERS, NUMBERS),
)
def test_a_guard_fails_exactly_where_its_comparison_changes(
    program: Program, relation: str, first: tuple[int, int], other: tuple[int, int]
) -> None:
    program = [*program, (relation, 0, 1)]
    trace = SizeTrace()
    stack, outcomes = run(program, [trace.symbol("a", first[0]), trace.symbol("b", first[1])])
    accepted = function_of(trace, tuple(stack))(*other) is not None
    assert accepted == (run(program, other)[1] == outcomes)


def of(*values: int) -> tuple[SizeTrace, list[Size]]:
    trace = SizeTrace()
    return trace, [trace.symbol(f"n{i}", value) for i, value in enumerate(values)]


def test_two_ways_to_ask_are_one_guard() -> None:
    trace, (a, b) = of(3, 8)
    assert a < b and b > a and a + 1 <= b and not b <= a and 2 * a < 2 * b and a != b
    assert guards_of(trace) == ["(s0 - s1) <= -1"]


def test_what_cannot_be_otherwise_is_no_guard() -> None:
    trace, (a, b) = of(6, 4)
    assert a >= 1 and b >= 1
    guards = guards_of(trace)
    assert a * b * 4 == 4 * (b * a) and a * b % b == 0 and (8 * a + 4) % 4 == 0 and a + b > 1 and a * b // b == a
    assert -(-a // 4) == (a + 3) // 4 and a % 4 < 4 and a // 3 >= 0 and a - a == 0
    assert guards_of(trace) == guards == ["1 <= s0", "1 <= s1"]


def test_a_guard_that_follows_from_a_later_one_goes() -> None:
    trace, (a,) = of(70)
    assert a > 2 and a > 16 and a < 1000 and a != 900 and a < 100
    assert guards_of(trace) == ["17 <= s0 <= 99"]


def test_a_derived_number_is_pinned_and_not_the_size() -> None:
    trace, (columns,) = of(50)
    assert columns >= 1
    power = 1 << (columns - 1).bit_length()
    assert [0] * power == [0] * 64
    function = function_of(trace, (columns * 4, power))
    assert [function(n) is not None for n in (32, 33, 64, 65)] == [False, True, True, False]
    assert function(40) == (160, 64)


@pytest.mark.parametrize("use", [range, hash, float, int, bool, operator.index, lambda n: struct.pack("I", n)])
def test_what_needs_an_int_pins(use: Callable[[Any], object]) -> None:
    trace, (n,) = of(12)
    assert use(n) == use(12)
    function = function_of(trace, (n,))
    assert function(12) == (12,)
    assert (function(13) is None) == (use is not bool)


def test_a_lookup_among_plain_ints_is_guarded() -> None:
    """Whether a number is in a set is decided by hashes alone where they differ."""
    trace, (n,) = of(12)
    assert n not in {1, 2, 4}
    assert function_of(trace, (n,))(4) is None


def test_sizes_are_integers_but_no_ints() -> None:
    import numbers

    trace, (n,) = of(5)
    assert isinstance(n, numbers.Integral) and not isinstance(n, int)
    assert f"{n} {n:>3} {n!r} {(n,)}" == "5   5 5 (5,)"
    assert guards_of(trace) == []


def test_a_pinned_size_counts_as_a_plain_int() -> None:
    _, (n,) = of(5)
    assert n == 5
    assert type(n + 1) is int and type(n * 8) is int


def test_floating_point_is_computed_as_written_and_guarded() -> None:
    def time(count: int) -> float:
        return 0.3 + -(-count // 7) * 1.1 / 0.7

    trace, (n,) = of(20)
    assert time(n) < 5.1
    function = function_of(trace, (n,))
    assert [function(i) is not None for i in range(1, 60)] == [time(i) < 5.1 for i in range(1, 60)]


def test_outputs_are_tuples_and_calls() -> None:
    trace, (n,) = of(5)
    plain = object()
    function = function_of(trace, ((n, 3), plain, Deferred(struct.Struct("<2I").pack, (n * 2, 7)), None))
    assert function(8) == ((8, 3), plain, struct.pack("<2I", 16, 7), None)


def test_a_decision_is_made_again() -> None:
    def spread(step: int, sizes: tuple[int, ...]) -> int:
        return len({step * index % 7 for size in sizes for index in range(size)})

    trace, (n,) = of(3)
    assert decided(spread, 2, (n, 2)) == decided(spread, 2, (3, 2)) == 3
    function = function_of(trace, (n,))
    assert [function(i) is not None for i in range(1, 9)] == [spread(2, (i, 2)) == 3 for i in range(1, 9)]


def shared(total: int, pair: tuple[int, float]) -> tuple[int, float]:
    """Arithmetic of plain numbers alone."""
    return math.gcd(total, pair[0]), float(Fraction(total, pair[0])) + pair[1]


def test_what_a_function_gives_is_computed_anew() -> None:
    trace, (n, m) = of(12, 18)
    whole, real = derived(shared, n * 2, (m, m / 4))
    function = function_of(trace, (whole * n, real / 2))
    for a, b in ((12, 18), (7, 5), (30, 45)):
        expected = shared(2 * a, (b, b / 4))
        assert function(a, b) == (expected[0] * a, expected[1] / 2), guards_of(trace)


def test_what_a_function_gives_is_cast_with_other_symbols() -> None:
    _, (n, m) = of(12, 18)
    mould = Mould((n, m, *derived(shared, n * 2, (m, m / 4))))
    assert mould.symbols == (n, m)
    other = SizeTrace()
    assert function_of(other, mould.cast(other, (7, 5)))(30, 45) == (30, 45, *shared(60, (45, 11.25)))


def test_a_long_chain_of_sums_compiles() -> None:
    trace, (n,) = of(5)
    total = 0
    for _ in range(5000):
        total = total + n // 3 if total % 2 == 0 else total * 2 + n // 3
        if total > 1 << 40:
            total = total % 1000
    assert function_of(trace, (total,))(5) == (value_of(total),)


def test_zero_is_not_divided_by() -> None:
    trace, (a, b) = of(9, 3)
    with pytest.raises(ZeroDivisionError):
        a // (b - 3)
    trace, (a, b) = of(9, 2)
    assert a // (b - 3) == -9 and function_of(trace, (a,))(9, 3) is None


def test_a_value_is_cast_with_the_symbols_of_another_trace() -> None:
    def value(trace: SizeTrace, number: int) -> tuple[Any, ...]:
        n = trace.symbol("n", number)
        half = (n + 1) // 2
        return (half, (half * 6, (half + 1) // 2 * half), half / 3, "text", 7)

    outer, inner = SizeTrace(), SizeTrace()
    mould = Mould(value(outer, 20))
    assert list(map(value_of, mould.symbols)) == [10], "the quotient is a symbol, and what is computed of it stays computed"
    made = mould.cast(inner, [16])
    assert function_of(inner, made)(16) == (16, (96, 128), 16 / 3, "text", 7) and function_of(inner, made)(3)[1] == (18, 6)
    assert Mould(made).key == mould.key == Mould(value(SizeTrace(), 33)).key != Mould(made[:4]).key
