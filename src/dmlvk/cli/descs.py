"""Descs in words, as the command line takes them and a card's reports print them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from dmlvk.arguments import inferred_data_type, inferred_sizes
from dmlvk.kernels.common.registry import LOWERINGS
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.schema import REGISTRY, FieldKind, FieldSpec, OperatorDesc, ScaleBias, Size2D
from dmlvk.spec.tensor import TensorDesc


def parse_desc(operator: str, fields: Sequence[str]) -> OperatorDesc:
    """A desc from words: ``TYPE[sizes]`` or ``TYPE[sizes]@strides`` for a tensor, several joined by ``+`` for an array of
    them, numbers, names of enumeration members, comma-separated arrays, a class name for a fused activation, with its fields
    after colons (``ElementWiseClip:min=0:max=6``). Outputs that are left out are inferred.

    Raises:
        InvalidArgumentError: an unknown operator or field, or a word that does not parse.
    """
    row = next((row for row in (*REGISTRY.values(), *LOWERINGS) if row.__name__ == operator), None)
    if row is None:
        raise InvalidArgumentError("must be the class name of an operator", field="operator", value=operator)
    specs = {spec.name: spec for spec in row.fields}
    values: dict[str, Any] = {}
    for text in fields:
        name, _, word = text.partition("=")
        if name not in specs:
            raise InvalidArgumentError(f"must be one of {', '.join(specs)}", operator=operator, field="field", value=name)
        try:
            values[name] = _parse_field(specs[name], word)
        except (ValueError, KeyError) as error:
            if isinstance(error, InvalidArgumentError):
                raise
            kind = "tensor such as FLOAT32[2,3]" if specs[name].kind.is_tensor else specs[name].kind.value
            raise InvalidArgumentError(f"must be a {kind}", operator=operator, field=name, value=word) from None
    for item in dataclasses.fields(row):  # type: ignore[arg-type]  # every row is a dataclass
        if item.default is dataclasses.MISSING and item.name not in values:
            raise InvalidArgumentError("must be given", operator=operator, field=item.name)
    desc = row(**values)
    outputs = [spec for spec in row.fields if spec.kind is FieldKind.OUTPUT_TENSOR and not spec.optional]
    first = next((slot.tensor for slot in desc.input_slots()), None)
    if first is not None and any(spec.name not in values for spec in outputs):
        inferred = dict(zip(outputs, inferred_sizes(desc, outputs), strict=True))
        missing = [spec for spec in outputs if spec.name not in values]
        desc = desc.replace(**{spec.name: TensorDesc(inferred_data_type(desc, spec), inferred[spec]) for spec in missing})
    return desc


def _parse_tensor(word: str) -> TensorDesc:
    match = re.fullmatch(r"(\w+)\[([\d,]+)\](?:@([\d,]+))?", word)
    if not match:
        raise ValueError(word)
    strides = tuple(map(int, match[3].split(","))) if match[3] else None
    return TensorDesc(TensorDataType[match[1].upper()], tuple(map(int, match[2].split(","))), strides)


def _parse_field(spec: FieldSpec, word: str) -> Any:
    if spec.kind in (FieldKind.INPUT_TENSOR_ARRAY, FieldKind.OUTPUT_TENSOR_ARRAY):
        return tuple(map(_parse_tensor, word.split("+")))
    if spec.kind.is_tensor:
        return _parse_tensor(word)
    if spec.kind is FieldKind.ENUM:
        assert spec.enumeration is not None
        return spec.enumeration[word.upper()]
    if spec.kind in (FieldKind.FUSED_ACTIVATION, FieldKind.OPERATOR_DESC_ARRAY):
        found = tuple(parse_desc(name, fields) for name, *fields in (part.split(":") for part in word.split("+")))
        return found if spec.kind is FieldKind.OPERATOR_DESC_ARRAY else found[0]
    if spec.kind is FieldKind.SCALE_BIAS:
        scale, bias = word.split(",")
        return ScaleBias(float(scale), float(bias))
    if spec.kind is FieldKind.SIZE_2D:
        width, height = map(int, word.split(","))
        return Size2D(width, height)
    if spec.kind is FieldKind.BOOL:
        return {"true": True, "false": False}[word.lower()]
    if spec.kind in (FieldKind.UINT_ARRAY, FieldKind.INT_ARRAY, FieldKind.FLOAT_ARRAY):
        number = float if spec.kind is FieldKind.FLOAT_ARRAY else int
        return tuple(number(item) for item in word.split(",") if item)
    if spec.kind is FieldKind.SCALAR_UNION:
        return int(word) if re.fullmatch(r"[+-]?\d+", word) else float(word)
    return {FieldKind.UINT: int, FieldKind.INT: int, FieldKind.FLOAT: float}[spec.kind](word)
