"""The ONNX operators that run on the GPU: one row for each operator and since-version.

A converter is one function under one decorator line::

    @converts("Relu", 6, 13, 14, types=FLOATS)
    def relu(node: Conversion) -> Value:
        return node.launch(ops.ActivationRelu, node[0])

It says which versions of the operator's definition it was checked against. A newer version whose definition says the same
needs no line (``versions``); one that says anything else is not supported until a row names it, so that a new opset is
never run by the rules of an old one. What a converter does not do of its operator, ``check`` refuses when
the model is loaded, before any size is known. Operators that a DirectML row implements as they are stand in
aligned tables (see ``convert.elementwise`` and ``convert.activation``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dmlvk.onnx.attribute_rules import refuse_broken_attributes
from dmlvk.onnx.conversion import Conversion
from dmlvk.onnx.model import FOUR_BITS, Array, ElementKind, Node
from dmlvk.onnx.node_facts import NodeFacts
from dmlvk.onnx.saved_by_runtime import IN_BLOCKS as IN_BLOCKS
from dmlvk.onnx.saved_by_runtime import MICROSOFT as MICROSOFT
from dmlvk.onnx.values import Value
from dmlvk.onnx.versions import serving_version
from dmlvk.spec.enums import TensorDataType
from dmlvk.spec.errors import DmlvkError
from dmlvk.spec.formats import NumberFormat, Scheme

Result = Value | Array
Converter = Callable[[Conversion], Result | tuple[Result | None, ...]]
"""Launches what the node takes and returns its outputs: one, or a tuple with one for each in order."""


Check = Callable[[NodeFacts], object]
"""Raises what ``NodeFacts.unsupported`` makes for a node that the converter cannot do, whatever the sizes of its inputs."""


class Declared(NamedTuple):
    """What a converter reads and makes of an operator that onnx does not define, so that its checker knows nothing of it.

    Attributes:
        inputs: Inputs that are read; None if all are, however many there are.
        outputs: Outputs that are made.
        attributes: Names of the attributes that the converter or its check reads.
    """

    inputs: int | None
    outputs: int
    attributes: tuple[str, ...] = ()


def _looks(node: Node) -> bool:
    return False


def always(node: Node) -> bool:
    """``Row.moves`` of an operator that only moves elements."""
    return True


@dataclass(frozen=True)
class Row:
    """One operator at one version of its definition.

    Attributes:
        domain, op_type, since: The operator of the nodes that the row is for, and the version that it was checked against;
            the domain of ONNX's own operators is "".
        types: Data types that the node's first input may have.
        doubles: Whether it may be FLOAT64 as well, on devices that compute with 64-bit floats.
        host_inputs: Inputs that must be known before the run, by index: those that decide shapes.
        convert: The converter.
        temporaries: The number of temporaries that a row of the domain ``COUNTING`` hands on beside the count.
        handed: Inputs that the other half needs as well.
        check: What else there is to refuse when the model is loaded.
        declared: What the converter knows of an operator that onnx does not define; None for one that it does.
        moves: Whether the converter moves elements of a node and never looks at them, so that bits stand for any type.
    """

    domain: str
    op_type: str
    since: int
    types: tuple[ElementKind, ...]
    host_inputs: tuple[int, ...]
    convert: Converter = field(repr=False)
    temporaries: int = 0
    handed: tuple[int, ...] = ()
    check: Check | None = field(default=None, repr=False)
    declared: Declared | None = None
    doubles: bool = False
    moves: Callable[[Node], bool] = _looks

    def stands_in(self, node: Node, index: int, kind: ElementKind | None) -> ElementKind | None:
        """The kind of elements that the converter is given for an input of a node.

        A converter that takes any format that no tensor has is given all as they are. For one that moves elements
        their bits stand, a byte at least, and for others FLOAT32, if it takes that.
        """
        is_format = isinstance(kind, NumberFormat) or kind in FOUR_BITS
        if kind is None or not is_format or any(isinstance(own, NumberFormat) or own in FOUR_BITS for own in self.types):
            return kind
        if self.moves(node):
            bits = {NumberFormat.BFLOAT16: TensorDataType.UINT16, TensorDataType.INT4: TensorDataType.INT8}
            return bits.get(kind, TensorDataType.UINT8)
        is_real = isinstance(kind, NumberFormat) and kind.layout.scheme is not Scheme.INTEGER
        takes = index > 0 or TensorDataType.FLOAT32 in self.types
        return TensorDataType.FLOAT32 if is_real and takes else kind

    def refuse(self, node: NodeFacts) -> None:
        """Refuses a node that the converter cannot do, as far as types are known, and one that is broken.

        Raises:
            UnsupportedNodeError: says what of the node it is.
            ModelError: says what of the node is broken.
        """
        refuse_broken_attributes(node)
        node = NodeFacts(node.node, {index: self.stands_in(node.node, index, kind) for index, kind in node.kinds.items()})
        node.takes(0, (TensorDataType.FLOAT64, *self.types) if self.doubles else self.types)
        if self.declared is not None:
            asked = node.node
            unread = [f"attribute {name!r}" for name in asked.attributes if name not in self.declared.attributes]
            read = len(asked.inputs) if self.declared.inputs is None else self.declared.inputs
            unread += [f"input {index}" for index in range(read, len(asked.inputs)) if node.has(index)]
            unread += [f"output {index}" for index in range(self.declared.outputs, len(asked.outputs)) if node.wants(index)]
            if unread:
                raise node.unsupported(f"its converter does not read {', '.join(unread)}")
        if self.check is not None:
            self.check(node)

    def generates(self, node: Node) -> bool:
        """Whether the node reads no tensor on the device, but only what is known before the run."""
        return bool(node.inputs) and all(index in self.host_inputs for index in range(len(node.inputs)))


COUNTING: Final = "dmlvk/counting"
TAKING: Final = "dmlvk/taking"
"""Domains of the two halves of an operator of ONNX's own domain whose outputs have sizes that follow from values. The first
half finds on the device what there is and counts it; its outputs are the count and temporaries. The second has the count,
which the host has read by then, the temporaries and some of the operator's inputs as its inputs, and makes the outputs."""

_DEFINED: Final = ("", "ai.onnx.preview.training", COUNTING, TAKING)
"""Domains whose operators onnx defines. Its checker refuses attributes, inputs and outputs that they do not have."""

ROWS: dict[tuple[str, str, int], Row] = {}
"""(domain, operator, since-version) -> row, filled by the files of ``dmlvk.onnx.convert``."""


def converts(
    op_type: str,
    *since: int,
    types: tuple[ElementKind, ...],
    host_inputs: tuple[int, ...] = (),
    domain: str = "",
    temporaries: int = 0,
    handed: tuple[int, ...] = (),
    check: Check | None = None,
    declared: Declared | None = None,
    doubles: bool = False,
    moves: Callable[[Node], bool] = _looks,
) -> Callable[[Converter], Converter]:
    """Registers the decorated converter for an operator's since-versions; see ``Row``."""

    assert (declared is None) == (domain in _DEFINED), f"{op_type} of {domain!r} is declared if onnx does not define it"

    def register(convert: Converter) -> Converter:
        for version in since:
            key = (domain, op_type, version)
            assert key not in ROWS, f"{key} has two converters"
            whole = _refusing(convert)
            ROWS[key] = Row(
                domain, op_type, version, types, host_inputs, whole, temporaries, handed, check, declared, doubles, moves
            )
        return convert

    return register


def _refusing(convert: Converter) -> Converter:
    """The converter, with what it trips over in a broken node as the node's error: an attribute or an input that its
    operator's definition rules out, such as a stride of 0, is read by each as if it were right."""

    @functools.wraps(convert)
    def refusing(node: Conversion) -> Result | tuple[Result | None, ...]:
        try:
            return convert(node)
        except DmlvkError:
            raise
        except (ArithmeticError, AssertionError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
            raise node.invalid(
                "its attributes and inputs must fit the operator", f"{type(error).__name__}: {error}"
            ) from error

    return refusing


def find_row(node: Node) -> Row | None:
    """The row for a node, or None."""
    return _serving(node.domain, node.op_type, node.version)


def find_counting(node: Node) -> Row | None:
    """The row of the half that counts, for a node that is run in halves, or None."""
    return _serving(COUNTING, node.op_type, node.version) if node.domain == "" else None


@functools.cache
def _serving(domain: str, op_type: str, version: int) -> Row | None:
    defined = "" if domain in (COUNTING, TAKING) else domain
    since = serving_version(op_type, defined, version, _versions(domain, op_type))
    return None if since is None else ROWS[domain, op_type, since]


def _versions(domain: str, op_type: str) -> list[int]:
    """The versions of an operator that have rows."""
    return sorted(key[2] for key in ROWS if key[:2] == (domain, op_type))


def missing_reason(node: Node) -> str:
    """Why ``find_row`` found nothing."""
    versions = _versions(node.domain, node.op_type)
    if not versions:
        return "the operator has no converter"
    listed = ", ".join(map(str, versions))
    return f"this version of the operator has no converter; versions {listed} have"
