"""ONNX models from a folder, and what they are fed.

Beside a model there may be a JSON file of the same name, ``model.json`` for ``model.onnx``, that says what the model itself
does not: its sizes and what its inputs may be. A constant may be a note of the mean and the deviation that it should have,
in place of its bytes: ``load`` puts random numbers there, so that a machine that cannot have the weights measures the model
all the same. What it computes then means nothing, but takes as long.
"""

from __future__ import annotations

import json
import pathlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from dmlvk.spec.errors import InvalidArgumentError
from dmlvk_bench.models.layers import Array

NOTE = "random:"
"""The first word of a note in a tensor's documentation; mean and deviation follow, with a colon between."""


def constants(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The constants of a graph and of the graphs in it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("g"):
                yield from constants(attribute.g)


def load(path: pathlib.Path) -> tuple[onnx.ModelProto, bool]:
    """A model with all its constants, and whether some of them are random."""
    model = onnx.load(str(path))
    replaced = False
    for tensor in constants(model.graph):
        if tensor.doc_string.startswith(NOTE):
            mean, deviation = map(float, tensor.doc_string.removeprefix(NOTE).split(":"))
            rng = np.random.default_rng(zlib.crc32(tensor.name.encode()))
            values = rng.standard_normal(tuple(tensor.dims), dtype=np.float32) * np.float32(deviation) + np.float32(mean)
            tensor.raw_data = values.astype(helper.tensor_dtype_to_np_dtype(tensor.data_type)).tobytes()
            tensor.ClearField("doc_string")
            replaced = True
    return model, replaced


@dataclass(frozen=True)
class Description:
    """The inputs of a model, from the JSON file beside it; every key may be missing there.

    Attributes:
        name: The model's name in the results; its path in the folder.
        input_shapes: Sizes of each input, in the model's order; without, those of the model, a symbolic one being 1.
        feeds: Inputs of given numbers, which are broadcast.
        below: Inputs of random integers from 0 on, less than this; without, less than 2.
        tolerance: Largest difference of an output from a rival's, relative to the largest number in it.
    """

    name: str
    input_shapes: Sequence[Sequence[int]] | None = None
    feeds: Mapping[str, Any] = field(default_factory=dict)
    below: Mapping[str, int] = field(default_factory=dict)
    tolerance: float = 1e-4

    def arrays(self, model: onnx.ModelProto, seed: int) -> dict[str, Array]:
        """An array for each input: what is given, else normal numbers, else small integers."""
        rng = np.random.default_rng(seed)
        constant = {tensor.name for tensor in model.graph.initializer}
        inputs = [info for info in model.graph.input if info.name not in constant]
        shapes = self.input_shapes
        if shapes is None:
            shapes = [[max(dim.dim_value, 1) for dim in info.type.tensor_type.shape.dim] for info in inputs]
        found: dict[str, Array] = {}
        for info, sizes in zip(inputs, shapes, strict=True):
            dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            if info.name in self.feeds:
                found[info.name] = np.broadcast_to(np.asarray(self.feeds[info.name]), sizes).astype(dtype)
            elif dtype.kind == "f":
                found[info.name] = rng.standard_normal(sizes).astype(dtype)
            else:
                found[info.name] = rng.integers(0, self.below.get(info.name, 2), sizes).astype(dtype)
        return found


def find_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The ONNX files of a folder, at any depth, the largest first.

    Raises:
        InvalidArgumentError: there is none.
    """
    found = sorted(folder.rglob("*.onnx"), key=lambda path: (-path.stat().st_size, path))
    if not found:
        raise InvalidArgumentError("must be a folder with ONNX files in it", field="folder", value=str(folder))
    return found


def describe(path: pathlib.Path, folder: pathlib.Path) -> Description:
    """The description in the file beside a model.

    Raises:
        InvalidArgumentError: it has keys that none of ``Description`` is.
    """
    beside = path.with_suffix(".json")
    given = json.loads(beside.read_text()) if beside.exists() else {}
    try:
        return Description(**{"name": str(path.relative_to(folder)), **given})
    except TypeError as error:
        keys = ", ".join(Description.__annotations__)
        raise InvalidArgumentError(f"must have only the keys {keys} ({error})", field="folder", value=str(beside)) from None
