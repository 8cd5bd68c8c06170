"""ValueScale2d: one unary launch a channel, since a channel is an image of its own with one bias."""

from __future__ import annotations

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.plan import Plan, Range, Source
from dmlvk.kernels.common.registry import register
from dmlvk.kernels.common.rule import choose
from dmlvk.kernels.elementwise.lowering import pointwise_problem, unary
from dmlvk.kernels.elementwise.rules import ELEMENTWISE, ElementwiseProblem
from dmlvk.kernels.value_scale.rules import VALUE_SCALE_2D
from dmlvk.spec.enums import OperatorType
from dmlvk.spec.ops import ValueScale2d
from dmlvk.spec.tensor import MINIMUM_BUFFER_TENSOR_ALIGNMENT, TensorDesc, element_bits


def _problem(desc: ValueScale2d) -> ElementwiseProblem:
    """The desc as a pointwise problem over the elements of one channel."""
    x, output = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    sizes, *strides = (
        (*numbers[:1], *numbers[2:]) for numbers in (output.sizes, x.effective_strides, output.effective_strides)
    )
    return pointwise_problem(x.data_type, output.data_type, sizes, strides)


def _schedule(desc: ValueScale2d, problem: ElementwiseProblem, caps: Capabilities) -> Plan:
    x, output = desc.tensor("input_tensor"), desc.tensor("output_tensor")
    dispatches = []
    for channel, bias in enumerate(desc.bias):
        ranges = (_channel(Source.INPUT, x, channel), _channel(Source.OUTPUT, output, channel))
        # The other rules take for granted that a tensor starts on a 16-byte word.
        aligned = all(part.offset % MINIMUM_BUFFER_TENSOR_ALIGNMENT == 0 for part in ranges)
        rule = choose(ELEMENTWISE, problem, caps).name if aligned else "elements"
        dispatches.append(unary(OperatorType.ACTIVATION_LINEAR, problem, rule, caps, ranges, numbers=(desc.scale, bias)))
    return Plan(tuple(dispatches))


def _channel(source: Source, tensor: TensorDesc, channel: int) -> Range:
    """The bytes from a channel's first element to its last."""
    nbytes = element_bits(tensor.data_type) // 8
    steps = list(zip(tensor.sizes, tensor.effective_strides, strict=True))
    _, channel_stride = steps.pop(1)
    last = sum((size - 1) * step for size, step in steps)
    return Range(source, 0, channel * channel_stride * nbytes, (last + 1) * nbytes)


register(ValueScale2d, problem=_problem, rules=VALUE_SCALE_2D, schedules={"channels": _schedule})
