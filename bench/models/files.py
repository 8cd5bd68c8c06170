"""ONNX models from files, and files without their weights, for a machine that cannot have these.

    python -m bench.models.files FOLDER MODEL...

writes each model into the folder with a note in place of every constant of 64 KiB or more that is a float or an 8-bit
integer. ``load`` puts random numbers of the same mean, deviation and type there: what a model computes then means nothing,
but takes as long.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.models.layers import Array

LEAST_BYTES = 65536
NOTE = "random:"
KINDS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT8, TensorProto.UINT8)


def _constants(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("g"):
                yield from _constants(attribute.g)


def hollow(model: onnx.ModelProto) -> None:
    """Puts notes in place of large constants."""
    for tensor in _constants(model.graph):
        if tensor.data_type in KINDS and len(tensor.raw_data) >= LEAST_BYTES:
            values = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.doc_string = f"{NOTE}{values.mean():.9g}:{values.std():.9g}"
            tensor.ClearField("raw_data")


def load(path: pathlib.Path) -> tuple[onnx.ModelProto, bool]:
    """A model with all its constants, and whether some of them are random."""
    model = onnx.load(str(path))
    replaced = False
    for tensor in _constants(model.graph):
        if tensor.doc_string.startswith(NOTE):
            mean, deviation = map(float, tensor.doc_string.removeprefix(NOTE).split(":"))
            rng = np.random.default_rng(zlib.crc32(tensor.name.encode()))
            values = rng.standard_normal(tuple(tensor.dims), dtype=np.float32) * np.float32(deviation) + np.float32(mean)
            dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
            if dtype.kind in "iu":
                limits = np.iinfo(dtype)
                values = np.clip(np.rint(values), limits.min, limits.max)
            tensor.raw_data = values.astype(dtype).tobytes()
            tensor.ClearField("doc_string")
            replaced = True
    return model, replaced


def feeds_of(row: Mapping[str, Any], model: onnx.ModelProto, seed: int) -> dict[str, Array]:
    """Inputs of the sizes that a row of tests/data/models.json has: what it says of them, else normal numbers."""
    rng = np.random.default_rng(seed)
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [info for info in model.graph.input if info.name not in constants]
    found: dict[str, Array] = {}
    for info, sizes in zip(inputs, row["input_shapes"], strict=True):
        dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        if info.name in row.get("feeds", {}):
            found[info.name] = np.broadcast_to(np.asarray(row["feeds"][info.name]), sizes).astype(dtype)
        elif info.name in row.get("below", {}):
            found[info.name] = rng.integers(0, row["below"][info.name], sizes).astype(dtype)
        else:
            found[info.name] = rng.standard_normal(sizes).astype(dtype)
    return found


def main() -> int:
    """Writes the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("models", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    for path in options.models:
        model = onnx.load(str(path))
        hollow(model)
        written = options.folder / path.parent.name / path.name
        written.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(model, str(written))
        print(f"{written}: {written.stat().st_size} bytes instead of {path.stat().st_size}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
