"""Values with sizes in them, such as descs, that are made again with the symbols of another trace."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from dmlvk.spec.size import CALL, COMPUTED, RealSize, Size, SizeTrace, alike, derived, is_symbolic, items_of


class Mould:
    """A value with Sizes in it, such as a desc, to be made again with symbols of other traces.

    What the sizes are made of becomes symbols. An atom that is computed of others of them stays computed: the new trace then
    knows how they are related.

    Args:
        value: The value: tuples and dataclasses with Sizes among what is hashable.

    Attributes:
        key: Values with equal keys differ in nothing but the numbers of their symbols.
        symbols: The Sizes that become symbols.
    """

    def __init__(self, value: Any) -> None:
        self._value = value
        found: dict[int, Size] = {}
        _collect_atoms(value, found)
        self._atoms = dict(sorted(found.items()))
        self._places = {position: place for place, position in enumerate(self._atoms)}
        self.symbols = tuple(atom for atom in self._atoms.values() if not self._is_computed(atom))
        computed = (self._pattern(atom.made) if self._is_computed(atom) else None for atom in self._atoms.values())
        self.key = (*computed, self._pattern(value))

    def _is_computed(self, atom: Size) -> bool:
        parts: dict[int, Size] = {}
        _collect_atoms(atom.made[1:], parts)
        return atom.made[0] != "symbol" and parts.keys() <= self._atoms.keys()

    def _pattern(self, value: Any) -> Any:
        if isinstance(value, Size):
            terms = ((tuple(sorted(map(self._places.__getitem__, own))), factor) for own, factor in value.terms.items())
            return Size, tuple(sorted(terms))
        if isinstance(value, RealSize):
            return RealSize, self._pattern(value.made)
        items = items_of(value)
        return (type(value), *map(self._pattern, items)) if items else (type(value), value)

    def cast(self, trace: SizeTrace, numbers: Iterable[int], plain: Collection[int] = ()) -> Any:
        """The value with new symbols of a trace.

        Args:
            trace: The trace.
            numbers: The number of each of ``symbols`` there.
            plain: The places among them of those that become no symbol but their plain number.
        """
        made: dict[int, int] = {}
        rest = enumerate(numbers)
        for position, atom in self._atoms.items():
            if self._is_computed(atom):
                operation, *arguments = (_made_again(item, made, trace) for item in atom.made)
                made[position] = _called_again(arguments) if operation == CALL else COMPUTED[operation](*arguments)
            else:
                place, number = next(rest)
                made[position] = number if place in plain else trace.symbol(f"size{len(trace.symbols)}", number)
        return _made_again(self._value, made, trace)


def _collect_atoms(value: Any, found: dict[int, Size]) -> None:
    """Adds the atoms that a value is made of, by position in their trace."""
    if isinstance(value, Size):
        found.update((position, value.trace.atoms[position]) for product in value.terms for position in product)
    elif isinstance(value, RealSize):
        _collect_atoms(value.made, found)
    else:
        for item in items_of(value):
            _collect_atoms(item, found)


def _made_again(value: Any, made: dict[int, int], trace: SizeTrace) -> Any:
    """A value with other numbers for its atoms."""
    if isinstance(value, Size):
        return sum(factor * math.prod(made[position] for position in own) for own, factor in value.terms.items())
    if isinstance(value, RealSize):
        operation, *arguments = (_made_again(item, made, trace) for item in value.made)
        return _called_again(arguments) if operation == CALL else trace.real(operation, *arguments)
    if isinstance(value, tuple):
        return alike(value, (_made_again(item, made, trace) for item in value))
    if not is_symbolic(value):
        return value
    names = (field.name for field in dataclasses.fields(value))
    fields = dict(zip(names, items_of(value), strict=True))
    return dataclasses.replace(value, **{name: _made_again(own, made, trace) for name, own in fields.items()})


def _called_again(made: Sequence[Any]) -> Any:
    function, arguments, index = made
    return derived(function, *arguments)[index]
