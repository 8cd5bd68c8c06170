"""The shape phase without a trace: a region is traced once with symbols for the sizes that change, and filled for others.

The first sizes of a region are traced as they are, and so are the second: few programs need more. From the third on, every
size that has changed is a symbol. The trace of symbols is lowered once and becomes a recipe: a function of the sizes, with
guards, that gives parameter blocks, grids and byte counts. Where a guard refuses, the region is traced once more, and both
recipes are kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from dmlvk.engine.compiled_graphs import CompiledGraph, Compiler, elsewhere
from dmlvk.engine.recipe import Filled, Recipe
from dmlvk.engine.trace import PackedTensor, Spec, Trace
from dmlvk.graph.placement import Lifetimes, ReservedArena
from dmlvk.graph.step import Storage
from dmlvk.runtime.device import ComputeDevice
from dmlvk.spec.errors import DmlvkError
from dmlvk.spec.size import SizeTrace

_MOST_RECIPES: Final = 8
"""Recipes kept for the inputs of a region; the one unused longest goes first."""
_MOST_USELESS: Final = 2
"""Recipes in a row that were of use for no other sizes: from then on each shape is traced as it is."""

_NOT_SYMBOLIC: Final = (DmlvkError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a trace may end with that meets a symbol where it can do with plain numbers alone."""

Numbers = tuple[int, ...]
"""The sizes of all inputs of a region, one after the other."""


class _Extents(NamedTuple):
    """A filled graph's places.

    Attributes:
        nbytes: Length of the arena.
        largest_live_set: The most bytes that are reserved at one step.
        scratch: Offset of each step's scratch.
        starts: The offset in the arena of each storage that lies there.
        numbers: The offset of each storage in the one that it is part of, and its bytes.
    """

    nbytes: int
    largest_live_set: int
    scratch: Sequence[int]
    starts: Mapping[Storage, int]
    numbers: Mapping[Storage, tuple[int, int]]

    def offset(self, storage: Storage) -> int:
        """The offset in the arena of a storage's first byte."""
        return self.starts[storage] + self.numbers[storage][0]

    def extent(self, storage: Storage) -> tuple[int, int]:
        """The offset of a storage in the one that it is part of, and its bytes."""
        return self.numbers[storage]


class GraphRecipe:
    """A trace with symbols for sizes: compiled, and ready to be filled.

    Args:
        device: Where it runs.
        compiler: Makes its operators, and keeps its weights.
        trace: The trace.
        recorder: What the symbols are from.

    Raises:
        UnsupportedError: as the compiler says.
    """

    def __init__(self, device: ComputeDevice, compiler: Compiler, trace: Trace, recorder: SizeTrace) -> None:
        prepared = compiler.prepared(trace)
        compiler.bring_weights(prepared)
        self._device = device
        self._trace = trace
        self._operators = prepared.operators
        self._varying = [index for index, step in enumerate(trace.steps) if not step.runs_once]
        inputs = [value.storage for value in trace.inputs.values()]
        lifetimes = Lifetimes(trace.steps, inputs, trace.results(), elsewhere(trace))
        self._homes = lifetimes.homes
        self._members = lifetimes.members
        self._arena = ReservedArena(lifetimes, len(trace.steps))
        steps = [trace.steps[index] for index in self._varying]
        storages = [item for step in steps for item in (*step.read(), *step.written())]
        self._storages = list(dict.fromkeys([*inputs, *storages, *trace.results()]))
        numbers = tuple((storage.place.offset, storage.nbytes) for storage in self._storages)
        sizes = tuple(tuple(value.sizes) for value in (*trace.inputs.values(), *self._results()))
        self._recipe = Recipe(recorder, [self._operators[index].plan for index in self._varying], (numbers, sizes))

    def _results(self) -> list[Any]:
        return [value for value in self._trace.outputs.values() if not isinstance(value, np.ndarray)]

    def filled(self, values: Sequence[int]) -> CompiledGraph | None:
        """The graph for these values of the symbols, None where a guard refuses them."""
        filled = self._recipe.fill(values)
        if filled is None:
            return None
        trace = self._trace
        pairs = [(self._operators[index], plan) for index, plan in zip(self._varying, filled.plans, strict=True)]
        blocks = self._device.place_parameters([block for own, plan in pairs for block in own.varying(plan)])
        placed = iter(blocks)
        operators = list(self._operators)
        for index, (own, plan) in zip(self._varying, pairs, strict=True):
            operators[index] = own.filled(plan, placed)
        numbers, sizes = filled.sizes
        extents = self._placed(filled, dict(zip(self._storages, numbers, strict=True)))
        rest = iter(sizes)
        inputs = {
            name: PackedTensor(value.storage, value.data_type, value.dtype, next(rest))
            for name, value in trace.inputs.items()
        }
        outputs = {
            name: value
            if isinstance(value, np.ndarray)
            else PackedTensor(value.storage, value.data_type, value.dtype, next(rest))
            for name, value in trace.outputs.items()
        }
        return CompiledGraph(dataclasses.replace(trace, inputs=inputs, outputs=outputs), operators, extents)

    def _placed(self, filled: Filled, numbers: Mapping[Storage, tuple[int, int]]) -> _Extents:
        lengths = [max(sum(numbers[item]) for item in own) for own in self._members.values()]
        scratch = [0] * len(self._trace.steps)
        for index, plan in zip(self._varying, filled.plans, strict=True):
            scratch[index] = plan.temporary_bytes
        arena = self._arena.fitted([*lengths, *scratch])
        offsets = dict(zip(self._members, arena.offsets, strict=False))
        starts = {
            item: offsets[self._homes[item.place.storage]] for item in self._storages if item.place.storage in self._homes
        }
        return _Extents(arena.nbytes, self._arena.largest_live_set, arena.offsets[len(lengths) :], starts, numbers)


class _Known(NamedTuple):
    """A recipe with the sizes that it is for.

    Attributes:
        recipe: The recipe.
        numbers: The sizes that it was traced with; those that are no symbol are the same for all.
        groups: The positions of each symbol's sizes, which are equal.
        fixed: The positions of all others.
    """

    recipe: GraphRecipe
    numbers: Numbers
    groups: tuple[tuple[int, ...], ...]
    fixed: tuple[int, ...]

    def filled(self, numbers: Numbers) -> CompiledGraph | None:
        """The graph of these sizes, None where they are not among those that the recipe is for."""
        if any(numbers[place] != self.numbers[place] for place in self.fixed):
            return None
        if any(numbers[place] != numbers[group[0]] for group in self.groups for place in group):
            return None
        return self.recipe.filled([numbers[group[0]] for group in self.groups])


class RegionShapes:
    """What is known of the sizes of one region, for inputs of certain types and dimension counts.

    Args:
        device: Where the region runs.
        compiler: Makes its operators.
        trace: Traces the region for inputs of these types and sizes, which may be symbols.
    """

    def __init__(self, device: ComputeDevice, compiler: Compiler, trace: Callable[[Mapping[str, Spec]], Trace]) -> None:
        self._device = device
        self._compiler = compiler
        self._trace = trace
        self._met: list[Numbers] = []
        self._varies: set[int] = set()
        self._known: list[_Known] = []
        self._useless = 0

    def graph(self, specs: Mapping[str, Spec]) -> CompiledGraph | None:
        """The graph for these sizes, made without a trace of them; None where they must be traced as they are."""
        numbers = tuple(size for _, sizes in specs.values() for size in sizes)
        for known in reversed(self._known):
            found = known.filled(numbers)
            if found is not None:
                self._known.remove(known)
                self._known.append(known)
                self._useless = 0
                return found
        if len(self._met) < 2:
            self._met.append(numbers)
            return None
        if self._useless >= _MOST_USELESS:
            return None
        return self._learned(specs, numbers)

    def _learned(self, specs: Mapping[str, Spec], numbers: Numbers) -> CompiledGraph | None:
        """Makes a recipe whose symbols are the sizes that have ever changed, and fills it for these."""
        for met in self._met:
            self._varies.update(place for place, number in enumerate(numbers) if number != met[place])
        self._useless += 1
        recorder = SizeTrace()
        # Sizes that are equal now and were equal before are one: a guard between two symbols says less.
        groups: dict[Numbers, list[int]] = {}
        for place in sorted(self._varies):
            groups.setdefault((numbers[place], *(met[place] for met in self._met)), []).append(place)
        sizes: list[int] = list(numbers)
        for index, places in enumerate(groups.values()):
            symbol = recorder.symbol(f"size{index}", numbers[places[0]])
            for place in places:
                sizes[place] = symbol
        rest = iter(sizes)
        symbolic = {name: (dtype, tuple(next(rest) for _ in own)) for name, (dtype, own) in specs.items()}
        try:
            recipe = GraphRecipe(self._device, self._compiler, self._trace(symbolic), recorder)
        except _NOT_SYMBOLIC:  # what is wrong with the sizes themselves, their own trace says
            return None
        fixed = tuple(place for place in range(len(numbers)) if place not in self._varies)
        known = _Known(recipe, numbers, tuple(map(tuple, groups.values())), fixed)
        self._known = [*self._known, known][-_MOST_RECIPES:]
        return known.filled(numbers)
