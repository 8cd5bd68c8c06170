"""Operators that ONNX Runtime's optimiser writes for images whose channels lie in blocks of 8 or 16 side by side.

A tensor of its has the sizes of an ordinary one, of whole blocks of channels. Here it is one: only filters, which the file
has in that order, are put into ONNX's, once, because they are constants.
"""

from __future__ import annotations

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.convert.activation import FUSED, refuse_fused
from dmlvk.onnx.convert.convolution import CONVOLUTION, channels_first, channels_last, convolve
from dmlvk.onnx.convert.fused import with_rest
from dmlvk.onnx.registry import IN_BLOCKS, Declared, converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.enums import PaddingMode, TensorDataType

_FLOAT = (TensorDataType.FLOAT32,)


def _block_size(node: Conversion) -> int:
    """Channels of a block, which is written into the node when the file is read."""
    size: int = node.attribute("block_size", 0)
    return size


@converts("ReorderInput", 1, types=_FLOAT, domain=IN_BLOCKS, declared=Declared(1, 1, ("channels_last", "block_size")))
def reorder_input(node: Conversion) -> Value:
    """Zeros fill the last block."""
    x = channels_first(node[0]) if node.attribute("channels_last", 0) else node[0]
    missing = -x.sizes[1] % _block_size(node)
    if not missing:
        return x
    none = (0,) * x.rank
    return node.launch(
        ops.Padding,
        x,
        output_tensor=node.new((x.sizes[0], x.sizes[1] + missing, *x.sizes[2:]), x.dtype),
        padding_mode=PaddingMode.CONSTANT,
        padding_value=0.0,
        start_padding=none,
        end_padding=(0, missing, *none[2:]),
    )


@converts("ReorderOutput", 1, types=_FLOAT, domain=IN_BLOCKS, declared=Declared(1, 1, ("channels", "channels_last")))
def reorder_output(node: Conversion) -> Value:
    """The last block loses what is not wanted of it."""
    x, channels = node[0], node.attribute("channels", 0)
    if not 0 < channels <= x.sizes[1]:
        raise node.invalid("channels must be at least 1 and at most those of the input", channels, x.sizes[1])
    y = x.shorten(1, channels)
    return channels_last(y) if node.attribute("channels_last", 0) else y


@converts(
    "Conv",
    1,
    types=_FLOAT,
    domain=IN_BLOCKS,
    check=refuse_fused,
    declared=Declared(4, 1, (*CONVOLUTION, *FUSED, "block_size")),
)
def convolution(node: Conversion) -> Value:
    return with_rest(node, convolve(node, node[0], _filter(node)))


def _filter(node: Conversion) -> Value:
    """The filter in ONNX's order. A block of its output channels comes last, before that one of its input channels, if
    there are enough of them for one."""
    w, size = node[1], _block_size(node)
    outputs, inputs, *window = w.sizes
    if w.rank != 4 or outputs % size or (inputs >= size and inputs % size):
        raise node.invalid(f"the filter must have 4 dimensions and whole blocks of {size} channels", w.sizes)
    if inputs < size:
        return node.reshape(node.reshape(w, (outputs // size, inputs, *window, size)).transpose((0, 4, 1, 2, 3)), w.sizes)
    blocks = node.reshape(w, (outputs // size, inputs // size, *window, size, size))
    return node.reshape(blocks.transpose((0, 5, 1, 4, 2, 3)), w.sizes)
