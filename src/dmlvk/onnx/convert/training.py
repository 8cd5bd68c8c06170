"""Optimisers of ONNX's training preview: how parameters follow from their gradients.

Inputs are the learning rate, the number of updates so far, then for one or more tensors together all parameters, all
gradients and each kind of state; outputs are the new parameters and states. Everything runs on the device, the learning
rate's correction too, so that a counter which goes up with every run takes no new plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.cast import cast_to
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import ScaleBias

_DOMAIN = "ai.onnx.preview.training"
_TYPES = (TensorDataType.FLOAT32,)
_FLOAT, _BOOL = np.dtype(np.float32), np.dtype(np.bool_)


def _refuse(node: NodeFacts) -> None:
    for index in range(2, len(node.node.inputs)):
        node.takes(index, _TYPES)


@converts("Adagrad", 1, types=_TYPES, domain=_DOMAIN, check=_refuse)
def adagrad(node: Conversion) -> tuple[Value, ...]:
    """h += g^2, x -= rate / (1 + t decay) g / (sqrt(h) + epsilon)."""
    slower = _scaled(node, _updates(node), node.attribute("decay_factor", 0.0), 1.0)
    rate = node.elementwise(ops.ElementWiseDivide, node[0], slower)
    epsilon = node.attribute("epsilon", 1e-6)

    def update(x: Value, g: Value, h: Value) -> tuple[Value, ...]:
        h = _plus(node, h, _times(node, g, g))
        step = node.elementwise(ops.ElementWiseDivide, _times(node, g, rate), _root(node, h, epsilon))
        return node.elementwise(ops.ElementWiseSubtract, x, step), h

    return _each(node, 3, update)


@converts("Adam", 1, types=_TYPES, domain=_DOMAIN, check=_refuse)
def adam(node: Conversion) -> tuple[Value, ...]:
    """v and h follow g and g^2, and x goes against v / (sqrt(h) + epsilon). After the first update the rate is multiplied
    by sqrt(1 - beta^t) / (1 - alpha^t), for what v and h do not hold yet."""
    alpha, beta = node.attribute("alpha", 0.9), node.attribute("beta", 0.999)
    epsilon, decay = node.attribute("epsilon", 1e-6), node.attribute("norm_coefficient_post", 0.0)
    updates = _updates(node)
    seen = [_missing_from_one(node, updates, factor) for factor in (beta, alpha)]
    correction = node.elementwise(ops.ElementWiseDivide, node.elementwise(ops.ElementWiseSqrt, seen[0]), seen[1])
    rate = _if_updated(node, _times(node, node[0], correction), node[0])

    def update(x: Value, g: Value, v: Value, h: Value) -> tuple[Value, ...]:
        v = _plus(node, _scaled(node, v, alpha), _scaled(node, g, 1 - alpha))
        h = _plus(node, _scaled(node, h, beta), _scaled(node, _times(node, g, g), 1 - beta))
        step = node.elementwise(ops.ElementWiseDivide, _times(node, v, rate), _root(node, h, epsilon))
        return _scaled(node, node.elementwise(ops.ElementWiseSubtract, x, step), 1 - decay), v, h

    return _each(node, 4, update)


@converts("Momentum", 1, types=_TYPES, domain=_DOMAIN, check=_refuse)
def momentum(node: Conversion) -> tuple[Value, ...]:
    """v = alpha v + beta g, where beta counts as 1 for the first update; x goes against v, or in mode 'nesterov' against
    g + alpha v."""
    alpha, mode = node.attribute("alpha", 0.0), node.attribute("mode", "standard")
    if mode not in ("standard", "nesterov"):
        raise node.invalid("mode must be 'standard' or 'nesterov'", mode)
    share = _if_updated(node, _number(node, node.attribute("beta", 0.0)), _number(node, 1.0))

    def update(x: Value, g: Value, v: Value) -> tuple[Value, ...]:
        v = _plus(node, _scaled(node, v, alpha), _times(node, g, share))
        ahead = v if mode == "standard" else _plus(node, g, _scaled(node, v, alpha))
        return node.elementwise(ops.ElementWiseSubtract, x, _times(node, ahead, node[0])), v

    return _each(node, 3, update)


def _each(node: Conversion, kinds: int, update: Callable[..., tuple[Value, ...]]) -> tuple[Value, ...]:
    """Updates each tensor, given as ``kinds`` inputs: parameters, gradients and states. A gradient gets ``norm_coefficient``
    of its parameters added, as that of a penalty on their squares."""
    count, rest = divmod(node.input_count - 2, kinds)
    if rest or count < 1:
        rule = f"the inputs after the first two must be {kinds} for each tensor that is updated"
        raise node.invalid(rule, node.input_count - 2)
    penalty = node.attribute("norm_coefficient", 0.0)
    results = []
    for index in range(count):
        x, g, *states = (node[2 + index + kind * count] for kind in range(kinds))
        if any(value.sizes != x.sizes for value in (g, *states)):
            rule = "the gradient and the states of a tensor must have its sizes"
            raise node.invalid(rule, [value.sizes for value in (g, *states)], x.sizes)
        if penalty:
            g = _plus(node, _scaled(node, x, penalty), g)
        results.append(update(x, g, *states))
    return tuple(value for kind in zip(*results, strict=True) for value in kind)


def _updates(node: Conversion) -> Value:
    """The number of updates so far."""
    return cast_to(node, node[1], _FLOAT)


def _if_updated(node: Conversion, later: Value, first: Value) -> Value:
    """A number, or another for the first update."""
    zero = node.upload(np.zeros((), node[1].dtype))
    updated = node.elementwise(ops.ElementWiseLogicalGreaterThan, node[1], zero, dtype=_BOOL)
    return node.elementwise(ops.ElementWiseIf, updated, later, first, dtype=_FLOAT)


def _missing_from_one(node: Conversion, exponent: Value, base: float) -> Value:
    """1 - base^t as -2 e^(s/2) sinh(s/2) with s = t ln(base), which keeps its digits where the power is close to 1."""
    if not 0 < base < 1:
        if base != 0:
            raise node.invalid("alpha and beta must be at least 0 and below 1", base)
        return _number(node, 1.0)
    half = ScaleBias(math.log(base) / 2, 0.0)
    power = node.elementwise(ops.ElementWiseExp, exponent, scale_bias=half)
    product = _times(node, power, node.elementwise(ops.ElementWiseSinh, exponent, scale_bias=half))
    return _scaled(node, product, -2.0)


def _number(node: Conversion, number: float) -> Value:
    return node.upload(np.array(number, np.float32))


def _scaled(node: Conversion, x: Value, factor: float, bias: float = 0.0) -> Value:
    if factor == 1 and bias == 0:
        return x
    return node.elementwise(ops.ElementWiseIdentity, x, scale_bias=ScaleBias(factor, bias))


def _times(node: Conversion, a: Value, b: Value) -> Value:
    return node.elementwise(ops.ElementWiseMultiply, a, b)


def _plus(node: Conversion, a: Value, b: Value) -> Value:
    return node.elementwise(ops.ElementWiseAdd, a, b)


def _root(node: Conversion, x: Value, epsilon: float) -> Value:
    """sqrt(x) + epsilon."""
    return _scaled(node, node.elementwise(ops.ElementWiseSqrt, x), 1.0, epsilon)
