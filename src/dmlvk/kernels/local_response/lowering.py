"""Local response normalization and its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.limitation import LOOP_ROUNDS
from dmlvk.kernels.common.plan import Dispatch, Plan, Range, Source, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import WAVES_OF_ITEMS, check_rounds, divisors, linear_grid
from dmlvk.kernels.elementwise.lowering import pointwise_problem
from dmlvk.kernels.elementwise.rules import ElementwiseProblem
from dmlvk.kernels.local_response.rules import (
    LOCAL_RESPONSE_GRADIENT,
    LOCAL_RESPONSE_NORMALIZATION,
    LocalResponseProblem,
)
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.ops import LocalResponseNormalization, LocalResponseNormalizationGrad

_WORKGROUP = 128
"""Invocations of every workgroup: what the least device has."""
_SEVERAL = 8
"""Neighbours in the region's dimension that an invocation handles one after another."""
_LONGEST_RUN = 32
"""Neighbours that an invocation of the gradient's kernel handles, which reads a region more on either side."""
_DENSE_RUN = 8
"""Neighbours that such an invocation handles where they are neighbours in memory, so that the accesses of two invocations
are a run apart. H200, 5 channels of 32x256x56x56 in float32: 251 us with 8, 388 with 16, 1691 with 32."""

_Desc = LocalResponseNormalization | LocalResponseNormalizationGrad


class _Tensor(NamedTuple):
    """A kernel's tensor: its strides in elements over N, C, H and W, and where it is."""

    strides: Sequence[int]
    part: Range


def _region_axes(desc: _Desc) -> tuple[int, ...]:
    return (1,) if desc.cross_channel else (2, 3)


def _walk(
    desc: _Desc, input_type: TensorDataType, output_type: TensorDataType, strides: Sequence[Sequence[int]]
) -> ElementwiseProblem:
    """The problem of tensors of these strides, with the coordinates in the region's dimensions before the last."""
    a, b = ((0, 1, 0, 0), (0, 0, 0, 0)) if desc.cross_channel else ((0, 0, 1, 0), (0, 0, 0, 1))
    sizes = desc.tensor("input_tensor").sizes
    return pointwise_problem(input_type, output_type, sizes, [*strides[:-1], a, b, strides[-1]])


def _problem(desc: _Desc) -> LocalResponseProblem:
    x = desc.tensor("input_tensor")
    tensors = [slot.tensor for slot in desc.input_slots() + desc.output_slots() if slot.tensor is not None]
    walk = _walk(desc, x.data_type, x.data_type, [tensor.effective_strides for tensor in tensors])
    return LocalResponseProblem(
        walk, desc.local_size, tuple(min(desc.local_size, x.sizes[axis]) for axis in _region_axes(desc))
    )


def _several(count: int, caps: Capabilities, is_dense: bool) -> int:
    """Neighbours that an invocation handles one after another: several where there are enough to fill the device."""
    return 1 if caps.is_cpu or count < caps.model.invocations(WAVES_OF_ITEMS) else _SEVERAL


def _run(count: int, caps: Capabilities, is_dense: bool) -> int:
    """Neighbours of a run: as many as leave enough invocations to fill the device; a CPU has nothing to fill."""
    if caps.is_cpu:
        return _LONGEST_RUN
    return min(max(count // caps.model.invocations(1), 4), _DENSE_RUN if is_dense else _LONGEST_RUN)


def _dispatch(
    kernel: str,
    desc: _Desc,
    tensors: Mapping[str, _Tensor],
    types: tuple[TensorDataType, TensorDataType],
    lanes: int,
    run: Callable[[int, Capabilities, bool], int],
    caps: Capabilities,
    more_constants: Mapping[str, int] | None = None,
    **params: float,
) -> Dispatch:
    """The launch of a kernel of ``glsl/include/local_response.glsl``.

    Args:
        kernel: The kernel's name.
        desc: The operator.
        tensors: The tensors by the names of the kernel's buffers, in their order; all lie in memory as the last does, or are
            read by elements.
        types: The kernel's T and U.
        lanes: Elements of an item.
        run: The function for the items in dimension A that an invocation handles, given how many there are, the device's
            abilities, and whether neighbours in A are neighbours in memory.
        caps: The device's.
        more_constants: The constants that the kernel has beside the include's.
        params: The parameters that the kernel has beside the include's.
    """
    axes = _region_axes(desc)
    problem = _walk(desc, *types, [tensor.strides for tensor in tensors.values()])
    walk, rank = problem.walk, len(problem.walk.sizes)
    *others, last = tensors
    order = (*others, "a", "b", last)
    steps = {name: [*own[:-1], own[-1] * lanes] for name, own in zip(order, walk.strides, strict=True)}
    inner = {name: own[-1] for name, own in zip(order, walk.strides, strict=True)}
    sizes = [*walk.sizes[:-1], -(-walk.sizes[-1] // lanes)]
    across = next((axis for axis in range(rank) if steps["a"][axis]), None)  # None where A has one element
    neighbours = 1 if across is None else run(math.prod(sizes), caps, across == rank - 1)
    if across is not None:
        sizes[across] = -(-sizes[across] // neighbours)
        for own in steps.values():
            own[across] *= neighbours
    count = math.prod(sizes)
    access = dict(zip(order, problem.access(lanes), strict=True))
    is_whole = walk.sizes[-1] % lanes == 0
    constants = {"LOCAL_SIZE_X": _WORKGROUP, "RANK": rank, "PLANE": len(axes) - 1, "WHOLE": int(is_whole)}
    constants |= {f"{name.upper()}_MODE": int(access[name]) for name in tensors} | dict(more_constants or {})
    own_sizes = desc.tensor("input_tensor").sizes
    values: dict[str, Any] = {
        "count": count,
        "run": neighbours,
        "sizes": tuple(sizes),
        "divisors": divisors(sizes),
        "inner_size": walk.sizes[-1],
        "ends": tuple(own_sizes[axis] for axis in axes),
        "before": (desc.local_size - 1) // 2,
        "after": desc.local_size // 2,
        "factor": desc.alpha / desc.local_size,
        "beta": desc.beta,
        "bias": desc.bias,
        **params,
    }
    for name, own in steps.items():
        values[f"{name}_strides"] = tuple(step % 2**32 for step in own)
    for name, tensor in tensors.items():
        values[f"{name}_step"] = inner[name]
        values[f"{name}_neighbour"] = tuple(tensor.strides[axis] for axis in axes)
    return make_dispatch(
        kernel,
        tuple(tensor.part for tensor in tensors.values()),
        linear_grid(-(-count // _WORKGROUP), caps),
        variant={"LANES": lanes, "T": types[0].name, "U": types[1].name},
        constants=constants,
        **values,
    )


def _rounds(desc: _Desc, problem: LocalResponseProblem, caps: Capabilities, regions: int, items: int) -> None:
    """Refuses what a CPU's driver would not finish: items one after another with a loop over so many regions each."""
    rows, *columns = problem.region
    check_rounds(items * (1 + regions * rows * (1 + math.prod(columns))), caps, desc.dml_name)


def _lanes_in_groups(problem: LocalResponseProblem) -> int:
    return problem.walk.group_lanes


def _one_lane(problem: LocalResponseProblem) -> int:
    return 1


def _forward(
    lanes: Callable[[LocalResponseProblem], int],
) -> Callable[[LocalResponseNormalization, LocalResponseProblem, Capabilities], Plan]:
    def schedule(desc: LocalResponseNormalization, problem: LocalResponseProblem, caps: Capabilities) -> Plan:
        x, y = desc.tensor("input_tensor"), desc.tensor("output_tensor")
        tensors = {"x": _Tensor(x.effective_strides, input_range(0)), "output": _Tensor(y.effective_strides, output_range())}
        _rounds(desc, problem, caps, 1, _SEVERAL)
        types = (x.data_type, x.data_type)
        return Plan((_dispatch("local_response_normalization", desc, tensors, types, lanes(problem), _several, caps),))

    return schedule


def _gradient_tensors(desc: LocalResponseNormalizationGrad) -> dict[str, _Tensor]:
    names = ("input_tensor", "input_gradient_tensor", "output_gradient_tensor")
    strides = [desc.tensor(name).effective_strides for name in names]
    parts = (input_range(0), input_range(1), output_range())
    return dict(zip(("x", "gradient", "output"), map(_Tensor, strides, parts), strict=True))


def _slope(desc: LocalResponseNormalizationGrad) -> float:
    return 2 * desc.alpha / desc.local_size * desc.beta


def _streamed(
    lanes: Callable[[LocalResponseProblem], int],
) -> Callable[[LocalResponseNormalizationGrad, LocalResponseProblem, Capabilities], Plan]:
    """One dispatch whose invocations go along the region's dimension."""

    def schedule(desc: LocalResponseNormalizationGrad, problem: LocalResponseProblem, caps: Capabilities) -> Plan:
        kernel, tensors, slope = "local_response_gradient", _gradient_tensors(desc), _slope(desc)
        types = (problem.walk.input_type, TensorDataType.FLOAT32)
        constants = {"SIZE": desc.local_size}
        return Plan((_dispatch(kernel, desc, tensors, types, lanes(problem), _run, caps, constants, slope=slope),))

    return schedule


def _staged(
    lanes: Callable[[LocalResponseProblem], int],
) -> Callable[[LocalResponseNormalizationGrad, LocalResponseProblem, Capabilities], Plan]:
    """A dispatch that keeps the terms, and one that gathers them."""

    def schedule(desc: LocalResponseNormalizationGrad, problem: LocalResponseProblem, caps: Capabilities) -> Plan:
        _rounds(desc, problem, caps, 2, _SEVERAL)
        count = lanes(problem)
        tensors = _gradient_tensors(desc)
        terms, nbytes = _terms(desc, problem, count)
        types = (problem.walk.input_type, TensorDataType.FLOAT32)
        read = {name: tensors[name] for name in ("x", "gradient")}
        gathered = {**read, "terms": terms, "output": tensors["output"]}
        slope = _slope(desc)
        return Plan(
            (
                _dispatch("local_response_terms", desc, {**read, "terms": terms}, types, count, _several, caps),
                _dispatch("local_response_gathered", desc, gathered, types, count, _several, caps, slope=slope),
            ),
            temporary_bytes=nbytes,
        )

    return schedule


def _terms(desc: LocalResponseNormalizationGrad, problem: LocalResponseProblem, lanes: int) -> tuple[_Tensor, int]:
    """The terms, which lie in memory as the output does without its gaps, but that rows start on groups; and their bytes."""
    output = desc.tensor("output_gradient_tensor")
    strides, step = [0] * 4, 1
    for axis in sorted(range(4), key=lambda axis: output.effective_strides[axis]):
        strides[axis] = step
        step *= output.sizes[axis]
        if step == problem.walk.walk.sizes[-1]:  # a row ends
            step = -(-step // lanes) * lanes
    return _Tensor(strides, Range(Source.TEMPORARY, 0, 0, 4 * step)), 4 * step


register(
    LocalResponseNormalization,
    problem=_problem,
    rules=LOCAL_RESPONSE_NORMALIZATION,
    schedules={"groups": _forward(_lanes_in_groups), "elements": _forward(_one_lane)},
    limitations=(LOOP_ROUNDS,),
)

register(
    LocalResponseNormalizationGrad,
    problem=_problem,
    rules=LOCAL_RESPONSE_GRADIENT,
    schedules={
        "groups": _streamed(lambda problem: problem.lanes),
        "elements": _streamed(_one_lane),
        "staged_groups": _staged(lambda problem: problem.lanes),
        "staged": _staged(_one_lane),
    },
    limitations=(LOOP_ROUNDS,),
)
