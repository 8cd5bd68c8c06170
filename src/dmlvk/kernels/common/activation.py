"""Turns an activation desc into the arguments of ``activate`` in ``glsl/include/activation.glsl``."""

from __future__ import annotations

from typing import NamedTuple

from dmlvk.spec.enums import OperatorType
from dmlvk.spec.ops.elementwise import ElementWiseClip
from dmlvk.spec.schema import FieldKind, OperatorDesc


class Activation(NamedTuple):
    """Arguments of the shader functions ``activate`` and ``activate_scaled``.

    Attributes:
        id: The operator's number, 0 (``OperatorType.INVALID``) for none: a specialisation constant ACTIVATION. A clip
            that scales its input first has its re-issue's.
        param0, param1: Its float attributes in the struct's order, 0.0 where it has fewer: runtime parameters.
        scale, bias: The factor and the addend that a clip applies to its input first.
    """

    id: int
    param0: float = 0.0
    param1: float = 0.0
    scale: float = 1.0
    bias: float = 0.0

    @property
    def params(self) -> dict[str, float]:
        """Its part of the parameter block of an operator into which a clip may be fused."""
        return {"param0": self.param0, "param1": self.param1, "clip_scale": self.scale, "clip_bias": self.bias}


def float_attributes(desc: OperatorDesc) -> tuple[float, ...]:
    """Values of the desc's FLOAT fields, in the struct's order."""
    return tuple(float(getattr(desc, field.name)) for field in desc.fields if field.kind is FieldKind.FLOAT)


def fused(activation: OperatorDesc | None) -> Activation:
    """The arguments for a desc's ``fused_activation``; None is no activation."""
    if activation is None:
        return Activation(int(OperatorType.INVALID))
    param0, param1 = (*float_attributes(activation), 0.0, 0.0)[:2]
    if isinstance(activation, ElementWiseClip) and activation.scale_bias is not None:
        return Activation(int(OperatorType.ELEMENT_WISE_CLIP1), param0, param1, *activation.scale_bias)
    return Activation(int(activation.type), param0, param1)
