"""DxDispatch's files: what they may say, what is read of them, and what is said of those that are wrong."""

from __future__ import annotations

import copy
import json
import pathlib
from typing import Any

import numpy as np
import pytest
from dispatch_files import operator
from run_dxdispatch import PAGE, RECORD, table

import dmlvk
from dmlvk import ExecutionFlags, TensorDataType, TensorFlags
from dmlvk.dxdispatch.document import read_document
from dmlvk.dxdispatch.model import (
    DispatchCommand,
    Model,
    OnnxDispatchable,
    OperatorDispatchable,
    PrintCommand,
    WriteFileCommand,
    parse_model,
)
from dmlvk.dxdispatch.operators import read_operator
from dmlvk.dxdispatch.printing import times_text, values_text
from dmlvk.spec.enums import OperatorType
from dmlvk.spec.errors import InvalidArgumentError, UnsupportedError
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.problem import build, variations

HERE = pathlib.Path()
ADD: dict[str, Any] = {
    "resources": {
        "A": {"initialValuesDataType": "FLOAT32", "initialValues": [1, 2, 3]},
        "Out": {"initialValuesDataType": "DML_TENSOR_DATA_TYPE_FLOAT32", "initialValues": {"valueCount": 3, "value": 0}},
    },
    "dispatchables": {
        "add": {
            "type": "DML_OPERATOR_ELEMENT_WISE_ADD1",
            "executionFlags": ["NONE", "DML_EXECUTION_FLAG_DISABLE_META_COMMANDS"],
            "desc": {
                "ATensor": {"DataType": "FLOAT32", "Sizes": [3]},
                "BTensor": {"DataType": "FLOAT32", "Sizes": [3], "Strides": [0], "Flags": "OWNED_BY_DML"},
                "OutputTensor": {"DataType": "FLOAT32", "Sizes": [3]},
                "FusedActivation": {"Type": "ACTIVATION_ELU", "Alpha": 0.5},
            },
            "bindings": {"BTensor": "A"},
        },
    },
    "commands": [
        {"type": "dispatch", "dispatchable": "add", "bindings": {"ATensor": {"name": "A"}, "OutputTensor": ["Out"]}},
        {"type": "print", "resource": "Out", "verbose": True},
        {"type": "writeFile", "resource": "Out", "targetPath": "out.npy", "dimensions": [3]},
    ],
}


def parsed(document: object, folder: pathlib.Path = HERE) -> Model:
    return parse_model(json.dumps(document).encode(), folder)


def changed(path: str, value: object) -> dict[str, Any]:
    """The document with another value at a path of names and numbers, or without one where the value is ``...``."""
    document = copy.deepcopy(ADD)
    *way, last = [int(step) if step.isdecimal() else step for step in path.split(".")]
    place: Any = document
    for step in way:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


def test_a_model() -> None:
    model = parsed(ADD)
    add = model.dispatchables["add"]
    assert isinstance(add, OperatorDispatchable) and not model.notices
    assert add.flags is ExecutionFlags.DISABLE_META_COMMANDS and not add.as_graph
    assert isinstance(add.desc, dmlvk.ElementWiseAdd1)
    assert add.desc.fused_activation == dmlvk.ActivationElu(alpha=0.5)
    assert add.desc.b_tensor == dmlvk.TensorDesc(TensorDataType.FLOAT32, (3,), (0,), flags=TensorFlags.OWNED_BY_DML)
    first, second, third = model.commands
    assert isinstance(first, DispatchCommand) and first.bindings["ATensor"][0].resource == "A"
    assert isinstance(second, PrintCommand) and second.verbose
    assert isinstance(third, WriteFileCommand) and third.dimensions == (3,)


def test_comments_and_last_commas() -> None:
    text = rb"""/* a
    comment */ {"resources": {"A": {"initialValues": [1, 2, /*3*/], "initialValuesDataType": "INT8",}}, // "x": {
    "dispatchables": {"//": {"type": "ELEMENT_WISE_ABS", "desc": {
        "InputTensor": {"DataType": "INT8", "Sizes": [2,]}, "OutputTensor": {"DataType": "INT8", "Sizes": [2]}}}},
    "commands": []} and whatever follows"""
    model = parse_model(text, HERE)
    assert list(model.dispatchables) == ["//"] and model.resources["A"].size_in_bytes == 4


def test_every_operator_is_read_as_it_was_written() -> None:
    """By DirectML's names, of which there is no list here: the rows have them."""
    count = 0
    for row, entry in all_cases().items():
        if row.type is OperatorType.INVALID:
            continue
        count += 1
        desc = build(row, next(variations(entry))).desc
        place = read_document(json.dumps(operator(desc)).encode())
        assert repr(read_operator(place)) == repr(desc)
        assert not place.notices
    assert count == 177


SHORT = {"Type": "GEMM", "TransA": "NONE", "TransB": "DML_MATRIX_TRANSFORM_TRANSPOSE", "Alpha": 1, "Beta": "INF"}


def test_short_forms_are_long_forms() -> None:
    tensors = {name: {"DataType": "FLOAT32", "Sizes": [2, 2]} for name in ("ATensor", "BTensor", "OutputTensor")}
    document = {**SHORT, **tensors, "Beta": 0, "CTensor": None}
    short = read_operator(read_document(json.dumps(document).encode()))
    document["ATensor"] = {"Type": "BUFFER", "Desc": {"DataType": "DML_TENSOR_DATA_TYPE_FLOAT32", "Sizes": [2, 2]}}
    long = {"type": "DML_OPERATOR_GEMM", "desc": {name: value for name, value in document.items() if name != "Type"}}
    assert read_operator(read_document(json.dumps(long).encode())) == short


@pytest.mark.parametrize(
    ("data_type", "scalar", "value"),
    [
        ("FLOAT16", {"UInt16": 0x3E00}, 1.5),
        ("FLOAT32", {"Float32": 1.5}, 1.5),
        ("FLOAT32", "-inf", -np.inf),
        ("UINT8", {"UInt8": 255}, 255),
        ("INT64", -(2**63), -(2**63)),
        ("UINT64", 2**64 - 1, 2**64 - 1),
    ],
)
def test_scalars_are_of_the_type_that_another_member_names(data_type: str, scalar: object, value: float) -> None:
    tensor = {"DataType": data_type, "Sizes": [4]}
    document = {"Type": "FILL_VALUE_CONSTANT", "OutputTensor": tensor, "ValueDataType": data_type, "Value": scalar}
    desc = read_operator(read_document(json.dumps(document).encode()))
    assert isinstance(desc, dmlvk.FillValueConstant) and desc.value == value


@pytest.mark.parametrize(
    ("resource", "values", "size"),
    [
        ({"initialValuesDataType": "FLOAT32", "initialValues": [1, "nan", "Inf"]}, np.float32([1, np.nan, np.inf]), 12),
        ({"initialValuesDataType": "FLOAT16", "initialValues": [65504, 1e6, -0.1]}, np.float16([65504, np.inf, -0.1]), 8),
        ({"initialValuesDataType": "UINT8", "initialValues": {"value": 7, "valueCount": 5}}, np.uint8([7] * 5), 8),
        (
            {"initialValuesDataType": "FLOAT32", "initialValues": {"valueStart": 1, "valueDelta": 2.5, "valueCount": 4}},
            np.float32([1, 3.5, 6, 8.5]),
            16,
        ),
        (
            {"initialValuesDataType": "INT8", "initialValues": {"valueStart": 126, "valueDelta": 1, "valueCount": 3}},
            np.int8([126, 127, -128]),
            4,
        ),
        (
            {
                "initialValuesDataType": "UNKNOWN",
                "initialValues": [{"type": "UINT32", "value": 6}, {"name": "alpha", "type": "FLOAT64", "value": 2.5}],
                "sizeInBytes": 256,
                "initialValuesOffsetInBytes": 8,
            },
            np.frombuffer(np.uint32([6]).tobytes() + np.float64([2.5]).tobytes(), np.uint8),
            256,
        ),
    ],
)
def test_initial_values(resource: dict[str, Any], values: np.ndarray[Any, Any], size: int) -> None:
    desc = parsed({**ADD, "resources": {**ADD["resources"], "B": resource}}).resources["B"]
    assert desc.content is not None and desc.content.nbytes == values.nbytes and desc.size_in_bytes == size
    assert desc.content.make().tobytes() == values.tobytes()


def test_initial_values_of_files(tmp_path: pathlib.Path) -> None:
    values = np.arange(6, dtype=np.int16).reshape(2, 3)
    np.save(tmp_path / "c.npy", values)
    np.save(tmp_path / "fortran.npy", np.asfortranarray(values))
    np.save(tmp_path / "big.npy", values.astype(">i2"))
    (tmp_path / "raw.dat").write_bytes(values.tobytes())
    for name in ("c.npy", "fortran.npy", "big.npy", "raw.dat"):
        resource = {"initialValues": {"sourcePath": name}}
        if name == "raw.dat":
            resource["initialValuesDataType"] = "INT16"  # type: ignore[assignment]
        desc = parsed({**ADD, "resources": {**ADD["resources"], "B": resource}}, tmp_path).resources["B"]
        assert desc.content is not None and desc.content.data_type is TensorDataType.INT16
        assert desc.content.make().tobytes() == values.tobytes()


def test_an_onnx_model(tmp_path: pathlib.Path) -> None:
    (tmp_path / "m.onnx").touch()
    item = {
        "type": "ONNX",
        "sourcePath": "m.onnx",
        "freeDimensionNameOverrides": {"N": 2},
        "freeDimensionDenotationOverrides": {"DATA_BATCH": 3},
        "sessionOptionsConfigEntries": {"key": "value"},
        "graphOptimizationLevel": 0,
    }
    found = parsed({**ADD, "dispatchables": {"m": item, **ADD["dispatchables"]}}, tmp_path).dispatchables["m"]
    assert isinstance(found, OnnxDispatchable)
    assert (found.sizes, found.denoted_sizes, found.config) == ({"N": 2}, {"DATA_BATCH": 3}, {"key": "value"})
    assert (found.optimization_level, found.logging_level) == (0, 2)


DESC = "dispatchables.add.desc"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("resources", ..., r"\$: must have the member 'resources'"),
        ("commands", {}, r"\$\.commands: must be an array"),
        ("resources.A.initialValues", [], r"\$\.resources\.A\.initialValues: must have at least one value"),
        ("resources.A.initialValues.1", "x", r"\$\.resources\.A\.initialValues\[1\]: must be a number"),
        ("resources.A.initialValuesDataType", "FLOAT33", r"\$\.resources\.A\.initialValuesDataType: must be one of"),
        ("resources.A.initialValuesDataType", "UNKNOWN", r"\$\.resources\.A\.initialValues\[0\]: must be an object"),
        ("resources.A.sizeInBytes", 8, r"\$\.resources\.A\.sizeInBytes: must hold the 12 bytes"),
        ("resources.A.type", "texture", r"\$\.resources\.A\.type: must be buffer"),
        ("resources.a name", [], r"\$\.resources\[\"a name\"\]: must be an object"),
        ("resources.A.initialValues", {"sourcePath": "no.bin"}, r"\.initialValues\.sourcePath: must be a file"),
        ("resources.A.initialValues", {"value": 1, "valueStart": 1}, "must have one of the members value, valueStart"),
        ("resources.Out.initialValues.valueCount", 0, r"\.valueCount: must be an integer from 1"),
        ("dispatchables.add.type", "ELEMENT_WISE_SUM", r"\$\.dispatchables\.add\.type: must be the type of a DirectML"),
        (f"{DESC}.ATensor", ..., r"\$\.dispatchables\.add\.desc: must have the member 'ATensor'"),
        (f"{DESC}.ATensor.Sizes.0", -1, r"\$\.dispatchables\.add\.desc\.ATensor\.Sizes\[0\]: must be an integer from 1"),
        (
            f"{DESC}.ATensor.Sizes",
            [4],
            r"DML_OPERATOR_ELEMENT_WISE_ADD1 at \$\.dispatchables\.add\.desc\.\w+: all tensors must",
        ),
        (f"{DESC}.ATensor.Strides", [1, 2], r"\$\.dispatchables\.add\.desc\.ATensor\.Strides: "),
        (f"{DESC}.ATensor.DimensionCount", 2, r"\.ATensor\.DimensionCount: must be the length of Sizes; expected 1, got 2"),
        (f"{DESC}.ATensor.Type", "INVALID", r"\.ATensor\.Type: must be DML_TENSOR_TYPE_BUFFER"),
        (f"{DESC}.ATensor.TotalTensorSizeInBytes", 6, r"\.ATensor\.TotalTensorSizeInBytes: must be a multiple of 4"),
        (f"{DESC}.FusedActivation.Type", "GEMM", r"\.FusedActivation: must have the member"),
        (f"{DESC}.FusedActivation.Alpha", "1", r"\.FusedActivation\.Alpha: must be a number"),
        ("dispatchables.add.executionFlags", ["FAST"], r"\.executionFlags\[0\]: must be one of NONE"),
        ("dispatchables.add.dmlCompileType", "Op", r"\.dmlCompileType: must be DmlCompileOp or DmlCompileGraph"),
        ("dispatchables.add.bindings.BTensor", "B", r"\$\.dispatchables\.add\.bindings\.BTensor: must be a resource"),
        ("commands.0.dispatchable", "sub", r"\$\.commands\[0\]\.dispatchable: must be a dispatchable of the model"),
        ("commands.0.bindings.OutputTensor.0", "X", r"\$\.commands\[0\]\.bindings\.OutputTensor\[0\]: must be a resource"),
        ("commands.1.resource", "X", r"\$\.commands\[1\]\.resource: must be a resource of the model"),
        ("commands.1.type", "show", r"\$\.commands\[1\]\.type: must be dispatch, print or writeFile"),
        ("commands.2.dimensions", [3.0], r"\$\.commands\[2\]\.dimensions\[0\]: must be an integer"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_its_path(path: str, value: object, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        parsed(changed(path, value))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"a": 1,\n "b" 2}', r"line 2, column 6"),
        (b"\xff", "must be UTF-8"),
        (b'{"resources": NaN}', "NaN is no JSON"),
        (b"[" * 100_000, "must be JSON of numbers and depths in reason"),
        (b"9" * 10_000, "must be JSON of numbers and depths in reason"),
        (b'{"resources": {"A": 1, "A": 2}}', r"\$\.resources: must have each member once; got 'A'"),
        (b"", "must be JSON"),
    ],
)
def test_what_is_no_json(text: bytes, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        parse_model(text, HERE)


def test_shaders_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"^\$\.dispatchables\.add is a shader in HLSL"):
        parsed(changed("dispatchables.add", {"type": "hlsl", "sourcePath": "x.hlsl"}))
    with pytest.raises(UnsupportedError, match=r"^\$\.commands\[0\]\.bindings\.ATensor\.counter"):
        parsed(changed("commands.0.bindings.ATensor.counter", "A"))


def test_misspelt_members_are_noted() -> None:
    model = parsed(changed(f"{DESC}.ATensor.Stride", [1]))
    assert model.notices == ("$.dispatchables.add.desc.ATensor.Stride means nothing and is ignored",)


def test_counts_are_those_of_arrays() -> None:
    tensors = {
        "InputTensor": {"DataType": "FLOAT32", "Sizes": [2, 3]},
        "OutputTensor": {"DataType": "FLOAT32", "Sizes": [2, 1]},
    }
    document = {"Type": "REDUCE", "Function": "SUM", **tensors, "AxisCount": 1, "Axes": [1]}
    assert read_operator(read_document(json.dumps(document).encode()))
    with pytest.raises(InvalidArgumentError, match=r"\$\.AxisCount: must be the length of an array"):
        read_operator(read_document(json.dumps({**document, "AxisCount": 2}).encode()))


def test_values_are_printed_as_streams_of_c_print_them() -> None:
    assert values_text(np.float32([3.2, 1e6, 0.1, np.inf, np.nan]), verbose=False) == "3.2, 1e+06, 0.1, inf, nan"
    assert values_text(np.uint8([0, 200]), verbose=False) == "0, 200"
    lines = values_text(np.float32([1, *range(10)]), verbose=True).splitlines()
    assert lines[0] == "[ 0] 1 (0x3F800000)" and lines[1] == "[ 1] 0 (0x       0)" and len(lines) == 11


def test_times_are_printed_as_dxdispatch_prints_them() -> None:
    assert list(times_text("m", [5.0, 1.0, 3.0], [4.0, 0.5, 0.25], 1, 0)) == [
        "Dispatch 'm': 3 iterations, 3.0000 ms median (CPU), 0.500000 ms median (GPU)"
    ]
    assert list(times_text("m", [5.0], [], 1, 0)) == ["Dispatch 'm': 1 iterations, 5.0000 ms median (CPU)"]
    lines = list(times_text("m", [5.0, 1.0, 3.0], [4.0, 0.5, 0.25], 1, 2))
    assert lines[1:3] == [
        "CPU Timings (Cold) : 1 samples, 5.0000 ms average, 5.0000 ms min, 5.0000 ms median, 5.0000 ms max",
        "GPU Timings (Cold) : 1 samples, 4.0000 ms average, 4.0000 ms min, 4.0000 ms median, 4.0000 ms max",
    ]
    assert lines[3].startswith("CPU Timings (Hot)  : 2 samples, 2.0000 ms average, 1.0000 ms min, 3.0000 ms median")
    assert lines[-1] == "iteration 2: 3.0000 ms (CPU), 0.2500 ms (GPU)"


def test_the_page_has_the_outcomes_on_record() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8").endswith(f"## The published examples\n\n{table(record)}")
    assert {item["what"] for item in record["models"] if not item["compared"]} == {"a shader in HLSL"}
