"""Which version of an operator's definition serves for which.

A row is checked against the versions that it names. A later version that says the same needs no row of its own. With a
release of onnx that is older than a model, the newest definitions that it knows stand for the model's: rows name what
changed after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import onnx.defs

CHECKED: Final = 28
"""The newest opset of ONNX's own operators against all of whose definitions the rows were held."""


def is_beyond_onnx(opset: int, domain: str) -> bool:
    """Whether an opset has definitions that the installed onnx does not know."""
    return domain == "" and opset > onnx.defs.onnx_opset_version()


def serving_version(op_type: str, domain: str, version: int, checked: Iterable[int]) -> int | None:
    """The version whose row serves for a version of an operator: itself, or the newest older one if the definitions of
    both say the same; None where there is none.

    Args:
        op_type, domain: The operator.
        version: A since-version, or an opset beyond the installed onnx.
        checked: The versions that have rows.
    """
    older = max((item for item in checked if item <= version), default=None)
    return older if older is None or older == version or _say_the_same(op_type, domain, older, version) else None


def _say_the_same(op_type: str, domain: str, older: int, newer: int) -> bool:
    """Whether the installed onnx's definitions of two versions differ in nothing but the types that they allow.

    Their texts are compared as well, word for word: what is computed can change while the inputs, outputs and attributes
    stay, as BitShift 28 shows, which defines shifts by negative numbers. So a version of which only the text was mended has
    to be named by a row as well. Types need not be equal: a row says which it takes, and refuses the others.
    """
    try:
        before, after = (onnx.defs.get_schema(op_type, version, domain) for version in (older, newer))
    except onnx.defs.SchemaError:  # an operator that onnx does not define
        return False
    return not after.deprecated and _meaning(before) == _meaning(after)


def _meaning(schema: onnx.defs.OpSchema) -> tuple[object, ...]:
    return (schema.doc or "").split(), _formals(schema.inputs), _formals(schema.outputs), _attributes(schema.attributes)


def _formals(formals: Sequence[onnx.defs.OpSchema.FormalParameter]) -> list[tuple[object, ...]]:
    return [
        (item.name, item.option, item.type_str, item.is_homogeneous, item.min_arity, item.description.split())
        for item in formals
    ]


def _attributes(attributes: Mapping[str, onnx.defs.OpSchema.Attribute]) -> dict[str, tuple[object, ...]]:
    return {
        name: (item.type, item.required, item.default_value.SerializeToString(), item.description.split())
        for name, item in attributes.items()
    }
