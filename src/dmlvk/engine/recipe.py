"""Plans whose sizes are symbolic, as functions of the sizes: what a new shape costs instead of lowering."""

from __future__ import annotations

import dataclasses
import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from dmlvk.kernels.common.plan import Dispatch, Launch, Plan, Range, Repetition, numbered
from dmlvk.spec.mould import Mould
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.size import Deferred, SizeTrace, settled
from dmlvk.spec.size_function import function_of

_MOST_RECIPES: Final = 16
"""Recipes kept for operators that differ in nothing but sizes; the one unused longest goes first."""
_MOST_JOINT: Final = 64
"""The same of operators that are lowered in pieces: a choice of pieces costs no lowering."""


class FilledLaunch(NamedTuple):
    """The parts of a launch that depend on sizes: its parameter block and grid, both None for a copy, and its ranges."""

    params: bytes | None
    grid: tuple[int, int, int] | None
    bindings: tuple[Range, ...]


class FilledPlan(NamedTuple):
    """The parts of a plan that depend on sizes: all launches of its dispatches and its initialisation, its byte counts."""

    dispatches: tuple[FilledLaunch, ...]
    initialize: tuple[FilledLaunch, ...]
    temporary_bytes: int
    persistent_bytes: int
    persistent_inputs: tuple[tuple[int, int], ...]


class Recipe:
    """The plan of an operator, lowered once with symbolic sizes.

    Args:
        trace: What the symbols are from.
        desc: The operator, whose sizes are symbols of the trace.
        plan: The plan as it was lowered.
        fixed: The numbers that are the same in all that is filled, by place among all numbers; the others are the symbols,
            in the order in which they were made.

    Attributes:
        desc, plan: As above: the plan's pipelines are those of every set of sizes that is filled.
    """

    def __init__(
        self, trace: SizeTrace, desc: OperatorDesc, plan: Plan, fixed: Mapping[int, int] = MappingProxyType({})
    ) -> None:
        self.desc, self.plan = desc, plan
        self._fixed = fixed
        filled = _plan(plan)
        self._function = function_of(trace, filled) if trace.symbols else lambda: filled

    def fill(self, values: Sequence[int]) -> FilledPlan | None:
        """The plan for these numbers; None where one is not as fixed or a guard of the trace fails, and the operator must be
        lowered anew."""
        fixed = self._fixed
        if fixed:
            if any(values[place] != number for place, number in fixed.items()):
                return None
            values = [value for place, value in enumerate(values) if place not in fixed]
        try:
            filled: FilledPlan | None = self._function(*values)
        except struct.error:  # a number outgrew its word: lowering says how
            return None
        return filled


class JointRecipe(Recipe):
    """The plan of an operator that is lowered in pieces.

    Args:
        desc: The operator.
        parts: The recipe of each piece, with the number of its symbols.
    """

    def __init__(self, desc: OperatorDesc, parts: Sequence[tuple[Recipe, int]]) -> None:
        self.desc, self.plan = desc, Plan(tuple(launch for part, _ in parts for launch in part.plan.dispatches))
        self._parts = parts

    def fill(self, values: Sequence[int]) -> FilledPlan | None:
        """The plan for these values of all pieces' symbols, one piece after the other; None where a guard fails."""
        rest = iter(values)
        filled = [part.fill(tuple(itertools.islice(rest, count))) for part, count in self._parts]
        found = [plan for plan in filled if plan is not None]
        return None if len(found) < len(filled) else _joint(found)


class Recipes:
    """The recipes of operators that differ in nothing but the numbers of sizes: one for each choice of kernels so far.

    A number that guards have pinned in every one of them, as one that the lowering counts with, is no symbol in the next,
    which is lowered with the plain number and costs less. The 1st, 2nd, 4th, 8th and so on have symbols for all:
    there a number may turn out to be free.

    Args:
        mould: What makes the desc, or the piece of one, of other sizes.
        lower: Lowers it: the desc with what is OWNED_BY_DML in it, and its plan.
    """

    def __init__(self, mould: Mould, lower: Callable[[Any], tuple[OperatorDesc, Plan]]) -> None:
        self._mould = mould
        self._lower = lower
        self._kept: list[Recipe] = []
        self._learnings = 0
        self._pinned: frozenset[int] = frozenset()
        self._last: tuple[tuple[int, ...], tuple[Recipe, FilledPlan]] | None = None

    def __contains__(self, recipe: Recipe) -> bool:
        return recipe in self._kept

    def filled(self, values: tuple[int, ...]) -> tuple[Recipe, FilledPlan]:
        """The recipe for these values of the mould's symbols, which is made where none fits, and its plan.

        Raises:
            What ``lower`` says.
        """
        if self._last is None or self._last[0] != values:
            self._last = values, self._found(values) or self._learned(values)
        return self._last[1]

    def _found(self, values: tuple[int, ...]) -> tuple[Recipe, FilledPlan] | None:
        for index, recipe in enumerate(self._kept):
            plan = recipe.fill(values)
            if plan is not None:
                if index:
                    self._kept.insert(0, self._kept.pop(index))
                return recipe, plan
        return None

    def _learned(self, values: tuple[int, ...]) -> tuple[Recipe, FilledPlan]:
        trace = SizeTrace()
        self._learnings += 1
        is_symbolic = self._learnings.bit_count() == 1
        plain = frozenset() if is_symbolic else self._pinned
        desc, plan = self._lower(self._mould.cast(trace, values, plain))
        recipe = Recipe(trace, desc, _initialized_alike(plan), {place: values[place] for place in plain})
        if is_symbolic:
            pinned = frozenset(place for place, symbol in enumerate(trace.symbols) if trace.is_pinned(symbol))
            self._pinned = pinned if self._learnings == 1 else self._pinned & pinned
        self._kept = [recipe, *self._kept][:_MOST_RECIPES]
        filled = recipe.fill(values)
        assert filled is not None, "a recipe takes the sizes that it was made with"
        return recipe, filled


class JointRecipes:
    """The recipes of operators that are lowered in pieces: as many as there are choices for one piece, not for all together.

    Args:
        desc: The operator.
        parts: The recipes of each piece, with the number of their symbols.
    """

    def __init__(self, desc: OperatorDesc, parts: Sequence[tuple[Recipes, int]]) -> None:
        self._desc = desc
        self._parts = parts
        self._kept: dict[tuple[Recipe, ...], JointRecipe] = {}

    def __contains__(self, recipe: Recipe) -> bool:
        return recipe in self._kept.values()

    def filled(self, values: tuple[int, ...]) -> tuple[Recipe, FilledPlan]:
        """The recipe for these values of the pieces' symbols, one piece after the other, and its plan.

        Raises:
            What lowering says.
        """
        rest = iter(values)
        found = [recipes.filled(tuple(itertools.islice(rest, count))) for recipes, count in self._parts]
        key = tuple(recipe for recipe, _ in found)
        known = self._kept.pop(key, None)
        if known is None:
            known = JointRecipe(self._desc, [(recipe, count) for recipe, (_, count) in zip(key, self._parts, strict=True)])
        self._kept[key] = known
        if len(self._kept) > _MOST_JOINT:
            del self._kept[next(iter(self._kept))]
        return known, _joint([plan for _, plan in found])


def _joint(plans: Sequence[FilledPlan]) -> FilledPlan:
    """Plans without scratch and initialisation, one after the other."""
    return FilledPlan(tuple(launch for plan in plans for launch in plan.dispatches), (), 0, 0, ())


def _plan(plan: Plan) -> FilledPlan:
    initialize = tuple(map(_launch, plan.initialize))
    dispatches: Any = tuple(map(_launch, plan.dispatches))
    if plan.repetition is not None:
        dispatches = Deferred(_repeated, (dispatches, plan.repetition))
    return FilledPlan(dispatches, initialize, plan.temporary_bytes, plan.persistent_bytes, plan.persistent_inputs)


def _repeated(launches: tuple[FilledLaunch, ...], again: Repetition) -> tuple[FilledLaunch, ...]:
    """The launches of all rounds, each of which has its number in its parameter block."""
    made = [launches[place] for place in again.order(len(launches), again.launches)]
    for index in range(again.launches):
        launch = made[again.first + index]
        assert launch.params is not None, "copies have no number"
        params = numbered(launch.params, again.counter, index // again.each)
        made[again.first + index] = launch._replace(params=params)
    return tuple(made)


def _launch(launch: Launch) -> FilledLaunch:
    if isinstance(launch, Dispatch):
        return FilledLaunch(launch.params, launch.grid, launch.bindings)
    return FilledLaunch(None, None, launch.bindings)


def _initialized_alike(plan: Plan) -> Plan:
    """A plan of symbolic sizes whose initialisation is the same for all that its guards let through."""
    initialize = tuple(
        dataclasses.replace(
            launch, params=settled(launch.params), grid=settled(launch.grid), bindings=settled(launch.bindings)
        )
        if isinstance(launch, Dispatch)
        else dataclasses.replace(launch, bindings=settled(launch.bindings))
        for launch in plan.initialize
    )
    return dataclasses.replace(
        plan,
        initialize=initialize,
        persistent_bytes=settled(plan.persistent_bytes),
        persistent_inputs=settled(plan.persistent_inputs),
    )
