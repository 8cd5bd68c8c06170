"""AdamOptimizer: pointwise but for the step, a number of its own, and launched as the other pointwise rows are."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.plan import Plan, input_range, output_range
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.elementwise.lowering import launch, pointwise_problem
from dmlvk.kernels.elementwise.rules import ElementwiseProblem
from dmlvk.kernels.optimizer.rules import ADAM
from dmlvk.spec.ops import AdamOptimizer


def _problem(desc: AdamOptimizer) -> ElementwiseProblem:
    slots = (*desc.input_slots()[:4], *desc.output_slots())
    tensors = [slot.tensor for slot in slots if slot.tensor is not None]
    data_type = tensors[0].data_type
    return pointwise_problem(data_type, data_type, tensors[0].sizes, [tensor.effective_strides for tensor in tensors])


def _schedule(rule: str) -> Callable[[AdamOptimizer, ElementwiseProblem, Capabilities], Plan]:
    def schedule(desc: AdamOptimizer, problem: ElementwiseProblem, caps: Capabilities) -> Plan:
        params = {"learning_rate": desc.learning_rate, "epsilon": desc.epsilon}
        for number, rate in ((1, desc.beta1), (2, desc.beta2)):
            # What the shader has as beta is what 1 - beta and the logarithm are of.
            (beta,) = struct.unpack("<f", struct.pack("<f", rate))
            logarithm = math.log(beta) if beta else -math.inf
            params |= {f"beta{number}": beta, f"rest{number}": 1 - beta, f"log_beta{number}": logarithm}
        *tensors, step = (input_range(slot) for slot in range(5))
        bindings = (*tensors, *(output_range(slot) for slot in range(3)), step)
        return Plan((launch("adam", rule, problem, caps, bindings, {}, params),))

    return schedule


register(
    AdamOptimizer,
    problem=_problem,
    rules=ADAM,
    schedules={rule.name: _schedule(rule.name) for rule in ADAM},
)
