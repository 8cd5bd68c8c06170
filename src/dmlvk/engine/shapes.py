"""The shape phase without a trace: a region is traced once with symbols for the sizes that change, and filled for others.

The first sizes of a region are traced as they are, and so are the second: few programs need more. From the third on, every
size that has changed is a symbol. The trace of symbols becomes a function of the sizes, with guards, that gives the sizes of
every step and storage; each step has recipes, which give its parameter blocks, grids and byte counts. Where a step's guards
refuse, it gets one more recipe. Where the trace's refuse, the region is traced once more, and both are kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from dmlvk.engine.compiled_graphs import CompiledGraph, Compiler, elsewhere
from dmlvk.engine.operator import PreparedOperator
from dmlvk.engine.recipe import Recipe
from dmlvk.engine.trace import Numbers, PackedTensor, Spec, Trace, TracedTensor
from dmlvk.engine.transfer import Array
from dmlvk.graph.placement import Lifetimes, StackedArena
from dmlvk.graph.step import Step, Storage
from dmlvk.runtime.device import ComputeDevice
from dmlvk.spec.errors import DmlvkError
from dmlvk.spec.size import Deferred, SizeTrace, is_symbolic, value_of
from dmlvk.spec.size_function import function_of

_MOST_RECIPES: Final = 32
"""Recipes kept for the inputs of a region; the one unused longest goes first. Sizes that follow from values, such as boxes,
have many choices: whether a box ends at the border, whether its rows are aligned."""
_CREDIT: Final = 4
"""Recipes that may be made before one is of use for other sizes; each use earns another, up to as many. Without credit each
shape is traced as it is."""

_NOT_SYMBOLIC: Final = (DmlvkError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a trace may end with that meets a symbol where it can do with plain numbers alone."""

_Sizes = tuple[int, ...]
"""The sizes of all inputs of a region, one after the other, and the numbers among them that the host knows."""


class _FilledPlacement(NamedTuple):
    """A filled graph's places.

    Attributes:
        nbytes: Length of the arena.
        live_bytes: The bytes in use before the first step, at each step and after the last, scratch included.
        scratch: Offset of each step's scratch.
        homes: The block in which each storage lies that has its place in the arena and is part of no other.
        offsets: The offset in the arena of each block.
        wholes: The storage that is part of no other in which each lies, and its index in ``extents``.
        extents: The offset of each storage there, and its bytes.
    """

    nbytes: int
    live_bytes: Sequence[int]
    scratch: Sequence[int]
    homes: Mapping[Storage, int]
    offsets: Sequence[int]
    wholes: Mapping[Storage, tuple[Storage, int]]
    extents: Sequence[tuple[int, int]]

    def start(self, whole: Storage) -> int | None:
        """The offset in the arena of a storage that is part of no other; None of one that lies elsewhere."""
        block = self.homes.get(whole)
        return None if block is None else self.offsets[block]

    def extent(self, storage: Storage) -> tuple[Storage, int, int]:
        """The storage that is part of no other in which one lies, its offset there, and its bytes."""
        whole, index = self.wholes[storage]
        return whole, *self.extents[index]


class _Filling(NamedTuple):
    """The numbers that a trace is filled with.

    Attributes:
        symbols: The values of the symbols of each step's recipes.
        extents: The offset of each storage in the one that it is part of, and its bytes.
        lengths: The bytes of each block of the arena.
        sizes: The sizes of each input and each output, the elements of an output that the host knows.
    """

    symbols: tuple[tuple[int, ...], ...]
    extents: tuple[tuple[int, int], ...]
    lengths: tuple[int, ...]
    sizes: tuple[tuple[int, ...], ...]


class GraphRecipe:
    """A trace with symbols for sizes: compiled, and ready to be filled.

    The trace's own guards are few. Which kernels a step has is a matter of its recipes: where none of them fits, that step
    alone is lowered anew.

    Args:
        device: Where it runs.
        compiler: Makes its operators, and keeps its weights.
        trace: The trace.
        recorder: What the symbols are from.

    Raises:
        What the compiler and a lowering of symbols say.
    """

    def __init__(self, device: ComputeDevice, compiler: Compiler, trace: Trace, recorder: SizeTrace) -> None:
        self._device = device
        self._compiler = compiler
        self._trace = trace
        symbolic = [step for step in trace.steps if is_symbolic(step.desc)]
        found = {step: compiler.recipes(step, trace.given) for step in symbolic}
        self._recipes = {step: recipes for step, (recipes, _) in found.items()}
        symbols = {step: own for step, (_, own) in found.items()}
        recipes = {step: recipes.filled(tuple(map(value_of, symbols[step])))[0] for step, recipes in self._recipes.items()}
        prepared = compiler.prepared(trace, recipes)
        compiler.bring_weights(prepared)
        self._operators = prepared.operators
        self._sized = {
            step: {recipes[step]: own} for step, own in zip(trace.steps, prepared.operators, strict=True) if step in recipes
        }
        inputs = [value.storage for value in trace.inputs.values()]
        lifetimes = Lifetimes(trace.steps, inputs, trace.results(), elsewhere(trace))
        blocks = {home: block for block, home in enumerate(lifetimes.members)}
        self._homes = {whole: blocks[home] for whole, home in lifetimes.homes.items()}
        self._arena = StackedArena(lifetimes, len(trace.steps))
        storages = [item for step in trace.steps if not step.runs_once for item in (*step.read(), *step.written())]
        everything = dict.fromkeys((*inputs, *storages, *trace.results()))
        self._wholes = {item: (item.place.storage, index) for index, item in enumerate(everything)}
        extents = tuple((storage.place.offset, storage.nbytes) for storage in everything)
        lengths = tuple(map(_length, lifetimes.members.values()))
        results = (value for value in trace.outputs.values() if not isinstance(value, np.ndarray))
        sizes = (
            *(tuple(value.sizes) for value in (*trace.inputs.values(), *results)),
            *(known.values for known in trace.numbers.values()),
        )
        self._function = function_of(recorder, Deferred(_Filling, (tuple(symbols.values()), extents, lengths, sizes)))

    def filled(self, values: Sequence[int]) -> CompiledGraph | None:
        """The graph for these values of the symbols, None where a guard refuses them."""
        numbers: _Filling | None = self._function(*values)
        if numbers is None:
            return None
        plans = {
            step: recipes.filled(own) for (step, recipes), own in zip(self._recipes.items(), numbers.symbols, strict=True)
        }
        self._prepare({step: recipe for step, (recipe, _) in plans.items() if recipe not in self._sized[step]})
        pairs = {step: (self._sized[step][recipe], plan) for step, (recipe, plan) in plans.items()}
        blocks = self._device.place_parameters([block for own, plan in pairs.values() for block in own.varying(plan)])
        placed = iter(blocks)
        filled = {step: own.filled(plan, placed) for step, (own, plan) in pairs.items()}
        trace = self._trace
        operators = [filled.get(step, own) for step, own in zip(trace.steps, self._operators, strict=True)]
        placement = self._placed(operators, numbers)
        rest = iter(numbers.sizes)
        inputs = {
            name: PackedTensor(value.storage, value.data_type, value.dtype, next(rest))
            for name, value in trace.inputs.items()
        }
        outputs: dict[str, TracedTensor | Array] = {
            name: value
            if isinstance(value, np.ndarray)
            else PackedTensor(value.storage, value.data_type, value.dtype, next(rest))
            for name, value in trace.outputs.items()
        }
        for name, known in trace.numbers.items():
            outputs[name] = np.array(next(rest), known.dtype).reshape(known.sizes)
        return CompiledGraph(dataclasses.replace(trace, inputs=inputs, outputs=outputs), operators, placement)

    def _prepare(self, recipes: Mapping[Step, Recipe]) -> None:
        """Makes operators of further recipes; those of recipes that are no longer kept go."""
        if not recipes:
            return
        prepared = self._compiler.prepared(dataclasses.replace(self._trace, steps=tuple(recipes)), recipes)
        self._compiler.bring_weights(prepared)
        for (step, recipe), operator in zip(recipes.items(), prepared.operators, strict=True):
            kept = {known: own for known, own in self._sized[step].items() if known in self._recipes[step]}
            self._sized[step] = {**kept, recipe: operator}

    def _placed(self, operators: Sequence[PreparedOperator], numbers: _Filling) -> _FilledPlacement:
        steps = zip(self._trace.steps, operators, strict=True)
        scratch = [0 if step.runs_once else operator.temporary_bytes for step, operator in steps]
        arena, live_bytes = self._arena.fitted([*numbers.lengths, *scratch])
        places = arena.offsets[len(numbers.lengths) :]
        return _FilledPlacement(arena.nbytes, live_bytes, places, self._homes, arena.offsets, self._wholes, numbers.extents)


def _length(storages: Sequence[Storage]) -> Any:
    """The bytes of storages that lie over each other, symbolic ones without a guard on which of them ends last."""
    ends = {id(end): end for item in storages for end in [item.place.offset + item.nbytes]}
    return next(iter(ends.values())) if len(ends) == 1 else Deferred(max, tuple(ends.values()))


class _Known(NamedTuple):
    """A recipe with the sizes that it is for.

    Attributes:
        recipe: The recipe.
        sizes: The sizes that it was traced with; those that are no symbol are the same for all.
        groups: The positions of each symbol's sizes, which are equal.
        fixed: The positions of all others.
    """

    recipe: GraphRecipe
    sizes: _Sizes
    groups: tuple[tuple[int, ...], ...]
    fixed: tuple[int, ...]

    def filled(self, sizes: _Sizes) -> CompiledGraph | None:
        """The graph of these sizes, None where they are not among those that the recipe is for."""
        if any(sizes[place] != self.sizes[place] for place in self.fixed):
            return None
        if any(sizes[place] != sizes[group[0]] for group in self.groups for place in group):
            return None
        return self.recipe.filled([sizes[group[0]] for group in self.groups])


class RegionShapes:
    """What is known of the sizes of one region, for inputs of certain types and dimension counts.

    Args:
        device: Where the region runs.
        compiler: Makes its operators.
        trace: Traces the region for inputs of these types and sizes, and these numbers that the host knows, all of which may
            be symbols.
    """

    def __init__(
        self,
        device: ComputeDevice,
        compiler: Compiler,
        trace: Callable[[Mapping[str, Spec], Mapping[str, Numbers]], Trace],
    ) -> None:
        self._device = device
        self._compiler = compiler
        self._trace = trace
        self._met: list[_Sizes] = []
        self._varies: set[int] = set()
        self._known: list[_Known] = []
        self._credit = _CREDIT

    def graph(self, specs: Mapping[str, Spec], numbers: Mapping[str, Numbers]) -> CompiledGraph | None:
        """The graph for these sizes and numbers, made without a trace of them; None where one must be made,
        which is then to be noted."""
        sizes = _sizes(specs, numbers)
        for known in reversed(self._known):
            try:
                found = known.filled(sizes)
            except _NOT_SYMBOLIC:
                return None
            if found is not None:
                self._known.remove(known)
                self._known.append(known)
                self._credit = min(self._credit + 1, _CREDIT)
                return found
        if len(self._met) < 2 or not self._credit:
            return None
        return self._learned(specs, numbers, sizes)

    def note(self, specs: Mapping[str, Spec], numbers: Mapping[str, Numbers]) -> None:
        """Notes sizes and numbers for which there is a graph now, of a trace of them."""
        if len(self._met) < 2:
            self._met.append(_sizes(specs, numbers))

    def _learned(self, specs: Mapping[str, Spec], numbers: Mapping[str, Numbers], sizes: _Sizes) -> CompiledGraph | None:
        """Makes a recipe whose symbols are the sizes that have ever changed, and fills it for these."""
        for met in self._met:
            self._varies.update(place for place, size in enumerate(sizes) if size != met[place])
        self._credit -= 1
        recorder = SizeTrace()
        # Sizes that are equal now and were equal before are one: a guard between two symbols says less.
        groups: dict[_Sizes, list[int]] = {}
        for place in sorted(self._varies):
            groups.setdefault((sizes[place], *(met[place] for met in self._met)), []).append(place)
        symbolic: list[int] = list(sizes)
        for index, places in enumerate(groups.values()):
            symbol = recorder.symbol(f"size{index}", sizes[places[0]])
            for place in places:
                symbolic[place] = symbol
        rest = iter(symbolic)
        inputs = {name: (dtype, tuple(next(rest) for _ in own)) for name, (dtype, own) in specs.items()}
        given = {name: known._replace(values=tuple(next(rest) for _ in known.values)) for name, known in numbers.items()}
        try:
            recipe = GraphRecipe(self._device, self._compiler, self._trace(inputs, given), recorder)
        except _NOT_SYMBOLIC:  # what is wrong with the sizes themselves, their own trace says
            return None
        fixed = tuple(place for place in range(len(sizes)) if place not in self._varies)
        known = _Known(recipe, sizes, tuple(map(tuple, groups.values())), fixed)
        self._known = [*self._known, known][-_MOST_RECIPES:]
        return known.filled(sizes)


def _sizes(specs: Mapping[str, Spec], numbers: Mapping[str, Numbers]) -> _Sizes:
    """All sizes and numbers, one after the other."""
    sizes = tuple(size for _, own in specs.values() for size in own)
    return sizes + tuple(value for known in numbers.values() for value in known.values)
