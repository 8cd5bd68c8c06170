"""Activations: most are a DirectML row as it is, with ONNX's defaults for the attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import MICROSOFT, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.schema import FLOATS, OperatorDesc, ScaleBias


class _Activation(NamedTuple):
    """An operator that one DirectML row implements.

    Attributes:
        op_type, since: The ONNX operator; without versions a name that ONNX Runtime gives what it fuses.
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
    _Activation("Clip",            (),          ops.ElementWiseClip,           {"min": -math.inf, "max": math.inf},  {}),
    _Activation("Elu",             (6, 22),     ops.ActivationElu,             {"alpha": 1.0},                {}),
    _Activation("HardSigmoid",     (6, 22),     ops.ActivationHardSigmoid,     {"alpha": 0.2, "beta": 0.5},   {}),
    _Activation("HardSwish",       (14, 22),    ops.ActivationHardSwish,       {},                            {}),
    _Activation("LeakyRelu",       (6, 16),     ops.ActivationLeakyRelu,       {"alpha": 0.01},               {}),
    _Activation("QuickGelu",       (),          ops.ActivationSwish,           {"alpha": 1.702},
                {"alpha": "sigmoid_input_scale"}),
    _Activation("Relu",            (6, 13, 14), ops.ActivationRelu,            {},                            {}),
    _Activation("Selu",            (6, 22),     ops.ActivationScaledElu,
                {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},                     {}),
    _Activation("Shrink",          (9,),        ops.ActivationShrink,          {"bias": 0.0, "lambd": 0.5},
                {"lambd": "threshold"}),
    _Activation("Sigmoid",         (6, 13),     ops.ActivationSigmoid,         {},                            {}),
    _Activation("Silu",            (),          ops.ActivationSwish,           {},                            {}),
    _Activation("Softplus",        (1, 22),     ops.ActivationSoftplus,        {},                            {}),
    _Activation("Softsign",        (1, 22),     ops.ActivationSoftsign,        {},                            {}),
    _Activation("Swish",           (24,),       ops.ActivationSwish,           {"alpha": 1.0},
                {"alpha": "sigmoid_input_scale"}),
    _Activation("Tanh",            (6, 13),     ops.ActivationTanh,            {},                            {}),
    _Activation("ThresholdedRelu", (10, 22),    ops.ActivationThresholdedRelu, {"alpha": 1.0},                {}),
)
# fmt: on


def _register(activation: _Activation) -> None:
    @converts(activation.op_type, *activation.since, types=activation.row.fields[0].data_types, doubles=True)
    def convert(node: Conversion) -> Value:
        numbers = {name: node.attribute(name, default) for name, default in activation.defaults.items()}
        return _launched(node, activation, node[0], numbers)


def _launched(node: Conversion, activation: _Activation, x: Value, numbers: Mapping[str, float]) -> Value:
    fields: dict[str, Any] = {activation.renamed.get(name, name): float(number) for name, number in numbers.items()}
    return node.elementwise(activation.row, x, **fields)


for _activation in _ACTIVATIONS:
    _register(_activation)

_BY_NAME: Final = {activation.op_type: activation for activation in _ACTIVATIONS}
FUSED: Final = ("activation", "activation_params", "activation_alpha", "activation_beta", "activation_gamma")
"""Attributes that say which activation ONNX Runtime's optimiser wrote into a node."""


def refuse_fused(node: NodeFacts) -> None:
    """Refuses an activation written into the node that there is not."""
    name = node.attribute("activation", "")
    if name and name not in _BY_NAME:
        raise node.unsupported(f"activation {name!r} is not supported, only {', '.join(_BY_NAME)}")


def fused(node: Conversion, x: Value) -> Value:
    """The value after the activation written into the node, where there is one. Its numbers are a list, or apart."""
    name = node.attribute("activation", "")
    if not name:
        return x
    activation = _BY_NAME[name]
    numbers = {
        **activation.defaults,
        **dict(zip(activation.defaults, node.attribute("activation_params", ()), strict=False)),
    }
    numbers = {name: node.attribute(f"activation_{name}", number) for name, number in numbers.items()}
    return _launched(node, activation, x, numbers)


@converts("Gelu", 1, types=FLOATS, domain=MICROSOFT, declared=Declared(1, 1))
@converts("Gelu", 20, types=FLOATS, doubles=True)
def gelu(node: Conversion) -> Value:
    """x * (1 + erf(x / sqrt 2)) / 2, or its tanh approximation."""
    if node.attribute("approximate", "none") == "none":
        return node.elementwise(ops.ActivationGelu, node[0])
    return gelu_by_tanh(node, node[0])


def gelu_by_tanh(node: Conversion, x: Value) -> Value:
    """x * (1 + tanh(z)) / 2 = x * sigmoid(2 z) with z = sqrt(2 / pi) * (x + 0.044715 x^3)."""
    slope = 2 * math.sqrt(2 / math.pi)
    square = node.elementwise(ops.ElementWiseMultiply, x, x)
    factor = node.elementwise(ops.ElementWiseIdentity, square, scale_bias=ScaleBias(slope * 0.044715, slope))
    gate = node.elementwise(ops.ActivationSigmoid, node.elementwise(ops.ElementWiseMultiply, x, factor))
    return node.elementwise(ops.ElementWiseMultiply, x, gate)


@converts("Mish", 18, 22, types=FLOATS, doubles=True)
def mish(node: Conversion) -> Value:
    """x * tanh(softplus(x))."""
    gate = node.elementwise(ops.ActivationTanh, node.elementwise(ops.ActivationSoftplus, node[0]))
    return node.elementwise(ops.ElementWiseMultiply, node[0], gate)


@converts("PRelu", 7, 9, 16, types=ops.ActivationParameterizedRelu.fields[0].data_types, doubles=True)
def prelu(node: Conversion) -> Value:
    """The slope broadcasts to the input, not the other way round."""
    if node.broadcast(node[0], node[1])[0].sizes != node[0].sizes:
        raise node.invalid(f"the sizes of the slope must broadcast to those of the input, {node[0].sizes}", node[1].sizes)
    return node.elementwise(ops.ActivationParameterizedRelu, node[0], node[1])
