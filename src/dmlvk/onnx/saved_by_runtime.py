"""Files that ONNX Runtime saved after its optimiser: what they leave out, and what they say in another way than ONNX."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import onnx

from dmlvk.onnx.external import nodes_within

MICROSOFT: Final = "com.microsoft"
IN_BLOCKS: Final = "com.microsoft.nchwc"
"""The domains of ONNX Runtime's own operators: for all, and those on channels in blocks, which its optimiser writes."""

_LARGE, _SMALL = 16, 8


def completed(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model, changed in place: operators of ONNX Runtime's that it puts in ONNX's domain are in its own, and those on
    channels in blocks say how many channels a block has."""
    opset = max((item.version for item in proto.opset_import if item.domain in ("", "ai.onnx")), default=0)
    adopted = [adopt(node, opset) for node in nodes_within(proto.graph.node)]
    if any(adopted) and all(item.domain != MICROSOFT for item in proto.opset_import):
        proto.opset_import.append(onnx.helper.make_opsetid(MICROSOFT, 1))
    _say_block_sizes(proto)
    return proto


def adopt(node: onnx.NodeProto, opset: int) -> bool:
    """Puts a node of ONNX's domain that is one of ONNX Runtime's into its own; whether it was one.

    Args:
        node: The node.
        opset: The version of ONNX's domain.
    """
    if node.domain not in ("", "ai.onnx") or not _is_own(node.op_type, opset):
        return False
    node.domain = MICROSOFT
    return True


def _is_own(op_type: str, opset: int) -> bool:
    """Whether an operator of ONNX's domain is one of ONNX Runtime's, as its files have it in older opsets."""
    return op_type == "SimplifiedLayerNormalization" or (op_type == "LayerNormalization" and opset < 17)


# -- channels in blocks


def _say_block_sizes(proto: onnx.ModelProto) -> None:
    """Sets ``block_size`` of the nodes that need it. A file does not say it: ONNX Runtime takes what suits the processor on
    which it runs, and has the filters in that order."""
    nodes = [node for node in nodes_within(proto.graph.node) if node.domain == IN_BLOCKS]
    waiting = [node for node in nodes if node.op_type in ("Conv", "ReorderInput")]
    if not waiting:
        return
    evidence = set(_evidence(proto, nodes))
    size = evidence.pop() if len(evidence) == 1 else _block_size_here()
    for node in waiting:
        kept = [item for item in node.attribute if item.name != "block_size"]
        del node.attribute[:]
        node.attribute.extend([*kept, onnx.helper.make_attribute("block_size", size)])


def _evidence(proto: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> Iterator[int]:
    """The size of a block, of each filter that only one size allows, and of each output that has lost more channels than
    the other size could have added."""
    sizes = {item.name: tuple(item.dims) for item in proto.graph.initializer}
    channels = {}
    for node in nodes:
        own = sizes.get(node.input[1], ()) if node.op_type == "Conv" and len(node.input) > 1 else ()
        if len(own) > 1:
            channels.update(dict.fromkeys(node.output, own[0]))
            if own[0] % _LARGE or (own[1] > _LARGE and own[1] % _LARGE):
                yield _SMALL
            elif _SMALL < own[1] < _LARGE:
                yield _LARGE
    for node in nodes:
        if node.op_type == "ReorderOutput" and node.input and node.input[0] in channels:
            kept = next((item.i for item in node.attribute if item.name == "channels"), channels[node.input[0]])
            if channels[node.input[0]] - kept >= _SMALL:
                yield _LARGE


def _block_size_here() -> int:
    """What ONNX Runtime takes on this processor: 16, but 8 on one of x86 without AVX-512."""
    core = getattr(np, "_core", None) or getattr(np, "core")  # noqa: B009  # before numpy 2
    features = core._multiarray_umath.__cpu_features__
    return _SMALL if features.get("SSE2", False) and not features.get("AVX512F", False) else _LARGE
