"""Scatters: a copy with updates written over it, or one pass that takes each row from the input or from an update."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Dispatch, Launch, Plan, Range, Source, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import WORD_BITS, Coalesced, coalesce, divisors, linear_grid, part_starts
from dmlvk.kernels.copy.lowering import copy, unit_items, unit_type
from dmlvk.kernels.scatter.manifest import MarkPhase
from dmlvk.kernels.scatter.rules import SCATTER, ScatterProblem
from dmlvk.spec.ops.scatter import ScatterElements, ScatterNd
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.size import decided
from dmlvk.spec.tensor import TensorDesc, element_bits, packed_strides

_WORKGROUP = 128
_INPUT, _INDICES, _UPDATES = map(input_range, range(3))
_OUTPUT = output_range()


class _Role(enum.Enum):
    """The tensors that have a dimension, and its use."""

    SHARED = enum.auto()
    """A dimension of updates, output and indices: an update stays at its coordinate."""
    POSITION = enum.auto()
    """A dimension of the updates and the indices: it counts the updates that may have one place."""
    CHOSEN = enum.auto()
    """A dimension of the output: an index is a coordinate in it."""
    ROW = enum.auto()
    """A dimension of updates and output, along which an update extends."""


_OF_UPDATES = (_Role.SHARED, _Role.POSITION)
_OF_PLACES = (_Role.SHARED, _Role.CHOSEN)


class _Dimension(NamedTuple):
    """A dimension and the steps along it, 0 in what does not have it.

    Attributes:
        role: The role of the dimension.
        size: Its size.
        inputs, outputs, updates: Strides in elements.
        indices: Stride in words.
        entries: The step in the table, in words.
        positions: The step of an update's position among those that may have its place.
    """

    role: _Role
    size: int
    inputs: int = 0
    outputs: int = 0
    updates: int = 0
    indices: int = 0
    entries: int = 0
    positions: int = 0


@dataclass(frozen=True)
class _Scatter:
    """A desc as dimensions, those of a role in row-major order, with the words from one index of an update to the next."""

    dimensions: tuple[_Dimension, ...]
    index_step: int

    def of(self, *roles: _Role) -> list[_Dimension]:
        """The dimensions of these roles."""
        return [dimension for dimension in self.dimensions if dimension.role in roles]

    def count(self, *roles: _Role) -> int:
        """The number of positions along the dimensions of these roles: the product of their sizes."""
        return math.prod(dimension.size for dimension in self.of(*roles))


def _walk(dimensions: Sequence[_Dimension], *tensors: str) -> Coalesced:
    """The dimensions, merged, with their steps in these tensors."""
    steps = [[getattr(dimension, tensor) for dimension in dimensions] for tensor in tensors]
    return coalesce([dimension.size for dimension in dimensions], steps)


def _numbered(scatter: _Scatter, element_words: int) -> _Scatter:
    """The scatter with the steps of positions and of entries.

    Args:
        scatter: The scatter without them.
        element_words: The words of an element where the output is the table; 0 for a table in the order in which places lie
            in the output.
    """
    found = list(scatter.dimensions)
    places = sorted(
        (at for at, dimension in enumerate(found) if dimension.role in _OF_PLACES), key=lambda at: -found[at].outputs
    )
    for at, step in zip(places, packed_strides([found[at].size for at in places]), strict=True):
        found[at] = found[at]._replace(entries=found[at].outputs * element_words or step)
    positions = [at for at, dimension in enumerate(found) if dimension.role is _Role.POSITION]
    for at, step in zip(positions, packed_strides([found[at].size for at in positions]), strict=True):
        found[at] = found[at]._replace(positions=step)
    return dataclasses.replace(scatter, dimensions=tuple(found))


# -- what a desc asks for


def _tensors(desc: OperatorDesc) -> tuple[TensorDesc, TensorDesc, TensorDesc, TensorDesc]:
    """Input, indices, updates and output."""
    x, indices, updates, output = (desc.tensor(f"{name}_tensor") for name in ("input", "indices", "updates", "output"))
    return x, indices, updates, output


def _index_words(desc: OperatorDesc) -> int:
    return element_bits(desc.tensor("indices_tensor").data_type) // 32


def _of_elements(desc: ScatterElements) -> _Scatter:
    """Along dimensions in which the indices are broadcast an update extends as a row."""
    x, indices, updates, output = _tensors(desc)
    words = _index_words(desc)
    dimensions = []
    for axis, size in enumerate(indices.sizes):
        own = (x.effective_strides[axis], output.effective_strides[axis])
        update, index = updates.effective_strides[axis], indices.effective_strides[axis] * words
        if axis == desc.axis:
            dimensions.append(_Dimension(_Role.POSITION, size, updates=update, indices=index))
            dimensions.append(_Dimension(_Role.CHOSEN, x.sizes[axis], *own))
        else:
            dimensions.append(_Dimension(_Role.SHARED if index else _Role.ROW, size, *own, update, index))
    return _Scatter(tuple(dimensions), 0)


def _of_tuples(desc: ScatterNd) -> _Scatter:
    x, indices, updates, output = _tensors(desc)
    words = _index_words(desc)
    *array, length = indices.sizes[-desc.indices_dimension_count :]
    *index_steps, index_step = (step * words for step in indices.effective_strides[-desc.indices_dimension_count :])
    own = list(zip(x.sizes, x.effective_strides, output.effective_strides, strict=True))[-desc.input_dimension_count :]
    chosen, rows = own[:length], own[length:]
    steps = updates.effective_strides[updates.dimension_count - len(array) - len(rows) :]
    update_steps, row_steps = steps[: len(array)], steps[len(array) :]
    return _Scatter(
        (
            *(
                _Dimension(_Role.POSITION, size, updates=update, indices=index)
                for size, update, index in zip(array, update_steps, index_steps, strict=True)
            ),
            *(_Dimension(_Role.CHOSEN, *place) for place in chosen),
            *(_Dimension(_Role.ROW, *row, step) for row, step in zip(rows, row_steps, strict=True)),
        ),
        index_step,
    )


def _scatter(desc: OperatorDesc) -> _Scatter:
    if isinstance(desc, ScatterElements):
        return _of_elements(desc)
    assert isinstance(desc, ScatterNd), "the rows registered below"
    return _of_tuples(desc)


def _problem(desc: OperatorDesc) -> ScatterProblem:
    scatter = _scatter(desc)
    return ScatterProblem(
        element_bytes=element_bits(desc.tensor("input_tensor").data_type) // 8,
        row_elements=scatter.count(_Role.ROW),
        updates=scatter.count(*_OF_UPDATES),
        places=scatter.count(*_OF_PLACES),
        alone=scatter.count(_Role.POSITION) == 1,
    )


# -- launches


class _Units(NamedTuple):
    """A walk in units, and how many elements a unit has."""

    walk: Coalesced
    elements: int


def _in_units(walk: Coalesced, moved: int, bits: int, others: Sequence[int] = ()) -> _Units:
    """The walk in units of up to 16 bytes.

    Args:
        walk: The walk in elements.
        moved: The number of its tensors, from the first, that are moved: their steps are then in units. A unit has several
            elements where those of a row are contiguous in them, and stay at one place in the others.
        bits: The bits of an element.
        others: Further places, in elements, where units must start.
    """
    inner = tuple(steps[-1] for steps in walk.strides)
    elements = 1
    if inner == (*(1,) * moved, *(0,) * (len(inner) - moved)):
        outer = (step for steps in walk.strides[:moved] for step in steps[:-1])
        elements = decided(math.gcd, WORD_BITS // bits, walk.sizes[-1], *outer, *others)
    strides = tuple(
        tuple(step // elements for step in steps[:-1]) + steps[-1:] if tensor < moved else steps
        for tensor, steps in enumerate(walk.strides)
    )
    return _Units(Coalesced((*walk.sizes[:-1], walk.sizes[-1] // elements), strides), elements)


def _dispatch(
    kernel: str,
    bindings: tuple[Range, ...],
    sizes: Sequence[int],
    constants: dict[str, int],
    params: dict[str, Any],
    caps: Capabilities,
    unit_bits: int = 0,
) -> Dispatch:
    """The launch of a kernel with an invocation, or one of ITEMS, for each index into ``sizes``."""
    count = math.prod(sizes)
    constants = {"LOCAL_SIZE_X": _WORKGROUP, "RANK": len(sizes), **constants}
    return make_dispatch(
        kernel,
        bindings,
        linear_grid(-(-count // (_WORKGROUP * constants.get("ITEMS", 1))), caps),
        variant={"T": unit_type(unit_bits)} if unit_bits else {},
        constants=constants,
        count=count,
        sizes=tuple(sizes),
        divisors=divisors(sizes),
        **params,
    )


def _index_constants(desc: OperatorDesc, scatter: _Scatter) -> dict[str, int]:
    signed = not desc.tensor("indices_tensor").data_type.name.startswith("UINT")
    return {"TUPLE": len(scatter.of(_Role.CHOSEN)), "INDEX_WORDS": _index_words(desc), "INDEX_SIGNED": int(signed)}


def _index_params(scatter: _Scatter) -> dict[str, Any]:
    """A step that needs more than 32 bits is of a dimension of one element, and never taken."""
    chosen = scatter.of(_Role.CHOSEN)
    return {
        "index_step": scatter.index_step % 2**32,
        "chosen_sizes": tuple(dimension.size for dimension in chosen),
        "chosen_entries": tuple(dimension.entries % 2**32 for dimension in chosen),
    }


class _Part(NamedTuple):
    """Entries of places that a table has: how many, from which on."""

    first: int
    places: int


_WHOLE = _Part(0, 2**32 - 1)


def _mark(
    desc: OperatorDesc, scatter: _Scatter, phase: MarkPhase, table: Range, caps: Capabilities, part: _Part = _WHOLE
) -> Dispatch:
    """An invocation an update, or an entry: as they lie in the table."""
    if phase == MarkPhase.CLEAR_ALL:
        dimensions = sorted(scatter.of(*_OF_PLACES), key=lambda dimension: -dimension.entries)
    else:
        dimensions = scatter.of(*_OF_UPDATES)
    walk = _walk(dimensions, "entries", "indices", "positions")
    entries, indices, positions = walk.strides
    return _dispatch(
        "scatter_mark",
        (_INDICES, table),
        walk.sizes,
        {"PHASE": phase, **_index_constants(desc, scatter)},
        {
            **part._asdict(),
            "entry_strides": entries,
            "index_strides": indices,
            "position_strides": positions,
            **_index_params(scatter),
        },
        caps,
    )


def _write(desc: OperatorDesc, scatter: _Scatter, table: Range | None, caps: Capabilities) -> Dispatch:
    """Rows are walked last, as they lie in the output."""
    bits = element_bits(desc.tensor("input_tensor").data_type)
    rows = sorted(scatter.of(_Role.ROW), key=lambda dimension: -dimension.outputs)
    walk = _walk([*scatter.of(*_OF_UPDATES), *rows], "updates", "outputs", "indices", "entries", "positions")
    outputs = [dimension.outputs for dimension in scatter.of(_Role.CHOSEN)]
    units = _in_units(walk, 2, bits, outputs)
    updates, own, indices, entries, positions = units.walk.strides
    return _dispatch(
        "scatter_write",
        (_INDICES, _UPDATES, table or _INDICES, _OUTPUT),
        units.walk.sizes,
        {"TABLE": int(table is not None), **_index_constants(desc, scatter)},
        {
            "chosen_outputs": tuple(step // units.elements for step in outputs),
            "update_strides": updates,
            "output_strides": own,
            "index_strides": indices,
            "entry_strides": entries,
            "position_strides": positions,
            **_index_params(scatter),
        },
        caps,
        bits * units.elements,
    )


def _merge(desc: OperatorDesc, scatter: _Scatter, table: Range, caps: Capabilities, part: _Part) -> Dispatch:
    bits = element_bits(desc.tensor("input_tensor").data_type)
    output = sorted(scatter.of(*_OF_PLACES, _Role.ROW), key=lambda dimension: -dimension.outputs)
    places = _walk(scatter.of(_Role.POSITION), "updates")
    walk = _walk(output, "inputs", "updates", "outputs", "entries")
    units = _in_units(walk, 3, bits, places.strides[0])
    inputs, updates, own, entries = units.walk.strides
    bits *= units.elements
    return _dispatch(
        "scatter_merge",
        (_INPUT, _UPDATES, table, _OUTPUT),
        units.walk.sizes,
        {"ITEMS": unit_items(bits, math.prod(units.walk.sizes), caps), "UPDATE_RANK": len(places.sizes)},
        {
            **part._asdict(),
            "input_strides": inputs,
            "update_strides": updates,
            "output_strides": own,
            "entry_strides": entries,
            "update_sizes": places.sizes,
            "update_divisors": divisors(places.sizes),
            "update_places": tuple(step // units.elements for step in places.strides[0]),
        },
        caps,
        bits,
    )


# -- schedules


def _copied(desc: OperatorDesc, caps: Capabilities) -> Launch:
    x, output = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    strides = (x.effective_strides, output.effective_strides)
    return copy(_INPUT, _OUTPUT, x.data_type, x.sizes, strides, caps)


def _alone(desc: OperatorDesc, problem: ScatterProblem, caps: Capabilities) -> Plan:
    return Plan((_copied(desc, caps), _write(desc, _numbered(_scatter(desc), 0), None, caps)))


def _sparse(desc: OperatorDesc, problem: ScatterProblem, caps: Capabilities) -> Plan:
    scatter, table = _numbered(_scatter(desc), 0), Range(Source.TEMPORARY, 0, 0, problem.table_bytes)
    clear, mark = (_mark(desc, scatter, phase, table, caps) for phase in (MarkPhase.CLEAR, MarkPhase.MARK))
    return Plan((_copied(desc, caps), clear, mark, _write(desc, scatter, table, caps)), temporary_bytes=table.nbytes)


def _merged(
    desc: OperatorDesc, scatter: _Scatter, table: Range, caps: Capabilities, part: _Part = _WHOLE
) -> tuple[Dispatch, ...]:
    clear, mark = (_mark(desc, scatter, phase, table, caps, part) for phase in (MarkPhase.CLEAR_ALL, MarkPhase.MARK))
    return clear, mark, _merge(desc, scatter, table, caps, part)


def _in_output(desc: OperatorDesc, problem: ScatterProblem, caps: Capabilities) -> Plan:
    return Plan(_merged(desc, _numbered(_scatter(desc), problem.element_bytes // 4), _OUTPUT, caps))


def _in_table(desc: OperatorDesc, problem: ScatterProblem, caps: Capabilities) -> Plan:
    """The scatter in parts whose tables a binding holds."""
    scatter, most = _numbered(_scatter(desc), 0), min(problem.places, caps.storage_buffer_bytes // 4)
    table = Range(Source.TEMPORARY, 0, 0, 4 * most)
    parts = (_Part(first, min(most, problem.places - first)) for first in part_starts(problem.places, most))
    dispatches = tuple(itertools.chain.from_iterable(_merged(desc, scatter, table, caps, part) for part in parts))
    return Plan(dispatches, temporary_bytes=table.nbytes)


register(
    ScatterElements,
    ScatterNd,
    problem=_problem,
    rules=SCATTER,
    schedules={"alone": _alone, "sparse": _sparse, "in_output": _in_output, "table": _in_table},
)
