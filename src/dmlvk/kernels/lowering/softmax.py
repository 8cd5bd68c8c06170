"""Plans for softmax and its logarithm."""

from __future__ import annotations

import dataclasses
import math

from dmlvk import ops
from dmlvk.kernels.caps import Capabilities
from dmlvk.kernels.lowering.registry import register
from dmlvk.kernels.manifest import KERNELS
from dmlvk.kernels.plan import Dispatch, KernelVariant, Plan, Range, input_range, output_range
from dmlvk.kernels.select import SOFTMAX, SoftmaxProblem, choose
from dmlvk.kernels.shapes import Coalesced, coalesce, linear_grid
from dmlvk.tensor import TensorDesc, element_bits

_Softmax = ops.ActivationSoftmax1 | ops.ActivationLogSoftmax1


def _problem(desc: _Softmax) -> SoftmaxProblem:
    x = desc.tensor("input_tensor")
    strides = x.effective_strides, desc.tensor("output_tensor").effective_strides
    # Sums do not depend on the order of dimensions, so memory's order makes the longest runs.
    order = sorted(range(x.dimension_count), key=lambda axis: (strides[1][axis], strides[0][axis]), reverse=True)

    def merge(axes: list[int]) -> Coalesced:
        return coalesce([x.sizes[axis] for axis in axes], [[steps[axis] for axis in axes] for steps in strides])

    kept = merge([axis for axis in order if axis not in desc.axes])
    row = merge([axis for axis in order if axis in desc.axes])
    word = 128 // element_bits(x.data_type)
    outer_steps = [step for steps in row.strides for step in steps[:-1]]
    outer_steps += [step for steps in kept.strides for step in steps if kept.sizes != (1,)]
    contiguous = all(steps[-1] == 1 for steps in row.strides) and row.sizes[-1] % word == 0
    unit = word if contiguous and not any(step % word for step in outer_steps) else 1
    return SoftmaxProblem(
        rows=math.prod(kept.sizes),
        row_units=math.prod(row.sizes) // unit,
        unit_elements=unit,
        side_by_side=unit == 1 and kept.sizes[-1] > 1 and kept.strides[1][-1] < row.strides[1][-1],
        kept=kept,
        row=row,
    )


def _plan(desc: _Softmax, problem: SoftmaxProblem, caps: Capabilities, lanes: int, units: int) -> Plan:
    """``lanes`` invocations share a row and hold at least ``units`` units each at a time: a power of two, so that many
    row lengths share a pipeline."""
    units = _power_of_two(units)
    unit, kept, row = problem.unit_elements, problem.kept, problem.row
    local = max(lanes, min(128, _most_invocations(caps)))
    constants = {
        "LOCAL_SIZE_X": local,
        "LOG": int(isinstance(desc, ops.ActivationLogSoftmax1)),
        "SINGLE_RANK": int(len(row.sizes) == 1),
        "LANES": lanes,
        "UNITS": units,
        "WHOLE": int(lanes * units >= problem.row_units),
    }
    params = KERNELS["softmax"].pack(
        rows=problem.rows,
        row_units=problem.row_units,
        kept_rank=len(kept.sizes),
        row_rank=len(row.sizes),
        kept_sizes=kept.sizes,
        kept_x=tuple(step // unit for step in kept.strides[0]),
        kept_y=tuple(step // unit for step in kept.strides[1]),
        row_sizes=(*row.sizes[:-1], row.sizes[-1] // unit),
        row_x=(*(step // unit for step in row.strides[0][:-1]), row.strides[0][-1]),
        row_y=(*(step // unit for step in row.strides[1][:-1]), row.strides[1][-1]),
    )
    variant = (("T", desc.tensor("input_tensor").data_type.name), ("WORDS", str(int(unit > 1))))
    kernel = KernelVariant("softmax", variant, tuple(constants.items()))
    grid = linear_grid(-(-problem.rows // (local // lanes)), caps)
    return Plan((Dispatch(kernel, (input_range(0), output_range()), params, grid),))


def _power_of_two(least: int) -> int:
    """The smallest power of two that is at least this."""
    return 1 << (least - 1).bit_length()


def _most_invocations(caps: Capabilities) -> int:
    """The largest power of two of invocations in a workgroup."""
    return 1 << (caps.workgroup_invocations.bit_length() - 1)


def _elements_held(caps: Capabilities) -> int:
    """How many elements a lane holds where there are lanes enough: few on CPUs, whose drivers take long to compile what
    is unrolled over them."""
    return 4 if caps.is_cpu else 16


def _columns(desc: _Softmax, problem: SoftmaxProblem, caps: Capabilities) -> Plan:
    held = _elements_held(caps)
    return _plan(desc, problem, caps, 1, problem.row_units if problem.row_units <= 2 * held else held // 2)


def _registers(desc: _Softmax, problem: SoftmaxProblem, caps: Capabilities) -> Plan:
    wanted = -(-problem.row_units * problem.unit_elements // _elements_held(caps))
    lanes = min(_power_of_two(wanted), _most_invocations(caps), 1024)
    return _plan(desc, problem, caps, lanes, -(-problem.row_units // lanes))


def _looped(desc: _Softmax, problem: SoftmaxProblem, caps: Capabilities) -> Plan:
    lanes = min(_most_invocations(caps), 512, _power_of_two(problem.row_units))
    return _plan(desc, problem, caps, lanes, max(_elements_held(caps) // problem.unit_elements, 1))


_SCHEDULES = {"columns": _columns, "registers": _registers, "looped": _looped}


def over_last_dimension(tensor: TensorDesc, where: Range, caps: Capabilities) -> Dispatch:
    """Softmax in place, as the last step of another operator: each element is read before it is written."""
    last = tensor.dimension_count - 1
    desc = ops.ActivationSoftmax1(input_tensor=tensor, output_tensor=tensor, axes=(last,))
    problem = _problem(desc)
    plan = _SCHEDULES[choose(SOFTMAX, problem, caps).name](desc, problem, caps)
    return dataclasses.replace(plan.dispatches[0], bindings=(where, where))


register(
    ops.ActivationSoftmax1,
    ops.ActivationLogSoftmax1,
    problem=_problem,
    rules=SOFTMAX,
    schedules=_SCHEDULES,
)
