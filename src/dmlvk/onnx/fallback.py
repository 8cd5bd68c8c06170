"""Nodes that ONNX Runtime runs on the host because no device can: see ``SessionOptions.on_unsupported``.

Text, trees, and whatever has no converter. Neighbours are one session of ONNX Runtime, made when the model is loaded. What
they read is brought to the host, and what they make goes to the device where something reads it there; text never does.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from dmlvk.engine.run import Run, Scope
from dmlvk.engine.tensors import Item, Opaque, Tensor
from dmlvk.engine.trace import Label
from dmlvk.onnx.control import Body
from dmlvk.onnx.model import TEXT, Array, Model, Node
from dmlvk.onnx.node_facts import unsupported_node
from dmlvk.onnx.report import IN_ONNX_RUNTIME
from dmlvk.onnx.types import TENSOR_NAMES, infer_names, type_name, type_proto
from dmlvk.spec.errors import ModelError, UnsupportedNodeError

_TEXT: Final = TENSOR_NAMES[onnx.TensorProto.STRING]
_EXCHANGED: Final = frozenset(
    {
        *("string", "bool", "float", "double", "float16", "int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64"),
    }
)
"""Elements of tensors that ONNX Runtime takes from Python and gives to it."""
_IR_VERSION: Final = 10
"""The version of the file format of its models: one that every ONNX Runtime of the last years reads."""
_LOCALE: Final = "C.UTF-8"
"""The letters of all languages. ONNX leaves the default to who runs a node; that of ONNX Runtime, en_US, is not installed in
most containers."""


class HostNode(NamedTuple):
    """A node that ONNX Runtime runs, and why the device does not."""

    node: Node
    reason: str


@dataclass(frozen=True, eq=False)
class HostGroup:
    """Neighbouring nodes that ONNX Runtime runs together.

    Attributes:
        nodes: The nodes in order.
        inputs: Names of the values that they read and others make.
        outputs: Names of what is read outside.
        session: ONNX Runtime's session.
    """

    nodes: Sequence[HostNode]
    inputs: Sequence[str]
    outputs: Sequence[str]
    session: Any

    @property
    def host_inputs(self) -> Sequence[str]:
        """None: it reads its inputs by itself, and notes their bytes."""
        return ()

    @property
    def labels(self) -> Mapping[Any, Label]:
        """The label of each node."""
        return {
            _whole(node): Label(_whole(node).name, _whole(node).op_type, f"{IN_ONNX_RUNTIME}: {reason}")
            for node, reason in self.nodes
        }

    def run(self, run: Run, operands: Sequence[Item], scope: Scope) -> Sequence[Item]:
        """The outputs for these operands, in their order in the model."""
        feeds = {name: self._fed(run, name, item) for name, item in zip(self.inputs, operands, strict=True)}
        try:
            made = self.session.run(list(self.outputs), feeds)
        except Exception as error:  # its own classes, which have no common base
            names = ", ".join(repr(node.name) for node, _ in self.nodes)
            raise ModelError(f"ONNX Runtime cannot run {names}: {error}") from error
        return [self._item(run, name, value) for name, value in zip(self.outputs, made, strict=True)]

    def _fed(self, run: Run, name: str, item: Item) -> Any:
        if isinstance(item, Tensor):
            if not item.is_on_host:
                reader = next(node for node, _ in self.nodes if name in node.inputs)
                run.account.add_bytes(_whole(reader), "from", item.on_host().nbytes)
            return item.on_host()
        if isinstance(item, tuple):
            return [self._fed(run, name, tensor) for tensor in item]
        return item.value if isinstance(item, Opaque) else item

    def _item(self, run: Run, name: str, value: Any) -> Item:
        if value is None:
            return None
        maker = next(node for node, _ in self.nodes if name in node.outputs)
        uploaded = functools.partial(run.account.add_bytes, _whole(maker), "to")
        if isinstance(value, np.ndarray):
            return run.carrier.tensor(value, uploaded)
        if isinstance(value, list) and all(isinstance(item, np.ndarray) for item in value):
            return tuple(run.carrier.tensor(item, uploaded) for item in value)
        return Opaque(value)


class Fallback:
    """Says which nodes the host runs, and opens them in ONNX Runtime.

    Args:
        model: The model.
        constants: Constants by name, as far as they are known when nodes are opened.
    """

    def __init__(self, model: Model, constants: Mapping[str, Array]) -> None:
        self._constants = constants
        self._types = {name: TENSOR_NAMES[code] for name, code in model.types.items() if code in TENSOR_NAMES}
        self._types.update((info.name, info.type) for info in model.inputs)
        self._makers: dict[str, Node] = {}

    # -- types

    def note(self, node: Node) -> None:
        """Notes the types that a node makes, as far as its operator's definition says them."""
        self._makers.update((name, node) for name in node.outputs if name)
        self._types.update(infer_names(_proto(node), node.version, self._types))

    def note_inside(self, body: Body, handed: Iterable[str]) -> None:
        """Notes the types of what a node hands to its body: those that the file says, or else those of what it hands over.

        Args:
            body: The body.
            handed: Names of the values that become its inputs, "" for one that has no name.
        """
        for name, outer in zip(body.inputs, handed, strict=False):
            known = type_name(body.types.get(name, onnx.TypeProto())) or self._types.get(outer, "")
            if known:
                self._types[name] = known

    def note_made(self, names: Iterable[str], inside: Iterable[str]) -> None:
        """Notes that values have the types of what a body makes."""
        self._types.update((name, self._types[own]) for name, own in zip(names, inside, strict=False) if own in self._types)

    def ask(self, node: Node) -> None:
        """Notes the types that ONNX Runtime knows of what a node makes, if it can run it."""
        try:
            self._opened(node)
        except UnsupportedNodeError:
            return

    def types_made(self, node: Node) -> dict[str, str]:
        """ONNX's names of the types of a node's outputs, as far as they are known."""
        return {name: self._types[name] for name in node.outputs if name in self._types}

    def has_text(self, node: Node) -> bool:
        """Whether the node is known to read or make text."""
        return any(
            self._types.get(name) == _TEXT or (name in self._constants and self._constants[name].dtype == TEXT)
            for name in (*node.inputs, *node.outputs)
        )

    def _type(self, node: Node, name: str) -> str:
        """The type of a value that a node reads."""
        if name not in self._types and name in self._makers:
            self.ask(self._makers[name])
        if name not in self._types:
            raise unsupported_node(node, f"the type of {name!r}, which ONNX Runtime must know, is not known")
        return self._types[name]

    # -- ONNX Runtime

    def opened(self, node: Node, reason: str) -> HostNode:
        """A node that ONNX Runtime can run.

        Raises:
            UnsupportedNodeError: it cannot either, or is not installed.
        """
        try:
            self._opened(node)
        except UnsupportedNodeError as error:
            raise unsupported_node(node, f"{reason}; {error.reason}") from error
        return HostNode(node, reason)

    def _opened(self, node: Node) -> None:
        reads = [name for name in dict.fromkeys(node.inputs) if name and name not in self._constants]
        session = self._session([node], reads, [name for name in node.outputs if name])
        self._types.update((item.name, item.type) for item in session.get_outputs())

    def group(self, nodes: Sequence[HostNode], inputs: Sequence[str], outputs: Sequence[str]) -> HostGroup:
        """Nodes as one session.

        Args:
            nodes: Nodes in order, each of which has been opened.
            inputs: Names of the values that they read and others make.
            outputs: Names of what is read outside.

        Raises:
            UnsupportedNodeError: a value has elements that ONNX Runtime does not hand over.
        """
        for name in (*inputs, *outputs):
            last = next(node for node, _ in nodes if name in (*node.inputs, *node.outputs))
            elements = self._type(last, name).split("(")[-1].rstrip(")")
            if elements not in _EXCHANGED:
                raise unsupported_node(last, f"ONNX Runtime does not take or give elements of type {elements} in Python")
        return HostGroup(nodes, inputs, outputs, self._session([node for node, _ in nodes], inputs, outputs))

    def _session(self, nodes: Sequence[Node], inputs: Sequence[str], outputs: Sequence[str]) -> Any:
        try:
            runtime = importlib.import_module("onnxruntime")
        except ImportError as error:
            reason = "ONNX Runtime, which would run it on the host, is not installed: pip install onnxruntime"
            raise unsupported_node(nodes[0], reason) from error
        options = runtime.SessionOptions()
        options.log_severity_level = 4  # what goes wrong is an exception
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the host has other work between two runs
        try:
            model = self._model(nodes, inputs, outputs).SerializeToString()
            return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except UnsupportedNodeError:
            raise
        except Exception as error:  # its own classes, which have no common base
            raise unsupported_node(nodes[0], f"ONNX Runtime cannot run it either: {error}") from error

    def _model(self, nodes: Sequence[Node], inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto:
        opsets = {"": 1}
        for node in nodes:
            opsets[node.domain] = max(node.version, opsets.get(node.domain, 1))
        constants = {name for node in nodes for name in node.inputs if name in self._constants}
        return onnx.helper.make_model(
            onnx.helper.make_graph(
                [_proto(node) for node in nodes],
                "host",
                [onnx.helper.make_value_info(name, type_proto(self._type(nodes[0], name))) for name in inputs],
                [onnx.ValueInfoProto(name=name) for name in outputs],
                [onnx.numpy_helper.from_array(self._constants[name], name) for name in sorted(constants)],
            ),
            opset_imports=[onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()],
            ir_version=_IR_VERSION,
        )


def _proto(node: Node) -> onnx.NodeProto:
    """The node as ONNX has it, with its inputs and outputs of now."""
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    proto.input[:] = node.inputs
    proto.output[:] = node.outputs
    proto.domain = node.domain
    if node.op_type == "StringNormalizer" and "locale" not in node.attributes and sys.platform == "linux":
        proto.attribute.append(onnx.helper.make_attribute("locale", _LOCALE))
    return proto


def _whole(node: Node) -> Node:
    return node.whole or node
