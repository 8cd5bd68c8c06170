"""The table of lowerings: the rows that have kernels, and how each becomes a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, get_type_hints

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.kernels.common.limitation import EVERY_OPERATOR, Limitation
from dmlvk.kernels.common.plan import Plan
from dmlvk.kernels.common.rule import Rule
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import TensorDesc, element_bits

Schedule = Callable[[Any, Any, Capabilities], Plan]
"""(desc, problem, capabilities) -> plan."""

Features = Callable[[type[OperatorDesc], TensorDataType], frozenset[str]]
"""(row, data type of its first tensor) -> the device features that each of its plans takes, beside those that storing the
tensors takes."""


def no_features(row: type[OperatorDesc], data_type: TensorDataType) -> frozenset[str]:
    """The features of kernels that every device runs: none."""
    return frozenset()


def subgroup_features(row: type[OperatorDesc], data_type: TensorDataType) -> frozenset[str]:
    """The features of kernels that add and exchange values within subgroups."""
    return SUBGROUPS


def integer_features(row: type[OperatorDesc], data_type: TensorDataType) -> frozenset[str]:
    """The features of kernels that compute with the elements: 64-bit integers, where these are 64 bits wide."""
    return frozenset({"int64"} if element_bits(data_type) == 64 else ())


class Piece(Protocol):
    """A part of an operator that is lowered by itself: a tuple of values and sizes.

    Attributes:
        tensors: The tensors that it reads and writes.
    """

    @property
    def tensors(self) -> tuple[TensorDesc, ...]: ...

    def plan(self, caps: Capabilities) -> Plan:
        """The launches of the piece, whose slots are the operator's."""


@dataclass(frozen=True)
class Lowering:
    """A family's way from desc to plan.

    Attributes:
        problem: The function that makes the input of the family's rules from a desc: a frozen dataclass.
        rules: The family's rules, from ``kernels.select``.
        schedules: The functions that build a plan, by rule name.
        limitations: The limitations that problem and schedules may raise, beside those of any operator.
        features: The device features that every plan takes.
        pieces: Where the plan of a desc, with the rule that is chosen, is that of several parts one after the other: the
            function that gives these.
        any_size: The fields whose tensors may be larger than a storage binding: the schedules bind parts of them.
    """

    problem: Callable[[Any], Any]
    rules: tuple[Rule, ...]
    schedules: Mapping[str, Schedule]
    limitations: tuple[Limitation, ...] = ()
    features: Features = no_features
    pieces: Callable[[Any], Sequence[Piece]] | None = None
    any_size: frozenset[str] = frozenset()


LOWERINGS: dict[type[OperatorDesc], Lowering] = {}
"""Every row that has kernels."""

_SPECIAL: dict[type[OperatorDesc], tuple[Callable[[Any], bool], Lowering]] = {}
"""The rows with descs that are another family's: whether a desc is one, and how it is lowered then."""


def lowering_of(desc: OperatorDesc) -> Lowering | None:
    """The lowering of a desc; None where its row has no kernels."""
    when, lowering = _SPECIAL.get(type(desc), (None, None))
    return lowering if when is not None and when(desc) else LOWERINGS.get(type(desc))


def has_kernels(row: type[OperatorDesc]) -> bool:
    """Whether a row has kernels: its own, or those of the re-issue that it upgrades to."""
    return row in LOWERINGS or row.upgrade is not OperatorDesc.upgrade


def lowered_as(row: type[OperatorDesc]) -> type[OperatorDesc]:
    """The newest re-issue of a row, which has the kernels: what ``upgrade`` says in its annotation that it returns."""
    while row.upgrade is not OperatorDesc.upgrade:
        row = get_type_hints(row.upgrade)["return"]
    return row


def limitations_of(row: type[OperatorDesc]) -> tuple[Limitation, ...]:
    """Every limitation that a desc of a row with kernels may meet."""
    newest = lowered_as(row)
    own = LOWERINGS[newest].limitations
    if newest in _SPECIAL:
        own += _SPECIAL[newest][1].limitations
    return tuple(dict.fromkeys(EVERY_OPERATOR + own))


def register(
    *rows: type[OperatorDesc],
    problem: Callable[[Any], Any],
    rules: tuple[Rule, ...],
    schedules: Mapping[str, Schedule],
    when: Callable[[Any], bool] | None = None,
    limitations: tuple[Limitation, ...] = (),
    features: Features = no_features,
    pieces: Callable[[Any], Sequence[Piece]] | None = None,
    any_size: frozenset[str] = frozenset(),
) -> None:
    """Gives rows their lowering, or with ``when`` those descs of theirs. Every rule has its schedule."""
    assert {rule.name for rule in rules} == set(schedules), "rules and schedules name the same things"
    lowering = Lowering(problem, rules, schedules, limitations, features, pieces, any_size)
    for row in rows:
        if when is None:
            LOWERINGS[row] = lowering
        else:
            _SPECIAL[row] = (when, lowering)
