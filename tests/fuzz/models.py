"""Broken variants of onnx's node cases: each loads, down to the trace of its operators, or ends in an error of dmlvk's.

A crash of native code ends the process, so tests run this in one of its own.
"""

from __future__ import annotations

import base64
import functools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import onnx.helper
import onnx.numpy_helper

from dmlvk.engine.trace import Region
from dmlvk.onnx.feeds import fixed_sizes
from dmlvk.onnx.model import load_model
from dmlvk.onnx.network import Network
from dmlvk.spec.errors import DmlvkError
from fuzz.campaign import Fault, Overtime

_NUMBERS = (-1, 0, 1, 2, -2, 7, 100, 1 << 16, 2**31 - 1, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63))
_TEXTS = (
    b"",
    b"VALID",
    b"SAME_UPPER",
    b"cubic",
    b"...",
    b"->",
    b"ij,jk->ik",
    b"ij..jk",
    b"ii->",
    b"a,",
    b"x" * 50,
    b"\xff\xfe",
)
_OPERATORS = (
    "Relu",
    "Add",
    "MatMul",
    "Conv",
    "Reshape",
    "Concat",
    "Split",
    "Resize",
    "Gather",
    "Einsum",
    "Pad",
    "Tile",
    "If",
    "Loop",
    "NonZero",
    "SequenceAt",
    "Identity",
)


def flipped(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, and sometimes the end missing."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    if rng.random() < 0.1:
        del changed[rng.randrange(len(changed)) :]
    return bytes(changed)


def rewritten(data: bytes, rng: random.Random) -> bytes:
    """A model that can be read, with attributes, sizes, types, inputs, constants or operators changed."""
    model = onnx.load_model_from_string(data)
    changes = (
        *(_attribute, _attribute, _attribute, _sizes, _type, _fewer_inputs, _more_inputs, _constant, _operator),
        *(_kind, _circle, _names, _inside),
    )
    for _ in range(rng.choice((1, 1, 2, 3))):
        graph = rng.choice([*_graphs(model.graph)])
        rng.choice(changes)(graph, rng.choice(graph.node), rng)
    return bytes(model.SerializeToString())


def _graphs(graph: Any) -> Iterator[Any]:
    """A graph and those inside it that have nodes."""
    if graph.node:
        yield graph
    for node in graph.node:
        for attribute in node.attribute:
            yield from _graphs(attribute.g)


def _attribute(graph: Any, node: Any, rng: random.Random) -> None:
    for attribute in rng.sample(list(node.attribute), min(1, len(node.attribute))):
        if attribute.type == onnx.AttributeProto.INT:
            attribute.i = rng.choice(_NUMBERS)
        elif attribute.type == onnx.AttributeProto.INTS:
            attribute.ints[:] = [rng.choice((number, rng.choice(_NUMBERS))) for number in attribute.ints][rng.randrange(2) :]
        elif attribute.type == onnx.AttributeProto.STRING:
            attribute.s = rng.choice(_TEXTS)
        elif attribute.type == onnx.AttributeProto.FLOAT:
            attribute.f = rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e38))
        elif attribute.type == onnx.AttributeProto.TENSOR:
            attribute.t.dims.append(rng.choice(_NUMBERS))


def _sizes(graph: Any, node: Any, rng: random.Random) -> None:
    for item in rng.sample(list(graph.input), min(1, len(graph.input))):
        sizes = item.type.tensor_type.shape.dim
        if len(sizes) and rng.random() < 0.7:
            sizes[rng.randrange(len(sizes))].dim_value = rng.choice(_NUMBERS)
        else:
            sizes.add().dim_value = rng.choice((1, 3))


def _type(graph: Any, node: Any, rng: random.Random) -> None:
    item = rng.choice((*graph.input, *graph.output))
    if item.type.HasField("tensor_type"):
        item.type.tensor_type.elem_type = rng.randrange(25)


def _fewer_inputs(graph: Any, node: Any, rng: random.Random) -> None:
    if node.input:
        del node.input[rng.randrange(len(node.input))]


def _more_inputs(graph: Any, node: Any, rng: random.Random) -> None:
    node.input.append(rng.choice(("", *node.input, *node.output)))


def _constant(graph: Any, node: Any, rng: random.Random) -> None:
    """An input becomes a constant of strange numbers, perhaps of other sizes than it says."""
    for item in rng.sample(list(graph.input), min(1, len(graph.input))):
        sizes = [min(max(size.dim_value, 0), 8) for size in item.type.tensor_type.shape.dim]
        if item.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            numbers = np.array([rng.choice(_NUMBERS) for _ in range(int(np.prod(sizes)))], np.int64).reshape(sizes)
        else:
            numbers = np.full(sizes, rng.choice((0, 1, -1, np.nan)), np.float32)
        tensor = onnx.numpy_helper.from_array(numbers, item.name)
        if sizes and rng.random() < 0.3:
            tensor.dims[0] = rng.choice(_NUMBERS)
        graph.initializer.append(tensor)


def _operator(graph: Any, node: Any, rng: random.Random) -> None:
    node.op_type = rng.choice(_OPERATORS)


def _kind(graph: Any, node: Any, rng: random.Random) -> None:
    """An attribute that says of itself to be of another kind."""
    for attribute in rng.sample(list(node.attribute), min(1, len(node.attribute))):
        attribute.type = rng.randrange(15)


def _circle(graph: Any, node: Any, rng: random.Random) -> None:
    """An input from any node, perhaps from one that comes later, or from nowhere."""
    if node.input:
        names = [name for other in graph.node for name in other.output]
        node.input[rng.randrange(len(node.input))] = rng.choice((*names, "nowhere"))


def _names(graph: Any, node: Any, rng: random.Random) -> None:
    """An output of the name of something else."""
    if node.output:
        others = [*node.input, *(item.name for item in graph.initializer), *(item.name for item in graph.output), ""]
        node.output[rng.randrange(len(node.output))] = rng.choice(others)


def _inside(graph: Any, node: Any, rng: random.Random) -> None:
    """A graph within the graph, or one that has lost something."""
    inner = [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
    if not inner:
        copy = onnx.GraphProto.FromString(graph.SerializeToString())
        node.attribute.append(onnx.helper.make_attribute(rng.choice(("body", "then_branch", "x")), copy))
        return
    for items in rng.sample([inner[0].node, inner[0].output, inner[0].input, inner[0].initializer], 2):
        if items:
            del items[rng.randrange(len(items))]


def attempt(rng: random.Random) -> tuple[str, str]:
    """Breaks a model and loads it."""
    case = rng.choice(_cases())
    change: Callable[[bytes, random.Random], bytes] = rng.choice((flipped, rewritten, rewritten))
    data = change(case.read_bytes(), rng)
    text = f"{case.parent.name}, {change.__name__}: {base64.b85encode(data).decode()}"
    return text, judged(text)


@functools.cache
def _cases() -> list[Path]:
    folder = Path(onnx.backend.test.__file__).parent / "data" / "node"
    return sorted(path for path in folder.glob("*/model.onnx") if path.stat().st_size < 100_000)


def judged(text: str) -> str:
    """Loads the model whose bytes stand after ": ".

    Raises:
        Fault: an error that is none of dmlvk's.
    """
    try:
        with np.errstate(all="ignore"):
            network = Network(load_model(base64.b85decode(text.partition(": ")[2])))
            sizes = fixed_sizes(network.model)
            region = network.whole or next((part for part, _ in network.program.parts), None)
            if sizes is not None and isinstance(region, Region) and not region.host_inputs:
                types = {info.name: info.dtype for info in network.model.inputs}
                network.trace(region, {name: (types[name], sizes[name]) for name in region.inputs}, {})
    except DmlvkError:
        return "refused"
    except (Exception, Overtime) as error:
        raise Fault(text, f"{type(error).__name__}: {error}") from error
    return "loaded"
