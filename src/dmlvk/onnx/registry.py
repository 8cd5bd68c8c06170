"""The ONNX operators that run on the GPU: one row for each operator and since-version.

A converter is one function under one decorator line::

    @converts("Relu", 6, 13, 14, types=FLOATS)
    def relu(node: Conversion) -> Value:
        return node.launch(ops.ActivationRelu, node[0])

It says which versions of the operator's definition it implements; a version that no row names is not supported, so that
a new opset is never run by the rules of an old one. Operators that a DirectML row implements as they are stand in
aligned tables (see ``convert.elementwise`` and ``convert.activation``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dmlvk.errors import DmlvkError
from dmlvk.onnx.model import Array, ElementKind, Node
from dmlvk.onnx.values import Value

if TYPE_CHECKING:
    from dmlvk.onnx.conversion import Conversion

Result = Value | Array
Converter = Callable[["Conversion"], Result | tuple[Result | None, ...]]
"""Launches what the node takes and returns its outputs: one, or a tuple with one for each in order."""


@dataclass(frozen=True)
class Row:
    """One operator at one version of its definition.

    Attributes:
        domain, op_type, since: What a node must ask for; the domain of ONNX's own operators is "".
        types: Data types that the node's first input may have.
        host_inputs: Inputs that must be known before the run, by index: those that decide shapes.
        convert: The converter.
    """

    domain: str
    op_type: str
    since: int
    types: tuple[ElementKind, ...]
    host_inputs: tuple[int, ...]
    convert: Converter = field(repr=False)

    def generates(self, node: Node) -> bool:
        """Whether the node reads no tensor on the device, but only what is known before the run."""
        return bool(node.inputs) and all(index in self.host_inputs for index in range(len(node.inputs)))


ROWS: dict[tuple[str, str, int], Row] = {}
"""(domain, operator, since-version) -> row, filled by the files of ``dmlvk.onnx.convert``."""


def converts(
    op_type: str,
    *since: int,
    types: tuple[ElementKind, ...],
    host_inputs: tuple[int, ...] = (),
    domain: str = "",
) -> Callable[[Converter], Converter]:
    """Registers the decorated converter for an operator's since-versions; see ``Row``."""

    def register(convert: Converter) -> Converter:
        for version in since:
            key = (domain, op_type, version)
            assert key not in ROWS, f"{key} has two converters"
            ROWS[key] = Row(domain, op_type, version, types, host_inputs, _refusing(convert))
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
            raise node.invalid(f"its attributes or inputs do not fit it ({type(error).__name__}: {error})") from error

    return refusing


_SIZES_OF_VALUES: Final = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
"""Operators of ONNX's own domain whose outputs have no sizes before the run, unless their inputs are known by then."""


def find_row(node: Node) -> Row | None:
    """The row for a node, or None."""
    return ROWS.get((node.domain, node.op_type, node.version))


def missing_reason(node: Node) -> str:
    """Why ``find_row`` found nothing."""
    versions = sorted(since for domain, op_type, since in ROWS if (domain, op_type) == (node.domain, node.op_type))
    if not versions and node.domain == "" and node.op_type in _SIZES_OF_VALUES:
        return "the operator has no converter: the sizes of what it makes follow from values, which only a run knows"
    if not versions:
        return "the operator has no converter"
    listed = ", ".join(map(str, versions))
    return f"this version of the operator has no converter; versions {listed} have"
