"""Convolutions and products into which ONNX Runtime's optimiser writes what follows or precedes them: an addition, an
activation, transposes; and convolutions of images with their channels last."""

from __future__ import annotations

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.activation import FUSED, fused, gelu_by_tanh, refuse_fused
from dmlvk.onnx.convert.convolution import CONVOLUTION, channels_first, channels_last, convolve, convolve_transposed
from dmlvk.onnx.convert.matmul import general_product, product
from dmlvk.onnx.registry import MICROSOFT, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.schema import FLOATS


def with_rest(node: Conversion, y: Value) -> Value:
    """The output of a convolution plus the node's fourth input, after its activation."""
    addend = node.get(3)
    if addend is not None:
        if addend.sizes != y.sizes:
            raise node.invalid("what is added must have the sizes of the output", addend.sizes, y.sizes)
        y = node.elementwise(ops.ElementWiseAdd, y, addend)
    return fused(node, y)


_FUSED_CONVOLUTION = Declared(4, 1, (*CONVOLUTION, *FUSED))


@converts("FusedConv", 1, types=FLOATS, domain=MICROSOFT, check=refuse_fused, declared=_FUSED_CONVOLUTION)
def fused_convolution(node: Conversion) -> Value:
    return with_rest(node, convolve(node, node[0], node[1]))


@converts("NhwcFusedConv", 1, types=FLOATS, domain=MICROSOFT, check=refuse_fused, declared=_FUSED_CONVOLUTION)
@converts("NhwcConv", 1, types=FLOATS, domain=MICROSOFT, declared=Declared(3, 1, CONVOLUTION))
def convolution_of_channels_last(node: Conversion) -> Value:
    """The filter is as ONNX has it."""
    return with_rest(node, channels_last(convolve(node, channels_first(node[0]), node[1])))


@converts(
    "ConvTransposeWithDynamicPads",
    1,
    types=FLOATS,
    host_inputs=(2,),
    domain=MICROSOFT,
    declared=Declared(4, 1, ("auto_pad", "dilations", "group", "kernel_shape", "output_padding", "strides")),
)
def transposed_convolution(node: Conversion) -> Value:
    """The padding is an input."""
    pads = node.host(2)
    return convolve_transposed(node, None if pads is None else tuple(map(int, pads)), node.get(3))


_FUSED_GEMM = Declared(3, 1, ("alpha", "beta", "transA", "transB", *FUSED))


@converts("FusedGemm", 1, types=FLOATS, domain=MICROSOFT, check=refuse_fused, declared=_FUSED_GEMM)
def fused_gemm(node: Conversion) -> Value:
    return fused(node, general_product(node))


_MATRICES = ("alpha", "transA", "transB", "transBatchA", "transBatchB")


@converts("TransposeMatMul", 1, types=FLOATS, doubles=True, domain=MICROSOFT, declared=Declared(2, 1, _MATRICES[:3]))
@converts("FusedMatMul", 1, types=FLOATS, doubles=True, domain=MICROSOFT, declared=Declared(2, 1, _MATRICES))
@converts(
    "FusedMatMulActivation",
    1,
    types=FLOATS,
    domain=MICROSOFT,
    check=refuse_fused,
    declared=Declared(2, 1, (*_MATRICES, *FUSED)),
)
def fused_product(node: Conversion) -> Value:
    a, b = (_transposed(node, node[index], letter) for index, letter in enumerate("AB"))
    return fused(node, product(node, a, b, float(node.attribute("alpha", 1.0))))


def _transposed(node: Conversion, x: Value, letter: str) -> Value:
    """An operand as numpy's matmul takes it: the first dimension may come before the last, and the last two swapped. A
    vector stays as it is."""
    if x.rank < 2:
        return x
    axes = list(range(x.rank))
    if node.attribute(f"transBatch{letter}", 0):
        axes = [*axes[1:-1], 0, axes[-1]]
    if node.attribute(f"trans{letter}", 0):
        axes[-2:] = axes[:-3:-1]
    return x.transpose(axes)


@converts("GemmFastGelu", 1, types=FLOATS, domain=MICROSOFT, declared=Declared(3, 1))
def gemm_fast_gelu(node: Conversion) -> Value:
    y, bias = product(node, node[0], node[1]), node.get(2)
    return gelu_by_tanh(node, y if bias is None else node.elementwise(ops.ElementWiseAdd, y, bias))
