"""The device features that the data types of an operator take, told from its row and from its lowering's declarations,
without lowering anything."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType

from dmlvk.devices.capabilities import Capabilities
from dmlvk.kernels.common.kernel import GLSL_TYPES
from dmlvk.kernels.common.registry import LOWERINGS, lowered_as
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.schema import FieldKind, FieldSpec, OperatorDesc
from dmlvk.spec.tensor import TensorDesc, element_bits


def storage_features(data_type: TensorDataType) -> frozenset[str]:
    """The features that loading and storing elements takes, whatever is computed with them.

    Any device moves 64-bit elements, as pairs of words, and writes 64-bit indices so; whether it computes with them is asked
    of the kernels that do. 4-bit elements go in 32-bit words.
    """
    if element_bits(data_type) in (4, 64):
        return frozenset()
    return frozenset(GLSL_TYPES[data_type.name].features)


_NEEDED: dict[type[OperatorDesc], Mapping[TensorDataType, frozenset[str]]] = {}
"""What ``needed_features`` has found."""


def needed_features(row: type[OperatorDesc]) -> Mapping[TensorDataType, frozenset[str]]:
    """For each data type that a tensor of an operator may have, the device features that such a desc takes at least.

    Where several tensors may have it, those of all count. Tensors that may have other types have those that take least.
    """
    if row in _NEEDED:
        return _NEEDED[row]
    needed: dict[TensorDataType, frozenset[str]] = {}
    for spec in row.fields:
        for data_type in spec.all_types:
            features = _least_features(row, {spec.name: data_type})
            if features is not None:
                needed[data_type] = needed.get(data_type, frozenset()) | features
    _NEEDED[row] = MappingProxyType(needed)
    return _NEEDED[row]


def unsupported_types(row: type[OperatorDesc], caps: Capabilities) -> dict[TensorDataType, frozenset[str]]:
    """The data types of an operator that a device cannot do, each with the features that it lacks."""
    missing = {data_type: features - caps.features for data_type, features in needed_features(row).items()}
    return {data_type: features for data_type, features in missing.items() if features}


def _least_features(row: type[OperatorDesc], given: Mapping[str, TensorDataType]) -> frozenset[str] | None:
    """The fewest features that a desc takes whose tensors have these data types and no others but those that must be there;
    None where the row's rules of equal data types leave no such desc."""
    own = LOWERINGS[lowered_as(row)].features
    types, taken = dict(given), frozenset[str]()
    tensors = [spec for spec in row.fields if spec.kind.is_tensor and (spec.name in given or not spec.optional)]
    for spec in tensors:
        choices = (given[spec.name],) if spec.name in given else spec.all_types
        left = [item for item in choices if _agree(row, {**types, spec.name: item})]
        if not left:
            return None
        features = [_features(spec, item) | (own(row, item) if spec is tensors[0] else frozenset()) for item in left]
        least = min(features, key=len)
        types[spec.name] = left[features.index(least)]
        taken |= least
    return taken


def _features(spec: FieldSpec, data_type: TensorDataType) -> frozenset[str]:
    """The features that a tensor of a data type takes: of types beyond DirectML's those of computing with it."""
    return frozenset(GLSL_TYPES[data_type.name].features) if data_type in spec.beyond else storage_features(data_type)


def _agree(row: type[OperatorDesc], types: Mapping[str, TensorDataType]) -> bool:
    """Whether tensors of these data types break no rule of equal data types."""
    rules = [rule for rule in row.constraints if rule.label == "same_data_type"]
    if not rules:
        return True
    desc = row(**{spec.name: _value(spec, types) for spec in row.fields})
    return not any(rule.check(desc) for rule in rules)


def _value(spec: FieldSpec, types: Mapping[str, TensorDataType]) -> object:
    """A field of a desc whose data types alone are looked at."""
    is_array = spec.kind in (FieldKind.INPUT_TENSOR_ARRAY, FieldKind.OUTPUT_TENSOR_ARRAY)
    if spec.name not in types:
        return () if is_array else None
    tensor = _one_element(types[spec.name])
    return (tensor,) if is_array else tensor


@functools.cache
def _one_element(data_type: TensorDataType) -> TensorDesc:
    return TensorDesc(data_type, (1,))
