"""docs/from-directmlx.md: every function and class of DirectMLX.h has a counterpart, and what the page writes works."""

from __future__ import annotations

import inspect
import json
import pathlib
import re
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import TensorDataType
from dmlvk.spec.functions import rows_by_name

ROOT = pathlib.Path(__file__).parents[2]
HEADER: dict[str, Any] = json.loads((ROOT / "tests" / "data" / "directmlx.json").read_text())
PAGE = (ROOT / "docs" / "from-directmlx.md").read_text()
ROWS = {
    left.replace("\\|", "|"): right.replace("\\|", "|")
    for left, right in re.findall(r"^\| `((?:[^`])+)` \| `((?:[^`])+)` \|$", PAGE, re.MULTILINE)
}
BUILDERS = {"ConvolutionBuilder": "convolution", "GemmBuilder": "gemm", "MaxPoolingBuilder": "max_pooling2"}
RESULTS = {
    "MaxPoolingOutputs": "max_pooling2",
    "TopKOutputs": "top_k1",
    "BatchNormalizationGradOutputs": "batch_normalization_grad",
    "BatchNormalizationTrainingOutputs": "batch_normalization_training",
    "GRUOutputs": "gru",
    "RandomGeneratorOutputs": "random_generator",
    "NonZeroCoordinatesOutputs": "nonzero_coordinates",
    "RoiAlignGradOutputs": "roi_align_grad",
}
UINT8, UINT32 = TensorDataType.UINT8, TensorDataType.UINT32
INPUTS: dict[str, tuple[tuple[int, ...], TensorDataType]] = {
    **dict.fromkeys("xy", ((1, 1, 8, 8), TensorDataType.FLOAT32)),
    **dict.fromkeys("pq", ((1, 1, 8, 8), UINT8)),
    **dict.fromkeys("kn", ((1, 1, 8, 8), UINT32)),
    "image": ((1, 3, 8, 8), TensorDataType.FLOAT32),
    "weight": ((6, 3, 3, 3), TensorDataType.FLOAT32),
    "bias": ((1, 6, 1, 1), TensorDataType.FLOAT32),
    "channel": ((1, 3, 1, 1), TensorDataType.FLOAT32),
    "filters": ((1, 4, 8, 8), TensorDataType.FLOAT32),
    "places": ((1, 1, 5, 1), UINT32),
    "row": ((1, 1, 5, 8), TensorDataType.FLOAT32),
    "steps": ((1, 5, 2, 3), TensorDataType.FLOAT32),
    "gates": ((1, 1, 12, 3), TensorDataType.FLOAT32),
    "recurrence": ((1, 1, 12, 4), TensorDataType.FLOAT32),
    "classes": ((1, 1, 8, 1), UINT32),
    "off_on": ((1, 1, 1, 2), TensorDataType.FLOAT32),
    "lengths": ((1, 1, 8, 1), UINT32),
    "bytes_image": ((1, 3, 8, 8), UINT8),
    "bytes_weight": ((6, 3, 3, 3), UINT8),
    "one": ((1, 1, 1, 1), TensorDataType.FLOAT32),
    "state": ((1, 1, 1, 6), UINT32),
    "regions": ((1, 1, 2, 4), TensorDataType.FLOAT32),
    "which": ((1, 1, 1, 2), UINT32),
    "pieces": ((2, 3, 4, 4), TensorDataType.FLOAT32),
}


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def test_every_function_has_a_row_and_nothing_else_has() -> None:
    in_tables = {name for name in ROWS if "(" in name}
    assert in_tables == set(HEADER["functions"])
    assert f"{len(HEADER['functions'])} functions" in PAGE


def test_every_class_has_a_row() -> None:
    named = {f"{name}.{member}" for name, members in HEADER["classes"].items() for member in members}
    by_rule = {name for name in named if name.split(".")[0] in {*BUILDERS, *RESULTS}}
    assert {name for name in ROWS if "(" not in name} == named - by_rule | set(HEADER["helpers"])
    for name in (*HEADER["classes"], *HEADER["enumerations"]):
        assert re.search(rf"`{name}[`.]", PAGE), name


@pytest.mark.parametrize("name", ROWS)
def test_the_counterpart_works(device: dmlvk.Device, name: str) -> None:
    graph = dmlvk.Graph(device)
    words: dict[str, Any] = {key: graph.input(sizes, kind) for key, (sizes, kind) in INPUTS.items()}
    words |= {
        "dmlvk": dmlvk,
        "graph": graph,
        "FLOAT32": TensorDataType.FLOAT32,
        "UINT8": UINT8,
        "UINT32": UINT32,
        "scale": dmlvk.ScaleBias(2, 1),
        "desc": dmlvk.TensorDesc(TensorDataType.FLOAT32, (2, 3)),
        "array": np.ones(3, np.float32),
        "activations": [dmlvk.ActivationSigmoid(), dmlvk.ActivationTanh()],
    }
    exec(ROWS[name], words)


@pytest.mark.parametrize("name", BUILDERS)
def test_what_a_builder_sets_is_a_keyword(device: dmlvk.Device, name: str) -> None:
    known = inspect.signature(getattr(dmlvk.Graph(device), BUILDERS[name])).parameters
    for method in HEADER["classes"][name]:
        assert method in ("Build", "OutputIndices") or snake(method) in known, method


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_the_outputs_in_order(name: str) -> None:
    outputs = [spec.name for spec in rows_by_name()[RESULTS[name]].fields if spec.kind.is_output]
    assert len(outputs) == len(HEADER["classes"][name])
