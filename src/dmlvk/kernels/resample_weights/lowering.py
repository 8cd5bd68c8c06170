"""Plans for the weights of a resampling."""

from __future__ import annotations

import math

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.limitation import LOOP_ROUNDS, POSITIONS
from dmlvk.kernels.common.plan import Plan, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import check_rounds, divisors, linear_grid
from dmlvk.kernels.resample.lowering import positions
from dmlvk.kernels.resample_weights.rules import RESAMPLE_WEIGHTS, WeightsProblem
from dmlvk.spec.ops.resample import ResampleWeights

_WORKGROUP = 128
_MOST_REACH = 2**30


def _problem(desc: ResampleWeights) -> WeightsProblem:
    return WeightsProblem(math.ceil((2 if desc.cubic else 1) / desc.filter_scale))


def _weights(desc: ResampleWeights, problem: WeightsProblem, caps: Capabilities) -> Plan:
    output = desc.tensor("output_tensor")
    outputs, inputs = output.sizes
    found = positions(inputs, outputs, desc.scale, desc.input_pixel_offset, desc.output_pixel_offset, operator=desc.dml_name)
    step, start, parts = (1, 0, 1) if found is None else found[:3]
    if problem.reach > _MOST_REACH:
        rule = f"a filter may reach at most {_MOST_REACH} elements to either side; its scale is {desc.filter_scale:g}"
        raise POSITIONS.error(rule, desc.dml_name)
    check_rounds(2 * problem.reach, caps, desc.dml_name)
    count = outputs * inputs
    step_whole, step_part = divmod(step, parts)
    start_whole, start_part = divmod(start, parts)
    dispatch = make_dispatch(
        "resample_weights",
        (output_range(),),
        linear_grid(-(-count // _WORKGROUP), caps),
        variant={"T": output.data_type.name},
        constants={
            "LOCAL_SIZE_X": _WORKGROUP,
            "CUBIC": desc.cubic,
            "INSIDE_ONLY": desc.inside_only,
            "NORMALIZED": desc.normalized,
        },
        count=count,
        sizes=output.sizes,
        divisors=divisors(output.sizes),
        y_strides=output.effective_strides,
        input_sizes=(inputs,),
        start_whole=(start_whole,),
        start_part=(start_part,),
        step_whole=(step_whole,),
        step_part=(step_part,),
        step_estimate=(2**32 * step_part // parts,),
        parts=(parts,),
        weight_of_part=(1 / parts,),
        filter_scale=desc.filter_scale,
        coefficient=desc.coefficient,
        reach=problem.reach,
    )
    return Plan((dispatch,))


register(
    ResampleWeights,
    problem=_problem,
    rules=RESAMPLE_WEIGHTS,
    schedules={"weights": _weights},
    limitations=(LOOP_ROUNDS, POSITIONS),
)
