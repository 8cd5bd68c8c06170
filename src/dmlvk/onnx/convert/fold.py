"""Col2Im: blocks of images added up where they overlap."""

from __future__ import annotations

import math

from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.registry import converts
from dmlvk.onnx.values import Value
from dmlvk.spec import ops
from dmlvk.spec.schema import FLOATS


@converts("Col2Im", 18, types=FLOATS, host_inputs=(1, 2))
def col2im(node: Conversion) -> Value:
    x = node[0]
    image, window = (tuple(map(int, node.known(index))) for index in (1, 2))
    rank = len(image)
    ones = (1,) * rank
    pads = tuple(node.attribute("pads", (0,) * (2 * rank)))
    dilations, strides = (tuple(node.attribute(name, ones)) for name in ("dilations", "strides"))
    if not rank == len(window) == len(dilations) == len(strides) == len(pads) / 2 or x.rank != 3:
        rule = "the input must have 3 dimensions, and image, window, dilations and strides one entry each, pads two"
        raise node.invalid(rule, (x.sizes, image, window, dilations, strides, pads))
    if min(window) < 1 or x.sizes[1] % math.prod(window):
        raise node.invalid(f"the rows of the input must be a multiple of the elements of the window {window}", x.sizes[1])
    return node.launch(
        ops.Fold,
        x,
        output_tensor=node.new((x.sizes[0], x.sizes[1] // math.prod(window), *image), x.dtype),
        window_sizes=window,
        strides=strides,
        dilations=dilations,
        start_padding=pads[:rank],
        end_padding=pads[rank:],
    )
