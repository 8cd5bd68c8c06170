"""Sizes that record what is computed of them.

A ``SizeTrace`` hands out symbols: a ``Size`` behaves as the whole number that it is in this trace, and records its
arithmetic. A comparison returns a plain bool and becomes a guard: the result of the trace holds for other numbers as long
as every guard answers as it did. ``size_function.py`` writes guards and results as one straight Python function of plain
ints.

Where only a plain int will do (an index, ``range``, ``struct``, the key of a dictionary) a Size is pinned: the guard is that
its expression keeps its value. So nothing is ever lost; what pins less can be filled more often.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    _Whole = int
    _Real = float
else:
    _Whole = _Real = object

Bound = int | float
"""A whole number, or an infinity."""
_Terms = dict[tuple[int, ...], int]
"""A polynomial: by product of atoms (their positions in the trace, sorted), its factor."""
_Key = tuple[tuple[tuple[int, ...], int], ...]
"""A polynomial that can be a key of a dictionary: its products, each with its factor."""

_UNSUPPORTED: Final[int] = NotImplemented
_INFINITY: Final = math.inf
_ANY: Final = (-_INFINITY, _INFINITY)
COMPUTED: Final[dict[str, Callable[..., Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "neg": operator.neg,
    "abs": abs,
    "float": float,
    "bit_length": lambda value: value.bit_length(),
    "ceil": math.ceil,
    "floor": math.floor,
    "trunc": math.trunc,
    "round": round,
}
"""The function of each operation of an expression; one whose name is an operator is written as such."""
CALL: Final = "call"
"""The operation of a number that a function gives: what follows is the function, its arguments and which of its results."""


class Size(_Whole):
    """A whole number that records what is computed of it. To a type checker it is an int: code that computes with sizes
    needs no annotations of its own. It is none to ``isinstance``, but a ``numbers.Integral``."""

    __slots__ = ("made", "normal", "terms", "trace", "value")

    trace: SizeTrace
    terms: _Terms
    value: int
    """Its value in this trace."""
    made: tuple[Any, ...]
    """The operation that first made it, and what of; empty where the terms say it."""
    normal: tuple[Form, int, int] | None
    """(form, factor, constant): it is factor * form + constant; None while nobody has asked."""

    def __new__(cls, trace: SizeTrace, terms: _Terms, value: int, made: tuple[Any, ...]) -> Size:
        self = object.__new__(cls)
        self.trace, self.terms, self.value, self.made, self.normal = trace, terms, value, made, None
        return self

    def __add__(self, other: int) -> int:
        return self.trace.sum(self, other, 1, "+")

    def __radd__(self, other: int) -> int:
        return self.trace.sum(other, self, 1, "+")

    def __sub__(self, other: int) -> int:
        return self.trace.sum(self, other, -1, "-")

    def __rsub__(self, other: int) -> int:
        return self.trace.sum(other, self, -1, "-")

    def __mul__(self, other: int) -> int:
        return self.trace.product(self, other)

    def __rmul__(self, other: int) -> int:
        return self.trace.product(other, self)

    def __floordiv__(self, other: int) -> int:
        return self.trace.quotient(self, other)

    def __rfloordiv__(self, other: int) -> int:
        return self.trace.quotient(other, self)

    def __mod__(self, other: int) -> int:
        return self.trace.remainder(self, other)

    def __rmod__(self, other: int) -> int:
        return self.trace.remainder(other, self)

    def __divmod__(self, other: int) -> tuple[int, int]:
        return self // other, self % other

    def __rdivmod__(self, other: int) -> tuple[int, int]:
        return other // self, other % self

    def __truediv__(self, other: float) -> float:
        return self.trace.real("/", self, other)

    def __rtruediv__(self, other: float) -> float:
        return self.trace.real("/", other, self)

    def __pow__(self, exponent: int) -> int:  # type: ignore[override]
        exponent = pinned(exponent)
        return math.prod((self,) * exponent) if exponent >= 0 else int(self) ** exponent

    def __rpow__(self, base: int) -> int:  # type: ignore[override, misc]
        return 1 << self if base == 2 else base ** pinned(self)

    def __lshift__(self, other: int) -> int:
        return self * (1 << other)

    def __rlshift__(self, other: int) -> int:
        return other * self.trace.power(self)

    def __rshift__(self, other: int) -> int:
        return self // (1 << other)

    def __rrshift__(self, other: int) -> int:
        return other // (1 << self)

    def __and__(self, other: int) -> int:
        return self.trace.bits("&", self, other)

    def __or__(self, other: int) -> int:
        return self.trace.bits("|", self, other)

    def __xor__(self, other: int) -> int:
        return self.trace.bits("^", self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __neg__(self) -> int:
        return self * -1

    def __pos__(self) -> int:
        return self

    def __invert__(self) -> int:
        return self * -1 - 1

    def __abs__(self) -> int:
        return -self if self < 0 else self

    def bit_length(self) -> int:
        """Bits of the number without its sign."""
        return self.trace.bit_length(self)

    def __lt__(self, other: float) -> bool:
        return self.trace.is_less(self, other)

    def __le__(self, other: float) -> bool:
        return not self.trace.is_less(other, self)

    def __gt__(self, other: float) -> bool:
        return self.trace.is_less(other, self)

    def __ge__(self, other: float) -> bool:
        return not self.trace.is_less(self, other)

    def __eq__(self, other: object) -> bool:
        return self.trace.is_equal(self, other) if isinstance(other, numbers.Real) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self.trace.is_equal(self, other) if isinstance(other, numbers.Real) else NotImplemented

    def __bool__(self) -> bool:
        return not self.trace.is_equal(self, 0)

    def __int__(self) -> int:
        assert self.trace.is_equal(self, self.value), "a size has its value"
        return self.value

    __index__ = __int__

    @property
    def numerator(self) -> int:
        """The number over 1, as ``int`` has it: the number itself."""
        return self

    @property
    def denominator(self) -> Literal[1]:
        """The denominator, as ``int`` has it: 1."""
        return 1

    def __hash__(self) -> int:
        """The plain int's. Pins, because a set or a dictionary compares no more where hashes differ."""
        return hash(int(self))

    def __float__(self) -> float:
        return float(int(self))

    def __floor__(self) -> int:
        return self

    __ceil__ = __trunc__ = __floor__

    def __round__(self, digits: int = 0) -> int:  # type: ignore[override]
        return self if digits >= 0 else round(int(self), digits)

    def __repr__(self) -> str:
        return repr(self.value)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)


numbers.Integral.register(Size)


class RealSize(_Real):
    """A floating-point number that is computed of sizes, in the order in which it was written. To a type checker a float."""

    __slots__ = ("made", "trace", "value")

    trace: SizeTrace
    value: float
    made: tuple[Any, ...]

    def __new__(cls, trace: SizeTrace, value: float, made: tuple[Any, ...]) -> RealSize:
        self = object.__new__(cls)
        self.trace, self.value, self.made = trace, value, made
        return self

    def __add__(self, other: float) -> float:
        return self.trace.real("+", self, other)

    def __radd__(self, other: float) -> float:
        return self.trace.real("+", other, self)

    def __sub__(self, other: float) -> float:
        return self.trace.real("-", self, other)

    def __rsub__(self, other: float) -> float:
        return self.trace.real("-", other, self)

    def __mul__(self, other: float) -> float:
        return self.trace.real("*", self, other)

    def __rmul__(self, other: float) -> float:
        return self.trace.real("*", other, self)

    def __truediv__(self, other: float) -> float:
        return self.trace.real("/", self, other)

    def __rtruediv__(self, other: float) -> float:
        return self.trace.real("/", other, self)

    def __neg__(self) -> float:
        return self.trace.real("neg", self)

    def __pos__(self) -> float:
        return self

    def __abs__(self) -> float:
        return self.trace.real("abs", self)

    def __lt__(self, other: float) -> bool:
        return self.trace.holds("<", self, other)

    def __le__(self, other: float) -> bool:
        return self.trace.holds("<=", self, other)

    def __gt__(self, other: float) -> bool:
        return self.trace.holds("<", other, self)

    def __ge__(self, other: float) -> bool:
        return self.trace.holds("<=", other, self)

    def __eq__(self, other: object) -> bool:
        return self.trace.holds("==", self, other) if isinstance(other, numbers.Real) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self.trace.holds("==", self, other) if isinstance(other, numbers.Real) else NotImplemented

    def __bool__(self) -> bool:
        return not self.trace.holds("==", self, 0.0)

    def __float__(self) -> float:
        assert math.isnan(self.value) or self.trace.holds("==", self, self.value), "a number has its value"
        return self.value

    def __hash__(self) -> int:
        return hash(float(self))

    def __int__(self) -> int:
        return int(self.trace.rounded("trunc", self))

    def __trunc__(self) -> int:
        return self.trace.rounded("trunc", self)

    def __ceil__(self) -> int:
        return self.trace.rounded("ceil", self)

    def __floor__(self) -> int:
        return self.trace.rounded("floor", self)

    def __round__(self, digits: None = None) -> int:  # type: ignore[override]
        return self.trace.rounded("round", self)

    def __repr__(self) -> str:
        return repr(self.value)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)


numbers.Real.register(RealSize)


class Deferred(NamedTuple):
    """A call that waits until sizes are known: of a function that takes plain values, with Sizes among its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Form:
    """The facts about a polynomial without a constant, whose factors have no common divisor and the first is positive.

    Attributes:
        size: The polynomial.
        low, high: Its bounds: those of any numbers, and what guards leave.
        least, most: The bounds that guards have set, so that they must be checked.
        excluded: Numbers that it differs from, which must be checked.
        multiple: A number that it is a multiple of.
        range, version: The bounds that follow from all that is known, and as of when.
    """

    __slots__ = ("excluded", "high", "least", "low", "most", "multiple", "range", "size", "version")

    def __init__(self, size: int, low: Bound = -_INFINITY, high: Bound = _INFINITY) -> None:
        assert isinstance(size, Size), "it has terms"
        self.size, self.low, self.high = size, low, high
        self.least, self.most = -_INFINITY, _INFINITY
        self.excluded: set[int] = set()
        self.multiple = 1
        self.range, self.version = (low, high), -1


class Comparison(NamedTuple):
    """A guard of which one side is a floating-point number or what a function decides."""

    relation: str
    left: Any
    right: Any
    outcome: bool


class SizeTrace:
    """Symbols, the guards on what is computed of them, and the function that comes of both.

    A whole number is kept as a polynomial of atoms: symbols, and what is no sum of products, such as quotients. So equal
    ones are one, however they were written, and a comparison that can have only one outcome is no guard. What guards have
    pinned is computed with as the plain int.
    """

    def __init__(self) -> None:
        self.symbols: list[Size] = []
        self.atoms: list[Size] = []
        self._known: dict[tuple[Any, ...], Size] = {}
        self._sizes: dict[_Key, Size] = {}
        self._reals: dict[tuple[Any, ...], Any] = {}
        self._forms: dict[_Key, Form] = {}
        self._checks: dict[Any, Form | Comparison] = {}
        self._version = 0  # grows with what is known

    def symbol(self, name: str, value: int) -> Size:
        """A new symbol, which is ``value`` in this trace."""
        size = self._atom("symbol", (len(self.symbols), name), int(value), *_ANY)
        self.symbols.append(size)
        return size

    def is_pinned(self, size: int) -> bool:
        """Whether guards leave a single number."""
        return not isinstance(self._plain(size), Size)

    def checks(self) -> Iterator[Form | Comparison]:
        """The conditions of all guards, in an order in which none divides by what a later one shows to differ from 0."""
        yield from self._checks.values()

    # Arithmetic.

    def sum(self, left: int, right: int, sign: int, operation: str) -> int:
        """left + sign * right."""
        if not (_is_whole(left) and _is_whole(right)):
            return self.real(operation, left, right)
        left, right = self._plain(left), self._plain(right)
        terms = dict(_terms(left))
        for product, factor in _terms(right).items():
            terms[product] = terms.get(product, 0) + sign * factor
        return self._size(terms, (operation, left, right))

    def product(self, left: int, right: int) -> int:
        """left * right."""
        if not (_is_whole(left) and _is_whole(right)):
            return self.real("*", left, right)
        left, right = self._plain(left), self._plain(right)
        terms: _Terms = {}
        for p, x in _terms(left).items():
            for q, y in _terms(right).items():
                product = tuple(sorted(p + q))
                terms[product] = terms.get(product, 0) + x * y
        return self._size(terms, ("*", left, right))

    def quotient(self, left: int, right: int) -> int:
        """left // right."""
        if not (_is_whole(left) and _is_whole(right)):
            return self.real("//", left, right)
        if right == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        left, right = self._plain(left), self._plain(right)
        whole, rest = _divided(_terms(left), _terms(right))
        return self._size(whole) + self._floor(self._size(rest), right)

    def remainder(self, left: int, right: int) -> int:
        """left % right."""
        if not (_is_whole(left) and _is_whole(right)):
            return self.real("%", left, right)
        if right == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        left, right = self._plain(left), self._plain(right)
        _, terms = _divided(_terms(left), _terms(right))
        if not isinstance(right, Size):
            terms = {product: factor % right for product, factor in terms.items() if factor * self._divides(product) % right}
        rest = self._size(terms)
        low, high = self._range(rest)
        smallest, largest = self._range(right)
        if low >= 0 and high < smallest:
            return rest
        if not isinstance(right, Size):
            if not isinstance(rest, Size):
                return rest % right
            if self._multiple(rest) % right == 0:
                return 0
        bounds = (0, largest - 1) if smallest > 0 else _ANY
        return self._atom("%", (rest, right), value_of(rest) % value_of(right), *bounds)

    def _floor(self, left: int, right: int) -> int:
        """left // right, from which what divides without rest has been taken."""
        if not isinstance(left, Size) and not isinstance(right, Size):
            return left // right
        smallest, largest = self._range(right)
        if largest < 0:
            return self._floor(-left, -right)
        is_product = not isinstance(right, Size) or len(right.terms) == 1
        if smallest > 0 and is_product and isinstance(left, Size) and left.terms[_leading(left.terms)] < 0:
            raised = {product: -factor for product, factor in left.terms.items()}
            for product, factor in (*_terms(right).items(), ((), -1)):
                raised[product] = raised.get(product, 0) + factor
            return -self.quotient(self._size(raised), right)
        low, high = self._range(left)
        bounds: tuple[Bound, Bound] = _ANY
        if smallest > 0:
            bounds = (
                _quotient(low, largest if low >= 0 else smallest),
                _quotient(high, smallest if high >= 0 else largest),
            )
        if bounds[0] == bounds[1]:
            return int(bounds[0])
        return self._atom("//", (left, right), value_of(left) // value_of(right), *bounds)

    def power(self, exponent: Size) -> int:
        """2 to the exponent."""
        if exponent < 0:
            raise ValueError("negative shift count")
        plain = self._plain(exponent)
        if not isinstance(plain, Size):
            return 1 << plain
        return self._atom("<<", (1, plain), 1 << plain.value, 1, _INFINITY)

    def bits(self, operation: str, left: int, right: int) -> int:
        """left & right, left | right or left ^ right."""
        if not (_is_whole(left) and _is_whole(right)):
            return _UNSUPPORTED
        a, b = self._plain(left), self._plain(right)
        if not isinstance(a, Size):
            a, b = b, a
        computed: Callable[..., int] = COMPUTED[operation]
        if not isinstance(a, Size):
            return computed(a, b)
        if operation == "&" and not isinstance(b, Size) and b >= 0 and b & (b + 1) == 0:
            return a % (b + 1)
        positive = self._range(a)[0] >= 0 and self._range(b)[0] >= 0
        return self._atom(operation, (a, b), computed(a.value, value_of(b)), *((0, _INFINITY) if positive else _ANY))

    def bit_length(self, size: int) -> int:
        """Bits of a number without its sign."""
        size = abs(self._plain(size))
        if not isinstance(size, Size):
            return size.bit_length()
        low, high = (bound if bound == _INFINITY else int(bound).bit_length() for bound in self._range(size))
        return self._atom("bit_length", (size,), size.value.bit_length(), low, high)

    def real(self, operation: str, *arguments: float) -> int:
        """A floating-point operation, as it is written; of other numbers than ints and floats one that pins. It is said to
        return an int for the integer operations that turn out to be one of these."""
        computed: Callable[..., int] = COMPUTED[operation]
        if not all(isinstance(argument, int | float | Size | RealSize) for argument in arguments):
            if not all(isinstance(argument, numbers.Real) for argument in arguments):
                return _UNSUPPORTED
            return computed(*(int(argument) if isinstance(argument, Size) else argument for argument in arguments))
        if operation == "/" and arguments[1] == 0:
            raise ZeroDivisionError("division by zero")
        arguments = tuple(self._plain(item) if isinstance(item, Size) else item for item in arguments)
        above, below = arguments[0], arguments[-1]
        if operation == "/" and isinstance(above, Size) and isinstance(below, Size):
            (form, factor, constant), (other, divisor, rest) = self._normal(above), self._normal(below)
            if form is other and factor * rest == divisor * constant:  # one is a multiple of the other
                return computed(factor, divisor)
        value = computed(*map(_value, arguments))
        if not any(isinstance(argument, Size | RealSize) for argument in arguments):
            return value
        key = (operation, *map(_identity, arguments))
        real: int = self._reals.setdefault(key, RealSize(self, value, (operation, *arguments)))
        return real

    def rounded(self, operation: str, real: RealSize) -> int:
        """A whole number of a floating-point one: its "ceil", "floor", "trunc" or "round"."""
        return self._atom(operation, (real,), COMPUTED[operation](real.value), *_ANY)

    # Comparisons.

    def is_less(self, left: Any, right: Any) -> bool:
        """left < right."""
        if not (_is_whole(left) and _is_whole(right)):
            if is_infinite(left) or is_infinite(right):  # whatever the size is
                return bool(_value(left) < _value(right))
            return self.holds("<", left, right)
        form, factor, constant = self._difference(left, right)
        if form is None:
            return constant < 0
        if factor > 0:
            return self._is_at_most(form, -(constant // factor) - 1)
        return not self._is_at_most(form, constant // -factor)

    def is_equal(self, left: Any, right: Any) -> bool:
        """left == right."""
        if not (_is_whole(left) and _is_whole(right)):
            return self.holds("==", left, right)
        form, factor, constant = self._difference(left, right)
        if form is None:
            return constant == 0
        return constant % factor == 0 and self._is_number(form, -constant // factor)

    def holds(self, relation: str, left: Any, right: Any) -> bool:
        """A comparison of which a side is no whole number."""
        outcome = bool(COMPUTED[relation](_value(left), _value(right)))
        key = (relation, _identity(left), _identity(right))
        self._checks.setdefault(key, Comparison(relation, left, right, outcome))
        return outcome

    def decide(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """The result of a function; see ``decided``."""
        value = function(*map(_plain_value, arguments))
        key = (function, _identity(arguments))
        self._checks.setdefault(key, Comparison("==", Deferred(function, arguments), value, True))
        return value

    def derive(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The results of a function; see ``derived``."""
        values = function(*map(_plain_value, arguments))
        return tuple(self._result(value, (function, arguments, index)) for index, value in enumerate(values))

    def _result(self, value: float, made: tuple[Any, ...]) -> float:
        if isinstance(value, int):
            return self._atom(CALL, made, value, *_ANY)
        key = (CALL, *map(_identity, made))
        real: float = self._reals.setdefault(key, RealSize(self, value, (CALL, *made)))
        return real

    def _difference(self, left: int, right: int) -> tuple[Form | None, int, int]:
        """left - right as factor * form + constant, the form None where that is the constant alone."""
        size = left - right
        if not isinstance(size, Size):
            return None, 1, size
        return self._normal(size)

    def _normal(self, size: Size) -> tuple[Form, int, int]:
        if size.normal is None:
            constant = size.terms.get((), 0)
            items = sorted((product, factor) for product, factor in size.terms.items() if product)
            divisor = math.gcd(*(factor for _, factor in items)) * (1 if items[0][1] > 0 else -1)
            key = tuple((product, factor // divisor) for product, factor in items)
            if key not in self._forms:
                self._forms[key] = Form(self._size(dict(key)))
            size.normal = self._forms[key], divisor, constant
        return size.normal

    def _is_at_most(self, form: Form, number: int) -> bool:
        low, high = self._form_range(form)
        if high <= number or low > number:
            return high <= number
        outcome = form.size.value <= number
        self._narrow(form, *((low, number) if outcome else (number + 1, high)))
        return outcome

    def _is_number(self, form: Form, number: int) -> bool:
        low, high = self._form_range(form)
        if number < low or number > high or number in form.excluded or number % self._multiple(form.size):
            return False
        if low == high:
            return True
        if form.size.value == number:
            self._narrow(form, number, number)
            return True
        if number in (low, high):
            self._narrow(form, low + (number == low), high - (number == high))
        else:
            form.excluded.add(number)
            self._checks.setdefault(form, form)
        return False

    def _narrow(self, form: Form, low: Bound, high: Bound) -> None:
        """Guards that a form lies within bounds: of a quotient by a number and the like, that what it is made of does."""
        known = self._form_range(form)
        raised, lowered = low > known[0], high < known[1]
        if not (raised or lowered):
            return
        form.low, form.high = max(low, known[0]), min(high, known[1])
        self._version += 1
        operation, *arguments = form.size.made or ("+",)
        if operation == "//" and not isinstance(arguments[1], Size) and arguments[1] > 0:
            divisor = arguments[1]
            least = low * divisor if raised else -_INFINITY
            self._narrow_size(arguments[0], least, high * divisor + divisor - 1 if lowered else _INFINITY)
        elif operation == "bit_length" and not (lowered and high > _MOST_BITS) and not (raised and low > _MOST_BITS):
            least = 1 << int(low) - 1 if raised else -_INFINITY
            self._narrow_size(arguments[0], least, (1 << int(high)) - 1 if lowered else _INFINITY)
        elif operation == "<<":
            least = (int(low) - 1).bit_length() if raised else -_INFINITY
            self._narrow_size(arguments[1], least, int(high).bit_length() - 1 if lowered else _INFINITY)
        else:
            if raised:
                form.least = low
            if lowered:
                form.most = high
            self._checks.setdefault(form, form)
        if operation == "%" and low == high == 0 and isinstance(arguments[0], Size) and not isinstance(arguments[1], Size):
            divided, factor, constant = self._normal(arguments[0])
            if constant == 0:
                divided.multiple = math.lcm(divided.multiple, arguments[1] // math.gcd(arguments[1], factor))

    def _narrow_size(self, size: Size, low: Bound, high: Bound) -> None:
        form, factor, constant = self._normal(size)
        if factor < 0:
            low, high, factor, constant = -high, -low, -factor, -constant
        least = low if is_infinite(low) else -((constant - int(low)) // factor)
        most = high if is_infinite(high) else (int(high) - constant) // factor
        self._narrow(form, least, most)

    # What is known of a size.

    def _plain(self, size: int) -> int:
        """A size, or what guards have pinned it to."""
        if isinstance(size, Size):
            assert size.trace is self, "sizes of two traces do not mix"
            low, high = self._range(size)
            return int(low) if low == high else size
        return size

    def _range(self, size: int) -> tuple[Bound, Bound]:
        if not isinstance(size, Size):
            return size, size
        form, factor, constant = self._normal(size)
        low, high = self._form_range(form)
        if factor < 0:
            low, high = high, low
        return low * factor + constant, high * factor + constant

    def _form_range(self, form: Form) -> tuple[Bound, Bound]:
        if form.version == self._version:
            return form.range
        low: Bound = 0
        high: Bound = 0
        for product, factor in form.size.terms.items():
            least, most = self._product_range(product)
            if factor < 0:
                least, most = most, least
            low, high = low + least * factor, high + most * factor
        form.version, form.range = self._version, (max(low, form.low), min(high, form.high))
        return form.range

    def _product_range(self, product: tuple[int, ...]) -> tuple[Bound, Bound]:
        form = self._forms[((product[0],), 1),]
        low, high = form.low, form.high
        if len(product) == 1:
            return low, high
        for atom in product[1:]:
            form = self._forms[((atom,), 1),]
            if low >= 0 and form.low >= 0:
                low, high = _times(low, form.low), _times(high, form.high)
            else:
                ends = [_times(a, b) for a in (low, high) for b in (form.low, form.high)]
                low, high = min(ends), max(ends)
        known = self._forms.get(((product, 1),))
        return (low, high) if known is None else (max(low, known.low), min(high, known.high))

    def _multiple(self, size: Size) -> int:
        """A number that divides it."""
        form, factor, constant = self._normal(size)
        by_terms = math.gcd(*(factor * self._divides(product) for product, factor in form.size.terms.items()))
        return math.gcd(math.lcm(by_terms, form.multiple) * factor, constant)

    def _divides(self, product: tuple[int, ...]) -> int:
        return math.prod(self._forms[((atom,), 1),].multiple for atom in product)

    def _size(self, terms: _Terms, made: tuple[Any, ...] = ()) -> int:
        """The one Size of these terms, or the plain int."""
        items = tuple(sorted((product, factor) for product, factor in terms.items() if factor))
        if not items:
            return 0
        if items[-1][0] == ():
            return items[0][1]
        known = self._sizes.get(items)
        if known is None:
            value = sum(factor * math.prod(self.atoms[atom].value for atom in product) for product, factor in items)
            known = self._sizes[items] = Size(self, dict(items), value, made)
        return known

    def _atom(self, operation: str, arguments: tuple[Any, ...], value: int, low: Bound, high: Bound) -> Size:
        key = (operation, *map(_identity, arguments))
        if key not in self._known:
            terms: _Terms = {(len(self.atoms),): 1}
            size = self._known[key] = self._sizes[tuple(terms.items())] = Size(self, terms, value, (operation, *arguments))
            self.atoms.append(size)
            form = self._forms[tuple(terms.items())] = Form(size, low, high)
            size.normal = form, 1, 0
        return self._known[key]


def _is_whole(value: object) -> bool:
    return type(value) in (int, Size) or isinstance(value, numbers.Integral)


def _value(number: Any) -> Any:
    return number.value if isinstance(number, Size | RealSize) else number


def _identity(number: object) -> tuple[type, object]:
    if isinstance(number, tuple):
        return tuple, tuple(map(_identity, number))
    return type(number), id(number) if isinstance(number, Size | RealSize) else number


def _plain_value(value: Any) -> Any:
    return tuple(map(_plain_value, value)) if isinstance(value, tuple) else _value(value)


def _terms(size: int) -> _Terms:
    return size.terms if isinstance(size, Size) else {(): int(size)}


def _leading(terms: _Terms) -> tuple[int, ...]:
    return min(product for product in terms if product)


def is_infinite(bound: Bound) -> bool:
    return bound in (_INFINITY, -_INFINITY)


def _times(bound: Bound, factor: Bound) -> Bound:
    return 0 if not bound or not factor else bound * factor


def _quotient(bound: Bound, divisor: Bound) -> Bound:
    if is_infinite(bound):
        return bound
    return (0 if bound >= 0 else -1) if is_infinite(divisor) else bound // divisor


def _divided(left: _Terms, right: _Terms) -> tuple[_Terms, _Terms]:
    """The whole part of left / right, and the terms of left that are left over."""
    if len(right) != 1:
        return {}, left
    ((divisor, factor),) = right.items()
    whole: _Terms = {}
    rest: _Terms = {}
    for product, own in left.items():
        others = _without(product, divisor)
        if others is None or (own % factor and product):
            rest[product] = own
        else:
            whole[others] = own // factor
            rest[product] = own % factor
    return whole, rest


def _without(product: tuple[int, ...], divisor: tuple[int, ...]) -> tuple[int, ...] | None:
    others = list(product)
    for atom in divisor:
        if atom not in others:
            return None
        others.remove(atom)
    return tuple(others)


_MOST_BITS: Final = 64
"""The most bits of numbers that bounds are computed of."""


def sizes_in(value: Any) -> Iterator[Size | RealSize]:
    """Every Size in what is to be returned."""
    if isinstance(value, Size | RealSize):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from sizes_in(item)


def decided(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function for these arguments, which are plain values, sizes and tuples of such: a plain value.

    Of Sizes the guard is that it gives the same for other sizes, told by the function itself: for what loops over sizes or
    compares many numbers. It may read nothing else than its arguments.
    """
    size = next(sizes_in(arguments), None)
    return function(*arguments) if size is None else size.trace.decide(function, arguments)


def derived(function: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    """The results of a function for these arguments, which are plain values, sizes and tuples of such: whole numbers and
    floats.

    Of Sizes they record, and the function is called again for other sizes: for arithmetic that sizes cannot record. It may
    read nothing else than its arguments, and is called for each result that is used: one that takes long keeps its last.
    """
    size = next(sizes_in(arguments), None)
    return function(*arguments) if size is None else size.trace.derive(function, arguments)


def is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return not isinstance(value, Deferred) and all(map(is_plain, value))
    return not isinstance(value, Size | RealSize)


def is_symbolic(value: Any) -> bool:
    """Whether there is a Size in a value, in a tuple or in the fields of a dataclass, such as a desc."""
    return any(map(is_symbolic, items_of(value))) or isinstance(value, Size | RealSize)


def items_of(value: Any) -> tuple[Any, ...]:
    """The items of a tuple, the fields of a dataclass; none of anything else."""
    if isinstance(value, tuple):
        return value
    if dataclasses.is_dataclass(value):
        return tuple(getattr(value, field.name) for field in dataclasses.fields(value))
    return ()


def alike(named: tuple[Any, ...], items: Iterable[Any]) -> tuple[Any, ...]:
    """Items as a tuple of another's type, which may name them."""
    return type(named)(*items) if hasattr(named, "_fields") else tuple(items)


def settled(value: Any) -> Any:
    """A value, or a tuple of values, with plain numbers in the place of its Sizes, which are pinned, and with the results of
    its deferred calls."""
    if isinstance(value, Deferred):
        return value.function(*map(settled, value.arguments))
    if isinstance(value, tuple):
        return alike(value, map(settled, value))
    return int(value) if isinstance(value, Size) else float(value) if isinstance(value, RealSize) else value


def pinned(size: int) -> int:
    """The plain int; of a Size with the guard that it keeps its value."""
    return operator.index(size)


def value_of(size: int) -> int:
    """The plain int without a guard: only for what cannot change a result, such as the text of an error."""
    return size.value if isinstance(size, Size) else size
