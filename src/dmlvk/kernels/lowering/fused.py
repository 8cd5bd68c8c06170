"""From an activation desc to what ``activate`` in ``glsl/include/activation.glsl`` takes."""

from __future__ import annotations

from typing import NamedTuple

from dmlvk.enums import OperatorType
from dmlvk.errors import UnsupportedError
from dmlvk.schema import FieldKind, OperatorDesc


class Activation(NamedTuple):
    """Arguments of the shader function ``activate``.

    Attributes:
        id: The operator's number, 0 (``OperatorType.INVALID``) for none: a specialisation constant ACTIVATION.
        param0, param1: Its float attributes in the struct's order, 0.0 where it has fewer: runtime parameters.
    """

    id: int
    param0: float
    param1: float


def float_attributes(desc: OperatorDesc) -> tuple[float, ...]:
    """Values of the desc's FLOAT fields, in the struct's order."""
    return tuple(float(getattr(desc, field.name)) for field in desc.fields if field.kind is FieldKind.FLOAT)


def fused(activation: OperatorDesc | None) -> Activation:
    """The arguments for a desc's ``fused_activation``; None is no activation.

    Raises:
        UnsupportedError: an ElementWiseClip with a ``scale_bias``, which no fused form has.
    """
    if activation is None:
        return Activation(int(OperatorType.INVALID), 0.0, 0.0)
    if getattr(activation, "scale_bias", None) is not None:
        raise UnsupportedError("has no scale_bias where it is fused", operator=activation.type.dml_name)
    param0, param1 = (*float_attributes(activation), 0.0, 0.0)[:2]
    return Activation(int(activation.type), param0, param1)
