"""DirectML's printed examples (tests/data/examples.json) of every operator that has a row, through the eager functions."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.cases.model import NUMPY_TYPES
from dmlvk.schema import REGISTRY, FieldKind, OperatorDesc

DATA = pathlib.Path(__file__).parent.parent / "data" / "examples.json"
ROWS = {row.type.dml_name: row for row in REGISTRY.values()}
EXAMPLES = [example for example in json.loads(DATA.read_text())["examples"] if example["operator"] in ROWS]


def array(tensor: dict[str, Any]) -> np.ndarray[Any, Any]:
    kind = NUMPY_TYPES[dmlvk.TensorDataType[tensor["dtype"]]]
    return np.array(tensor["data"], kind).reshape(tensor["sizes"])


def attributes(row: type[OperatorDesc], params: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for spec in row.fields:
        if spec.dml_name in params:
            value = params[spec.dml_name]
            if spec.kind is FieldKind.ENUM:
                assert spec.enumeration is not None
                value = spec.enumeration[value]
            found[spec.name] = value
    return found


def test_there_are_examples_of_the_specified_operators() -> None:
    assert {"DML_OPERATOR_ROI_ALIGN1", "DML_OPERATOR_AVERAGE_POOLING"} <= {example["operator"] for example in EXAMPLES}


@pytest.mark.quick
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["id"])
def test_example(
    device: dmlvk.Device,
    count_dispatches: Callable[[], AbstractContextManager[Any]],
    example: dict[str, Any],
) -> None:
    row = ROWS[example["operator"]]
    given, outputs = example["inputs"], example["outputs"]
    inputs = {spec.name: array(given[spec.dml_name]) for spec in row.fields if spec.dml_name in given}
    wanted = {spec: array(outputs[spec.dml_name]) for spec in row.fields if spec.dml_name in outputs}
    run = getattr(dmlvk.eager, row.type.name.lower())
    with count_dispatches() as count:
        results = run(
            **inputs,
            **attributes(row, example["params"]),
            outputs=tuple(spec.name for spec in wanted if spec.optional),
            output_sizes=[expected.shape for expected in wanted.values()],
            output_data_types=[dmlvk.TensorDataType[outputs[spec.dml_name]["dtype"]] for spec in wanted],
            device=device,
        )
    assert count.dispatches > 0
    results = results if isinstance(results, tuple) else (results,)
    for result, expected in zip(results, wanted.values(), strict=True):
        np.testing.assert_allclose(result, expected, rtol=example["tolerance"], atol=example["tolerance"])
