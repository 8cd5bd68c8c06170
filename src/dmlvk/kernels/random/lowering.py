"""Plans for random bits."""

from __future__ import annotations

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.dispatch import make_dispatch
from dmlvk.kernels.common.plan import Plan, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.shapes import coalesce, divisors, linear_grid
from dmlvk.kernels.random.rules import RANDOM, RandomProblem
from dmlvk.spec.ops.random import RandomGenerator

_BLOCK = 4
"""Words that Philox makes at a time."""


def _problem(desc: RandomGenerator) -> RandomProblem:
    output = desc.tensor("output_tensor")
    return RandomProblem(output.element_count, coalesce(output.sizes, [output.effective_strides]))


def _plan(desc: RandomGenerator, problem: RandomProblem, caps: Capabilities, *, words: bool) -> Plan:
    sizes, (strides,) = problem.walk
    if words:
        sizes = (*sizes[:-1], -(-sizes[-1] // _BLOCK))
        strides = (*(step // _BLOCK for step in strides[:-1]), 1)
    blocks = -(-problem.elements // _BLOCK)
    invocations = min(256, caps.workgroup_invocations)
    units = 1 if caps.is_cpu else 2
    output_state = desc.output_state_tensor
    constants = {
        "LOCAL_SIZE_X": invocations,
        "UNITS": units,
        "RANK": len(sizes),
        "HAS_OUTPUT_STATE": int(output_state is not None),
    }
    return Plan(
        (
            make_dispatch(
                "random_philox",
                (input_range(0), output_range(0), output_range(0 if output_state is None else 1)),
                linear_grid(-(-blocks // (invocations * units)), caps),
                variant={"WORDS": words},
                constants=constants,
                elements=problem.elements,
                blocks=blocks,
                sizes=sizes,
                divisors=divisors(sizes),
                strides=strides,
                state_step=desc.tensor("input_state_tensor").effective_strides[-1],
                output_state_step=0 if output_state is None else output_state.effective_strides[-1],
            ),
        )
    )


def _words(desc: RandomGenerator, problem: RandomProblem, caps: Capabilities) -> Plan:
    return _plan(desc, problem, caps, words=True)


def _elements(desc: RandomGenerator, problem: RandomProblem, caps: Capabilities) -> Plan:
    return _plan(desc, problem, caps, words=False)


register(RandomGenerator, problem=_problem, rules=RANDOM, schedules={"words": _words, "elements": _elements})
