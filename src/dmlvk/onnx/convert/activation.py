"""Activations: most are a DirectML row as it is, with ONNX's defaults for the attributes."""

from __future__ import annotations

from typing import NamedTuple

from dmlvk import ops
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.schema import FLOATS, OperatorDesc


class _Activation(NamedTuple):
    """An operator that one DirectML row implements.

    Attributes:
        op_type, since: The ONNX operator.
        row: The DirectML operator.
        defaults: ONNX's attributes with their defaults; the row's fields have the same names unless ``renamed``.
        renamed: ONNX attribute -> field.
    """

    op_type: str
    since: tuple[int, ...]
    row: type[OperatorDesc]
    defaults: dict[str, float]
    renamed: dict[str, str]


# fmt: off
_ACTIVATIONS = (
    _Activation("Celu",            (12,),       ops.ActivationCelu,            {"alpha": 1.0},                {}),
    _Activation("Elu",             (6, 22),     ops.ActivationElu,             {"alpha": 1.0},                {}),
    _Activation("HardSigmoid",     (6, 22),     ops.ActivationHardSigmoid,     {"alpha": 0.2, "beta": 0.5},   {}),
    _Activation("HardSwish",       (14, 22),    ops.ActivationHardSwish,       {},                            {}),
    _Activation("LeakyRelu",       (6, 16),     ops.ActivationLeakyRelu,       {"alpha": 0.01},               {}),
    _Activation("Relu",            (6, 13, 14), ops.ActivationRelu,            {},                            {}),
    _Activation("Selu",            (6, 22),     ops.ActivationScaledElu,
                {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},                     {}),
    _Activation("Shrink",          (9,),        ops.ActivationShrink,          {"bias": 0.0, "lambd": 0.5},
                {"lambd": "threshold"}),
    _Activation("Sigmoid",         (6, 13),     ops.ActivationSigmoid,         {},                            {}),
    _Activation("Softplus",        (1, 22),     ops.ActivationSoftplus,        {},                            {}),
    _Activation("Softsign",        (1, 22),     ops.ActivationSoftsign,        {},                            {}),
    _Activation("Swish",           (24,),       ops.ActivationSwish,           {"alpha": 1.0},
                {"alpha": "sigmoid_input_scale"}),
    _Activation("Tanh",            (6, 13),     ops.ActivationTanh,            {},                            {}),
    _Activation("ThresholdedRelu", (10, 22),    ops.ActivationThresholdedRelu, {"alpha": 1.0},                {}),
)
# fmt: on


def _register(activation: _Activation) -> None:
    @converts(activation.op_type, *activation.since, types=activation.row.fields[0].data_types)
    def convert(node: Conversion) -> Value:
        fields = {
            activation.renamed.get(name, name): float(node.attribute(name, default))
            for name, default in activation.defaults.items()
        }
        return node.elementwise(activation.row, node[0], **fields)


for _activation in _ACTIVATIONS:
    _register(_activation)


@converts("Gelu", 20, types=FLOATS)
def gelu(node: Conversion) -> Value:
    """The exact form, x * (1 + erf(x / sqrt 2)) / 2; DirectML has no operator for the tanh approximation."""
    if node.attribute("approximate", "none") != "none":
        raise node.unsupported(f"approximate is {node.attribute('approximate', '')!r}; only 'none' has a kernel")
    return node.elementwise(ops.ActivationGelu, node[0])


@converts("Mish", 18, 22, types=FLOATS)
def mish(node: Conversion) -> Value:
    """x * tanh(softplus(x))."""
    gate = node.elementwise(ops.ActivationTanh, node.elementwise(ops.ActivationSoftplus, node[0]))
    return node.elementwise(ops.ElementWiseMultiply, node[0], gate)


@converts("PRelu", 7, 9, 16, types=ops.ActivationParameterizedRelu.fields[0].data_types)
def prelu(node: Conversion) -> Value:
    """The slope broadcasts to the input, not the other way round."""
    if len(node.broadcast(node[0], node[1])[0].sizes) != node[0].rank:
        raise node.invalid(f"the slope's sizes {node[1].sizes} do not broadcast to {node[0].sizes}")
    return node.elementwise(ops.ActivationParameterizedRelu, node[0], node[1])


@converts("Softmax", 13, types=FLOATS)
def softmax(node: Conversion) -> Value:
    """Along one axis, the last by default."""
    return _along(node, ops.ActivationSoftmax1, (node.axis(node.attribute("axis", -1), node[0].rank),))


@converts("Softmax", 1, 11, types=FLOATS)
def softmax_flattened(node: Conversion) -> Value:
    """Over all dimensions from the axis on (1 by default), as if they were one."""
    axis = node.attribute("axis", 1)
    first = axis if axis == node[0].rank else node.axis(axis, node[0].rank)
    return _along(node, ops.ActivationSoftmax1, tuple(range(first, node[0].rank)))


def _along(node: Conversion, row: type[OperatorDesc], axes: tuple[int, ...]) -> Value:
    x = node[0]
    if not x.rank:
        raise node.invalid("the input is a scalar")
    return node.launch(row, x, output_tensor=node.new(x.sizes, x.dtype), axes=axes)
