"""The element types of a graph's values, from the definitions of its operators.

Written here because onnx's own inference is native code that trusts the attributes it reads: a block size of 0, an axis
out of range or a broken Einsum equation ends the process. This one reads types only, and never sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Final, NamedTuple

import onnx
import onnx.defs
import onnx.helper

from dmlvk.onnx.versions import is_beyond_onnx
from dmlvk.spec.errors import ModelError

_TYPE_ATTRIBUTES: Final = ("to", "dtype", "output_dtype", "output_datatype")
_VALUE_ATTRIBUTES: Final = {
    "value_float": onnx.TensorProto.FLOAT,
    "value_floats": onnx.TensorProto.FLOAT,
    "value_int": onnx.TensorProto.INT64,
    "value_ints": onnx.TensorProto.INT64,
    "value_string": onnx.TensorProto.STRING,
    "value_strings": onnx.TensorProto.STRING,
}
_DEFAULTS: Final = {
    "ConstantOfShape": onnx.TensorProto.FLOAT,
    "RandomNormal": onnx.TensorProto.FLOAT,
    "RandomUniform": onnx.TensorProto.FLOAT,
    "QuantizeLinear": onnx.TensorProto.UINT8,
    "Multinomial": onnx.TensorProto.INT32,
    "LayerNormalization": onnx.TensorProto.FLOAT,
    "HannWindow": onnx.TensorProto.FLOAT,
    "HammingWindow": onnx.TensorProto.FLOAT,
    "BlackmanWindow": onnx.TensorProto.FLOAT,
    "MelWeightMatrix": onnx.TensorProto.FLOAT,
}
"""The types of outputs that neither an input nor an attribute decides; those of ``_AS_INPUT`` are as the first input."""
_AS_INPUT: Final = frozenset({"EyeLike", "Bernoulli", "RandomNormalLike", "RandomUniformLike"})


class _Parameter(NamedTuple):
    """An input or output in an operator's definition: the type, or the variable for one, what that stands for, and whether
    all values of the variable have the same type."""

    name: str
    type: str
    allowed: frozenset[str]
    is_uniform: bool


def infer_types(nodes: Sequence[onnx.NodeProto], opsets: Mapping[str, int], types: MutableMapping[str, int]) -> None:
    """Finds the types that nodes make, and refuses nodes whose inputs have types that their operators do not take.

    Args:
        nodes: The nodes in an order in which each comes after what it reads.
        opsets: Domain -> version; the domain of ONNX's own operators is "".
        types: ONNX's number of the element type by value, of the graph's inputs and initializers; those of the nodes'
            outputs are added. Values that are no tensors, or come from operators that onnx does not define, are not in it.

    Raises:
        ModelError: names the node, its input, the type and those that the operator takes.
    """
    for node in nodes:
        domain = "" if node.domain == "ai.onnx" else node.domain
        definition = _definition(node.op_type, opsets.get(domain, 0), domain)
        if definition is None:
            continue
        inputs, outputs = definition
        bound = _checked_inputs(node, inputs, types)
        for name, parameter in _paired(node.output, outputs):
            code = _made(node, parameter, bound, types)
            if name and code:
                types[name] = code


@functools.lru_cache(maxsize=4096)
def _definition(op_type: str, version: int, domain: str) -> tuple[tuple[_Parameter, ...], tuple[_Parameter, ...]] | None:
    """An operator's inputs and outputs; None for one that onnx does not define."""
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    variables = {item.type_param_str: frozenset(item.allowed_type_strs) for item in schema.type_constraints}
    if is_beyond_onnx(version, domain):  # which may allow more types; rows say which they take
        variables = {name: allowed | _ALL_TYPES if len(allowed) > 1 else allowed for name, allowed in variables.items()}

    def described(formals: Sequence[onnx.defs.OpSchema.FormalParameter]) -> tuple[_Parameter, ...]:
        return tuple(
            _Parameter(
                item.name, item.type_str, variables.get(item.type_str, frozenset({item.type_str})), item.is_homogeneous
            )
            for item in formals
        )

    return described(schema.inputs), described(schema.outputs)


def _paired(names: Sequence[str], parameters: Sequence[_Parameter]) -> Iterator[tuple[str, _Parameter]]:
    """Values with the parameters they stand for; the last parameter takes what is left."""
    for index, name in enumerate(names):
        if parameters:
            yield name, parameters[min(index, len(parameters) - 1)]


TENSOR_NAMES: Final = {code: f"tensor({name.lower()})" for name, code in onnx.TensorProto.DataType.items() if code}
"""ONNX's names of the types of tensors, by the number of their element type."""
_ALL_TYPES: Final = frozenset(TENSOR_NAMES.values())


def type_name(proto: onnx.TypeProto) -> str:
    """ONNX's name of a type, such as "seq(map(string,tensor(float)))"; "" where the file does not say all of it."""
    match proto.WhichOneof("value"):
        case "tensor_type":
            return TENSOR_NAMES.get(proto.tensor_type.elem_type, "")
        case "sequence_type":
            kind, inner = "seq(", type_name(proto.sequence_type.elem_type)
        case "optional_type":
            kind, inner = "optional(", type_name(proto.optional_type.elem_type)
        case "map_type":
            key = onnx.TensorProto.DataType.Name(proto.map_type.key_type).lower()
            kind, inner = f"map({key},", type_name(proto.map_type.value_type)
        case _:
            return ""
    return f"{kind}{inner})" if inner else ""


def type_proto(name: str) -> onnx.TypeProto:
    """The type of a name that ``type_name`` or ONNX Runtime gives: of tensors, sequences of them and optional values."""
    kind, inner = name.removesuffix(")").split("(", 1)
    if kind == "tensor":
        return onnx.helper.make_tensor_type_proto(_CODES[name], None)
    make = {"seq": onnx.helper.make_sequence_type_proto, "optional": onnx.helper.make_optional_type_proto}[kind]
    return make(type_proto(inner))


_CODES: Final = {name: code for code, name in TENSOR_NAMES.items()}


def infer_names(node: onnx.NodeProto, version: int, names: Mapping[str, str]) -> dict[str, str]:
    """ONNX's names of the types of a node's outputs, as far as its definition and its inputs' types say them.

    Args:
        node: The node.
        version: A version of its domain.
        names: Those of values so far.

    Raises:
        ModelError: an input is of a type that the operator does not take.
    """
    codes = {name: _CODES[names[name]] for name in node.input if names.get(name) in _CODES}
    infer_types([node], {node.domain: version}, codes)
    return {name: TENSOR_NAMES[codes[name]] for name in node.output if name in codes}


def _checked_inputs(node: onnx.NodeProto, parameters: Sequence[_Parameter], types: Mapping[str, int]) -> dict[str, int]:
    """The types that the inputs give to the definition's type variables."""
    bound: dict[str, int] = {}
    for index, (name, parameter) in enumerate(_paired(node.input, parameters)):
        code = types.get(name, 0)
        if not code:
            continue
        found = TENSOR_NAMES.get(code, f"unknown type {code}")
        called = node.name or ", ".join(map(str, node.output))
        where = f"node {called!r} ({node.op_type}): input {index}, {name!r}, is a {found}"
        if found not in parameter.allowed:
            raise ModelError(f"{where}; {parameter.name} takes {', '.join(sorted(parameter.allowed))}")
        if parameter.is_uniform and bound.setdefault(parameter.type, code) != code:
            raise ModelError(
                f"{where}, but an input that must have the same type is a {TENSOR_NAMES[bound[parameter.type]]}"
            )
    return bound


def _made(node: onnx.NodeProto, parameter: _Parameter, bound: Mapping[str, int], types: Mapping[str, int]) -> int:
    """The type of an output; 0 where it is unknown or no tensor."""
    if not parameter.is_uniform:
        return 0
    if parameter.type in bound:
        return bound[parameter.type]
    if len(parameter.allowed) == 1:
        return next((code for code, text in TENSOR_NAMES.items() if text in parameter.allowed), 0)
    for attribute in node.attribute:
        if attribute.name in _TYPE_ATTRIBUTES and attribute.i:
            return int(attribute.i)
        if attribute.name == "value":
            return int(attribute.t.data_type)
        if attribute.name in _VALUE_ATTRIBUTES:
            return _VALUE_ATTRIBUTES[attribute.name]
    if node.op_type in _AS_INPUT and node.input:
        return types.get(node.input[0], 0)
    return _DEFAULTS.get(node.op_type, 0)
