"""DxDispatch's files on a device: what they compute, print and write, and every case of our operators as such a file."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import onnx
import pytest
from dispatch_files import problem_file
from onnx import TensorProto, helper
from serialized_graphs import Node, serialized

import dmlvk
from dmlvk import Device, TensorDataType, TensorDesc, cli
from dmlvk.dxdispatch.document import Place
from dmlvk.dxdispatch.executor import Executor, execute
from dmlvk.dxdispatch.model import BindingSource, parse_model, read_model
from dmlvk.dxdispatch.options import Options
from dmlvk.spec.enums import OperatorType
from dmlvk.spec.errors import BindingError, InvalidArgumentError, ModelError, UnsupportedError
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.problem import build, variations
from dmlvk.verify.check import run as run_of_the_suite

F32 = {"DataType": "FLOAT32", "Sizes": [3]}
NAMES = ("A", "B", "Out")


def buffer(*values: float, **more: Any) -> dict[str, Any]:
    return {"initialValuesDataType": "FLOAT32", "initialValues": list(values), **more}


def addition(**changes: Any) -> dict[str, Any]:
    """A model that adds two rows of three numbers."""
    return {
        "resources": {"A": buffer(1, 2, 3), "B": buffer(5, 8, -5), "Out": buffer(0, 0, 0)},
        "dispatchables": {
            "add": {"type": "ELEMENT_WISE_ADD", "desc": {"ATensor": F32, "BTensor": F32, "OutputTensor": F32}}
        },
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "add",
                "bindings": dict(zip(("ATensor", "BTensor", "OutputTensor"), NAMES, strict=True)),
            },
            {"type": "print", "resource": "Out"},
        ],
        **changes,
    }


def executed(
    device: Device, document: dict[str, Any], folder: pathlib.Path, **options: Any
) -> tuple[Executor, list[str], list[str]]:
    """What ran a document, the lines that it printed, and the notes."""
    said: list[str] = []
    noted: list[str] = []
    model = parse_model(json.dumps(document).encode(), folder)
    return execute(device, model, Options(output_folder=folder, **options), said.append, noted.append), said, noted


def test_a_dispatch_and_what_it_prints(device: Device, tmp_path: pathlib.Path) -> None:
    ran, said, noted = executed(device, addition(), tmp_path)
    assert said[1:] == ["Resource 'Out': 6, 10, -2"] and not noted
    assert said[0].startswith("Dispatch 'add': 1 iterations, ")
    assert len(ran.times[0]["cpu_ms"]) == 1 and ran.printed[0]["values"] == [6, 10, -2]


def test_iterations_repetitions_and_time(device: Device, tmp_path: pathlib.Path) -> None:
    """Each dispatch adds to what the one before has left: so they are counted."""
    document = addition()
    document["commands"][0]["bindings"]["ATensor"] = document["commands"][0]["bindings"]["OutputTensor"] = "A"
    document["commands"][1]["resource"] = "A"
    _, said, _ = executed(device, document, tmp_path, iterations=2, repeat=3, verbosity=2)
    assert said[-1] == "Resource 'A': 31, 50, -27"
    assert said[0].startswith("Initialize 'add': ") and said[1] == "Dispatch 'add': 2 iterations"
    ran, _, _ = executed(device, addition(), tmp_path, milliseconds=20, interval=8, iterations=1)
    assert 1 <= len(ran.times[0]["cpu_ms"]) <= 3
    _, said, _ = executed(device, addition(), tmp_path, iterations=0)
    assert said == ["Resource 'Out': 0, 0, 0"]


def test_offsets_owned_tensors_and_graphs(device: Device, tmp_path: pathlib.Path) -> None:
    owned = {**F32, "Flags": "OWNED_BY_DML"}
    values = buffer(0, 0, 0, 0, 1, 2, 3)
    for kind in ("DmlCompileOp", "DmlCompileGraph"):
        add = {
            "type": "DML_OPERATOR_ELEMENT_WISE_ADD",
            "Desc": {"ATensor": owned, "BTensor": F32, "OutputTensor": F32},
            "dmlCompileType": kind,
            "bindings": {"ATensor": {"name": "A", "elementOffset": 4}},
        }
        document = addition(dispatchables={"add": add})
        document["resources"]["A"] = values
        del document["commands"][0]["bindings"]["ATensor"]
        assert executed(device, document, tmp_path)[1][-1] == "Resource 'Out': 6, 10, -2"


def test_wrong_bindings_name_their_path(device: Device, tmp_path: pathlib.Path) -> None:
    document = addition()
    bindings = document["commands"][0]["bindings"]
    bindings["Weights"] = "A"
    assert executed(device, document, tmp_path)[2] == [
        "$.commands[0].bindings.Weights is none of ATensor, BTensor, OutputTensor, and is ignored"
    ]
    bindings["ATensor"] = {"name": "A", "elementOffset": 1}
    with pytest.raises(BindingError, match=r"^DML_OPERATOR_ELEMENT_WISE_ADD at \$\.commands\[0\]\.bindings\.ATensor: "):
        executed(device, document, tmp_path)
    bindings["ATensor"] = ["A", "B"]
    with pytest.raises(InvalidArgumentError, match=r"^\$\.commands\[0\]\.bindings\.ATensor\[0\]: ATensor must have a"):
        executed(device, document, tmp_path)
    del bindings["ATensor"]
    with pytest.raises(BindingError, match=r"\$\.commands\[0\]\.bindings\.ATensor: must be"):
        executed(device, document, tmp_path)


def test_files_that_are_written(device: Device, tmp_path: pathlib.Path) -> None:
    targets = {"out/a.npy": [1, 3], "b.npy": None, "c.bin": None, "d.png": [1, 1, 1, 3]}
    commands = [
        {"type": "writeFile", "resource": "A", "targetPath": name, **({"dimensions": sizes} if sizes else {})}
        for name, sizes in targets.items()
    ]
    document = addition(commands=commands)
    document["resources"]["A"] = buffer(0.2, 0.4, 1.5)
    assert executed(device, document, tmp_path)[1][0] == f"Resource 'A' written to '{tmp_path / 'out' / 'a.npy'}'"
    values = np.float32([0.2, 0.4, 1.5])
    assert np.array_equal(np.load(tmp_path / "out" / "a.npy"), values[None])
    assert np.array_equal(np.load(tmp_path / "b.npy"), values)
    assert (tmp_path / "c.bin").read_bytes() == values.tobytes()
    picture = {"initialValues": {"sourcePath": "d.png"}, "initialValuesDataType": "FLOAT32", "resampleSize": [1, 3, 1, 3]}
    (_,) = executed(device, addition(resources={**document["resources"], "P": picture}), tmp_path)[1][-1:]
    model = parse_model(json.dumps(addition(resources={"P": picture}, commands=[], dispatchables={})).encode(), tmp_path)
    content = model.resources["P"].content
    assert content is not None
    assert np.array_equal(content.make().view(np.float32), np.tile(np.float32([51, 102, 255]) / np.float32(255), 3))
    commands[:] = [{"type": "writeFile", "resource": "A", "targetPath": "e.npy", "dimensions": [4]}]
    with pytest.raises(InvalidArgumentError, match=r"^\$\.commands\[0\]\.dimensions: must be the sizes of at most 3"):
        executed(device, document, tmp_path)


ROW = TensorDesc(TensorDataType.FLOAT32, (3,))
SUM = dmlvk.ElementWiseAdd(a_tensor=ROW, b_tensor=ROW, output_tensor=ROW)


def test_a_serialised_graph_with_its_constants_beside_it(device: Device, tmp_path: pathlib.Path) -> None:
    (tmp_path / "_w_1.bin").write_bytes(np.float32([10, 20, 30]).tobytes())
    nodes = [
        Node("/w:1", (), ("w",)),
        Node(np.float32([1, 1, 1]).tobytes(), (), ("one",)),
        Node(SUM, ("x", "w"), ("h",)),
        Node(SUM, ("h", "one"), ("y",)),
    ]
    (tmp_path / "Partition_0.bin").write_bytes(serialized(nodes, ["x"], ["y"]))
    document = addition(dispatchables={"g": {"type": "dmlSerializedGraph", "sourcePath": "Partition_0.bin"}})
    document["commands"][0] |= {"dispatchable": "g", "bindings": {"x": "A", "y": "Out"}}
    assert executed(device, document, tmp_path)[1][-1] == "Resource 'Out': 12, 23, 34"
    said: list[str] = []
    execute(device, read_model(tmp_path / "Partition_0.bin"), Options(), said.append)
    assert said[0].startswith("Dispatch 'Partition_0.bin': 1 iterations")


@pytest.fixture
def model_file(tmp_path: pathlib.Path) -> pathlib.Path:
    """A sum of two rows of N numbers, whose first axis denotes a batch where it has no name."""
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"]) for name in "abc"]
    batch = helper.make_tensor_value_info("d", TensorProto.FLOAT, [None])
    batch.type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    nodes = [helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Identity", ["d"], ["e"])]
    out = helper.make_tensor_value_info("e", TensorProto.FLOAT, [None])
    graph = helper.make_graph(nodes, "sum", [*infos[:2], batch], [infos[2], out])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_an_onnx_model(device: Device, model_file: pathlib.Path) -> None:
    def dispatch(**bindings: Any) -> dict[str, Any]:
        return {"type": "dispatch", "dispatchable": "m", "bindings": bindings}

    two = {"shape": [2]}
    document = addition(
        dispatchables={"m": {"type": "onnx", "sourcePath": "m.onnx", "freeDimensionDenotationOverrides": {"DATA_BATCH": 3}}},
        commands=[
            dispatch(a={"name": "A", **two}, b={"name": "B", **two}, d="A", c={"name": "Out", **two}),
            {"type": "print", "resource": "Out"},
            dispatch(a={"name": "A", **two}, b={"name": "B", **two}, d="B", c="Later", e="Other"),
            {"type": "print", "resource": "Later"},
            {"type": "print", "resource": "Other"},
            {"type": "writeFile", "resource": "Later", "targetPath": "later.npy"},
        ],
    )
    document["resources"] |= {"Later": buffer() | {"initialValues": "deferred"}, "Other": {"initialValues": "deferred"}}
    _, said, _ = executed(device, document, model_file.parent)
    assert [line for line in said if line.startswith("Resource")][:3] == [
        "Resource 'Out': 6, 10, 0",
        "Resource 'Later': 6, 10",
        "Resource 'Other': 5, 8, -5",
    ]
    assert np.array_equal(np.load(model_file.parent / "later.npy"), np.float32([6, 10]))
    document["commands"] = [dispatch(a="A", b="B", c="Out")]
    with pytest.raises(InvalidArgumentError, match=r"\.bindings\.c: output 'c' must have a shape"):
        executed(device, document, model_file.parent)
    document["commands"] = [dispatch(a={"name": "A", "shape": [4]})]
    with pytest.raises(InvalidArgumentError, match=r"\.bindings\.a: must have the 16 bytes of float32"):
        executed(device, document, model_file.parent)


def test_an_onnx_model_by_itself(device: Device, model_file: pathlib.Path) -> None:
    said: list[str] = []
    options = Options(sizes={"N": 3}, binding_shapes={"d": (2,)}, print_bindings=True)
    execute(device, read_model(model_file), options, said.append)
    shapes = [line.split()[-1] for line in said if "Shape" in line]
    assert shapes == ["[3]", "[3]", "[2]", "[3]", "[-1]"]
    assert "Input Tensor 'a':\n  Resource  = implicit (Vulkan)\n  Data Type = FLOAT" in said
    model_file.write_bytes(b"no model")
    with pytest.raises(ModelError):
        execute(device, read_model(model_file), options, said.append)


def test_the_command(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "add.json").write_text(json.dumps(addition()))
    words = ["dispatch", "--input_path", str(tmp_path), "add.json", "-i", "2", "--debug", "--json", str(tmp_path / "r.json")]
    assert cli.main(words) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Running on '") and out.endswith("Resource 'Out': 6, 10, -2\n")
    assert err == "dmlvk: --debug has no effect: the validation layer comes with DMLVK_VALIDATION=1\n"
    assert json.loads((tmp_path / "r.json").read_text())["resources"][0]["values"] == [6, 10, -2]
    assert cli.main(["dispatch", "-s", "-S"]) == 0
    assert "-Hardware: " in capsys.readouterr().out
    assert cli.main(["dispatch", "-x", str(tmp_path / "add.json")]) == 2
    assert "UnsupportedError: --enable_ort_extensions" in capsys.readouterr().err


def round_trip(device: Device, operator: type[dmlvk.OperatorDesc], folder: pathlib.Path, *, quick: bool) -> tuple[int, int]:
    """Runs the cases of an operator as files. Returns how many gave the suite's bytes, guards among them, and how many the
    device cannot do either way."""
    same = refused = 0
    for variation in variations(all_cases()[operator], quick=quick):
        problem = build(operator, variation)
        data, names = problem_file(problem, folder)
        model = parse_model(data, folder)
        assert not model.notices
        try:
            wanted = run_of_the_suite(device, problem).buffers
        except UnsupportedError:
            with pytest.raises(UnsupportedError):
                execute(device, model, Options())
            refused += 1
            continue
        ran = execute(device, model, Options(gpu_times=0), lambda _: None, pytest.fail)
        for name, bytes_of_the_suite in zip(names, wanted, strict=True):
            if name is not None:
                assert np.array_equal(ran.buffers.raw(BindingSource(Place(None), name)), bytes_of_the_suite), (
                    operator.__name__,
                    str(variation),
                )
        same += 1
    return same, refused


def test_cases_of_an_operator_are_files(device: Device, tmp_path: pathlib.Path) -> None:
    same, refused = round_trip(device, dmlvk.ElementWiseAdd, tmp_path, quick=True)
    assert same and not refused


@pytest.mark.full
@pytest.mark.parametrize("operator", [row for row in all_cases() if row.type is not OperatorType.INVALID])
def test_every_case_is_a_file(device: Device, tmp_path: pathlib.Path, operator: type[dmlvk.OperatorDesc]) -> None:
    same, refused = round_trip(device, operator, tmp_path, quick=False)
    assert same + refused
