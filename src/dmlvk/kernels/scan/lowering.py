"""Plans for running sums and products."""

from __future__ import annotations

import math
from typing import NamedTuple

from dmlvk.devices.capabilities import SUBGROUPS, Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Dispatch, Plan, Range, Source, input_range, output_range
from dmlvk.kernels.common.registry import integer_features, register
from dmlvk.kernels.common.shapes import WORD_BITS, coalesce, divisors, linear_grid, power_of_two
from dmlvk.kernels.scan.manifest import ScanPhase
from dmlvk.kernels.scan.rules import SCAN, ScanProblem
from dmlvk.spec.enums import AxisDirection, TensorDataType
from dmlvk.spec.ops.scan import CumulativeProduct, CumulativeSummation
from dmlvk.spec.schema import OperatorDesc
from dmlvk.spec.tensor import element_bits

_Scan = CumulativeSummation | CumulativeProduct

_PARTIAL_BYTES = 16
_MOST_CHUNKS = 256
"""Chunks of a row: every chunk's invocations read the totals of all before it."""
_WORKGROUPS = 8
"""Workgroups of chunks for each processor, of which it has enough."""


class _Shape(NamedTuple):
    """The division of rows among a kernel's workgroups: ``lanes`` invocations a row, each with ``units`` of a tile."""

    invocations: int
    lanes: int
    units: int

    @property
    def rows(self) -> int:
        return self.invocations // self.lanes


def _problem(desc: _Scan) -> ScanProblem:
    x = desc.tensor("input_tensor")
    strides = x.effective_strides, desc.tensor("output_tensor").effective_strides
    others = [axis for axis in range(x.dimension_count) if axis != desc.axis]
    order = sorted(others, key=lambda axis: (strides[1][axis], strides[0][axis]), reverse=True)
    kept = coalesce([x.sizes[axis] for axis in order], [[steps[axis] for axis in order] for steps in strides])
    along = strides[0][desc.axis], strides[1][desc.axis]
    length = x.sizes[desc.axis]
    word = WORD_BITS // element_bits(x.data_type)
    starts = [step for steps in kept.strides for step in steps if kept.sizes != (1,)]
    whole_words = along == (1, 1) and length % word == 0 and not any(step % word for step in starts)
    unit = word if whole_words else 1
    return ScanProblem(
        rows=math.prod(kept.sizes),
        units=length // unit,
        unit_elements=unit,
        side_by_side=unit == 1 and kept.sizes[-1] > 1 and kept.strides[1][-1] < along[1],
        kept=kept,
        steps=along,
    )


def _row_shape(problem: ScanProblem, caps: Capabilities) -> _Shape:
    """A cache line or two at a time first, then several loads in flight in each lane. A CPU's caches need none of those,
    and the code that unrolls them only takes longer to compile."""
    most = 1 << (caps.workgroup_invocations.bit_length() - 1)
    held = 2 if caps.is_cpu else 4 if problem.unit_elements > 1 else 8
    wanted = max(min(problem.units, 32), -(-problem.units // held))
    lanes = min(power_of_two(wanted), most, 64 if caps.is_cpu else 512)
    return _Shape(max(lanes, min(128, most)), lanes, min(power_of_two(-(-problem.units // lanes)), held))


def _column_shape(desc: _Scan, problem: ScanProblem, caps: Capabilities) -> _Shape:
    """Neighbours fill 32-byte sectors of memory; where rows are few, lanes share them until the device is full. As many
    bytes in flight whatever the type."""
    most = min(1 << (caps.workgroup_invocations.bit_length() - 1), 512)
    bits = element_bits(desc.tensor("input_tensor").data_type)
    held = 2 if caps.is_cpu else 256 // bits
    columns = min(power_of_two(problem.rows), 16 if bits == 64 else 32)
    lanes = min(
        power_of_two(-(-problem.units // held)), power_of_two(-(-caps.model.invocations(1) // problem.rows)), most // columns
    )
    columns = min(power_of_two(problem.rows), max(most // lanes // 4, columns))
    return _Shape(columns * lanes, lanes, held)


def _dispatch(
    desc: _Scan, problem: ScanProblem, caps: Capabilities, kernel: str, shape: _Shape, chunk_units: int, phase: ScanPhase
) -> Dispatch:
    unit, kept = problem.unit_elements, problem.kept
    chunks = -(-problem.units // chunk_units)
    exclusive = desc.has_exclusive_sum if isinstance(desc, CumulativeSummation) else desc.has_exclusive_product
    constants = {
        "LOCAL_SIZE_X": shape.invocations,
        "PRODUCT": int(isinstance(desc, CumulativeProduct)),
        "PHASE": phase,
        **({"LANES": shape.lanes} if kernel == "scan_rows" else {"COLUMNS": shape.rows}),
        "UNITS": shape.units,
    }
    data_type = desc.tensor("input_tensor").data_type.name
    totals = Range(Source.TEMPORARY, 0, 0, problem.rows * chunks * _PARTIAL_BYTES)
    bindings = {
        ScanPhase.WHOLE: (input_range(0), output_range(), output_range()),
        ScanPhase.TOTALS: (input_range(0), totals, totals),
        ScanPhase.APPLY: (input_range(0), output_range(), totals),
    }
    grid = linear_grid(-(-problem.rows // shape.rows) * chunks, caps)
    return make_dispatch(
        kernel,
        bindings[phase],
        grid,
        variant={"T": data_type.replace("INT", "UINT").replace("UU", "U"), "WORDS": unit > 1},
        constants=constants,
        rows=problem.rows,
        units=problem.units,
        chunks=chunks,
        chunk_units=chunk_units,
        reverse=int(desc.axis_direction == AxisDirection.DECREASING),
        exclusive=int(exclusive),
        x_step=problem.steps[0],
        y_step=problem.steps[1],
        kept_rank=len(kept.sizes),
        kept_sizes=kept.sizes,
        kept_divisors=divisors(kept.sizes),
        kept_x=tuple(step // unit for step in kept.strides[0]),
        kept_y=tuple(step // unit for step in kept.strides[1]),
    )


def _whole(desc: _Scan, problem: ScanProblem, caps: Capabilities, kernel: str, shape: _Shape) -> Plan:
    return Plan((_dispatch(desc, problem, caps, kernel, shape, problem.units, ScanPhase.WHOLE),))


def _in_chunks(desc: _Scan, problem: ScanProblem, caps: Capabilities, kernel: str, shape: _Shape) -> Plan:
    tile = shape.lanes * shape.units
    wanted = min(_MOST_CHUNKS, -(-caps.model.workgroups(_WORKGROUPS) // -(-problem.rows // shape.rows)))
    chunk_units = -(-problem.units // (tile * wanted)) * tile
    chunks = -(-problem.units // chunk_units)
    steps = (ScanPhase.TOTALS, ScanPhase.APPLY)
    phases = tuple(_dispatch(desc, problem, caps, kernel, shape, chunk_units, phase) for phase in steps)
    return Plan(phases, temporary_bytes=problem.rows * chunks * _PARTIAL_BYTES)


def _rows(desc: _Scan, problem: ScanProblem, caps: Capabilities) -> Plan:
    return _whole(desc, problem, caps, "scan_rows", _row_shape(problem, caps))


def _row_chunks(desc: _Scan, problem: ScanProblem, caps: Capabilities) -> Plan:
    return _in_chunks(desc, problem, caps, "scan_rows", _row_shape(problem, caps))


def _columns(desc: _Scan, problem: ScanProblem, caps: Capabilities) -> Plan:
    return _whole(desc, problem, caps, "scan_columns", _column_shape(desc, problem, caps))


def _column_chunks(desc: _Scan, problem: ScanProblem, caps: Capabilities) -> Plan:
    return _in_chunks(desc, problem, caps, "scan_columns", _column_shape(desc, problem, caps))


def _features(row: type[OperatorDesc], data_type: TensorDataType) -> frozenset[str]:
    return integer_features(row, data_type) | SUBGROUPS


register(
    CumulativeSummation,
    CumulativeProduct,
    problem=_problem,
    rules=SCAN,
    schedules={"column chunks": _column_chunks, "columns": _columns, "chunks": _row_chunks, "rows": _rows},
    features=_features,
)
