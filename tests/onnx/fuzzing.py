"""Loads broken variants of onnx's node cases, in a process of its own: ``python fuzzing.py SEED COUNT``.

Each variant either loads, down to the trace of its operators, or ends in an error of dmlvk's. Anything else is printed with
the case's name, its number and how long it took; a crash of native code is the process's end. The address space is limited.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import onnx.numpy_helper

from dmlvk.engine.trace import Region
from dmlvk.onnx.feeds import fixed_sizes
from dmlvk.onnx.model import load_model
from dmlvk.onnx.network import Network
from dmlvk.spec.errors import DmlvkError

MEMORY = 6 << 30
SECONDS = 5.0

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
    changes = (_attribute, _attribute, _attribute, _sizes, _type, _fewer_inputs, _more_inputs, _constant, _operator)
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


def attempt(data: bytes) -> str:
    """What loading comes to: "loaded", "refused", or an error that is none of dmlvk's."""
    try:
        network = Network(load_model(data))
        sizes = fixed_sizes(network.model)
        region = network.whole or next((part for part, _ in network.program.parts), None)
        if sizes is not None and isinstance(region, Region) and not region.host_inputs:
            types = {info.name: info.dtype for info in network.model.inputs}
            network.trace(region, {name: (types[name], sizes[name]) for name in region.inputs}, {})
    except DmlvkError:
        return "refused"
    except Exception as error:  # just what this looks for
        return f"{type(error).__name__}: {error}"
    return "loaded"


def main(seed: int, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    np.seterr(all="ignore")
    rng = random.Random(seed)
    folder = Path(onnx.backend.test.__file__).parent / "data" / "node"
    cases = sorted(path for path in folder.glob("*/model.onnx") if path.stat().st_size < 100_000)
    outcomes = {"loaded": 0, "refused": 0}
    for number in range(count):
        case = rng.choice(cases)
        change: Callable[[bytes, random.Random], bytes] = rng.choice((flipped, rewritten, rewritten))
        data = change(case.read_bytes(), rng)
        print(f"{number} {case.parent.name}", file=sys.stderr, flush=True)  # the last line says where a crash was
        start = time.perf_counter()
        outcome = attempt(data)
        seconds = time.perf_counter() - start
        if outcome not in outcomes or seconds > SECONDS:
            print(f"{number} {case.parent.name} ({change.__name__}): {outcome}, {seconds:.1f} s")
        else:
            outcomes[outcome] += 1
    print(f"loaded {outcomes['loaded']}, refused {outcomes['refused']}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
