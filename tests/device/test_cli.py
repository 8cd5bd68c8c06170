"""The command line: JSON that is JSON, and a reason with exit status 2 for every mistake."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dmlvk.cli import main
from dmlvk.onnx import InferenceSession
from dmlvk.runtime.device import choose_device

ADD = ["explain", "ElementWiseAdd", "a_tensor=FLOAT32[2]", "b_tensor=FLOAT32[2]"]
NORMALIZATION = ["explain", "MeanVarianceNormalization1", "input_tensor=FLOAT32[2,3]"]


@pytest.fixture
def model(tmp_path: Path) -> str:
    """The square root, which is NaN for some of the numbers that the command makes up."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Sqrt", ["x"], ["y"])], "root", [x], [y])
    path = tmp_path / "root.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return str(path)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out, parse_constant=refuse)


def test_json(capsys: pytest.CaptureFixture[str], model: str) -> None:
    listed = printed(capsys, "ops")
    assert set(listed) == {"device", "operators", "limitations"}
    assert len(listed["operators"]) == 177
    assert {name for item in listed["operators"] for name in item["limitations"]} == {
        item["name"] for item in listed["limitations"]
    }
    assert {"index", "name", "uuid", "driver", "type", "features"} <= set(printed(capsys, "devices")[0])
    number, source = printed(capsys, "devices")[0]["model"]["processors"]
    assert number >= 1
    assert f"processors {number} ({source})" in printed(capsys, *ADD)["model"]
    assert printed(capsys, *ADD)["dispatches"]
    clip = ["explain", "ElementWiseClip1", "input_tensor=FLOAT32[4]", "min_max_data_type=FLOAT32", "min=-1", "max=1e5"]
    assert printed(capsys, *clip)["dispatches"]
    compare = ["explain", "ElementWiseLogicalEquals", "a_tensor=INT64[4]", "b_tensor=INT64[4]"]
    assert printed(capsys, *compare)["dispatches"]
    scale = ["explain", "ValueScale2d", "input_tensor=FLOAT32[1,3,4,4]", "bias=1,-2,0.5"]
    assert len(printed(capsys, *scale)["dispatches"]) == 3
    window = ["input_window_offsets=0,1", "input_window_sizes=4,5", "input_window_strides=1,-1"]
    assert printed(capsys, "explain", "Slice1", "input_tensor=FLOAT32[4,6]", *window)["dispatches"]
    split = ["explain", "Split", "input_tensor=INT8[4,7]", "output_tensors=INT8[4,5]+INT8[4,2]", "axis=1"]
    assert len(printed(capsys, *split)["dispatches"]) == 2
    verified = printed(capsys, "verify", "--quick", "ElementWiseModulusFloor")
    assert {"operator", "data_type", "max_ulp", "passed"} <= set(verified["entries"][0])
    assert printed(capsys, "run", model, "--size", "N=7")["outputs"]["y"] == {
        "shape": [7, 3],
        "type": "float32",
        "mean": None,
    }


def test_the_doctor_is_happy_where_the_other_tests_are(capsys: pytest.CaptureFixture[str]) -> None:
    told = printed(capsys, "doctor")
    assert told["works"] and told["devices"][choose_device().index]["works"]


def test_the_doctor_names_the_variable_of_a_mask_that_is_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLVK_PROFILE", "nosuchprofile")
    assert main(["doctor"]) == 1
    assert "-> unset DMLVK_PROFILE" in capsys.readouterr().out.partition("device 0:")[2]


def test_the_doctor_says_what_a_device_lacks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_DISABLE", "subgroups")
    (device,) = printed(capsys, "doctor")["devices"][:1]
    assert "subgroup_arithmetic and subgroup_shuffle" in device["findings"][1]["text"]


def test_operators_of_a_lesser_device(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLVK_DISABLE", "storage16,int64")
    found = {item["class"]: item for item in printed(capsys, "ops")["operators"]}
    assert all(item["status"] == "implemented" for item in found.values())
    assert found["ElementWiseAdd"]["unsupported"] == {
        "FLOAT64": ["int64"],  # its bits are an integer's
        "FLOAT16": ["storage16"],
        "UINT16": ["storage16"],
        "INT16": ["storage16"],
        "UINT64": ["int64"],
        "INT64": ["int64"],
    }
    assert found["ElementWiseLogicalAnd"]["unsupported"] == {}
    assert found["Gather"]["unsupported"].keys() == {"FLOAT16", "UINT16", "INT16"}  # moving 64 bits takes no feature
    assert main(["ops"]) == 0
    text = capsys.readouterr().out
    assert "FLOAT16 (storage16)" in text and "INT64 (int64)" in text
    assert text.count("\n  loop_rounds (those that say so): ") == 1


def test_outputs_are_written(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.full((2, 3), 4, np.float32))
    assert main(["run", model, "--input", str(tmp_path / "in.npz"), "--output", str(tmp_path / "out.npz")]) == 0
    with np.load(tmp_path / "out.npz") as archive:
        assert list(archive) == ["y"] and (archive["y"] == 2).all()


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "Nope"],
        ["explain", "ElementWiseAdd", "a_tensor=FLOAT32[0]"],
        ["explain", "ElementWiseAdd", "a_tensor=FLOAT32[2,,3]"],
        [*ADD, "--device", "99"],
        [*ADD, "--size", "N=2"],
        ["explain", "MODEL", "node", "--allow-half-precision"],
        NORMALIZATION,
        [*NORMALIZATION, "axes=x"],
        [*NORMALIZATION, "axes=1", "epsilon=1e99"],
        ["explain", "ElementWiseClip1", "input_tensor=FLOAT32[4]", "min_max_data_type=FLOAT32", "min=0", "max=1e50"],
        ["verify", "Nope"],
        ["run", "/nonexistent.onnx"],
        ["run", "MODEL", "--input", "/nonexistent.npz"],
        ["run", "MODEL", "--input", "MODEL"],
    ],
    ids=" ".join,
)
def test_mistakes(capsys: pytest.CaptureFixture[str], model: str, arguments: list[str]) -> None:
    assert main([model if word == "MODEL" else word for word in arguments]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("dmlvk: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    "option",
    [
        ["--size", "N"],
        ["--size", "N=0"],
        ["--size", "N=x"],
        ["--size", "N=2", "--input", "feeds.npz"],
        ["--repeat", "-1"],
        ["--output", "/nonexistent/out.npz"],
        ["--profile", "/nonexistent/trace.json"],
        ["--html", "/nonexistent/report.html"],
        ["--json", "/nonexistent/report.json"],
    ],
    ids=" ".join,
)
def test_bad_options(capsys: pytest.CaptureFixture[str], model: str, option: list[str]) -> None:
    assert main(["run", model, *option]) == 2
    out, err = capsys.readouterr()
    assert not out and option[0] in err


def test_json_in_a_file_is_that_of_standard_output(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    for words in (["devices"], ADD):
        file = tmp_path / "file.json"
        assert main([*words, "--json", str(file)]) == 0
        assert capsys.readouterr().out, "the text is there as well"
        found = json.loads(file.read_text(encoding="utf-8"))
        assert found == printed(capsys, *words)
        assert main([*words, "--json", "-"]) == 0
        assert json.loads(capsys.readouterr().out) == found


def test_ctrl_c_leaves_the_runs_that_were(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, done = InferenceSession.run, []

    def interrupted(self: InferenceSession, *arguments: Any) -> Any:
        done.append(1)
        if len(done) == 4:
            raise KeyboardInterrupt
        return run(self, *arguments)

    monkeypatch.setattr(InferenceSession, "run", interrupted)
    trace = tmp_path / "trace.json"
    assert main(["run", model, "--repeat", "10", "--profile", str(trace)]) == 130
    assert "(median of 2)" in capsys.readouterr().out and not trace.exists()
    done[:] = [1] * 3
    assert main(["run", model]) == 130
    out, err = capsys.readouterr()
    assert (out, err) == ("", "dmlvk: interrupted\n")


def test_ctrl_c_leaves_the_devices_that_were_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(device: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dmlvk.runtime.measure.measure_model", interrupted)
    assert main(["devices", "--measure", "--json"]) == 130
    assert json.loads(capsys.readouterr().out) == []


def test_verbose_tells_what_is_done(capsys: pytest.CaptureFixture[str], model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("dmlvk")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "level", logger.level)
    assert main(["run", model]) == 0 and not capsys.readouterr().err
    assert main(["run", model, "--size", "N=9", "-v"]) == 0
    err = capsys.readouterr().err
    assert "dmlvk.onnx.session: loaded a model of 1 nodes" in err and "dmlvk.engine: a plan of 1 operators" in err
