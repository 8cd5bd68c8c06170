"""Activations of ONNX Runtime that add a bias first."""

from __future__ import annotations

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.activation import gelu_by_tanh
from dmlvk.onnx.registry import MICROSOFT, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.schema import FLOATS


def _biased(node: Conversion) -> Value:
    """The first input plus the second, if there is one."""
    x, bias = node[0], node.get(1)
    return x if bias is None else node.elementwise(ops.ElementWiseAdd, x, bias)


@converts("BiasGelu", 1, types=FLOATS, domain=MICROSOFT, declared=Declared(2, 1))
def bias_gelu(node: Conversion) -> Value:
    return node.elementwise(ops.ActivationGelu, _biased(node))


@converts("FastGelu", 1, types=FLOATS, domain=MICROSOFT, declared=Declared(2, 1))
def fast_gelu(node: Conversion) -> Value:
    return gelu_by_tanh(node, _biased(node))


@converts("QuickGelu", 1, types=FLOATS, domain=MICROSOFT, declared=Declared(1, 1, ("alpha",)))
def quick_gelu(node: Conversion) -> Value:
    return node.elementwise(ops.ActivationSwish, node[0], sigmoid_input_scale=float(node.attribute("alpha", 1.702)))


@converts("BiasSplitGelu", 1, types=FLOATS, domain=MICROSOFT, declared=Declared(2, 1))
def bias_split_gelu(node: Conversion) -> Value:
    """The first half of the last dimension times the GELU of the second."""
    x = _biased(node)
    if x.sizes[-1] % 2:
        raise node.invalid("the last dimension must have an even size", x.sizes)
    halves = tuple(node.new((*x.sizes[:-1], x.sizes[-1] // 2), x.dtype) for _ in range(2))
    node.launch(ops.Split, x, output_tensors=halves, axis=x.rank - 1)
    return node.elementwise(ops.ElementWiseMultiply, halves[0], node.elementwise(ops.ActivationGelu, halves[1]))


@converts("BiasAdd", 1, types=FLOATS, domain=MICROSOFT, declared=Declared(3, 1))
def bias_add(node: Conversion) -> Value:
    return node.elementwise(ops.ElementWiseAdd, _biased(node), node[2])
