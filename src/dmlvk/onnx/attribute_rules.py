"""What an attribute must be whatever the sizes of a node's inputs are, which is known when a model is loaded.

Rules of one name hold for every operator that has the attribute, so converters need not look again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dmlvk.onnx.node_facts import NodeFacts

_POSITIVE: Final = frozenset({"blocksize", "dilations", "group", "hidden_size", "kernel_shape", "size", "strides"})
"""Attributes of whole numbers of at least 1, one or a list."""

_FLAGS: Final = frozenset({"center_point_box", "input_forget", "layout", "linear_before_reset"})
"""Attributes that are 0 or 1, and where another number would mean nothing."""

_AUTO_PADS: Final = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
_DIRECTIONS: Final = ("forward", "reverse", "bidirectional")
_ORDERS: Final = ("DCR", "CRD")
_LOSSES: Final = ("none", "mean", "sum")
_UPDATES: Final = ("none", "add", "mul", "max", "min")
_POSITIONS: Final = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    *("tf_half_pixel_for_nn", "tf_crop_and_resize"),
)

CHOICES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "coordinate_transformation_mode": {
        **dict.fromkeys(("Resize", "Upsample"), _POSITIONS),
        "RoiAlign": ("half_pixel", "output_half_pixel"),
    },
    "direction": {
        "BitShift": ("LEFT", "RIGHT"),
        **dict.fromkeys(("DynamicQuantizeLSTM", "GRU", "LSTM", "RNN"), _DIRECTIONS),
    },
    "keep_aspect_ratio_policy": {"Resize": ("stretch", "not_larger", "not_smaller")},
    "mode": {
        "DepthToSpace": _ORDERS,
        "GridSample": ("nearest", "linear", "cubic", "bilinear", "bicubic"),
        "Pad": ("constant", "reflect", "edge", "wrap"),
        "Resize": ("nearest", "linear", "cubic"),
        "RoiAlign": ("avg", "max"),
        "SpaceToDepth": _ORDERS,
        "Upsample": ("nearest", "linear"),
    },
    "nearest_mode": {"Resize": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")},
    "padding_mode": {"GridSample": ("zeros", "border", "reflection")},
    "reduction": {
        **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), _LOSSES),
        **dict.fromkeys(("ScatterElements", "ScatterND"), _UPDATES),
    },
}
"""Attribute -> operator -> the words that it may be; ``auto_pad`` may be the same in all."""


def refuse_broken_attributes(node: NodeFacts) -> None:
    """Refuses a node with an attribute that no sizes of its inputs could make right.

    Raises:
        ModelError: names the node, the attribute, what it must be and what it is.
    """
    for name, value in node.node.attributes.items():
        choices = _AUTO_PADS if name == "auto_pad" else CHOICES.get(name, {}).get(node.node.op_type)
        if choices is not None and value not in choices:
            raise node.invalid(f"{name} must be one of {', '.join(map(repr, choices))}", value)
        if name in _POSITIVE and min(_numbers(value), default=1) < 1:
            raise node.invalid(f"{name} must be at least 1", value)
        if name in _FLAGS and value not in (0, 1):
            raise node.invalid(f"{name} must be 0 or 1", value)
        if name == "perm" and sorted(_numbers(value)) != [*range(len(_numbers(value)))]:
            raise node.invalid("perm must name each dimension once", value)


def _numbers(value: Any) -> list[int]:
    return value if isinstance(value, list) else [value]
