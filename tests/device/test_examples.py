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
from dmlvk.engine.numpy_types import data_type_of
from dmlvk.spec.schema import REGISTRY, FieldKind, FieldSpec, OperatorDesc
from dmlvk.verify.cases.model import NUMPY_TYPES

DATA = pathlib.Path(__file__).parent.parent / "data" / "examples.json"
ROWS = {row.type.dml_name: row for row in REGISTRY.values()}
EXAMPLES = [example for example in json.loads(DATA.read_text())["examples"] if example["operator"] in ROWS]


def array(tensor: dict[str, Any]) -> np.ndarray[Any, Any]:
    kind = NUMPY_TYPES[dmlvk.TensorDataType[tensor["dtype"]]]
    return np.array(tensor["data"], kind).reshape(tensor["sizes"])


def arrays(spec: FieldSpec, tensors: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    """The tensors of a field: "InputTensor", or "InputTensors[0]" and so on."""
    return [array(tensor) for name, tensor in tensors.items() if name.partition("[")[0] == spec.dml_name]


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


def leading_ones(x: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    return x.reshape((*(1,) * (count - x.ndim), *x.shape))


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
    inputs: dict[str, Any] = {
        spec.name: arrays(spec, given) if spec.kind is FieldKind.INPUT_TENSOR_ARRAY else arrays(spec, given)[0]
        for spec in row.fields
        if arrays(spec, given)
    }
    wanted = [(spec, expected) for spec in row.fields for expected in arrays(spec, outputs)]
    if "InputDimensionCount" in example["params"]:  # such a page leaves out the leading ones that its text asks for
        count = max(x.ndim for x in inputs.values())
        inputs = {name: leading_ones(x, count) for name, x in inputs.items()}
        wanted = [(spec, leading_ones(y, count)) for spec, y in wanted]
    run = getattr(dmlvk.eager, row.type.name.lower())
    with count_dispatches() as counted:
        results = run(
            **inputs,
            **attributes(row, example["params"]),
            outputs=tuple(spec.name for spec, _ in wanted if spec.optional),
            output_sizes=[expected.shape for _, expected in wanted],
            output_data_types=[data_type_of(expected.dtype) for _, expected in wanted],
            device=device,
        )
    assert counted.dispatches > 0
    results = results if isinstance(results, tuple) else (results,)
    undefined = example.get("undefined_outputs", {})
    for result, (spec, expected) in zip(results, wanted, strict=True):
        result.flat[undefined.get(spec.dml_name, [])] = expected.flat[undefined.get(spec.dml_name, [])]
        np.testing.assert_allclose(result, expected, rtol=example["tolerance"], atol=example["tolerance"])
