"""Write models without their weights, for a machine that cannot have these.

    python tools/hollow_models.py FOLDER [--count 10]

The largest models of tests/data/models.json, fetched at need, each with a note in place of every constant of 64 KiB or more
that is a float, and beside it a JSON file of what it is fed. Quantized weights stay: with random ones a model is so
sensitive to a rounding that two right answers differ. ``python -m dmlvk bench --suite models --folder FOLDER`` puts random
numbers of the same mean, deviation and type in the notes' places.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import fetch_models
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from dmlvk_bench.models.files import NOTE, constants

LEAST_BYTES = 65536
KINDS = (TensorProto.FLOAT, TensorProto.FLOAT16)
KEPT = ("input_shapes", "feeds", "below", "tolerance")
"""Of a row of the list: what ``dmlvk_bench.models.files.Description`` reads."""


def hollow(model: onnx.ModelProto) -> None:
    """Put notes in place of large constants."""
    for tensor in constants(model.graph):
        if tensor.data_type in KINDS and len(tensor.raw_data) >= LEAST_BYTES:
            values = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.doc_string = f"{NOTE}{values.mean():.9g}:{values.std():.9g}"
            tensor.ClearField("raw_data")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=10, help="how many of the largest")
    options = parser.parse_args()
    rows = sorted(json.loads(fetch_models.LIST.read_text()), key=lambda row: -int(row["size"]))[: options.count]
    for row in rows:
        source = fetch_models.fetch(f"{row['package']}/{row['file']}")
        model = onnx.load(str(source))
        hollow(model)
        written = options.folder / source.parent.name / source.name
        written.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(model, str(written))
        described = {"name": f"{row['package']} {row['file']}", **{key: row[key] for key in KEPT if key in row}}
        written.with_suffix(".json").write_text(json.dumps(described) + "\n")
        print(f"{written}: {written.stat().st_size} bytes instead of {source.stat().st_size}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
