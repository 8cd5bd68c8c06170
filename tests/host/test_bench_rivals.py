"""The rivals without a device of ours: who is missing says why, and what they run is the problem's operator."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import pathlib
import pickle
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime  # noqa: F401  # the rival imports it by its name
import pytest

import dmlvk
from dmlvk import TensorDataType, TensorDesc
from dmlvk.spec.errors import InvalidArgumentError
from dmlvk.spec.schema import OperatorDesc
from dmlvk.verify.cases import all_cases
from dmlvk.verify.cases.model import NUMPY_TYPES
from dmlvk.verify.cases.problem import Variation, build
from dmlvk_bench import rivals
from dmlvk_bench.check import _expected
from dmlvk_bench.problems import FAMILIES, all_problems
from dmlvk_bench.problems.model import Problem
from dmlvk_bench.problems.scale import QUICK
from dmlvk_bench.rivals import ncnn_layers, onnx_nodes, process
from dmlvk_bench.rivals.base import Array, difference, handed_over, logical, present
from dmlvk_bench.timing import QUICK as QUICK_PACE

PROBLEMS = {family: [p for p in all_problems(QUICK, family) if p.family == family] for family in FAMILIES}
FLOAT32 = TensorDataType.FLOAT32


def oracle_memory(problem: Problem) -> list[Array]:
    """What the oracle gives for a problem, as the memory of each output."""
    desc = problem.desc
    tensors = present(desc.output_slots())
    given = [logical(*pair) for pair in zip(problem.inputs(), present(desc.input_slots()), strict=True)]
    found = []
    for wanted, tensor in zip(_expected(desc, given), tensors, strict=True):
        memory = np.zeros(tensor.total_tensor_size_in_bytes, np.uint8)
        with np.errstate(all="ignore"):
            logical(memory, tensor)[...] = np.ma.getdata(wanted).astype(NUMPY_TYPES[tensor.data_type])
        found.append(memory)
    return found


@pytest.fixture(scope="module")
def onnxruntime_rival() -> rivals.Rival:
    return rivals.find(["onnxruntime"], quick=True)[0]["onnxruntime"]


def test_an_unknown_rival_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="torch, onnxruntime, ncnn"):
        rivals.find(["tensorrt"])


@pytest.mark.parametrize(("name", "package"), [("torch", "torch"), ("onnxruntime", "onnxruntime"), ("ncnn", "ncnn")])
def test_a_rival_that_is_not_installed_says_how_to_get_it(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = importlib.import_module

    def importing(wanted: str, *rest: Any) -> ModuleType:
        if wanted == package:
            raise ImportError(f"No module named {wanted!r}")
        return imported(wanted, *rest)

    importing("dmlvk_bench.rivals." + name + "_rival")
    monkeypatch.setattr(importlib, "import_module", importing)
    monkeypatch.setattr(importlib.util, "find_spec", lambda wanted: None)
    found, missing = rivals.find([name])
    assert not found
    assert f"pip install {package}" in missing[name]


def test_a_difference_is_relative_and_sees_what_is_no_number() -> None:
    inf, nan = np.inf, np.nan
    assert difference(np.array([[1.0, -200.0]]), np.array([[1.2, -200.0]])) == pytest.approx(1e-3)
    assert difference(np.array([nan, inf, 1.0]), np.array([nan, inf, 1.0])) == 0
    assert difference(np.array([nan, 1.0]), np.array([1.0, 1.0])) == inf
    assert difference(np.array([-inf, 1.0]), np.array([inf, 1.0])) == inf
    assert difference(np.array([2**62 + 1]), np.array([2**62])) == 0, "as far as float64 tells"
    assert difference(np.array([3], np.uint8), np.array([5], np.uint8)) == pytest.approx(0.4)
    long = np.zeros(300_000, np.float32)
    assert difference(long, np.where(np.arange(300_000) == 299_999, np.float32(2), long)) == 1


def test_runs_that_are_handed_over_together_are_waited_for_once() -> None:
    told: list[str] = []
    times = handed_over(QUICK_PACE, lambda: told.append("run"), lambda: told.append("wait"))
    rounds = "".join("r" if word == "run" else "w" for word in told).split("w")[:-1]
    assert len(set(rounds[2:])) == 1 and len(rounds[2]) > 1
    assert len(times) == len(rounds) - 2 and min(times) > 0


def test_large_arrays_travel_as_files_that_do_not_stay(tmp_path: pathlib.Path) -> None:
    large, small = np.arange(process.LARGE_BYTES // 4, dtype=np.int32).reshape(2, -1), np.arange(3)
    sent = process._filed(("load", {"x": large, "y": small}, [large, "text"]), str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2
    assert sent[0] == "load" and sent[1]["y"] is small and sent[2][1] == "text"
    word, feeds, (again, text) = process._mapped(pickle.loads(pickle.dumps(sent)))
    assert (word, text) == ("load", "text")
    for array in (feeds["x"], again):
        assert np.array_equal(array, large) and array.dtype == large.dtype
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_onnx_nodes_compute_what_the_problems_are(family: str, onnxruntime_rival: rivals.Rival) -> None:
    """Problems in float16 are left out: their nodes are those of float32."""
    ran = 0
    for problem in PROBLEMS[family]:
        node = onnx_nodes.node_of(problem.desc)
        if node is None or " FLOAT16 " in f"{problem.name} ":
            continue
        prepared = onnxruntime_rival.prepare(problem, problem.inputs())
        assert prepared is not None, f"{problem.name}: {onnxruntime_rival.failures}"
        wanted = oracle_memory(problem)
        assert prepared.compare(wanted) <= (0.0, problem.tolerance), problem.name
        memory = wanted[0].view(NUMPY_TYPES[present(problem.desc.output_slots())[0].data_type])
        memory[memory.size // 2] += 3
        assert prepared.compare(wanted)[1] > problem.tolerance, f"{problem.name}: a wrong element must show"
        prepared.close()
        ran += 1
    assert ran or family in WITHOUT_NODES, f"no problem of {family} is an ONNX node"


WITHOUT_NODES = (
    *("block_quantized", "chain", "compaction", "fold", "local_response_gradient", "normalization_gradient", "optimizer"),
    *("pooling_gradient", "random", "recurrent", "resample_gradient", "roi", "roi_gradient"),
)
OTHER_NODES = sorted(
    set(onnx_nodes._NODES) - {type(problem.desc).__name__ for problems in PROBLEMS.values() for problem in problems}
)


@pytest.mark.parametrize("name", OTHER_NODES)
def test_onnx_nodes_compute_what_the_cases_are(name: str, onnxruntime_rival: rivals.Rival) -> None:
    """The first case that has a node stands for each row that no problem measures."""
    row: type[OperatorDesc] = getattr(dmlvk, name)
    cases = all_cases()[row].cases
    if name == "ActivationHardSwish":  # whose numbers ONNX has built in
        cases = (dataclasses.replace(cases[0], attributes={"alpha": 1 / 6, "beta": 0.5}),)
    for case in cases:
        built = build(row, Variation(case, FLOAT32, "packed"))
        if onnx_nodes.node_of(built.desc) is not None:
            break
    else:
        pytest.fail(f"no case of {name} is an ONNX node")
    inputs = [np.ascontiguousarray(tensor.view()).reshape(-1) for tensor in built.inputs if tensor is not None]

    class _Case(Problem):
        def inputs(self) -> list[Array]:
            return inputs

    problem = _Case(name, built.desc, lambda *_: None, 0.0, 1)
    prepared = onnxruntime_rival.prepare(problem, inputs)
    assert prepared is not None, onnxruntime_rival.failures
    assert prepared.compare(oracle_memory(problem)) <= (0.0, 1e-5)
    prepared.close()


def _relu(sizes: tuple[int, ...], strides: tuple[int, ...] | None = None, **more: Any) -> OperatorDesc:
    tensor = TensorDesc(FLOAT32, sizes, strides)
    return dmlvk.ActivationRelu(input_tensor=tensor, output_tensor=tensor, **more)


def _not_said() -> Iterator[tuple[str, OperatorDesc]]:
    x, y = TensorDesc(FLOAT32, (2, 3)), TensorDesc(FLOAT32, (2, 3))
    yield "strides", _relu((2, 3), (4, 1))
    yield (
        "a fused activation",
        dmlvk.ElementWiseAdd1(a_tensor=x, b_tensor=x, output_tensor=y, fused_activation=dmlvk.ActivationRelu()),
    )
    yield "scale and bias", dmlvk.ElementWiseExp(input_tensor=x, output_tensor=y, scale_bias=dmlvk.ScaleBias(2.0, 1.0))
    yield "two axes", dmlvk.ActivationSoftmax1(input_tensor=x, output_tensor=y, axes=(0, 1))
    yield "no axes", dmlvk.Reduce(function=dmlvk.ReduceFunction.SUM, input_tensor=x, output_tensor=y, axes=())


@pytest.mark.parametrize(("what", "desc"), list(_not_said()), ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("of", [onnx_nodes.node_of, ncnn_layers.layer_of])
def test_what_a_rival_cannot_say_is_none_of_its_operations(
    what: str, desc: OperatorDesc, of: Callable[[OperatorDesc], object]
) -> None:
    assert of(desc) is None


def test_weights_are_constants_of_the_model() -> None:
    problem = next(p for p in PROBLEMS["convolution"] if " FLOAT32 " in p.name and "NCHW" in p.name)
    node = onnx_nodes.node_of(problem.desc)
    assert node is not None
    data, feeds = onnx_nodes.model_of(node, problem.inputs(), problem.desc)
    model = onnx.load_model_from_string(data)
    assert list(feeds) == ["x0"] and [tensor.name for tensor in model.graph.initializer] == ["x1"]


def test_a_net_of_copies_depends_on_all_of_them() -> None:
    relu = ncnn_layers.layer_of(_relu((4, 8192)))
    add = ncnn_layers.layer_of(next(p.desc for p in PROBLEMS["pointwise"] if p.name.startswith("add FLOAT32")))
    assert relu is not None and relu.in_place and add is not None and not add.in_place
    chain = ncnn_layers.network(relu, 3).splitlines()
    assert [line.split()[4:6] for line in chain if line.startswith("ReLU")] == [["m0", "y0"], ["y0", "y1"], ["y1", "y2"]]
    beside = ncnn_layers.network(add, 3).splitlines()
    assert [line.split()[4:7] for line in beside if line.startswith("BinaryOp")] == [
        [f"m0_{copy}", f"m1_{copy}", f"y{copy}"] for copy in range(3)
    ]
    assert [line.split()[4:7] for line in beside if line.startswith("Crop c")] == [["y0", "y1", "z1"], ["z1", "y2", "z2"]]
    for lines in (chain, beside):
        layers, blobs = map(int, lines[1].split())
        assert layers == len(lines) - 2
        assert blobs == len({name for line in lines[2:] for name in ncnn_layers._blobs(line)})
