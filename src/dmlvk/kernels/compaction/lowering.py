"""Plans for finding what is not zero."""

from __future__ import annotations

from typing import NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Plan, Resource, Source, input_range, output_range
from dmlvk.kernels.common.registry import register, subgroup_features
from dmlvk.kernels.common.shapes import (
    WORD_BITS,
    check_rounds,
    coalesce,
    divisors,
    linear_grid,
    most_invocations,
    power_of_two,
)
from dmlvk.kernels.compaction.manifest import MASK_ELEMENTS
from dmlvk.kernels.compaction.rules import NONZERO, NonzeroProblem
from dmlvk.spec.ops.compaction import NonzeroCoordinates
from dmlvk.spec.schema import FLOATS
from dmlvk.spec.tensor import element_bits, packed_strides

_CAPACITY = 2048
"""Elements that a workgroup gathers in shared memory before it writes their rows."""
_MOST_CHUNKS = 4096
"""The most chunks of an input: the workgroup of each adds up the counts of all before it."""


class _Shape(NamedTuple):
    """The invocations of a workgroup that finds masks, and the units of a tile that each of them loads."""

    invocations: int
    units: int


def _problem(desc: NonzeroCoordinates) -> NonzeroProblem:
    x = desc.tensor("input_tensor")
    walk = coalesce(x.sizes, [x.effective_strides])
    bits = element_bits(x.data_type)
    word = WORD_BITS // bits
    *outer, inner = walk.strides[0]
    length = walk.sizes[-1]
    in_words = length >= word and not any(step % word for step in (*outer, *(length,) * bool(outer)))
    return NonzeroProblem(bits, x.element_count, word if inner == 1 and in_words else 1, walk)


def _units_in_flight(problem: NonzeroProblem, caps: Capabilities) -> int:
    """64 bytes an invocation in words, but at most a mask of elements; a CPU's caches need none of those."""
    if caps.is_cpu:
        return 2
    return min(4, MASK_ELEMENTS // problem.unit_elements) if problem.unit_elements > 1 else 8


def _mask_fields(
    desc: NonzeroCoordinates, problem: NonzeroProblem, shape: _Shape
) -> tuple[dict[str, str | int], dict[str, int], dict[str, int | tuple[int, ...]]]:
    """Variant, constants and parameters of a kernel that finds masks."""
    unit = problem.unit_elements
    sizes = (*problem.walk.sizes[:-1], -(-problem.walk.sizes[-1] // unit))
    strides = problem.walk.strides[0]
    if unit > 1:
        strides = (*(step // unit for step in strides[:-1]), 1)
    constants = {
        "LOCAL_SIZE_X": shape.invocations,
        "UNITS": shape.units,
        "RANK": len(sizes),
        "IS_FLOAT": int(desc.tensor("input_tensor").data_type in FLOATS),
    }
    params: dict[str, int | tuple[int, ...]] = {
        "units": problem.elements // unit,
        "tail": problem.elements % unit,
        "sizes": sizes,
        "divisors": divisors(sizes),
        "strides": strides,
    }
    return {"T": f"UINT{problem.bits}", "WORDS": unit > 1}, constants, params


def _row_params(desc: NonzeroCoordinates) -> dict[str, int | tuple[int, ...]]:
    """Parameters of a kernel that writes rows."""
    sizes, target = desc.tensor("input_tensor").sizes, desc.tensor("output_coordinates_tensor")
    columns = target.sizes[-1]
    return {
        "columns": columns,
        "column_sizes": sizes[-columns:],
        "column_divisors": divisors(sizes[-columns:]),
        "step_divisors": divisors(packed_strides(sizes)[-columns:]),
        "row_step": target.effective_strides[-2],
        "column_step": target.effective_strides[-1],
    }


def _row_rounds(desc: NonzeroCoordinates, invocations: int, elements: int, caps: Capabilities) -> int:
    """The most rounds of loops that write the rows of a tile: sums over subgroups, then for each time that elements
    are gathered their bits and their rows."""
    columns = desc.tensor("output_coordinates_tensor").sizes[-1]
    gathered = MASK_ELEMENTS + -(-min(elements, _CAPACITY) // (invocations // columns))
    return 1 + -(-invocations // caps.least_subgroup) + -(-elements // _CAPACITY) * (1 + gathered)


def _mask_rounds(units: int) -> int:
    """The most rounds of loops that find the masks of a tile: neighbours merge their bits."""
    return 1 + units * (MASK_ELEMENTS.bit_length() - 1)


def _whole(desc: NonzeroCoordinates, problem: NonzeroProblem, caps: Capabilities) -> Plan:
    units = _units_in_flight(problem, caps)
    wanted = power_of_two(-(-problem.elements // (problem.unit_elements * units)))
    invocations = min(max(wanted, 128), most_invocations(caps))
    variant, constants, params = _mask_fields(desc, problem, _Shape(invocations, units))
    rows = _row_params(desc)
    tile = invocations * units * problem.unit_elements
    rounds = _mask_rounds(units) + _row_rounds(desc, invocations, tile, caps)
    check_rounds(-(-problem.elements // tile) * rounds, caps, desc.dml_name)
    return Plan(
        (
            make_dispatch(
                "nonzero_whole",
                (input_range(0), output_range(0), output_range(1)),
                (1, 1, 1),
                variant=variant,
                constants={**constants, "CAPACITY": _CAPACITY},
                **params,
                **rows,
            ),
        )
    )


def _chunks(desc: NonzeroCoordinates, problem: NonzeroProblem, caps: Capabilities) -> Plan:
    invocations = min(128 if caps.is_cpu else 256, most_invocations(caps))
    masks = -(-problem.elements // MASK_ELEMENTS)
    tiles = -(-masks // invocations)
    chunk_tiles = -(-tiles // _MOST_CHUNKS)
    chunks = -(-tiles // chunk_tiles)
    shape = _Shape(invocations, _units_in_flight(problem, caps))
    mask_tiles = MASK_ELEMENTS // (shape.units * problem.unit_elements)  # of those that rows are written by
    rounds = max(mask_tiles * _mask_rounds(shape.units), _row_rounds(desc, invocations, invocations * MASK_ELEMENTS, caps))
    check_rounds(-(-chunks // invocations) + chunk_tiles * rounds, caps, desc.dml_name)

    variant, constants, params = _mask_fields(desc, problem, shape)
    chunk_masks = chunk_tiles * invocations
    temporary = Resource(Source.TEMPORARY)
    found, counts = temporary.take(4 * masks), temporary.take(4 * chunks)
    grid = linear_grid(chunks, caps)
    first = make_dispatch(
        "nonzero_masks",
        (input_range(0), found, counts),
        grid,
        variant=variant,
        constants=constants,
        **params,
        chunks=chunks,
        chunk_units=chunk_masks * MASK_ELEMENTS // problem.unit_elements,
    )
    second = make_dispatch(
        "nonzero_write",
        (found, counts, output_range(0), output_range(1)),
        grid,
        variant={},
        constants={"LOCAL_SIZE_X": invocations, "CAPACITY": _CAPACITY},
        **_row_params(desc),
        masks=masks,
        chunks=chunks,
        chunk_masks=chunk_masks,
    )
    return Plan((first, second), temporary_bytes=temporary.end)


register(
    NonzeroCoordinates,
    problem=_problem,
    rules=NONZERO,
    schedules={"whole": _whole, "chunks": _chunks},
    features=subgroup_features,
)
